"""Reductions of an epilogue in kernel ``tma``: a unit is what a warp has of an epilogue tile, 16
rows of the tile by its width.
"""

from __future__ import annotations

from ..epilogue.reductions import ReductionRegion, reduction_regions
from ..problem import Problem
from .dynamic_tile_scheduler import workspace_bytes as counter_bytes
from .tma_config import TmaConfig

WARP_ROWS = 16  # rows of a wgmma's accumulator that a warp holds


def unit_shape(problem: Problem, config: TmaConfig) -> tuple[int, int]:
    """Rows and columns of D in a unit."""
    width = config.graph_epilogue_width(problem)
    return (width, WARP_ROWS) if config.swap else (WARP_ROWS, width)


def regions(problem: Problem, config: TmaConfig) -> tuple[ReductionRegion, ...]:
    """Where the partial results of all reductions are."""
    if problem.epilogue is None or not problem.epilogue.partial_reductions:
        return ()
    return reduction_regions(problem, *unit_shape(problem, config))


def regions_offset(config: TmaConfig) -> int:
    """Bytes of the workspace before the first region: the counter of a dynamic tile scheduler."""
    return counter_bytes(config)


def workspace_bytes(problem: Problem, config: TmaConfig) -> int:
    """Bytes of all regions."""
    return max((region.end for region in regions(problem, config)), default=0)
