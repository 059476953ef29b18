"""Rings of stages in shared memory that one side fills and another empties.

    producer                                consumer
        acquire   wait until it is empty        wait      until it is full
        commit    its bytes will land           release   it is empty again, wherever it is filled

Each side keeps its ``Place`` in the ring. In a ``Pipeline`` an mbarrier for each stage and
direction carries the news; a ``CopyRing`` is that of one CTA whose threads all copy (cp.async) and
all read. ``Turns`` are for two that use a ring in alternation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..source_location import kernel_error
from ..values.pointer import Pointer

if TYPE_CHECKING:
    from ..builder import Builder

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
    """``stages`` of a ring. ``releases`` arrivals make a stage empty; ``commits``, and the bytes
    that they announce, full.

    The producer is a thread that starts tensor copies (one commit), or the threads that copy by
    cp.async (as many commits as threads).
    """

    def __init__(self, k: Builder, stages: int, releases: int, commits: int = 1) -> None:
        self.k, self.stages, self.releases, self.commits = k, stages, releases, commits
        self.full = k.dynamic_shared(16 * stages, 8, dtype="b64")
        self.empty = self.full + stages

    def init(self) -> None:
        """By one thread, before a fence and a barrier."""
        for stage in range(self.stages):
            self.k.mbarrier_init(self.full + stage, self.commits)
            self.k.mbarrier_init(self.empty + stage, self.releases)

    def producer(self) -> Place:
        """At the first stage, which is empty from the beginning."""
        return Place(self.k, self.stages, 1)

    def consumer(self) -> Place:
        """At the first stage, which is not full yet."""
        return Place(self.k, self.stages, 0)

    def acquire(self, place: Place) -> None:
        """Wait until the stage is empty."""
        self.k.mbarrier_wait(self.empty + place.stage, place.phase)

    def commit(self, place: Place, size: Any) -> Pointer:
        """``size`` bytes will land; the barrier that tensor and bulk copies tell of them."""
        barrier = self.full + place.stage
        self.k.mbarrier_arrive(barrier, bytes=size)
        return barrier

    def commit_copies(self, place: Place) -> None:
        """By each thread that copies: the stage is full when its ``cp_async`` so far have landed.
        What wgmma reads of them needs a ``fence_async`` after ``wait``, too.
        """
        self.k.cp_async_mbarrier_arrive(self.full + place.stage, noinc=True)

    def wait(self, place: Place) -> None:
        """Wait until the stage is full."""
        self.k.mbarrier_wait(self.full + place.stage, place.phase)

    def release(self, stage: Any, rank: Any = None) -> None:
        """One arrival, here or at the cluster's CTA of that rank."""
        self.k.mbarrier_arrive(self.empty + stage, rank=rank)


class CopyRing:
    """``stages`` of a ring that all threads of a CTA fill by ``cp_async`` and all read: groups of
    copies and the CTA's barrier carry the news, for sm_80 and later.

        ring = CopyRing(k, stages)
        for stage in range(stages - 1):       # the first ones
            …copies to stage…; ring.commit()
        for step in k.range(steps):
            ring.wait()                       # ring.read is full, ring.write empty, for all threads
            …copies to ring.write of step + stages - 1, if there is such a step…; ring.commit()
            …products of ring.read…; ring.release()
    """

    def __init__(self, k: Builder, stages: int) -> None:
        if stages < 2:
            raise kernel_error(f"a ring of copies has two stages at least, not {stages!r}")
        self.k, self.stages = k, stages
        self.read, self.write = k.var("u32", 0), k.var("u32", stages - 1)

    def commit(self) -> None:
        """This thread's copies since the last commit are one stage's, none too."""
        self.k.cp_async_commit()

    def wait(self) -> None:
        """Until the oldest stage is full, and the one before it is read."""
        self.k.cp_async_wait(self.stages - 2)
        self.k.barrier()

    def release(self) -> None:
        """This thread has read the stage: on to the next."""
        k = self.k
        k.mov(self.read, into=self.write)
        k.add(self.read, 1, into=self.read)
        with k.when(self.read == self.stages):
            k.mov(0, into=self.read)


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
        """Until it is this one's turn."""
        self.k.mbarrier_wait(self.barriers + self.index, self.phase)
        self.k.xor(self.phase, 1, into=self.phase)

    def pass_on(self) -> None:
        """By a thread of each warp."""
        self.k.mbarrier_arrive(self.barriers + (1 - self.index))
