"""Reductions as outputs of an epilogue: values of D's shape combined along axes of D.

``axis`` counts from the end, since D may have a batch: −1 combines the elements of a row (one value
for each row), −2 those of a column, (−2, −1) those of each matrix, None all. A maximum does not
depend on the order; a sum is accumulated in an order that the kernel's configuration determines.
"""

from __future__ import annotations

from typing import Any

from ....errors import EpilogueError
from ..graph import BITMASK
from ..traced_reduction import TracedReduction
from ..tracing import TracedValue
from .elementwise import elementwise, single

Axis = int | tuple[int, ...] | None
_DIMENSIONS = {-1: "n", -2: "m", -3: "b"}


@elementwise
def sum(x: Any, axis: Axis = None) -> Any:
    """The sum of ``x`` along an axis: an output. On arrays it is rounded once.

    Raises EpilogueError for an axis other than −1, −2, −3, a tuple of them, or None.
    """
    return _reduction(x, "sum", axis)


@elementwise
def max(x: Any, axis: Axis = None) -> Any:
    """The largest ``x`` along an axis: an output; a NaN if one is a NaN. Raises EpilogueError."""
    return _reduction(x, "max", axis)


@elementwise
def amax(x: Any, axis: Axis = None) -> Any:
    """The largest magnitude |x| along an axis, for scales of 8-bit floats: an output; a NaN if one
    is a NaN. Raises EpilogueError.
    """
    return _reduction(abs(x), "max", axis)


@elementwise
def bitmask(condition: Any) -> Any:
    """A condition in one bit per element, 8 columns to a byte: an output, u8 of shape (M, ⌈N/8⌉).
    Bit i of byte j is column 8 j + i. Passed as an operand it is the condition again; columns must
    be more than 8 then. Raises EpilogueError.
    """
    if not isinstance(condition, TracedValue) or condition.dtype != "pred":
        raise EpilogueError(f"bitmask must be of a condition, got {condition!r:.60}")
    return TracedReduction(condition, BITMASK, "")


def _reduction(x: Any, reduction: str, axis: Axis) -> TracedReduction:
    if not isinstance(x, TracedValue) or x.dtype == "pred":
        raise EpilogueError(f"a {reduction} takes a value of the epilogue, got {x!r:.60}")
    return TracedReduction(single(x, reduction), reduction, _reduced(axis))


def _reduced(axis: Axis) -> str:
    """The dimensions of D that an axis names."""
    if axis is None:
        return "bmn"
    axes = axis if isinstance(axis, tuple) else (axis,)
    if not axes or any(a not in _DIMENSIONS for a in axes):
        raise EpilogueError(f"axis must be -1 (along rows), -2, -3 or None, got {axis!r:.40}")
    dimensions = {_DIMENSIONS[a] for a in axes}
    return "".join(d for d in "bmn" if d in dimensions)
