"""Which tile of D comes when.

Tiles are walked down a group of rows, then on to the next column: neighbours in time share A and B
in the L2. A cluster takes a block of tiles, ``cluster`` of them; CTA after CTA of it one each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...builder import Builder
from .tma_config import TmaConfig


def tile_coordinates(
    k: Builder, index: Any, rows: Any, columns: Any, group: int
) -> tuple[Any, Any]:
    """(row, column) of the ``index``-th of rows × columns tiles, by groups of rows."""
    in_group = columns * (k.min(rows, group) if group > 1 else 1)  # more would pass 2^32
    number, within = index // in_group, index % in_group
    first = number * group
    height = k.min(rows - first, group)
    return first + within % height, within // height


class WorkTileInfo(NamedTuple):
    """A piece of work: the tile that begins at (``row``, ``column``) of D's ``batch``-th, ``steps``
    of K from the ``first`` on. ``part``: where its sums go, if they are not all; -1 if they are.
    """

    row: Any
    column: Any
    batch: Any
    first: Any
    steps: Any
    part: Any


class TileScheduler:
    """A CTA's work, one piece after another, strided by the number of places on the machine.

    ``m``, ``n``: of the product, ``steps`` along its K. ``whole``: pieces that come first and are
    not cut; ``cut``: the others, 1 at least. ``down``, ``across``: where in the cluster the CTA is.
    """

    def __init__(
        self, k: Builder, config: TmaConfig, m: Any, n: Any, steps: Any, batches: Any, whole: Any
    ) -> None:
        self.k, self.config, self.batches, self.steps = k, config, batches, steps
        bm, bn, _ = config.tile
        cm, cn = config.cluster
        self.rows = (m + (bm * cm - 1)) // (bm * cm)
        self.columns = (n + (bn * cn - 1)) // (bn * cn)
        self.area = self.rows * self.columns
        self.count = self.area if batches is None else self.area * batches
        self.whole = whole if config.split > 1 else None
        if self.whole is not None:
            cut = self.count - whole
            self.count = whole + cut * config.split
            self.cut = k.max(cut, 1)
        self.rank = k.cluster_rank if config.ctas > 1 else 0
        self.down, self.across = (self.rank % cm, self.rank // cm) if cm * cn > 1 else (0, 0)
        self.every = k.nctaid.x // config.ctas

    def walk(self, do: Callable[[WorkTileInfo, Any], None], first: Any = 0, turns: int = 1) -> None:
        """``do(work, steps of the next piece of this CTA)``, from its ``first`` on, each of
        ``turns`` in turn.
        """
        k = self.k
        index = k.var(k.ctaid.x // self.config.ctas + first * self.every)
        with k.while_(lambda: index < self.count):
            following = self._cut(index + self.every)[2] if turns > 1 else None
            do(self.work(index), following)
            index += self.every * turns

    def produce(self, do: Callable[[WorkTileInfo, Any], None]) -> None:
        """The same for the warp that copies: all pieces."""
        self.walk(do)

    def work(self, index: Any) -> WorkTileInfo:
        """The ``index``-th piece of all."""
        tile, first, steps, part = self._cut(index)
        return WorkTileInfo(*self._place(tile), first, steps, part)

    def first_steps(self) -> Any:
        """Steps of this CTA's first piece."""
        return self._cut(self.k.ctaid.x // self.config.ctas)[2]

    def _cut(self, index: Any) -> tuple[Any, Any, Any, Any]:
        """(tile, first step, steps, part) of the ``index``-th piece of all. The same part of all
        tiles comes first: neighbours in time read the same of A and B.
        """
        k, split = self.k, self.config.split
        if self.whole is None:
            return k.mov(index), 0, self.steps, None
        is_part = index >= self.whole
        beyond = k.select(is_part, index - self.whole, 0)
        number, within = beyond % self.cut, beyond // self.cut
        part = (number * split + within) * self.config.ctas + self.rank
        each, more = self.steps // split, self.steps % split  # steps · split may pass 2^32
        first, end = (each * i + more * i // split for i in (within, within + 1))
        return (
            k.select(is_part, self.whole + number, index),
            k.select(is_part, first, 0),
            k.select(is_part, end - first, self.steps),
            k.select(is_part, part.view("s32"), -1),
        )

    def _place(self, tile: Any) -> tuple[Any, Any, Any]:
        k, config = self.k, self.config
        bm, bn, _ = config.tile
        cm, cn = config.cluster
        batch = None
        if self.batches is not None:
            batch, tile = tile // self.area, tile % self.area
        row, column = tile_coordinates(k, tile, self.rows, self.columns, config.group)
        if cm * cn > 1:
            row, column = row * cm + self.down, column * cn + self.across
        return row * bm, column * bn, batch
