"""A ring of stages in shared memory that one side fills and another empties.

    producer                                consumer
        acquire   wait until it is empty        wait      until it is full
        commit    so many bytes will land       release   it is empty again, wherever it is filled

Each side keeps its ``Place`` in the ring; an mbarrier for each stage and direction carries the
news. ``Turns`` are for two that use the ring in alternation.
"""

from __future__ import annotations

from typing import Any

from ..build import Builder, Pointer

WARPS = 4  # of a warpgroup


class Place:
    """Where a side stands in the ring: the stage's number, and the phase of its barriers."""

    def __init__(self, k: Builder, stages: int, phase: int) -> None:
        self.k, self.stages = k, stages
        self.stage, self.phase = k.var("u32", 0), k.var("u32", phase)

    def advance(self) -> None:
        """To the next stage."""
        k = self.k
        k.add(self.stage, 1, into=self.stage)
        with k.when(self.stage == self.stages):
            k.mov(0, into=self.stage)
            k.xor(self.phase, 1, into=self.phase)

    def skip(self, count: Any) -> None:
        """Over ``count`` stages, which another uses."""
        k = self.k
        total = self.stage + count
        turns = total // self.stages
        k.sub(total, turns * self.stages, into=self.stage)
        k.xor(self.phase, turns & 1, into=self.phase)


class Pipeline:
    """``stages`` of a ring. ``releases`` arrivals make a stage empty; one and its bytes, full."""

    def __init__(self, k: Builder, stages: int, releases: int) -> None:
        self.k, self.stages, self.releases = k, stages, releases
        self.full = k.dynamic_shared(16 * stages, 8, dtype="b64")
        self.empty = self.full + stages

    def init(self) -> None:
        """By one thread, before a fence and a barrier."""
        for stage in range(self.stages):
            self.k.mbarrier_init(self.full + stage, 1)
            self.k.mbarrier_init(self.empty + stage, self.releases)

    def producer(self) -> Place:
        """At the first stage, which is empty from the beginning."""
        return Place(self.k, self.stages, 1)

    def consumer(self) -> Place:
        """At the first stage, which is not full yet."""
        return Place(self.k, self.stages, 0)

    def acquire(self, place: Place) -> None:
        self.k.mbarrier_wait(self.empty + place.stage, place.phase)

    def commit(self, place: Place, size: int) -> Pointer:
        """``size`` bytes will land; the barrier that copies tell of them."""
        barrier = self.full + place.stage
        self.k.mbarrier_arrive(barrier, bytes=size)
        return barrier

    def wait(self, place: Place) -> None:
        self.k.mbarrier_wait(self.full + place.stage, place.phase)

    def release(self, stage: Any, rank: Any = None) -> None:
        """One arrival, here or at the cluster's CTA of that rank."""
        self.k.mbarrier_arrive(self.empty + stage, rank=rank)


class Turns:
    """Two that take turns: ``wait`` for one's own, ``pass_on`` to the other. ``index``: 0 or 1.

    A phase's parity tells it from its neighbours alone. So who skips stages that the other uses
    must not look at them before the other has seen them full, and every warp passes its turn on:
    one left behind would miss that it came, and came again.
    """

    def __init__(self, k: Builder, index: Any) -> None:
        self.k, self.index = k, index
        self.barriers = k.dynamic_shared(16, 8, dtype="b64")

    def init(self) -> None:
        """By one thread, before a fence and a barrier."""
        for i in range(2):
            self.k.mbarrier_init(self.barriers + i, WARPS)

    def begin(self) -> None:
        """The first one's turn is now, the second's after it."""
        self.phase = self.k.var(1 - self.index)

    def wait(self) -> None:
        self.k.mbarrier_wait(self.barriers + self.index, self.phase)
        self.k.xor(self.phase, 1, into=self.phase)

    def pass_on(self) -> None:
        """By a thread of each warp."""
        self.k.mbarrier_arrive(self.barriers + (1 - self.index))
