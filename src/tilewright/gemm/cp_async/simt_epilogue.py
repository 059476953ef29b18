"""Epilogue of kernel ``simt``: D from the accumulators of a CTA's threads.

With slices, each of them has accumulators of the whole tile, the sums of its k alone: they meet in
shared memory, where each slice adds up a part of the tile, in the order of the slices. With
split-K, the sums go to the workspace instead of D.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...builder import Builder, Pointer, Reg
from .simt_config import TYPE, VECTOR, SimtConfig

# A block of a thread's elements: its first row and column among them, and the rows' accumulators.
Block = tuple[Any, Any, Sequence[Sequence[Reg]]]


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
    """The blocks that this thread's slice adds up, each the sum of all slices. ``shared`` memory is
    free, and begins at a multiple of 16 bytes.
    """
    threads, slices = config.slice_threads, config.slices
    count = config.accumulator_registers // VECTOR**2  # blocks of a thread
    thread, number = k.tid.x % threads, k.tid.x // threads
    first = shared.cast(TYPE) + thread * VECTOR
    step = VECTOR * threads  # elements from a thread's vector to its next one
    mine = (first + number * (count * VECTOR * step)).aligned(16)
    for b, (_, _, lines) in enumerate(blocks(config, accumulators)):
        for down, line in enumerate(lines):
            mine.store(list(line), index=(b * VECTOR + down) * step)
    k.barrier()
    across = config.thread_tile[1] // VECTOR
    for j in range(count // slices):
        b = number * (count // slices) + j
        there = (first + b * (VECTOR * step)).aligned(16)
        lines = [
            _sum(there, [(s * count * VECTOR + down) * step for s in range(slices)])
            for down in range(VECTOR)
        ]
        row, column = (config.share(side)[1][1].stride for side in range(2))
        yield b // across * row, b % across * column, lines


def _sum(vectors: Pointer, offsets: Sequence[int]) -> list[Reg]:
    """The sum of vectors in shared memory, in order."""
    loaded = [(vectors + offset).load(VECTOR) for offset in offsets]
    total = list(loaded[0])
    for values in loaded[1:]:
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
    index = k.ctaid.x.to("u64") * config.split + k.ctaid.y.to("u64")
    tile = workspace.cast(TYPE) + index * (bm * bn)
    start = tile + (first[0] * bn + first[1])
    for row, column, lines in mine:
        at = (start + (row * bn + column)).aligned(16)
        for down, line in enumerate(lines):
            at.store(list(line), index=down * bn)
