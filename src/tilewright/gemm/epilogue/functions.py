"""Functions for epilogues: extremes, clamping, exponentials, activations, reductions.

They take values of a traced epilogue function and give such values. On plain arrays and numbers
they compute the same bits with NumPy, in f32. The rounding of every step is part of the function.
"""

from __future__ import annotations

from typing import Any

from .tracing import TracedReduction, TracedValue, apply


def where(condition: TracedValue, x: Any, y: Any) -> TracedValue:
    """``x`` where the condition holds, else ``y``."""
    return apply("select", condition, x, y)


def maximum(x: Any, y: Any) -> TracedValue:
    """The larger of two; a NaN if one is a NaN (f32). +0 is above −0."""
    return _extreme("max", x, y)


def minimum(x: Any, y: Any) -> TracedValue:
    """The smaller of two; a NaN if one is a NaN (f32). −0 is below +0."""
    return _extreme("min", x, y)


def _extreme(name: str, x: Any, y: Any) -> TracedValue:
    types = {v.dtype for v in (x, y) if isinstance(v, TracedValue)}
    return apply(f"{name}_nan" if "f32" in types and "f64" not in types else name, x, y)


def relu(x: TracedValue) -> TracedValue:
    """max(x, 0); a NaN stays a NaN."""
    return maximum(x, 0)


def amax(x: TracedValue) -> TracedReduction:
    """The largest magnitude of all elements of D, f32: an output of one element."""
    return TracedReduction(abs(x), "max", "bmn")
