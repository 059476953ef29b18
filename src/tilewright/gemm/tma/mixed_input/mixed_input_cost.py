"""Cost of a k-block with prepared weights, fitted to 30 measurements on an H200 (``NOTES.md``).

The tensor cores multiply for all warpgroups; a warpgroup converts, waits and promotes in between,
one after the other. Both bound a k-block.
"""

from __future__ import annotations

import numpy as np

from ....quantization.conversions import fastest
from ....quantization.weight_format import UNIT_K, WeightFormat
from ...columns import Column
from ..tma_columns import TmaColumns
from ..tma_geometry import WGMMA_ROWS

# Cycles of a warpgroup:
K_BLOCK = 215
UNIT = 96  # without the conversion, an instruction a cycle
BLOCK = 250  # of each row block but the first
SLICED = 1.4  # times as many with sliced-K, where warpgroups share the issue slots
GROUP = 60  # of each group of a unit but the first, without an FMA for each accumulator


def with_conversion(weights: WeightFormat, configs: TmaColumns, wgmma: Column) -> Column:
    """Cycles of a k-block; ``wgmma``: those of the tensor cores."""
    bn, bk = configs.tile[1:]
    blocks = configs.warpgroup_rows // WGMMA_ROWS
    units = blocks * (bk // weights.unit_k)
    recipe = fastest(weights.type, weights.operand, weights.zero)
    words = WGMMA_ROWS * UNIT_K // 128 // recipe.elements
    groups = (weights.groups - 1) * (GROUP + bn / 2)
    unit = UNIT + words * recipe.instructions + 4 * bn + groups
    chain = (K_BLOCK + BLOCK * (blocks - 1) + units * unit) / configs.slices
    chain = np.where(configs.slices > 1, SLICED * chain, chain)
    cycles: Column = np.cbrt(wgmma**3 + chain**3)
    return cycles
