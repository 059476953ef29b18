"""Pipelines that cp.async fills, with commit groups and with mbarriers: every stage is read whole,
in any order of completion.
"""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright.builder import MultistagePipeline, PipelineCpAsync, ptr, u32
from tilewright.errors import KernelError, VmFault
from tilewright.run import VmDevice

pytestmark = pytest.mark.vm

THREADS, X = 64, np.arange(64 * 23, dtype=np.int32).reshape(23, 64) ** 2
S32 = ptr("s32")


@tilewright.kernel(block=THREADS)
def by_groups(k: Any, x: S32, y: S32, steps: u32, *, stages: int) -> None:
    """Each thread adds up what others copied."""
    pipeline, tiles = MultistagePipeline(k, stages), k.shared("s32", THREADS * stages)

    def bring(step: Any, stage: Any) -> None:
        with k.when(step < steps):
            k.cp_async(tiles + (stage * THREADS + k.tid.x), x + (step * THREADS + k.tid.x), 4)
        pipeline.commit()

    for stage in range(stages - 1):
        bring(k.const("u32", stage), stage)
    total = k.var("s32", 0)
    for step in k.range(steps):
        pipeline.wait()
        bring(step + (stages - 1), pipeline.write)
        total += tiles[pipeline.read * THREADS + (k.tid.x + step) % THREADS]
        pipeline.release()
    y[k.tid.x] = total


@tilewright.kernel(block=2 * THREADS)
def by_barriers(k: Any, x: S32, y: S32, steps: u32, *, stages: int) -> None:
    """Half of the threads copy, the others add up."""
    pipeline, tiles = (
        PipelineCpAsync(k, stages, THREADS, THREADS),
        k.shared("s32", THREADS * stages),
    )
    thread = k.tid.x % THREADS
    with k.if_(k.tid.x == 0):
        pipeline.init()
    k.barrier()
    with k.if_(k.tid.x < THREADS):
        at = pipeline.make_producer_state()
        for step in k.range(steps):
            pipeline.producer_acquire(at)
            k.cp_async(tiles + (at.stage * THREADS + thread), x + (step * THREADS + thread), 4)
            pipeline.producer_commit(at)
            at.advance()
    with k.else_():
        at, total = pipeline.make_consumer_state(), k.var("s32", 0)
        for step in k.range(steps):
            pipeline.consumer_wait(at)
            total += tiles[at.stage * THREADS + (thread + step) % THREADS]
            pipeline.consumer_release(at.stage)
            at.advance()
        y[thread] = total


@pytest.mark.parametrize("stages", [2, 3, 5])
@pytest.mark.parametrize("kernel", [by_groups, by_barriers], ids=lambda k: k.__name__)
def test_every_stage_is_read_whole(kernel: Any, stages: int) -> None:
    steps, lanes = np.arange(len(X))[:, None], np.arange(THREADS)
    expected = X[steps, (lanes + steps) % THREADS].sum(0)
    for seed in range(4):
        y = np.zeros(THREADS, np.int32)
        kernel[1](X, y, len(X), stages=stages, device=VmDevice(seed=seed))
        np.testing.assert_array_equal(y, expected)


def test_named_barriers_count_who_goes_on() -> None:
    """One warp makes what another takes: "full" is barrier 1, "empty" barrier 2."""

    @tilewright.kernel(block=64)
    def passed_on(k: Any, x: S32, y: S32) -> None:
        slot, lane = k.shared("s32", 32), k.tid.x % 32
        with k.if_(k.tid.x < 32):
            for step in range(3):
                k.barrier(2, 64)
                slot[lane] = x[step * 32 + lane]
                k.barrier_arrive(1, 64)
        with k.else_():
            k.barrier_arrive(2, 64)
            for step in range(3):
                k.barrier(1, 64)
                y[step * 32 + lane] = slot[31 - lane]
                if step < 2:
                    k.barrier_arrive(2, 64)

    x = np.arange(96, dtype=np.int32)
    for seed in range(4):
        y = np.zeros_like(x)
        passed_on[1](x, y, device=VmDevice(seed=seed, checked=True))
        np.testing.assert_array_equal(y, x.reshape(3, 32)[:, ::-1].ravel())


def test_barrier_arrive_needs_threads() -> None:
    @tilewright.kernel(block=64)
    def kernel(k: Any) -> None:
        k.barrier_arrive(1, 0)

    with pytest.raises(KernelError, match="at least 32 threads, got 0"):
        kernel.trace()


def test_a_multistage_pipeline_needs_two_stages() -> None:
    with pytest.raises(KernelError, match="must have at least 2 stages"):
        by_groups.trace(stages=1)


def test_a_deadlock_is_limited() -> None:
    """Nobody sets the flag that the kernel spins on."""

    @tilewright.kernel(block=32)
    def spins(k: Any, flag: S32) -> None:
        with k.while_(lambda: flag.load(order="volatile")[0] == 0):
            pass

    with pytest.raises(VmFault, match=r"lanes 0xffffffff run, line \d+") as caught:
        spins[1](np.zeros(1, np.int32), device=VmDevice(step_limit=10_000))
    location = caught.value.location
    assert caught.value.kind == "step limit" and location is not None
    assert "flag.load" in linecache.getline(__file__, location.line)
