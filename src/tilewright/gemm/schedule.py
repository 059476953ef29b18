"""Which tile of D comes when.

Tiles are walked down a group of rows, then on to the next column: neighbours in time share A and B
in the L2. A cluster takes a block of tiles, ``cluster`` of them; CTA after CTA of it one each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..build import Builder
from .tma_config import TmaConfig


def place(k: Builder, index: Any, rows: Any, columns: Any, group: int) -> tuple[Any, Any]:
    """(row, column) of the ``index``-th of rows × columns tiles, by groups of rows."""
    in_group = columns * group
    number, within = index // in_group, index % in_group
    first = number * group
    height = k.min(rows - first, group)
    return first + within % height, within // height


class Schedule:
    """A CTA's tiles, one after another: a place on the machine for each, strided by their number.

    ``m``, ``n``: of the product. ``down``, ``across``: where in the cluster the CTA is.
    """

    def __init__(self, k: Builder, config: TmaConfig, m: Any, n: Any, batches: Any) -> None:
        self.k, self.config, self.batches = k, config, batches
        bm, bn, _ = config.tile
        cm, cn = config.cluster
        self.rows = (m + (bm * cm - 1)) // (bm * cm)
        self.columns = (n + (bn * cn - 1)) // (bn * cn)
        rank = k.cluster_rank if config.ctas > 1 else None
        self.down, self.across = (rank % cm, rank // cm) if cm * cn > 1 else (0, 0)

    def walk(self, do: Callable[[Any, Any, Any], None], first: Any = 0, every: int = 1) -> None:
        """``do(row, column, batch)`` for tile after tile, where each begins in D; from the CTA's
        ``first`` on, ``every`` so many.
        """
        k, config = self.k, self.config
        bm, bn, _ = config.tile
        cm, cn = config.cluster
        clusters, index = k.nctaid.x // config.ctas, k.ctaid.x // config.ctas
        index = k.var(index + first * clusters)
        area = self.rows * self.columns
        count = area if self.batches is None else area * self.batches
        with k.while_(lambda: index < count):
            batch, within = None, k.mov(index)
            if self.batches is not None:
                batch, within = index // area, index % area
            row, column = place(k, within, self.rows, self.columns, config.group)
            if cm * cn > 1:
                row, column = row * cm + self.down, column * cn + self.across
            do(row * bm, column * bn, batch)
            index += clusters * every
