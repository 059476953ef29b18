"""How rows of A and B lie to the L2's lines of 128 bytes."""

from __future__ import annotations

from ...columns import power_of_two_divisor
from ...problem import Problem
from ...shared_costs import needs_relayout
from ..tma_config import relayout_problem
from ..tma_geometry import SWIZZLE_BYTES


def pitch_divisor(problem: Problem, name: str) -> int:
    """The power of two, 16 to 128 bytes, that divides the pitch of A or B; of packed rows."""
    if needs_relayout(problem, relayout_problem(problem), name):
        return SWIZZLE_BYTES
    k_major = getattr(problem, f"{name}_major") == "k"
    length = problem.k if k_major else {"a": problem.m, "b": problem.n}[name]
    pitch: int = power_of_two_divisor(length * problem.input.bits // 8, SWIZZLE_BYTES)
    return max(pitch, 16)


def straddles(problem: Problem) -> bool:
    """Whether rows of A or B, as the kernel reads them, begin inside of an L2 request's bytes."""
    return min(pitch_divisor(problem, name) for name in "ab") < SWIZZLE_BYTES
