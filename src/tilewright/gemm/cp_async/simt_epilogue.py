"""Epilogue of kernel ``simt``: D from the accumulators of a CTA's threads.

With slices, each of them has accumulators of the whole tile, the sums of its k alone: they meet in
shared memory, where each slice adds up a part of the tile, in the order of the slices. CTAs of a
cluster that share a tile do the same in distributed shared memory. With split-K otherwise, the sums
go to the workspace instead of D.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...builder import Builder, Pointer, Reg
from .cp_async_epilogue import Access, VectorEpilogue
from .simt_config import TYPE, VECTOR, SimtConfig

# A block of a thread's elements: its first row and column among them, and the rows' accumulators.
Block = tuple[Any, Any, Sequence[Sequence[Reg]]]


class EdgeEpilogue(VectorEpilogue):
    """Stores D's tile. Where it has ``moved`` along M or N to end with the matrix, it stores the
    rows and columns from ``owned`` on; those before belong to the tile before it.
    """

    owned: tuple[Any, Any] = (0, 0)
    moved: tuple[bool, ...] = (False, False)

    def _has(self, at: Any) -> Any:
        """As above; where the tile has moved, whether the vector is its own, too."""
        if not any(self.moved):
            return super()._has(at)
        row, _ = self._inside(at)
        return row & (at[1] >= self.owned[1]) if self.moved[1] else row

    def _inside(self, at: Any) -> tuple[Any, Any]:
        """As above; where the tile has moved along N, the column in place of what is left."""
        if at is None or not any(self.moved):
            return super()._inside(at)
        row = at[0] >= self.owned[0] if self.moved[0] else at[0] < self.limits[0]
        return row, at[1] if self.moved[1] else self.limits[1].view("s32") - at[1].view("s32")

    def _accesses(self, align: int, inside: Any, left: Any) -> Iterator[Access]:
        if self.full or not self.moved[1]:
            yield from super()._accesses(align, inside, left)
            return
        align = min(align, self.width)  # the columns of an access are of the same tile
        for byte in range(0, self.width, align):
            yield byte, align, inside & (left + byte // self.size >= self.owned[1]), []


def blocks(config: SimtConfig, accumulators: Sequence[Sequence[Reg]]) -> Iterator[Block]:
    """This thread's accumulators by blocks of 4 rows and 4 columns."""
    rows, vectors = config.share(0)[1], config.share(1)[1][1]
    for i in range(0, rows.size(), VECTOR):
        for v in range(vectors.size()):
            columns = slice(VECTOR * v, VECTOR * (v + 1))
            lines = [accumulators[i + down][columns] for down in range(VECTOR)]
            yield rows(i), vectors(v), lines


def summed_blocks(
    k: Builder, config: SimtConfig, accumulators: Sequence[Sequence[Reg]], shared: Pointer
) -> Iterator[Block]:
    """The blocks that this thread adds up, each the sum of all slices, and of the CTAs of a
    cluster; of one row where the configuration has ``rows_together`` of 1. ``shared`` memory is
    free, and begins at a multiple of 16 bytes.
    """
    threads, ranks = config.slice_threads, config.split if config.in_cluster else 1
    count = config.accumulator_registers // VECTOR  # lines of a thread, 4 elements each
    part: Any
    thread, part = k.tid.x % threads, k.tid.x // threads
    first = shared.cast(TYPE) + thread * VECTOR
    step = VECTOR * threads  # elements from a thread's line to its next one
    mine = (first + part * (count * step)).aligned(16)
    vectors = (v for _, _, lines in blocks(config, accumulators) for v in lines)
    for i, vector in enumerate(vectors):
        mine.store(list(vector), index=i * step)
    if config.in_cluster:
        k.cluster_sync()
        part = k.ctaid.y * config.slices + part
    else:
        k.barrier()
    parts, height = config.slices * ranks, config.rows_together
    across = config.thread_tile[1] // VECTOR
    row, column = (config.share(side)[1][1].stride for side in range(2))
    firsts = [first]
    if config.in_cluster:
        firsts = [_in_cluster(k, first, rank) for rank in range(ranks)]
    for j in range(0, count // parts, height):
        line = part * (count // parts) + j
        places = [(x + line * step).aligned(16) for x in firsts]
        offsets = [s * count * step for s in range(config.slices)]
        sums = [_sum(places, [o + down * step for o in offsets]) for down in range(height)]
        block = line // VECTOR
        yield block // across * row + line % VECTOR, block % across * column, sums
    if config.in_cluster:
        k.cluster_sync()


def _in_cluster(k: Builder, pointer: Pointer, rank: int) -> Pointer:
    """The same place in the shared memory of the cluster's CTA ``rank``."""
    return Pointer(k, "shared::cluster", pointer.dtype, k.mapa(pointer, rank), 0, 16)


def _sum(places: Sequence[Pointer], offsets: Sequence[int]) -> list[Reg]:
    """The sum of vectors in shared memory: over the CTAs, in order, of the sums over slices."""
    loaded = [[(place + offset).load(VECTOR) for offset in offsets] for place in places]
    return added([added(slices) for slices in loaded])


def added(vectors: Sequence[Sequence[Reg]]) -> list[Reg]:
    """The sum of vectors, in order."""
    total = list(vectors[0])
    for values in vectors[1:]:
        total = [x + y for x, y in zip(total, values, strict=True)]
    return total


def store_partials(
    k: Builder, config: SimtConfig, workspace: Pointer, first: tuple[Any, Any],
    mine: Iterator[Block],
) -> None:  # fmt: skip
    """Store blocks of partial accumulators in the workspace, where the parts of a tile follow one
    another, each stored by rows. ``first``: this thread's row and column in the tile.
    """
    bm, bn, _ = config.tile
    index = k.ctaid.x.to("u64") * k.nctaid.y.to("u64") + k.ctaid.y.to("u64")
    tile = workspace.cast(TYPE) + index * (bm * bn)
    start = tile + (first[0] * bn + first[1])
    for row, column, lines in mine:
        at = (start + (row * bn + column)).aligned(16)
        for down, line in enumerate(lines):
            at.store(list(line), index=down * bn)
