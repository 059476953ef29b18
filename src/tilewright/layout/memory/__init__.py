"""Layouts as memory accesses: bank conflicts, sectors, coalescing, vector widths."""
