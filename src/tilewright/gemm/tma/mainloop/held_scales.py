"""Registers for block scales where each of the tile's columns has one, of one configuration or of
columns of them.
"""

from __future__ import annotations

from typing import Any

from ...columns import larger, select
from ...problem import Problem
from ..tma_checks import Geometry, has_accumulator_sets

# Registers of a thread for accumulators and the scales of columns, with three consumers and with
# fewer; less some that a copy warp gets, that release stages of other CTAs, and that hold the rows
# of a group.
OF_3_CONSUMERS, OF_FEWER = 132, 212
COPY_REGISTERS, CLUSTER_REGISTERS, GROUP_REGISTERS = 8, 8, 4


def has_column_scales(problem: Problem, configs: Geometry) -> Any:
    """Whether each of the tile's columns has a scale."""
    scaling = problem.scaling
    return scaling is not None and select(configs.swap, scaling.rows == 1, scaling.columns == 1)


def held_scales(problem: Problem, configs: Geometry) -> Any:
    """Of how many times 8 columns registers hold the scales from one promotion to the next."""
    copied = problem.gathers or (problem.scaling is not None and problem.scaling.loaded_by_warp)
    taken = COPY_REGISTERS * copied + CLUSTER_REGISTERS * (configs.ctas > 1)
    taken = taken + GROUP_REGISTERS * problem.has_row_groups
    registers = select(configs.consumers > 2, OF_3_CONSUMERS, OF_FEWER) - taken
    totals_and_sets = select(has_accumulator_sets(problem, configs), 3, 2)
    return larger(registers - configs.accumulator_registers * totals_and_sets, 0) // 2
