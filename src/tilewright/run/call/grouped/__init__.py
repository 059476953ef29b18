"""Grouped products: the sizes of groups, and the call ``grouped_matmul``."""
