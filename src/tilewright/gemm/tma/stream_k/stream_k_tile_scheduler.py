"""Stream-K tile scheduler: groups of CTAs share the k-blocks of the last tiles, deterministic.

Whole waves of tiles are processed as by the static tile scheduler (data-parallel). The tiles of the
tail wave go to groups of ``config.stream_k`` clusters, to each as many, and the k-blocks of a
group's tiles, one tile after another, are divided into ranges of equal length, one for each of its
clusters. With groups of three and two tiles for each:

    k-blocks of a group   |       tile 0        |       tile 1        |
    ranges                |      0       |      1       |      2      |

A work tile is what a range has of a tile. The range with a tile's first k-block owns the tile: it
adds the partial accumulators of the ranges that follow, in the order of K, and stores D. All others
begin with what they have of a tile that they do not own.

All clusters with the same range of their group are at the same k-block at a time, so they share
rows of A and columns of B in the L2 as those of a whole wave do; one range for each cluster, from
one end of the tail wave to the other, would share nothing. They also are neighbours, and ranges go
backwards from the last cluster: clusters wait for those before them only, which have started when
they start, so the kernel ends wherever clusters start in order.

Where a group has one tile of few k-blocks the parts come before the whole tiles, whose mainloops
then overlap the exchange of partial accumulators. Deeper tiles are not in step after that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....builder import Builder
from ...columns import N, larger
from ..tile_scheduler import ProcessTile, TileScheduler, WorkTileInfo
from ..tma_config import TmaConfig


def tiles_of_group(tiles: N, resident: N, clusters: N) -> N:
    """Work tiles of the tail wave that a group of ``clusters`` clusters has, at most."""
    groups = larger(resident // larger(clusters, 1), 1)
    each: N = -(-(tiles % resident) // groups)
    return each


FIRST_K_BLOCKS = 64  # of a tile, at most, whose parts come before the whole tiles


class StreamKTileScheduler(TileScheduler):
    """Stream-K tile scheduler. ``full_tiles``: tiles (of clusters) that are processed whole, whole
    waves; they come first in rasterization order.
    """

    knows_first_tile = False

    def __init__(
        self, k: Builder, config: TmaConfig, m: Any, n: Any, k_blocks: Any, batches: Any,
        full_tiles: Any,
    ) -> None:  # fmt: skip
        super().__init__(k, config, m, n, k_blocks, batches, None)
        self.tile_blocks = k.max(k_blocks, 1)
        self.cluster, last = k.ctaid.x // config.ctas, self.resident_clusters - 1
        self.groups = self.resident_clusters // config.stream_k
        shared = self.count - full_tiles
        each = (shared + (self.groups - 1)) // self.groups
        self.range = (last - self.cluster) // self.groups
        before = k.min((last - self.cluster) % self.groups * each, shared)
        self.first_tile = full_tiles + before
        self.blocks = k.min(each, shared - before) * self.tile_blocks
        self.begin, self.end = (self._boundary(self.range + i) for i in (0, 1))
        ends = (self.end + (self.tile_blocks - 1)) // self.tile_blocks
        parts = k.select(self.end > self.begin, ends - self.begin // self.tile_blocks, 0)
        whole = full_tiles // self.resident_clusters
        parts_first = (each == 1) & (self.tile_blocks <= FIRST_K_BLOCKS)
        self.parts, self.own = parts, parts + whole
        self.first_part = k.select(parts_first, 0, whole)
        self.first_whole = k.select(parts_first, parts, 0)

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
        k, blocks, rank = self.k, self.tile_blocks, self.rank
        with k.if_(tile.k_blocks < self.k_blocks):  # it is the last of the range
            tile_end = (self.end + (blocks - 1)) // blocks * blocks
            other, begin = k.var(self.range + 1), k.var(self.end)
            with k.while_(lambda: begin < tile_end):
                end = self._boundary(other + 1)
                with k.if_(begin < end):
                    cluster = self.cluster - (other - self.range) * self.groups
                    add(cluster * self.config.ctas + rank)
                begin.set(end)
                other += 1

    def _split(self, index: Any) -> tuple[Any, Any, Any, Any]:
        """(tile, first k-block, k-blocks, partial) of the CTA's work tile ``index``: a whole tile,
        or the part of a tile in its range. A CTA has one partial at most, so its number is that of
        the CTA.
        """
        k, blocks = self.k, self.tile_blocks
        part, number = index - self.first_part, index - self.first_whole
        tile = self.begin // blocks + part
        tile_begin = tile * blocks
        begin, end = k.max(self.begin, tile_begin), k.min(self.end, tile_begin + blocks)
        is_whole, first = part >= self.parts, begin - tile_begin
        return (
            k.select(
                is_whole, number * self.resident_clusters + self.cluster, self.first_tile + tile
            ),
            k.select(is_whole, 0, first),
            k.select(is_whole, self.k_blocks, k.min(end - begin, self.k_blocks)),
            k.select(is_whole | (first == 0), -1, k.ctaid.x.view("s32")),
        )

    def _boundary(self, index: Any) -> Any:
        """The k-block, of those of the group, at which its range ``index`` begins."""
        ranges, blocks = self.config.stream_k, self.blocks
        index = self.k.min(index, ranges)
        return blocks // ranges * index + blocks % ranges * index // ranges
