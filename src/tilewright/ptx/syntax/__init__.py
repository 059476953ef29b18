"""PTX text to tree and back: lexer, recursive-descent parser, printer."""
