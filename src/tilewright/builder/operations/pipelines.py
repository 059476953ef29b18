"""Pipelines: circular buffers of stages in shared memory, with CUTLASS's interface.

    producer                                        consumer
        producer_acquire   wait until empty             consumer_wait      wait until full
        producer_commit    mark full                    consumer_release   mark empty

Each side keeps a ``PipelineState``: a stage and a phase. ``PipelineTmaAsync`` (TMA),
``PipelineCpAsync`` (cp.async) and ``PipelineAsync`` (plain stores) synchronise through a full and
an empty mbarrier for each stage. ``MultistagePipeline`` is the buffer of an sm_80 mainloop, without
mbarriers. ``OrderedSequenceBarrier`` alternates two consumer warpgroups (pingpong).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..source_location import kernel_error
from ..values.pointer import Pointer

if TYPE_CHECKING:
    from ..builder import Builder

WARPS = 4  # of a warpgroup


class PipelineState:
    """A position in the circular buffer: the stage's index and the parity of its phase."""

    def __init__(self, k: Builder, stages: int, phase: int) -> None:
        self.k, self.stages = k, stages
        self.stage, self.phase = k.var("u32", 0), k.var("u32", phase)

    def advance(self) -> None:
        """Go to the next stage."""
        k = self.k
        k.add(self.stage, 1, into=self.stage)
        with k.when(self.stage == self.stages):
            k.mov(0, into=self.stage)
            k.xor(self.phase, 1, into=self.phase)

    def skip(self, count: Any) -> None:
        """Go on by ``count`` stages, at most as many as there are."""
        k = self.k
        k.add(self.stage, count, into=self.stage)
        with k.when(self.stage >= self.stages):
            k.sub(self.stage, self.stages, into=self.stage)
            k.xor(self.phase, 1, into=self.phase)

    def advance_by(self, count: Any) -> None:
        """Skip ``count`` stages, which another warpgroup uses."""
        k = self.k
        total = self.stage + count
        wraps = total // self.stages
        k.sub(total, wraps * self.stages, into=self.stage)
        k.xor(self.phase, wraps & 1, into=self.phase)


class MbarrierPipeline:
    """Full and empty mbarriers for each of ``stages``: what the pipelines below share.

    A stage becomes full after ``producer_arrivals`` and all expected bytes, and empty after
    ``consumer_arrivals``.
    """

    def __init__(
        self, k: Builder, stages: int, consumer_arrivals: int, producer_arrivals: int = 1
    ) -> None:
        self.k, self.stages = k, stages
        self.consumer_arrivals, self.producer_arrivals = consumer_arrivals, producer_arrivals
        self.full = k.dynamic_shared(16 * stages, 8, dtype="b64")
        self.empty = self.full + stages

    def init(self) -> None:
        """Initialise the mbarriers. One thread calls it; a fence and a CTA barrier must follow."""
        for stage in range(self.stages):
            self.k.mbarrier_init(self.full + stage, self.producer_arrivals)
            self.k.mbarrier_init(self.empty + stage, self.consumer_arrivals)

    def make_producer_state(self) -> PipelineState:
        """The producer's start state: stage 0; all stages count as empty."""
        return PipelineState(self.k, self.stages, 1)

    def make_consumer_state(self) -> PipelineState:
        """The consumer's start state: stage 0; no stage is full."""
        return PipelineState(self.k, self.stages, 0)

    def producer_acquire(self, state: PipelineState) -> None:
        """Wait until the stage is empty."""
        self.k.mbarrier_wait(self.empty + state.stage, state.phase)

    def consumer_wait(self, state: PipelineState) -> None:
        """Wait until the stage is full."""
        self.k.mbarrier_wait(self.full + state.stage, state.phase)

    def consumer_release(self, stage: Any, rank: Any = None) -> None:
        """Arrive at the empty barrier of a stage, here or in the cluster's CTA ``rank``."""
        self.k.mbarrier_arrive(self.empty + stage, rank=rank)


