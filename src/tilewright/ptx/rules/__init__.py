"""The rules of PTX: checker, scopes, operand and call rules, version and target requirements."""
