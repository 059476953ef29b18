"""Data races on shared memory: two warps access a word, one writes, and no barrier is between."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_NOBODY, _SEVERAL = -1, -2


class SharedRaces:
    """For each word the warp that last wrote and read it, and between which barriers."""

    def __init__(self, size: int) -> None:
        words = -(-size // 4) + 4
        self.writer, self.reader = np.full(words, _NOBODY), np.full(words, _NOBODY)
        self.written, self.was_read = np.full(words, -1), np.full(words, -1)

    def read(self, words: Array, warps: Array, epoch: int) -> bool:
        """Note reads of words by warps (arrays of equal shape); True if they race."""
        new = (self.written[words] == epoch) & (self.writer[words] != warps)
        again = (self.was_read[words] == epoch) & (self.reader[words] != warps)
        self.reader[words] = np.where(again, _SEVERAL, warps)
        self.was_read[words] = epoch
        return bool(new.any())

    def write(self, words: Array, warps: Array, epoch: int) -> bool:
        """Note writes; True if they race."""
        other = (self.written[words] == epoch) & (self.writer[words] != warps)
        other |= (self.was_read[words] == epoch) & (self.reader[words] != warps)
        self.writer[words], self.written[words] = warps, epoch
        return bool(other.any())
