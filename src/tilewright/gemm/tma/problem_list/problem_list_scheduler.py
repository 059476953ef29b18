"""Tile scheduler of a list of problems: the host has numbered the work tiles of all problems, and
CTAs process them as those of one product, cluster i the tiles i, i + G, i + 2G, …

While a tile is processed, the sizes of the next one's problem are loaded, and the number of the
problem after it; the producer prefetches the next tensor maps. Before its first copy it acquires
the maps of all its work tiles: the fence that orders their use behind the copy that wrote the table
waits for the tensor copies in flight, so between tiles it would empty the pipeline.
"""

from __future__ import annotations

from typing import Any

from ....builder import Builder
from ...kernel_scalars import global_pointer
from ...problem import Problem
from ..launch.tma_parameters import ProblemListParameters
from ..tile_scheduler import ProcessTile, TileScheduler, WorkTileInfo
from ..tma_config import TmaConfig
from .problem_record import (
    MAP_BYTES,
    MAPS,
    ProblemRecord,
    ProblemSizes,
    ProblemTableReader,
    record_bytes,
)

NONE = (1 << 32) - 1
AHEAD = 4  # numbers of problems that are loaded at once before the first tile


class ProblemListScheduler(TileScheduler):
    """Static persistent tile scheduler; an array has the problem of each work tile."""

    knows_first_tile = False

    def __init__(
        self, k: Builder, problem: Problem, config: TmaConfig, p: ProblemListParameters
    ) -> None:
        super().__init__(k, config, p.m, p.n, None, None, None)
        pitch = record_bytes(problem.epilogue)
        self.count, self.reader = p.tiles, ProblemTableReader(k, p.table, pitch)
        self.problems = global_pointer(k, self.reader.record(p.batches)).cast("u32")

    def for_each_tile(self, process: ProcessTile, first: Any = 0, groups: int = 1) -> None:
        """Call ``process`` for the work tiles of this CTA, as the static tile scheduler does."""
        self._run(process, first, groups, prefetch=False)

    def for_each_tile_of_producer(self, process: ProcessTile) -> None:
        """The loop of the producer warp, which acquires and prefetches tensor maps."""
        self._acquire_maps()
        self._run(process, 0, 1, prefetch=True)

    def first_tile_k_blocks(self) -> Any:
        """The k-blocks of this CTA's first work tile."""
        return self._k_blocks(self.reader.sizes(self._number(self._first())))

    def _first(self) -> Any:
        return self.k.ctaid.x // self.config.ctas

    def _run(self, process: ProcessTile, first: Any, groups: int, *, prefetch: bool) -> None:
        k, reader, step = self.k, self.reader, self.resident_clusters
        index = k.var(self._first() + first * step)
        number = k.var(self._number(index))
        sizes = ProblemSizes(*(k.var(x) for x in reader.sizes(number)))
        ahead = [k.var(self._number(index + step * (i + 1))) for i in range(groups)]
        with k.while_(lambda: index < self.count):
            following = [reader.sizes(x) for x in ahead]
            after = [self._number(index + step * (groups + i + 1)) for i in range(groups)]
            if prefetch:
                for matrix in MAPS:
                    k.tma_prefetch_map(reader.map(ahead[-1], matrix))
            next_k_blocks = self._k_blocks(following[0]) if groups > 1 else None
            process(self._tile(index, ProblemRecord(reader, number, sizes)), next_k_blocks)
            index += step * groups
            number.set(ahead[-1])
            for variable, value in zip((*sizes, *ahead), (*following[-1], *after), strict=True):
                variable.set(value)

    def _acquire_maps(self) -> None:
        """Make the tensor maps of this CTA's work tiles visible to tensor copies."""
        k, step = self.k, self.resident_clusters
        index, last = k.var(self._first()), k.var(k.const("u32", NONE))
        with k.while_(lambda: index < self.count):
            for number in [self._number(index + step * i) for i in range(AHEAD)]:
                with k.if_(number != last):
                    last.set(number)
                    for matrix in MAPS:
                        map_ = self.reader.map(number, matrix)
                        k.emit("fence.proxy.tensormap::generic.acquire.sys", map_, MAP_BYTES)
            index += step * AHEAD

    def _tile(self, index: Any, record: ProblemRecord) -> WorkTileInfo:
        rows, columns = self._extents(record.sizes)
        at = self.corner(index - record.sizes.first_tile, rows, columns)
        return WorkTileInfo(*at, None, 0, self._k_blocks(record.sizes), None, problem=record)

    def _number(self, index: Any) -> Any:
        """The problem of a work tile; behind the last work tile, that of the last one."""
        return (self.problems + self.k.min(index, self.count - 1)).load(1)[0]

    def _k_blocks(self, sizes: ProblemSizes) -> Any:
        bk = self.config.tile[2]
        return (sizes.depth + (bk - 1)) // bk

    def _extents(self, sizes: ProblemSizes) -> tuple[Any, Any]:
        """Tiles of a cluster along the kernel's rows and columns."""
        (bm, bn, _), (cm, cn) = self.config.tile, self.config.cluster
        m, n = (sizes.n, sizes.m) if self.config.swap else (sizes.m, sizes.n)
        return (m + (bm * cm - 1)) // (bm * cm), (n + (bn * cn - 1)) // (bn * cn)
