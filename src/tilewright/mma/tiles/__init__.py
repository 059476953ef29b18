"""Atoms, tiled MMAs and tiled copies as layouts, and shared-memory layouts for them."""
