"""Cost of a k-block with prepared weights, fitted to 30 measurements on an H200, and what clusters
save, fitted to 20 others (``NOTES.md``).

The tensor cores multiply for all warpgroups; a warpgroup converts, waits and promotes in between,
one after the other. Both bound a k-block.
"""

from __future__ import annotations

import numpy as np

from ....quantization.conversions import fastest
from ....quantization.weight_format import UNIT_K, WeightFormat
from ...columns import Column
from ...problem import Problem
from ..tma_columns import TmaColumns
from ..tma_geometry import WGMMA_ROWS

# Cycles of a warpgroup:
K_BLOCK = 215
UNIT = 96  # without the conversion, an instruction a cycle
BLOCK = 250  # of each row block but the first
SLICED = 1.4  # times as many with sliced-K, where warpgroups share the issue slots
GROUP = 60  # of each group of a unit but the first, without an FMA for each accumulator
# Of each accumulator, sum and fragment with float zero points that registers do not hold: they are
# stored and loaded about three times in a k-block.
HELD, SPILLED = 176, 27
RECEIVED = 0.36  # fewer, of each row that a CTA receives by multicast, not by a request to the L2
# Seconds of each accumulator of a tile that a warpgroup hands over, where warpgroups divide a pair
# of matrices: only one of them then has the epilogue.
HANDED = 2e-10
# Seconds of the exchange of split-K in clusters, and for each of a tile's accumulators; from the
# times of tiles with and without it ("split-K by 2 in clusters" in benchmarks/NOTES.md).
EXCHANGE, EXCHANGED = 8e-7, 4e-11


def with_conversion(
    weights: WeightFormat, configs: TmaColumns, wgmma: Column
) -> tuple[Column, Column]:
    """Cycles of a k-block, and the products that the tensor cores multiply, per product of the
    weights. ``wgmma``: cycles of those of the weights.
    """
    bn, bk = configs.tile[1:]
    blocks = configs.warpgroup_rows // WGMMA_ROWS
    units = blocks * (bk // weights.unit_k)
    recipe = fastest(weights.type, weights.operand, weights.zero)
    words = WGMMA_ROWS * UNIT_K // 128 // recipe.elements
    groups = (weights.groups - 1) * (GROUP + bn / 2)
    sharing = blocks if weights.shares_sums else np.ones_like(blocks)
    products: Column = 1 + weights.has_float_zeros / sharing  # those of sums are by ones
    unit = UNIT + words * recipe.instructions + 4 * bn * products + groups
    chain = (K_BLOCK + BLOCK * (blocks - 1) + units * unit) / configs.slices
    if weights.has_float_zeros:
        chain = chain + units * weights.groups * bn / 2 / configs.slices
        spilled = np.maximum(0, configs.weight_registers(weights) - HELD)
        chain = chain + SPILLED * spilled
    chain = np.where(configs.slices > 1, SLICED * chain, chain)
    cycles: Column = np.cbrt((products * wgmma) ** 3 + chain**3)
    return cycles, products


def handover_seconds(problem: Problem, configs: TmaColumns) -> Column:
    """Seconds of a tile's accumulators of the second matrix, which wait for the first ones'."""
    elements = WGMMA_ROWS * configs.tile[1]
    seconds: Column = HANDED * elements * configs.divides_pair(problem)
    return seconds


def joined_seconds(configs: TmaColumns) -> Column:
    """Seconds until two CTAs that have the parts of a tile's k-blocks have added their
    accumulators.
    """
    bm, bn, _ = configs.tile
    seconds: Column = (EXCHANGE + EXCHANGED * bm * bn) * configs.in_cluster
    return seconds


def saved_by_multicast(
    problem: Problem, configs: TmaColumns, requests: tuple[Column, Column]
) -> Column:
    """Cycles of a k-block that loads of CTAs wait less because a cluster requests rows of the
    activations or of the weights once. Not in the first wave, where neighbours request the same
    rows at the same time anyway; and not of groups, where clusters of two were slower.

    ``requests``: rows of A and of B that a CTA requests.
    """
    if problem.weights is None or problem.groups is not None:
        return np.zeros(len(configs))
    (cm, cn), (a, b) = configs.cluster, requests  # along M of the tile: they share A
    cycles: Column = RECEIVED * ((cm - 1) * a + (cn - 1) * b)
    return cycles
