"""Cost of block scales, which math warps of kernel ``tma`` read from shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...block_scaling import BLOCK
from ...columns import power_of_two_divisor, select
from ...problem import Problem
from ..mainloop.held_scales import has_column_scales
from ..tma_checks import has_accumulator_sets
from ..tma_columns import TmaColumns
from ..tma_geometry import WGMMA_ROWS

WARPS = 4  # of a warpgroup
SHARED_BYTES = 128  # of shared memory per cycle
# Cycles of a k-block:
# For each unit of these columns but one, with one warpgroup and with several
SCALE_UNIT = {64: (10, 27), 32: (45, 45), 16: (45, 45), 8: (45, 45)}
# In parts of K, several warpgroups read one to a uniform register, for which a wgmma waits
SCALE_UNIFORM = 40
SCALE_WORD = 0.25  # where each column has a scale: for a word of 32 threads
SCALE_PRODUCT = 2.1  # and for a product of two scales in the threads of a warp of each quarter SM


def scale_reads(problem: Problem, configs: TmaColumns) -> Any:
    """Cycles of a k-block in which math warps read block scales: of units of columns, which surely
    lie in one block, or of columns.
    """
    scaling = problem.scaling
    if scaling is None:
        return 0.0
    matrices = select(configs.swap, 1, 2 if problem.pair else 1)
    bn = configs.tile[1] // matrices
    unit = power_of_two_divisor(bn, BLOCK)
    each = sum(
        np.where(unit == size, np.where(configs.consumers > 1, several, one), 0)
        for size, (one, several) in SCALE_UNIT.items()
    )
    units = matrices * bn // unit
    uniform = np.where((configs.split > 1) & (configs.consumers > 1), SCALE_UNIFORM, 0)
    read = each * (units - 1) + uniform
    return np.where(has_column_scales(problem, configs), _column_reads(problem, configs), read)


def _column_reads(problem: Problem, configs: TmaColumns) -> Any:
    """Cycles where each column has a scale, which the 64-row blocks of a warpgroup share, and where
    the halves of a warpgroup's columns alternate, those in which wgmma reads its rows once more.
    """
    assert problem.scaling is not None
    single_rows = select(configs.swap, problem.scaling.columns == 1, problem.scaling.rows == 1)
    warpgroups = np.where(configs.pingpong, 1, configs.consumers)
    blocks, width = configs.warpgroup_rows // WGMMA_ROWS, configs.tile[1]
    words = warpgroups * WARPS * (width // 4 + blocks * (1 + single_rows))
    products = warpgroups * configs.accumulator_registers * (1 + single_rows) / 2
    halves = (blocks == 1) & ~has_accumulator_sets(problem, configs)
    again = halves * warpgroups * (WGMMA_ROWS * BLOCK / SHARED_BYTES)
    return SCALE_WORD * words + again + SCALE_PRODUCT * products
