"""What differs in the costs of products of groups: loads of their tiles, and clusters."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...columns import Column, select
from ...problem import Problem
from ..tma_columns import TmaColumns

GROUP_LOADED_BYTE = 1 / 200e12  # seconds for a byte that a tile of groups loads, at least
APART = 0.2  # cycles of a k-block, for each row and column of a tile


def group_loads(problem: Problem, configs: TmaColumns) -> Column:
    """Seconds of memory traffic that the loads of all tiles of groups take, each of which reads A
    again.
    """
    down, across = configs.tile_grid(problem)
    (bm, bn, _), (cm, cn) = configs.tile, configs.cluster
    loaded = problem.batch * down * across * cm * cn * (bm + bn) * problem.k
    seconds: Column = loaded * (problem.input.bits / 8 * GROUP_LOADED_BYTE)
    return seconds


def waits_apart(problem: Problem, configs: TmaColumns) -> Any:
    """Cycles of a k-block that CTAs wait for loads where a group with block scales has tiles for
    several waves, unless clusters of two keep them together. Clusters along the rows of groups, the
    number of whose tiles may be odd, count as none.
    """
    if problem.groups is None or problem.scaling is None:
        return np.zeros(len(configs))
    along_rows = select(configs.swap, configs.cluster[1], configs.cluster[0])
    together = configs.ctas > (along_rows if problem.has_row_groups else 1)
    bm, bn, _ = configs.tile
    return np.where(together, 0.0, APART * (bm + bn))
