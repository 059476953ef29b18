"""2:4 sparse operands of kernel ``tma``: the metadata of a stage."""
