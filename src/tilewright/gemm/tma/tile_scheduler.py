"""Tile scheduler: which work tiles a CTA processes, in which order (static persistent).

Rasterization goes down a group of rows of tiles, then to the next column, so that CTAs that run at
the same time share A and B in the L2. A cluster processes a block of tiles, one for each CTA.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from ...builder import Builder
from ..rasterization import tile_coordinates
from .problem_list.problem_record import ProblemRecord
from .tma_config import TmaConfig


class GroupRows(NamedTuple):
    """The rows of a group: ``count`` from ``first`` on. ``joined``: they are rows of one matrix
    that has those of all groups, else of a matrix of the group's own.
    """

    first: Any
    count: Any
    joined: bool = True


class WorkTileInfo(NamedTuple):
    """A work tile: the tile at (``row``, ``column``) of matrix ``batch`` of D, and the range of
    ``k_blocks`` k-blocks from ``first_k_block`` on. ``partial``: the index in the workspace where
    its accumulators go, or -1 if the range is all of K. If the problem has groups, ``batch`` is the
    group; ``rows``: those of D that may be written; ``window``: with groups along K, those of A and
    B along K, which the k-blocks begin with; ``problem``: the tile's, of a list of them.
    """

    row: Any
    column: Any
    batch: Any
    first_k_block: Any
    k_blocks: Any
    partial: Any
    rows: GroupRows | None = None
    window: GroupRows | None = None
    problem: ProblemRecord | None = None


ProcessTile = Callable[[WorkTileInfo, Any], None]


class TileScheduler:
    """Static persistent tile scheduler: cluster i processes work tiles i, i + G, i + 2G, …, where G
    is the number of resident clusters.

    ``m``, ``n``: extents of the product; ``k_blocks``: along its K; ``batches``: None if there is
    one matrix. ``full_tiles``: tiles (of clusters) that are not split along K; they come first.
    ``knows_first_tile``: ``first_work_tile`` gives a CTA's first work tile, without memory that
    prior grids may write.
    """

    knows_first_tile = True

    def __init__(
        self, k: Builder, config: TmaConfig, m: Any, n: Any, k_blocks: Any, batches: Any,
        full_tiles: Any,
    ) -> None:  # fmt: skip
        self.k, self.config, self.batches, self.k_blocks = k, config, batches, k_blocks
        bm, bn, _ = config.tile
        cm, cn = config.cluster
        self.rows = (m + (bm * cm - 1)) // (bm * cm)
        self.columns = (n + (bn * cn - 1)) // (bn * cn)
        self.area = self.rows * self.columns
        self.count = self.area if batches is None else self.area * batches
        self.full_tiles = full_tiles if config.split > 1 else None
        if self.full_tiles is not None:
            split_tiles = self.count - full_tiles
            self.count = full_tiles + split_tiles * config.split
            self.split_tiles = k.max(split_tiles, 1)
        self.ctas = self._ctas()
        self.rank = k.cluster_rank if self.ctas > 1 else 0
        multiple = config.ctas > 1
        self.rank_m, self.rank_n = (self.rank % cm, self.rank // cm) if multiple else (0, 0)
        self.resident_clusters = k.nctaid.x // self.ctas

    def _ctas(self) -> int:
        """CTAs of a cluster."""
        return self.config.ctas

    def for_each_tile(self, process: ProcessTile, first: Any = 0, groups: int = 1) -> None:
        """Call ``process(work tile, k-blocks of the next work tile)`` in a loop. ``groups``
        warpgroups take the work tiles alternately; ``first`` is the index of this one.
        """
        k = self.k
        index = k.var(k.ctaid.x // self.ctas + first * self.resident_clusters)
        with k.while_(lambda: index < self.count):
            next_k_blocks = None
            if groups > 1:
                next_k_blocks = self._split(index + self.resident_clusters)[2]
            process(self.work_tile(index), next_k_blocks)
            index += self.resident_clusters * groups

    def for_each_tile_of_producer(self, process: ProcessTile) -> None:
        """The loop of the producer warp: all work tiles of the CTA."""
        self.for_each_tile(process)

    def work_tile(self, index: Any) -> WorkTileInfo:
        """The work tile of this index."""
        tile, first, k_blocks, partial = self._split(index)
        return WorkTileInfo(*self._coordinates(tile), first, k_blocks, partial)

    def first_work_tile(self) -> WorkTileInfo:
        """This CTA's first work tile. The launch has no cluster without one, except to start CTAs
        of plain products in pairs, whose last one may have none. It is an error of a kernel to call
        this where the first work tile follows from memory (dynamic, groups), or where work tiles
        are numbered for each CTA (stream-K).
        """
        assert self.knows_first_tile, f"{type(self).__name__} has no first work tile before it runs"
        return self.work_tile(self.k.ctaid.x // self.ctas)

    def first_tile_k_blocks(self) -> Any:
        """The k-blocks of this CTA's first work tile."""
        return self._split(self.k.ctaid.x // self.ctas)[2]

    def _split(self, index: Any) -> tuple[Any, Any, Any, Any]:
        """(tile, first k-block, k-blocks, partial) of a work tile. The first split of all tiles
        precedes the second of any: CTAs that run at the same time read the same range of K.
        """
        k, split = self.k, self.config.split
        if self.full_tiles is None:
            return k.mov(index), 0, self.k_blocks, None
        is_partial = index >= self.full_tiles
        beyond = k.select(is_partial, index - self.full_tiles, 0)
        number, which = beyond % self.split_tiles, beyond // self.split_tiles
        partial = (number * split + which) * self.config.ctas + self.rank
        each, more = self.k_blocks // split, self.k_blocks % split  # k_blocks · split may pass 2^32
        first, end = (each * i + more * i // split for i in (which, which + 1))
        return (
            k.select(is_partial, self.full_tiles + number, index),
            k.select(is_partial, first, 0),
            k.select(is_partial, end - first, self.k_blocks),
            k.select(is_partial, partial.view("s32"), -1),
        )

    def _coordinates(self, tile: Any) -> tuple[Any, Any, Any]:
        """(row, column, batch) where this CTA's tile begins."""
        batch = None
        if self.batches is not None:
            batch, tile = tile // self.area, tile % self.area
        return *self.corner(tile, self.rows, self.columns), batch

    def corner(self, tile: Any, rows: Any, columns: Any) -> tuple[Any, Any]:
        """(row, column) where this CTA's tile begins, by the index among rows × columns."""
        (bm, bn, _), (cm, cn) = self.config.tile, self.config.cluster
        row, column = tile_coordinates(self.k, tile, rows, columns, self.config.group)
        if cm * cn > 1:
            row, column = row * cm + self.rank_m, column * cn + self.rank_n
        return row * bm, column * bn


class JoinedTileScheduler(TileScheduler):
    """The static tile scheduler of split-K in clusters, whose CTAs have the parts of a tile's
    k-blocks, in order of K.
    """

    def __init__(
        self, k: Builder, config: TmaConfig, m: Any, n: Any, k_blocks: Any, batches: Any,
        full_tiles: Any,
    ) -> None:  # fmt: skip
        """``full_tiles``: every tile is split."""
        self.parts = config.split
        whole = replace(config, split=1, in_cluster=False)
        super().__init__(k, whole, m, n, k_blocks, batches, None)

    def _ctas(self) -> int:
        return self.parts

    def _split(self, index: Any) -> tuple[Any, Any, Any, Any]:
        each, more = self.k_blocks // self.parts, self.k_blocks % self.parts
        first, end = (each * i + more * i // self.parts for i in (self.rank, self.rank + 1))
        return self.k.mov(index), first, end - first, None
