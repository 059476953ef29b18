"""The operand of an epilogue that D is accumulated to: the array of D itself.

Only addresses tell, so each call is examined: a call with another array of the same shape and type
poses another problem.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....gemm.epilogue.graph import ACCUMULATED_TYPE, EpilogueGraph, without_sum
from ...arrays.array_view import ArrayView
from ..request import GroupRequest
from .array_operand import ArrayOperand, Strides3


def accumulated_operand(
    graph: EpilogueGraph,
    arrays: Mapping[str, ArrayOperand],
    d: ArrayView | None,
    groups: GroupRequest | None,
) -> str:
    """The name of the array that is ``d``, the caller's matrix or stack, if ``graph`` is a sum with
    it; empty: there is none, or rows of D are scattered.
    """
    if (
        d is None
        or d.dtype != ACCUMULATED_TYPE
        or (groups is not None and groups.d_rows is not None)
    ):
        return ""
    strides = _strides(d)
    for name, x in arrays.items():
        same = (x.view.address, x.strides, x.type) == (d.address, strides, ACCUMULATED_TYPE)
        if same and not (groups and name in groups.gathered) and without_sum(graph, name):
            return name
    return ""


def _strides(d: ArrayView) -> Strides3:
    """The strides along M, N and the batch: 0 of a dimension of one element, as of an operand."""
    kept = [0 if n == 1 else stride for n, stride in zip(d.shape, d.strides, strict=True)]
    return kept[-2], kept[-1], kept[0] if len(kept) == 3 else 0
