"""Accumulation in place: the operand that is the array of D, and that D is a sum with.

A kernel may then add to D in memory and need not read the operand. Only addresses tell whether two
arrays are the same, so every call compares them: its request names the operand
(``Request.accumulated``), and one with another array in its place is another request.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....gemm.epilogue.graph import ACCUMULATED_TYPE, EpilogueGraph, without_sum
from ...arrays.array_view import ArrayView
from ..request import GroupRequest
from .array_operand import ArrayOperand
from .output_overlap import same_elements


def is_accumulated(c: ArrayView | None, d: ArrayView | None) -> bool:
    """Whether an operand is the caller's array of D, of the type that kernels add to in memory."""
    if c is None or d is None:
        return False
    return c.dtype == d.dtype == ACCUMULATED_TYPE and same_elements(c, d)


def accumulated_operand(
    graph: EpilogueGraph,
    arrays: Mapping[str, ArrayOperand],
    d: ArrayView | None,
    groups: GroupRequest | None,
) -> str:
    """The name of the operand that is ``d``, a matrix or a stack, where ``graph`` computes D as a
    sum with it; empty if there is none, or if rows of D are scattered.
    """
    if groups is not None and groups.d_rows is not None:
        return ""
    gathered = groups.gathered if groups is not None else ()
    names = (name for name, x in arrays.items() if is_accumulated(x.view, d))
    return next((x for x in names if x not in gathered and without_sum(graph, x)), "")
