"""Cost of block scales, which math warps of kernel ``tma`` read from shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...block_scaling import BLOCK
from ...columns import power_of_two_divisor, select
from ...problem import Problem
from ..tma_columns import TmaColumns

# Cycles of a k-block:
SCALE_UNIT = {64: 10, 32: 45, 16: 45, 8: 45}  # for each unit of these columns but one
SCALE_COLUMN = 1.8  # and a warpgroup, for each column that has block scales of its own


def scale_reads(problem: Problem, configs: TmaColumns) -> Any:
    """Cycles of a k-block in which math warps read block scales: of units of columns, which surely
    lie in one block, or of columns. If both sides have single scales, all tiles read alike.
    """
    scaling = problem.scaling
    if scaling is None or scaling.rows == scaling.columns == 1:
        return 0.0
    matrices = select(configs.swap, 1, 2 if problem.pair else 1)
    bn = configs.tile[1] // matrices
    single = select(configs.swap, scaling.rows == 1, scaling.columns == 1)
    unit = power_of_two_divisor(bn, BLOCK)
    each = sum(np.where(unit == size, cost, 0) for size, cost in SCALE_UNIT.items())
    warpgroups = np.where(configs.pingpong, 1, configs.consumers)
    units = matrices * bn // unit
    return np.where(single, SCALE_COLUMN * configs.tile[1] * warpgroups, each * (units - 1))
