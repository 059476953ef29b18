"""Layers as modules, and ``replace``, which swaps those of a model."""