class PipelineAsync(MbarrierPipeline):
    """The producer threads write the stage with ordinary stores."""

    def producer_commit(self, state: PipelineState) -> None:
        """Arrive at the stage's full barrier."""
        self.k.mbarrier_arrive(self.full + state.stage)


class PipelineTmaAsync(MbarrierPipeline):
    """One producer thread issues TMA or bulk copies, which complete transactions on the full
    barrier.
    """

    def producer_expect_transaction(self, state: PipelineState, bytes: Any) -> Pointer:
        """Arrive and expect ``bytes``; returns the barrier to pass to the copies."""
        barrier = self.full + state.stage
        self.k.mbarrier_arrive(barrier, bytes=bytes)
        return barrier


class PipelineCpAsync(MbarrierPipeline):
    """The producer threads copy with ``cp.async``; ``producer_arrivals`` is their number."""

    def producer_commit(self, state: PipelineState) -> None:
        """Arrive when this thread's prior ``cp_async`` copies complete. Each producer thread calls
        it. Before wgmma reads the stage, the consumer also needs ``fence_async`` after the wait.
        """
        self.k.cp_async_mbarrier_arrive(self.full + state.stage, noinc=True)


class MultistagePipeline:
    """Multistage buffer in which all threads of a CTA copy (``cp_async``) and read: commit groups
    and the CTA barrier synchronise. For sm_80 and later.

        pipeline = MultistagePipeline(k, stages)
        for stage in range(stages - 1):       # prologue
            …copies to stage…; pipeline.commit()
        for step in k.range(steps):
            pipeline.wait()                   # stage pipeline.read is full, pipeline.write empty
            …copies of step + stages - 1 to pipeline.write, if it exists…; pipeline.commit()
            …multiply stage pipeline.read…; pipeline.release()
    """

    def __init__(self, k: Builder, stages: int) -> None:
        if stages < 2:
            raise kernel_error(f"a multistage pipeline must have at least 2 stages, got {stages!r}")
        self.k, self.stages = k, stages
        self.read, self.write = k.var("u32", 0), k.var("u32", stages - 1)

    def commit(self) -> None:
        """Commit this thread's copies since the last commit (or none) as one stage's group."""
        self.k.cp_async_commit()

    def wait(self) -> None:
        """Wait until the oldest stage is full and the previous one is no longer read."""
        self.k.cp_async_wait(self.stages - 2)
        self.k.barrier()

    def release(self) -> None:
        """Release the stage that this thread has read, and advance."""
        k = self.k
        k.mov(self.read, into=self.write)
        k.add(self.read, 1, into=self.read)
        with k.when(self.read == self.stages):
            k.mov(0, into=self.read)


class OrderedSequenceBarrier:
    """Orders two warpgroups: each calls ``wait`` before its section and ``arrive`` after it.
    ``index``: 0 or 1, the warpgroup's position in the order.

    A wait tells a phase from its neighbours by its parity alone. So a warpgroup that skips stages
    must not look at them before the other warpgroup has seen them full, and every warp must arrive:
    a warp that lags two phases behind would miss its own.
    """

    def __init__(self, k: Builder, index: Any) -> None:
        self.k, self.index = k, index
        self.barriers = k.dynamic_shared(16, 8, dtype="b64")

    def init(self) -> None:
        """Initialise the mbarriers. One thread calls it; a fence and a CTA barrier must follow."""
        for i in range(2):
            self.k.mbarrier_init(self.barriers + i, WARPS)

    def start(self) -> None:
        """Set the start phase: warpgroup 0 goes first."""
        self.phase = self.k.var(1 - self.index)

    def wait(self) -> None:
        """Wait for this warpgroup's turn."""
        self.k.mbarrier_wait(self.barriers + self.index, self.phase)
        self.k.xor(self.phase, 1, into=self.phase)

    def arrive(self) -> None:
        """Signal the other warpgroup. One thread of each warp calls it."""
        self.k.mbarrier_arrive(self.barriers + (1 - self.index))
