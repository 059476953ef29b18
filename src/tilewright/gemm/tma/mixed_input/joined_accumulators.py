"""Split-K in a cluster: two CTAs have the parts of a tile's k-blocks, and add their accumulators.

Each stores half of the tile's columns: it gets the accumulators of that half from the other CTA,
which writes them to this one's shared memory (distributed shared memory), and adds them to its own.
"""

from __future__ import annotations

from typing import Any

from ....builder import Builder, Pointer
from ..tma_geometry import WARPGROUP

VECTOR = 4  # accumulators that a thread writes together
WORD = 4  # bytes
WARP, WARPS = 32, 4


class JoinedAccumulators:
    """The exchange of a consumer warpgroup. ``shared``: the address of its buffer; ``barriers``:
    two mbarriers of the warpgroup, that its buffer is full, and that the other CTA's is empty.
    """

    def __init__(self, k: Builder, shared: Any, barriers: Pointer) -> None:
        self.k, self.barriers = k, barriers
        self.rank = k.cluster_rank
        self.other = self.rank ^ 1
        self.address = shared + (k.tid.x & (WARPGROUP - 1)) * (VECTOR * WORD)
        self.phase = k.var("u32", 0)
        self.started = k.var("u32", 0)

    @staticmethod
    def init(k: Builder, barriers: Pointer, count: int) -> None:
        """Initialize the barriers of ``count`` warpgroups. One thread calls it."""
        for i in range(2 * count):
            k.mbarrier_init(barriers + i, WARPS)

    def run(self, accumulators: list[list[Any]]) -> list[list[Any]]:
        """The sums of the columns that this CTA stores."""
        k = self.k
        self.begin()
        halves = [block[: len(block) // 2] for block in accumulators]
        others = [block[len(block) // 2 :] for block in accumulators]
        k.mbarrier_wait(self.barriers + 1, self.phase ^ 1, scope="cluster")
        there = k.mapa(self.address, self.other)
        with k.if_(self.rank == 0):
            self._send(there, [x for block in others for x in block])
        with k.else_():
            self._send(there, [x for block in halves for x in block])
            for half, other in zip(halves, others, strict=True):
                for own, value in zip(half, other, strict=True):
                    k.mov(value, into=own)
        self._arrive(self.barriers)
        k.mbarrier_wait(self.barriers, self.phase, scope="cluster")
        values = [x for block in halves for x in block]
        pointer = k.pointer("shared", "f32", self.address).aligned(VECTOR * WORD)
        for first in range(0, len(values), VECTOR):
            received = pointer.load(VECTOR, index=first * WARPGROUP)
            for own, value in zip(values[first : first + VECTOR], received, strict=True):
                k.add(own, value, into=own)
        self._arrive(self.barriers + 1)
        self.phase.set(self.phase ^ 1)
        return halves

    def begin(self) -> None:
        """Wait until the other CTA has initialized its barriers, once."""
        k = self.k
        with k.if_(self.started == 0):
            k.cluster_wait()
            self.started.set(1)

    def drain(self) -> None:
        """Wait until the other CTA accesses nothing of this one any more; of a warpgroup that had
        no tile, too.
        """
        self.begin()
        self.k.mbarrier_wait(self.barriers + 1, self.phase ^ 1, scope="cluster")

    def _send(self, there: Any, values: list[Any]) -> None:
        for first in range(0, len(values), VECTOR):
            at = there + first * WARPGROUP * WORD
            four = tuple(values[first : first + VECTOR])
            self.k.emit("st.shared::cluster.v4.f32", at, four)

    def _arrive(self, barrier: Pointer) -> None:
        """Each warp arrives at the other CTA's barrier, after all of its threads."""
        k = self.k
        k.syncwarp()
        with k.if_(k.tid.x & (WARP - 1) == 0):
            k.mbarrier_arrive(barrier, rank=self.other)
