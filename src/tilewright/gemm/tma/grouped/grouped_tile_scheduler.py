"""Grouped tile scheduler: work tiles of groups of rows whose sizes are in device memory.

The work tiles of all groups are numbered one group after another, and CTAs process them as those of
one product: cluster i takes tiles i, i + G, i + 2G, …. Each role of the kernel walks over the
groups as its tile index grows; a step reads one element of the array of sizes.
"""

from __future__ import annotations

from typing import Any

from ....builder import Builder
from ....target import DeviceSpec
from ...grouping import ENDS, OFFSETS, Grouping
from ...kernel_scalars import global_pointer, limited
from ...problem import Problem
from ..tile_scheduler import GroupRows, ProcessTile, TileScheduler, WorkTileInfo
from ..tma_config import TmaConfig


class GroupedTileScheduler(TileScheduler):
    """Tile scheduler of ``count`` groups; ``sizes``: the address of the array. ``m``: rows of all
    groups, or the capacity of each.
    """

    knows_first_tile = False

    def __init__(
        self, grouping: Grouping, sizes: Any, count: Any, k: Builder, config: TmaConfig, m: Any,
        n: Any, k_blocks: Any,
    ) -> None:  # fmt: skip
        rows, columns = (n, m) if config.swap else (m, n)
        super().__init__(k, config, rows, columns, k_blocks, None, None)
        self.grouping, self.groups, self.m = grouping, count, m
        self.sizes = global_pointer(k, sizes).cast(grouping.index)

    def for_each_tile_of_producer(self, process: ProcessTile) -> None:
        """The loop of the producer warp, which begins when the sizes have been written."""
        self.k.wait_for_prior_grids()
        self.for_each_tile(process)

    def for_each_tile(self, process: ProcessTile, first: Any = 0, groups: int = 1) -> None:
        """Call ``process`` for the work tiles of this CTA, as the static tile scheduler does."""
        k = self.k
        walk = GroupWalk(self)
        index = k.var(k.ctaid.x // self.config.ctas + first * self.resident_clusters)
        walk.advance_to(index)
        with k.while_(lambda: walk.group < self.groups):
            process(walk.work_tile(index), self.k_blocks)
            index += self.resident_clusters * groups
            walk.advance_to(index)

    def first_tile_k_blocks(self) -> Any:
        """The k-blocks of this CTA's first work tile: all groups have the same K."""
        return self.k_blocks


class GroupWalk:
    """A role's position among the groups: the current ``group``, its rows from ``begin`` to
    ``end``, its work tiles, and the number of work tiles ``before`` it.
    """

    def __init__(self, scheduler: GroupedTileScheduler) -> None:
        k = scheduler.k
        self.k, self.scheduler = k, scheduler
        self.group = k.var(k.const("u32", (1 << 32) - 1))  # before the first
        self.before, self.tiles, self.begin, self.end = (k.var("u32", 0) for _ in range(4))
        if scheduler.grouping.form == OFFSETS:
            self.end.set(self._limited(scheduler.sizes.load(1)[0]))

    def advance_to(self, index: Any) -> None:
        """Go to the group of work tile ``index``, or behind the last group."""
        k, groups = self.k, self.scheduler.groups
        with k.while_(lambda: (index - self.before >= self.tiles) & (self.group != groups)):
            self.before += self.tiles
            self.group += 1
            self.tiles.set(0)
            with k.if_(self.group < groups):
                self._load_rows()

    def work_tile(self, index: Any) -> WorkTileInfo:
        """Work tile ``index``, which is in this group."""
        scheduler, config = self.scheduler, self.scheduler.config
        row_tiles = self._row_tiles()
        shape = (scheduler.rows, row_tiles) if config.swap else (row_tiles, scheduler.columns)
        row, column = scheduler.corner(index - self.before, *shape)
        at = (row, column + self.begin) if config.swap else (row + self.begin, column)
        rows = GroupRows(self.begin, self.end - self.begin, not scheduler.grouping.has_capacity)
        return WorkTileInfo(*at, self.group, 0, scheduler.k_blocks, None, rows)

    def _row_tiles(self) -> Any:
        """The group's number of tiles (of clusters) along its rows."""
        _, extent = _row_extents(self.scheduler.config)
        return (self.end - self.begin + (extent - 1)) // extent

    def _load_rows(self) -> None:
        """Read the rows of the group. A size that would decrease, or exceed the matrix, is taken
        for the nearest that is possible, so that no other row is written.
        """
        scheduler, form = self.scheduler, self.scheduler.grouping.form
        if form in (ENDS, OFFSETS):
            self.begin.set(self.end)
        at = self.group + 1 if form == OFFSETS else self.group
        self.end.set(self._limited((scheduler.sizes + at).load(1)[0]))
        others = scheduler.rows if scheduler.config.swap else scheduler.columns
        self.tiles.set(self._row_tiles() * others)

    def _limited(self, size: Any) -> Any:
        return limited(self.k, size, self.begin, self.scheduler.m)


def _row_extents(config: TmaConfig) -> tuple[int, int]:
    """Rows of D in a tile, and in the tiles of a cluster."""
    side = 1 if config.swap else 0
    return config.tile[side], config.tile[side] * config.cluster[side]


def most_tiles(problem: Problem, config: TmaConfig) -> int:
    """The number of work tiles (of clusters), at most, of groups of any sizes."""
    (_, extent), (down, across) = _row_extents(config), config.tile_grid(problem)
    others = down if config.swap else across
    if problem.has_row_groups:
        return others * (problem.m // extent + min(problem.m, problem.batch))
    return down * across * problem.batch


def launch_clusters(problem: Problem, config: TmaConfig, device: DeviceSpec) -> int:
    """The number of clusters of the grid."""
    return min(most_tiles(problem, config), config.resident_clusters(device))
