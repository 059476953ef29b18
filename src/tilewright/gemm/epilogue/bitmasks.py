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


class BitmaskStores:
    """The bitmasks among an epilogue's outputs within a kernel. ``parameters`` has their addresses;
    ``limits``: M and N; ``lanes``: the bits of the lane's number in which neighbours along a row
    differ, nearest first.
    """

    def __init__(
        self, k: Builder, bound: BoundEpilogue, parameters: Any, limits: tuple[Any, Any],
        lanes: Sequence[int],
    ) -> None:  # fmt: skip
        self.k, self.parameters, self.limits, self.lanes = k, parameters, limits, lanes
        self.outputs = bound.bitmasks

    def add(self, values: Sequence[Sequence[Any]], elements: TileElements, valid: Any) -> None:
        """Store the bits of a few elements of this thread. ``values``: for each output of the
        graph; ``valid``: whether this thread has any. All lanes of the warp take part.
        """
        count = elements.unit
        for name, number, _ in self.outputs:
            for i in range(0, len(elements.offsets), count):
                conditions = values[number][i : i + count]
                self._store(name, conditions, elements, elements.offsets[i], valid)

    def _store(
        self, name: str, conditions: Sequence[Any], elements: TileElements,
        offset: tuple[int, int], valid: Any,
    ) -> None:  # fmt: skip
        """Store a byte of neighbours from ``offset`` on and of those of other lanes."""
        k, (m, n) = self.k, self.limits
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
        with k.when(first & valid & (row < m) & (column < n)):
            self._at(name, elements.batch, row, column).store(byte.to("u8"))

    def _at(self, name: str, batch: Any, row: Any, column: Any) -> Pointer:
        """The byte of an element."""
        pitch = (self.limits[1] + (BITMASK_COLUMNS - 1)) >> 3
        line = row if batch is None else batch * self.limits[0] + row
        offset = line.to("u64") * pitch.to("u64") + (column >> 3).to("u64")
        there: Pointer = global_pointer(self.k, getattr(self.parameters, name)).cast("u8") + offset
        return there
