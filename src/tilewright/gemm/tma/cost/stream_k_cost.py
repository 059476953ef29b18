"""Cost of stream-K: the k-blocks of a range, and the exchange of partial accumulators.

The seconds are fitted to 112 times of 14 problems on an H200, of tiles of 128×128.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...columns import Column, tile_count
from ...problem import Problem
from ..stream_k.stream_k_tile_scheduler import FIRST_K_BLOCKS, tiles_of_group
from ..tma_columns import TmaColumns

EXCHANGE = 0.4e-6  # seconds: the reset of the flags, where whole tiles overlap the exchange
LATE_EXCHANGE = 1.9e-6  # more where the exchange is last
PARTIAL_BYTE = 2.1e-11  # seconds for each byte of a partial accumulator that an owner adds
# Times as long as estimated, so that it is chosen where it gains more than estimates err.
MARGIN = 1.01


def tail_blocks(
    configs: TmaColumns, tiles: Column, resident: Column, k_blocks: Column, others: Column
) -> Column:
    """The k-blocks of a cluster in the tail wave: of stream-K its range's, else ``others``."""
    if not configs.stream_k.any():
        return others
    clusters = np.maximum(configs.stream_k, 1)
    blocks = -(-tiles_of_group(tiles, resident, clusters) * k_blocks // clusters)
    return np.where(configs.stream_k > 0, blocks, others)


def with_margin(configs: TmaColumns, seconds: Column) -> Column:
    """The estimates, of stream-K with the margin."""
    return np.where(configs.stream_k > 0, seconds * MARGIN, seconds)


def exchange_seconds(problem: Problem, configs: TmaColumns, costs: Any) -> Any:
    """Seconds of the exchange: an owner adds the partial accumulators of other ranges. ``costs``:
    the ``TileCosts`` of the candidates.
    """
    if not configs.stream_k.any():
        return 0.0
    tiles = tile_count(problem, *configs.tile_grid(problem))
    clusters, resident = np.maximum(configs.stream_k, 1), costs.resident
    each = tiles_of_group(tiles, resident, clusters)
    others = np.maximum(-(-clusters // np.maximum(each, 1)) - 1, 1)
    is_first = (each == 1) & (problem.k <= FIRST_K_BLOCKS * configs.tile[2])
    late = np.where(is_first & (tiles > resident), 0.0, LATE_EXCHANGE)
    seconds = EXCHANGE + late + others * costs.partial_bytes * PARTIAL_BYTE
    return np.where((configs.stream_k > 0) & (each > 0), seconds, 0.0)
