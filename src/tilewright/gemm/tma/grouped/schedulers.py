"""The tile scheduler of a problem with groups."""

from __future__ import annotations

from typing import Any

from ....builder import Builder
from ...grouping import Grouping
from ..tile_scheduler import TileScheduler
from ..tma_arguments import GroupedParameters
from ..tma_config import TmaConfig
from .grouped_tile_scheduler import GroupedTileScheduler
from .k_grouped_tile_scheduler import KGroupedTileScheduler


def grouped_tile_scheduler(
    k: Builder, grouping: Grouping, config: TmaConfig, p: GroupedParameters, k_blocks: Any
) -> TileScheduler:
    """The tile scheduler by the dimension that is divided. ``k_blocks``: of a product of rows."""
    if grouping.along == "k":
        return KGroupedTileScheduler(grouping, p.groups, p.batches, k, config, p.m, p.n, p.k)
    return GroupedTileScheduler(grouping, p.groups, p.batches, k, config, p.m, p.n, k_blocks)
