"""Reductions of an epilogue in kernel ``tma``: a unit is a warp's part of an epilogue tile: 16
rows, the width of the tile.
"""

from __future__ import annotations

from ..problem import Problem
from .tma_config import TmaConfig

WARP_ROWS = 16  # rows of a wgmma's accumulator that a warp holds


def unit_shape(problem: Problem, config: TmaConfig) -> tuple[int, int]:
    """Rows and columns of D in a unit."""
    width = config.graph_epilogue_width(problem)
    return (width, WARP_ROWS) if config.swap else (WARP_ROWS, width)
