"""Data races on shared memory: two warps access a word, one writes, and no barrier is between; or a
word is used while a copy to it (``LDGSTS``) is not known to be complete.

A warp's copies belong to groups, which ``LDGDEPBAR`` closes. A group is complete where the warp
waits for the barrier that its LDGDEPBAR signals; then the copies count as writes of that place.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_NOBODY, _SEVERAL = -1, -2


class SharedRaces:
    """For each word the warp that last wrote and read it, and between which barriers; of copies the
    warp and its group.
    """

    def __init__(self, size: int) -> None:
        words = -(-size // 4) + 4
        self.writer, self.reader = np.full(words, _NOBODY), np.full(words, _NOBODY)
        self.written, self.was_read = np.full(words, -1), np.full(words, -1)
        self.copier, self.group = np.full(words, _NOBODY), np.zeros(words, np.int64)
        self.closed: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self.number: defaultdict[int, int] = defaultdict(int)  # of each warp's open group

    def read(self, words: Array, warps: Array, epoch: int) -> bool:
        """Note reads of words by warps (arrays of equal shape); True if they race."""
        new = (self.written[words] == epoch) & (self.writer[words] != warps)
        new |= self.copier[words] != _NOBODY
        again = (self.was_read[words] == epoch) & (self.reader[words] != warps)
        self.reader[words] = np.where(again, _SEVERAL, warps)
        self.was_read[words] = epoch
        return bool(new.any())

    def write(self, words: Array, warps: Array, epoch: int) -> bool:
        """Note writes; True if they race."""
        other = (self.written[words] == epoch) & (self.writer[words] != warps)
        other |= (self.was_read[words] == epoch) & (self.reader[words] != warps)
        other |= self.copier[words] != _NOBODY
        self.writer[words], self.written[words] = warps, epoch
        return bool(other.any())

    # --- copies -----------------------------------------------------------------------------------

    def copy(self, words: Array, warps: Array, epoch: int) -> bool:
        """Note copies to words, which may land from now on; True if they race."""
        races = self.write(words, warps, epoch)
        self.copier[words] = warps
        self.group[words] = [self.number[int(warp)] for warp in warps]
        return races

    def close_group(self, warp: int, barrier: int) -> None:
        """LDGDEPBAR: the warp's copies so far signal ``barrier``; none for 0."""
        self.closed[warp].append((barrier, self.number[warp]))
        self.number[warp] += 1

    def complete(self, warp: int, barrier: int, left: int, epoch: int) -> None:
        """A wait until at most ``left`` of the warp's groups on ``barrier`` are not complete."""
        mine = [number for b, number in self.closed[warp] if b == barrier]
        done = mine[: max(0, len(mine) - left)]
        if not done:
            return
        words = (self.copier == warp) & (self.group <= done[-1])
        self.copier[words], self.written[words] = _NOBODY, epoch
        self.closed[warp] = [(b, number) for b, number in self.closed[warp] if number > done[-1]]
