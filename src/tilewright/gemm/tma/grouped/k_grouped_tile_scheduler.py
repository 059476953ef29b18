"""Tile scheduler of groups along K: a D for each group, whose range of K is in device memory.

The work tiles are those of a batch of products, all of the same size, in the static order; only
the number of k-blocks differs. Of an empty group one k-block is loaded, all zeros.

    8 bits, K-major       groups begin at multiples of a k-block, and are ranges of k-blocks
    16 bits, MN-major     groups begin anywhere: copies access a row window along K
"""

from __future__ import annotations

from typing import Any

from ....builder import Builder
from ...grouping import Grouping
from ...kernel_scalars import global_pointer, limited
from ..tile_scheduler import GroupRows, ProcessTile, TileScheduler, WorkTileInfo
from ..tma_config import TmaConfig


class KGroupedTileScheduler(TileScheduler):
    """Static persistent tile scheduler of ``count`` products. ``ends``: the address of the array
    with the end of each group; ``depth``: K of all groups; ``unit``: what groups begin at multiples
    of, the K of a k-block or 1.
    """

    knows_first_tile = False

    def __init__(
        self, grouping: Grouping, ends: Any, count: Any, k: Builder, config: TmaConfig, m: Any,
        n: Any, depth: Any, unit: int,
    ) -> None:  # fmt: skip
        rows, columns = (n, m) if config.swap else (m, n)
        super().__init__(k, config, rows, columns, None, count, None)
        self.ends, self.depth = global_pointer(k, ends).cast(grouping.index), depth
        self.unit = unit

    def for_each_tile_of_producer(self, process: ProcessTile) -> None:
        """The loop of the producer warp, which begins when the sizes have been written."""
        self.k.wait_for_prior_grids()
        self.for_each_tile(process)

    def work_tile(self, index: Any) -> WorkTileInfo:
        """The work tile of this index."""
        row, column, group = self._coordinates(self.k.mov(index))
        window, k_blocks = self._window(group)
        if self.unit > 1:
            return WorkTileInfo(row, column, group, window.first // self.unit, k_blocks, None)
        return WorkTileInfo(row, column, group, 0, k_blocks, None, None, window)

    def _split(self, index: Any) -> tuple[Any, Any, Any, Any]:
        """The index may be behind the last work tile: then that of the last group counts."""
        group = self.k.min(index // self.area, self.batches - 1)
        return index, 0, self._window(group)[1], None

    def _window(self, group: Any) -> tuple[GroupRows, Any]:
        """A group's range of K, and its number of k-blocks."""
        k, bk, zero = self.k, self.config.tile[2], self.k.const("u32", 0)
        before = self.ends + k.max(group, 1) - 1
        previous = self._rounded(limited(k, before.load(1)[0], zero, self.depth))
        first = k.select(group == 0, 0, previous)
        end = self._rounded(limited(k, (self.ends + group).load(1)[0], first, self.depth))
        count = end - first
        return GroupRows(first, count), (count + (bk - 1)) // bk

    def _rounded(self, end: Any) -> Any:
        """The end of a group at a multiple of the unit, or of K."""
        if self.unit == 1:
            return end
        return self.k.select(end == self.depth, end, end & -self.unit)
