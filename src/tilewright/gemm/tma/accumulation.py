"""Accumulation in place: D becomes a sum with an operand that is D's own memory.

The epilogue of kernel ``tma`` does not read that operand: its tensor copies add the rest of the sum
to D in memory (``cp.reduce.async.bulk.tensor``). All other kernels read it, as any operand.
"""

from __future__ import annotations

from dataclasses import replace

from ..cost_model import AnyConfig
from ..problem import Problem
from .tma_config import TmaConfig


def accumulates(problem: Problem, config: AnyConfig) -> bool:
    """Whether the kernel of this configuration adds to D, at least in some work tiles. A split-K
    reduction, which stores D where every tile is split, does not.
    """
    if not problem.accumulates or not isinstance(config, TmaConfig):
        return False
    return bool(config.in_cluster or not config.stores_partial)


def without_accumulation(problem: Problem) -> Problem:
    """The same problem, whose kernel reads all operands."""
    epilogue = problem.epilogue and replace(problem.epilogue, accumulated="")
    return replace(problem, epilogue=epilogue, accumulates_c=False)
