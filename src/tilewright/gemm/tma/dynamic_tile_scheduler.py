"""Tiles by a counter: which CTA computes which is decided while the kernel runs.

A CTA that is late, because others share the machine, takes fewer tiles. The warp that copies takes
the next number from a counter in global memory and passes it on through a ring of slots in shared
memory; a number beyond the last tile ends the CTA. Which bits come out does not depend on it. A
kernel of one thread sets the counter to zero first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ...builder import Builder, PipelineAsync, Traced, trace
from ..kernel_launch import KernelArguments, LaunchShape
from ..kernel_scalars import global_pointer
from .tile_scheduler import TileScheduler, WorkTileInfo
from .tma_config import TmaConfig

COUNTER_BYTES = 16
SLOTS = 4  # even, so that warpgroups that take turns have slots of their own
WARPS = 4  # of a warpgroup
PARAMETERS = {"w": "u64"}


class TileQueue:
    """Tiles' numbers on their way from the warp that copies to those that multiply."""

    def __init__(self, k: Builder, config: TmaConfig) -> None:
        self.slots = k.dynamic_shared(4 * SLOTS, 16, dtype="u32")
        takers = 1 if config.pingpong else config.consumers
        self.ring = PipelineAsync(k, SLOTS, WARPS * takers)


class DynamicTileScheduler(TileScheduler):
    """A schedule whose tiles come from a counter, at the address ``counter``."""

    def __init__(self, queue: TileQueue, counter: Any, k: Builder, *given: Any) -> None:
        super().__init__(k, *given)
        self.slots, self.ring = queue.slots, queue.ring
        self.counter = global_pointer(k, counter).cast("u32")

    def produce(self, do: Callable[[WorkTileInfo, Any], None]) -> None:
        k, ring = self.k, self.ring
        at, index = ring.make_producer_state(), k.var("u32")
        k.wait_on_dependent_grids()

        def pass_on() -> None:
            ring.producer_acquire(at)
            (self.slots + at.stage).store(index)
            ring.producer_commit(at)
            at.advance()

        def take() -> None:
            index.set(self.counter.atomic("add", 1))
            pass_on()

        take()
        with k.while_(lambda: index < self.count):
            do(self.work(index), None)
            take()
        if self.config.pingpong:  # the other warpgroup ends, too
            pass_on()

    def walk(self, do: Callable[[WorkTileInfo, Any], None], first: Any = 0, turns: int = 1) -> None:
        k, ring = self.k, self.ring
        at, index = ring.make_consumer_state(), k.var("u32")
        if turns > 1:
            with k.if_(first == 1):
                at.advance()

        def take() -> None:
            ring.consumer_wait(at)
            index.set((self.slots + at.stage).load(1)[0])
            k.syncwarp()
            with k.when(k.laneid == 0):
                ring.consumer_release(at.stage)
            for _ in range(turns):
                at.advance()

        take()
        with k.while_(lambda: index < self.count):
            do(self.work(index), self.steps)
            take()


# --- the kernel before --------------------------------------------------------------------------


def build(*_: Any) -> Traced:
    """The kernel that sets the counter to zero; it is one for all problems."""
    return _build()


@cache
def _build() -> Traced:
    def kernel(k: Builder, w: Any) -> None:
        k.wait_on_dependent_grids()
        k.launch_dependent_grids()
        global_pointer(k, w).cast("u32").store(0)

    return trace(kernel, name="gemm_counter", params=PARAMETERS, lines=False, block=1)


def launch_shape(*_: Any) -> LaunchShape:
    """One thread."""
    return LaunchShape((1, 1, 1), (1, 1, 1), None, True)


def kernel_arguments(*_: Any) -> KernelArguments:
    """Where the counter is."""
    return KernelArguments.of(PARAMETERS, {}, {"w": ("w",)})


def workspace_bytes(config: TmaConfig) -> int:
    """Bytes of the counter."""
    return COUNTER_BYTES if config.dynamic else 0
