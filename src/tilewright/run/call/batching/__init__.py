"""Operands with any number of batch dimensions, by NumPy's rules."""
