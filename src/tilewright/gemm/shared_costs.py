"""Costs that the cost models of all kernels share; ``benchmarks/NOTES.md`` has the measurements."""

from __future__ import annotations

from .problem import Problem

CYCLE = 1 / 1.82e9  # seconds
L2_BYTES = 71  # bytes per cycle that an SM loads from the L2
MEMORY_BYTE = 1 / 4.0e12  # seconds
CP_ASYNC_LAUNCH = 2.5e-6  # seconds to launch a kernel that copies by cp.async
RELAYOUT, RELAYOUT_BYTE = 2.0e-6, 1 / 2.5e12  # seconds


def needs_relayout(problem: Problem, relaid: Problem, name: str) -> bool:
    """Whether ``a`` or ``b`` must be copied to the layout of ``relaid``, the same problem after
    relayout.
    """
    fields = f"{name}_major", f"align_{name}"
    return any(getattr(problem, field) != getattr(relaid, field) for field in fields)


def relayout_seconds(problem: Problem, relaid: Problem) -> float:
    """Seconds of the relayout of A and B."""
    rows = {"a": problem.m, "b": problem.n}
    copied = sum(rows[x] for x in rows if needs_relayout(problem, relaid, x)) * problem.batch
    if not copied:
        return 0.0
    return RELAYOUT + 2 * copied * problem.k * problem.input.bits / 8 * RELAYOUT_BYTE
