"""D's tile of kernel ``simt`` in shared memory by rows, so that neighbouring lanes store
neighbouring elements.

A thread's accumulators are blocks of 4 rows and 4 columns. Where rows of D are not aligned to 16
bytes, a store of single elements from registers reaches a quarter of each of 16 or more sectors; by
way of shared memory a warp's store has 32 neighbours, 5 sectors. The pitch is 4 elements more than
the columns: so the stores of 8 lanes, of 32 columns or of 16 in rows 4 apart, are in different
banks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import gcd
from typing import Any

from ...builder import Builder, Pointer, Reg
from .simt_config import PAD, TYPE, VECTOR, WARP, SimtConfig
from .simt_epilogue import added, blocks

# A line of neighbours in a row of D: its row and column from the thread's first ones on.
Line = tuple[tuple[int, int], Sequence[Reg]]


class StagedRows:
    """Rows of a matrix in shared memory that ``threads`` store and load, of which this one is
    ``number``: ``width`` neighbours of a row at a time.
    """

    def __init__(
        self, shared: Pointer, shape: tuple[int, int], width: int, threads: int, number: Reg
    ) -> None:
        (self.rows, self.columns), self.width = shape, width
        self.pitch = self.columns + PAD
        lanes = gcd(self.columns // width, threads)  # along a row
        self.step = threads // lanes, lanes * width
        self.first = number // lanes, number % lanes * width
        self.start = shared.cast(TYPE)
        self.loaded = self.start + (self.first[0] * self.pitch + self.first[1])

    def stored(self, row: Any, column: Any) -> Pointer:
        """Where an element is stored, whose column is a multiple of 4."""
        at: Pointer = self.start + (row * self.pitch + column)
        return at.aligned(16)

    def places(self) -> Iterator[tuple[int, int]]:
        """The rows and columns of this thread's lines, from its first ones on."""
        down, across = self.step
        return product(range(0, self.rows, down), range(0, self.columns, across))

    def load(self, place: tuple[int, int], copy: int = 0) -> Sequence[Reg]:
        """The line at a place, of one of several such matrices."""
        row, column = place
        at = self.loaded + ((copy * self.rows + row) * self.pitch + column)
        return at.aligned(4 * self.width).load(self.width)


def staged_lines(
    k: Builder, config: SimtConfig, accumulators: Sequence[Sequence[Reg]], shared: Pointer,
    width: int,
) -> tuple[tuple[Any, Any], Iterator[Line]]:  # fmt: skip
    """The first row and column of D's tile that this thread stores, and its lines of ``width``
    neighbours. ``shared`` memory is free, and begins at a multiple of 16 bytes.
    """
    mine = tuple(config.share(side)[0](k.tid.x) for side in range(2))
    if config.slices > 1:
        rows = StagedRows(shared, config.tile[:2], width, config.threads, k.tid.x)
        return rows.first, _of_slices(k, config, accumulators, rows, mine)
    here = shared + k.warpid * config.staged_bytes
    rows = StagedRows(here, (config.staged_rows, config.warp_columns), width, WARP, k.laneid)
    lanes = mine[0] % config.staged_rows, mine[1] % (config.lanes[1] * VECTOR)
    first = mine[0] - lanes[0] + rows.first[0], mine[1] - lanes[1] + rows.first[1]
    return first, _of_warp(k, config, accumulators, rows, lanes)


def _of_slices(
    k: Builder, config: SimtConfig, accumulators: Sequence[Sequence[Reg]], staged: StagedRows,
    mine: tuple[Any, Any],
) -> Iterator[Line]:  # fmt: skip
    """Each slice stores its sums of the whole tile; all threads add up and store some rows."""
    number = k.tid.x // config.slice_threads
    at = staged.stored(mine[0] + number * staged.rows, mine[1])
    for row, column, lines in blocks(config, accumulators):
        for down, line in enumerate(lines):
            at.store(list(line), index=(row + down) * staged.pitch + column)
    k.barrier()
    for place in staged.places():
        yield place, added([staged.load(place, copy) for copy in range(config.slices)])


def _of_warp(
    k: Builder, config: SimtConfig, accumulators: Sequence[Sequence[Reg]], staged: StagedRows,
    lanes: tuple[Any, Any],
) -> Iterator[Line]:  # fmt: skip
    """Each warp stores some rows at a time, 4 of each thread, and loads them."""
    at = staged.stored(*lanes)
    across = config.thread_tile[1] // VECTOR
    found = list(blocks(config, accumulators))
    for i in range(0, len(found), across):
        if i:
            k.syncwarp()
        for _, column, lines in found[i : i + across]:
            for down, line in enumerate(lines):
                at.store(list(line), index=down * staged.pitch + column)
        k.syncwarp()
        for row, column in staged.places():
            yield (found[i][0] + row, column), staged.load((row, column))
