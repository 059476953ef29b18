"""Stream-K tile scheduler: all CTAs process equally many k-blocks, deterministic.

Some tiles are processed whole, as by the static tile scheduler: as many waves of them as leave more
than one wave of other tiles (data-parallel). The k-blocks of those others, one tile after another,
are divided into ranges of equal length, one for each cluster, and the clusters process them first:

    k-blocks   |    tile 0     |    tile 1     |    tile 2     |    tile 3     |    tile 4     |
    ranges     |       0        |        1       |       2        |       3        |     4     …

A work tile is what a range has of a tile. The range with a tile's first k-block owns the tile: it
adds the partial accumulators of the ranges that follow, in the order of K, and stores D. All others
begin with what they have of a tile that they do not own, so an owner, which comes to the k-blocks
that it shares at the end of its range, finds the partial accumulators in the workspace.

Range i belongs to the i-th cluster from the last: clusters wait for those before them only, which
have started when they start, so the kernel ends wherever clusters start in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....builder import Builder
from ...columns import N, larger, select
from ..tile_scheduler import ProcessTile, TileScheduler, WorkTileInfo
from ..tma_config import TmaConfig

# The k-blocks of a range, and those on either side of a boundary inside a tile, at least: shorter
# parts cost more than the imbalance does.
LEAST_K_BLOCKS = 4


def data_parallel_tiles(tiles: N, resident: N) -> N:
    """Work tiles (of clusters) that are processed whole: all if they fill whole waves, else all
    waves but the tail wave and the one before.
    """
    waves = larger(tiles // resident - 1, 0)
    whole: N = select(tiles % resident == 0, tiles, waves * resident)
    return whole


class StreamKTileScheduler(TileScheduler):
    """Stream-K tile scheduler. ``full_tiles``: tiles (of clusters) that are processed whole, whole
    waves; they come first in rasterization order.
    """

    def __init__(
        self, k: Builder, config: TmaConfig, m: Any, n: Any, k_blocks: Any, batches: Any,
        full_tiles: Any,
    ) -> None:  # fmt: skip
        super().__init__(k, config, m, n, k_blocks, batches, None)
        self.first_tile = full_tiles
        self.tile_blocks = k.max(k_blocks, 1)
        total = (self.count - full_tiles) * self.tile_blocks
        self.ranges = k.max(k.min(self.resident_clusters, total // LEAST_K_BLOCKS), 1)
        self.each, self.more = total // self.ranges, total % self.ranges
        self.cluster = k.ctaid.x // config.ctas
        self.range = self.resident_clusters - 1 - self.cluster
        self.begin, self.end = (self._boundary(self.range + i) for i in (0, 1))
        self.range_tile = self.begin // self.tile_blocks
        ends = (self.end + (self.tile_blocks - 1)) // self.tile_blocks
        self.parts = k.select(self.end > self.begin, ends - self.range_tile, 0)
        self.own = self.parts + full_tiles // self.resident_clusters

    def for_each_tile(self, process: ProcessTile, first: Any = 0, groups: int = 1) -> None:
        """Call ``process`` for the work tiles of this CTA, as the static tile scheduler does."""
        k = self.k
        index = k.var(k.mov(k.const("u32", 0)) + first)
        with k.while_(lambda: index < self.own):
            process(self.work_tile(index), self._split(index + 1)[2] if groups > 1 else None)
            index += groups

    def first_tile_k_blocks(self) -> Any:
        """The k-blocks of this CTA's first work tile."""
        return self._split(self.k.mov(self.k.const("u32", 0)))[2]

    def for_each_partial(self, tile: WorkTileInfo, add: Callable[[Any], None]) -> None:
        """Call ``add(partial)`` for the partial accumulators of a tile that this CTA owns, in the
        order of K.
        """
        k, blocks = self.k, self.tile_blocks
        with k.if_(tile.k_blocks < self.k_blocks):  # it is the last of the range
            tile_end = (self.end + (blocks - 1)) // blocks * blocks
            other = k.var(self.range + 1)
            with k.while_(lambda: self._boundary(other) < tile_end):
                cluster = self.resident_clusters - 1 - other
                add(cluster * self.config.ctas + self.rank)
                other += 1

    def _split(self, index: Any) -> tuple[Any, Any, Any, Any]:
        """(tile, first k-block, k-blocks, partial) of the CTA's work tile ``index``: first the
        parts of tiles in its range, then whole tiles. A CTA has one partial at most, so its number
        is that of the CTA.
        """
        k, blocks = self.k, self.tile_blocks
        is_part, tile = index < self.parts, self.range_tile + index
        tile_begin = tile * blocks
        begin, end = k.max(self.begin, tile_begin), k.min(self.end, tile_begin + blocks)
        first = begin - tile_begin
        whole = (index - self.parts) * self.resident_clusters + self.cluster
        return (
            k.select(is_part, self.first_tile + tile, whole),
            k.select(is_part, first, 0),
            k.select(is_part, k.min(end - begin, self.k_blocks), self.k_blocks),
            k.select(is_part & (first > 0), k.ctaid.x.view("s32"), -1),
        )

    def _boundary(self, index: Any) -> Any:
        """The k-block at which range ``index`` begins: not within ``LEAST_K_BLOCKS`` of where a
        tile begins or ends, but there.
        """
        k, blocks = self.k, self.tile_blocks
        index = k.min(index, self.ranges)
        boundary = self.each * index + self.more * index // self.ranges
        inside = boundary % blocks
        before, after = inside < LEAST_K_BLOCKS, blocks - inside < LEAST_K_BLOCKS
        nearest = k.select(before, 0, k.select(after, blocks, inside))
        return boundary - inside + nearest
