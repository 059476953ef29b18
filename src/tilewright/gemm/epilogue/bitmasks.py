"""Bitmasks of an epilogue: a condition of each element of D in one bit, 8 columns to a byte.

Bit i of byte j of a row is column 8 j + i, as ``numpy.packbits`` gives with ``bitorder="little"``;
a row of N columns has ⌈N/8⌉ bytes, whose last bits are 0. Threads that hold the 8 columns of a byte
combine their bits by shuffles, and one of them stores it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...builder import Builder, Pointer
from ..kernel_scalars import global_pointer
from .bound_epilogue import BoundEpilogue
from .graph import BITMASK_COLUMNS
from .operand_loads import TileElements

WORD_BLOCKS = 4  # blocks of 8 columns in a word, and lanes that hold a block's pairs


class BitmaskStores:
    """The bitmasks among an epilogue's outputs within a kernel. ``parameters`` has their addresses;
    ``limits``: M and N; ``lanes``: the bits of the lane's number in which neighbours along a row
    differ, nearest first. ``row_end``, ``joined``: as of ``TileReductions``.
    """

    def __init__(
        self, k: Builder, bound: BoundEpilogue, parameters: Any, limits: tuple[Any, Any],
        lanes: Sequence[int],
    ) -> None:  # fmt: skip
        self.k, self.parameters, self.limits, self.lanes = k, parameters, limits, lanes
        self.outputs, self.row_end, self.joined = bound.bitmasks, limits[0], False
        self._words: dict[tuple[str, int], Any] = {}  # by output and row

    def add(self, values: Sequence[Sequence[Any]], elements: TileElements, valid: Any) -> None:
        """Store the bits of a few elements of this thread. ``values``: for each output of the
        graph; ``valid``: whether this thread has any. All lanes of the warp take part.
        """
        count = elements.unit
        for name, number, _ in self.outputs:
            for i in range(0, len(elements.offsets), count):
                conditions = values[number][i : i + count]
                self._store(name, conditions, elements, elements.offsets[i], valid)

    def add_pairs(
        self, values: Sequence[Sequence[Any]], elements: TileElements, block: int, blocks: int
    ) -> None:
        """The same for pairs of neighbours, of which four lanes hold 8 columns. Each thread keeps
        the bits of four such blocks of its rows in a word; ``block`` of ``blocks`` of a tile.
        """
        k, number = self.k, block % WORD_BLOCKS
        for name, output, _ in self.outputs:
            for condition, (row, column) in zip(values[output], elements.offsets, strict=True):
                if (name, row) not in self._words:
                    self._words[name, row] = k.var("u32", 0)
                word = self._words[name, row]
                with k.when(condition if hasattr(condition, "dtype") else bool(condition)):
                    k.or_(word, 1 << (number * BITMASK_COLUMNS + column % 2), into=word)
        if number == WORD_BLOCKS - 1 or block == blocks - 1:
            for (name, row), word in self._words.items():
                self._store_word(name, word, elements, row, number)
            self._words.clear()

    def _store_word(
        self, name: str, word: Any, elements: TileElements, down: int, last: int
    ) -> None:
        """Combine the words of four lanes; each lane stores the byte of its number."""
        k, n, lane = self.k, self.limits[1], self.k.laneid & (WORD_BLOCKS - 1)
        word = word << (lane * 2)
        for other in self.lanes:
            word = word | k.shfl("bfly", word, other)
        first = elements.offsets[0][1] // BITMASK_COLUMNS - last + lane
        column = (elements.column & -BITMASK_COLUMNS) + first * BITMASK_COLUMNS
        row = elements.row + down
        byte = (word >> (lane * BITMASK_COLUMNS)) & 255
        left = k.min(n - column, BITMASK_COLUMNS)  # columns inside of D
        byte = byte & ((k.const("u32", 1) << left) - 1)
        self._write(
            self._at(name, elements.batch, row, column),
            byte,
            (lane <= last) & (row < self.row_end) & (column < n),
        )

    def _store(
        self, name: str, conditions: Sequence[Any], elements: TileElements,
        offset: tuple[int, int], valid: Any,
    ) -> None:  # fmt: skip
        """Store a byte of neighbours from ``offset`` on and of those of other lanes."""
        k, n = self.k, self.limits[1]
        row, column = elements.row + offset[0], elements.column + offset[1]
        byte = k.const("u32", 0)
        for i, condition in enumerate(conditions):
            there = column + i < n
            there = condition & there if hasattr(condition, "dtype") else there & bool(condition)
            byte = byte | k.select(there, 1 << i, 0)
        byte = byte << (column & (BITMASK_COLUMNS - 1))
        for lane in self.lanes[: (BITMASK_COLUMNS // len(conditions)).bit_length() - 1]:
            byte = byte | k.shfl("bfly", byte, lane)
        first = (column & (BITMASK_COLUMNS - 1)) == 0
        self._write(
            self._at(name, elements.batch, row, column),
            byte,
            first & valid & (row < self.row_end) & (column < n),
        )

    def _write(self, there: Pointer, byte: Any, exists: Any) -> None:
        """Store a byte. Only the store is predicated: what a predicated instruction computes stays
        live from one work tile to the next.
        """
        value = byte.to("u8")
        with self.k.when(exists):
            there.store(value)

    def _at(self, name: str, batch: Any, row: Any, column: Any) -> Pointer:
        """The byte of an element."""
        pitch = (self.limits[1] + (BITMASK_COLUMNS - 1)) >> 3
        line = row if batch is None or self.joined else batch * self.limits[0] + row
        offset = line.to("u64") * pitch.to("u64") + (column >> 3).to("u64")
        there: Pointer = global_pointer(self.k, getattr(self.parameters, name)).cast("u8") + offset
        return there
