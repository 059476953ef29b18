"""The first consumer warpgroup gets the accumulators of the others, through shared memory.

Of sliced-K these are partial accumulators, which it adds in the order of the slices. Of two
matrices whose rows warpgroups divide, the second half of the warpgroups has the accumulators of
the second matrix.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from ....builder import Builder
from ...problem import Problem
from ..tma_config import TmaConfig
from ..tma_geometry import WARPGROUP

WORD = 4  # bytes
BARRIER = 15


class AccumulatorHandover:
    """The handover for consumer warpgroup ``consumer``; ``shared``: the address of its buffers."""

    def __init__(
        self, k: Builder, problem: Problem, config: TmaConfig, shared: Any, consumer: Any
    ) -> None:
        self.k, self.consumer, self.slices = k, consumer, config.slices
        self.others = config.handing_warpgroups(problem)
        self.together = config.handed_buffers(problem)
        self.shared = shared
        self.second: list[Any] = []
        if config.divides_pair(problem):
            self.second = list(k.array("f32", config.tile[1] // 2))

    def run(self, totals: list[list[Any]]) -> list[list[Any]]:
        """The totals of the first warpgroup, in which those of all are: all are handed over at once
        where there are buffers for them, else one after the other.
        """
        k, own, together = self.k, list(chain(*totals)), self.together
        thread = k.tid.x & (WARPGROUP - 1)
        buffer = k.pointer("shared", "f32", self.shared + thread * WORD)
        for total in self.second:  # else they would be live in the mainloop
            total.set(0.0)
        for first in range(1, self.others + 1, together):
            for place in range(together):
                with k.if_(self.consumer == first + place):
                    for i, total in enumerate(own, place * len(own)):
                        buffer.store(total, index=i * WARPGROUP)
            self._synchronize()
            with k.if_(self.consumer == 0):
                for i in range(together * len(own)):
                    place, number = divmod(i, len(own))
                    self._receive(first + place, own, number, buffer[i * WARPGROUP])
            self._synchronize()
        return [own, self.second] if self.second else totals

    def _receive(self, other: int, own: list[Any], number: int, value: Any) -> None:
        """Add an accumulator of another warpgroup to that of its matrix."""
        matrix, slice_ = divmod(other, self.slices)
        total = (own, self.second)[matrix][number]
        if matrix and slice_ == 0:
            self.k.mov(value, into=total)
        else:
            self.k.add(total, value, into=total)

    def _synchronize(self) -> None:
        self.k.emit("bar.sync", BARRIER, (1 + self.others) * WARPGROUP)
