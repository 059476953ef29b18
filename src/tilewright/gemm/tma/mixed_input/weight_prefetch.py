"""Prefetch of prepared weights to the L2, before prior grids end.

A CTA prefetches the first k-blocks of its first work tile as soon as it starts, while another warp
initializes the barriers. So they are in the L2, or on the way, when the wait for prior grids ends
and the producer loads them. A prefetch changes no value, and what a prior grid writes after it is
written to the L2, too: it needs no promise. More bytes would delay the prior grid's loads. Tiles of
more columns wait for tensor cores, not for memory.
"""

from __future__ import annotations

from ....builder import Builder
from ...problem import Problem
from ..launch.tma_parameters import TmaParameters, WeightParameters
from ..stage_operands import SharedStages
from ..tile_scheduler import TileScheduler
from ..tma_config import TmaConfig
from ..tma_operand import operands
from .unit_copy import unit_copy

PREFETCH_THREAD = 32  # the first of a warp that initializes nothing
PREFETCHED_BYTES = 34 << 10  # of a CTA, but a k-block at least
MOST_COLUMNS = 32  # of a tile


def prefetched_k_blocks(problem: Problem, config: TmaConfig) -> int:
    """K-blocks of its first work tile that a CTA prefetches, at most. 0 unless it has prepared
    weights, memory bounds the product, and that tile is known before prior grids end.
    """
    known = problem.groups is None and not config.dynamic and not config.stream_k
    if problem.weights is None or config.tile[1] > MOST_COLUMNS or not known:
        return 0
    left, _ = operands(problem, config)
    return max(1, PREFETCHED_BYTES // left.bytes)


def prefetch_weights(
    k: Builder, problem: Problem, config: TmaConfig, p: TmaParameters, scheduler: TileScheduler,
    stages: SharedStages,
) -> None:  # fmt: skip
    """Prefetch the weights of the first k-blocks. One thread calls it."""
    assert isinstance(p, WeightParameters)
    tile = scheduler.first_work_tile()
    copy = unit_copy(k, problem, config, p, scheduler, stages)
    copy.begin(tile)
    k_blocks = prefetched_k_blocks(problem, config)
    with k.if_(tile.k_blocks != 0):
        copy.prefetch(tile.first_k_block, k.min(tile.k_blocks, k_blocks))
