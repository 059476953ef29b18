"""Configurations of kernel ``multistage`` for stacks of tiny matrices: a tile has all of D, a CTA
has one or two warps, and many CTAs are resident.
"""

from __future__ import annotations

from ...target import DeviceSpec
from ..problem import Problem
from .multistage_config import Config

TABLE = Config((32, 32, 32), (1, 2), 1, ctas=16), Config((16, 16, 32), (1, 1), 1, ctas=32)
MOST_ROWS = 32  # of A, and columns of B


def is_stack_of_tiny(problem: Problem) -> bool:
    """Whether the problem is a stack of dense 16-bit matrices of which a tile has all of D."""
    dense = problem.input.bits == 16 and not problem.sparse
    return dense and problem.batch > 1 and max(problem.m, problem.n) <= MOST_ROWS


def stack_configs(device: DeviceSpec) -> list[Config]:
    """Those whose CTAs the device has resident."""
    return [config for config in TABLE if config.ctas <= device.limits.blocks_per_sm]
