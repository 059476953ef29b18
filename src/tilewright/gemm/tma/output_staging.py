"""Stages an epilogue tile of an output in shared memory, a few elements of a thread at a time.

A thread's accumulators come in groups: two rows by two neighbouring columns. Their elements are
stored as soon as they are computed, so that few are in registers beside the accumulators: those of
16 bits by ``stmatrix``, others by pairs of neighbours of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...builder import Builder, Pointer, fragment_registers
from ...layout import Tensor
from ..epilogue.emission import stored_words
from .tma_epilogue import EpilogueTile
from .tma_geometry import WGMMA_ROWS

GROUP = 4  # elements


class OutputStaging:
    """One epilogue tile in ``buffer``. ``thread``: of the warpgroup. ``add`` all groups, in the
    accumulators' order.
    """

    def __init__(self, k: Builder, thread: Any, buffer: Tensor, tile: EpilogueTile) -> None:
        self.k, self.tile, self.stored = k, tile, 0
        self._words: list[Any] = []  # that wait for the rest of their instruction
        with k.eliminate_common_subexpressions():
            if tile.size == 2:
                self._copy = tile.matrix_copy("stmatrix")
                slice_ = self._copy.thr_slice(thread)
                shape = tile.mma.partition_shape_C((WGMMA_ROWS, tile.width))
                self._fragment = slice_.retile(k.make_rmem_tensor(shape, tile.type))
                self._there = slice_.partition_D(buffer)
            else:
                self._there = tile.mma.thr_slice(thread).partition_C(buffer)

    def add(self, values: Sequence[Any]) -> None:
        """Stage the next group."""
        if self.tile.size == 2:
            self._store_matrices(values)
        elif self.tile.size == 1:
            self._store_bytes(values)
        else:
            self._store_words(values)

    def _store_matrices(self, values: Sequence[Any]) -> None:
        """An ``stmatrix``, when all its words are complete."""
        self._words += stored_words(self.k, values, self.tile.type.name)
        fragment = self._fragment[(None, self.stored), 0, 0]
        registers = fragment_registers(fragment)
        if len(self._words) < len(registers):
            return
        for register, word in zip(registers, self._words, strict=True):
            self.k.mov(word, into=register)
        self.k.copy(self._copy, fragment, self._next())
        self._words = []

    def _store_bytes(self, values: Sequence[Any]) -> None:
        """Pairs of neighbours of a row: 16 bits, or (swapped) a byte for each row of D."""
        there = self._next()
        for i in range(0, GROUP, 2):
            (pair,) = stored_words(self.k, values[i : i + 2], self.tile.type.name)
            if not self.tile.swap:
                self._at(there, i).cast("b16").aligned(2).store(pair)
                continue
            for j, byte in enumerate((pair.view("u16"), pair.view("u16") >> 8), i):
                self._at(there, j).cast("u8").store(byte.to("u8"))

    def _store_words(self, values: Sequence[Any]) -> None:
        there = self._next()
        words = stored_words(self.k, values, self.tile.type.name)
        step = 1 if self.tile.swap else 2
        for i in range(0, GROUP, step):
            end = self._at(there, i).aligned(step * self.tile.size)
            end.store(words[i : i + step])

    def _at(self, there: Tensor, index: int) -> Pointer:
        with self.k.eliminate_common_subexpressions():
            pointer: Pointer = there.at(index)
        return pointer

    def _next(self) -> Tensor:
        """What the next instruction, or the next group, writes."""
        with self.k.eliminate_common_subexpressions():
            modes = (None,) if self.tile.size == 2 else (None, None)
            there: Tensor = self._there[(*modes, self.stored), 0, 0]
        self.stored += 1
        return there
