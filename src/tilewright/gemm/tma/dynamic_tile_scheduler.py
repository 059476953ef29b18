"""Dynamic tile scheduler: CTAs take work tiles from an atomic counter while the kernel runs.

A CTA that runs late, because other kernels share the GPU, processes fewer tiles. The producer warp
increments a counter in global memory and passes the index to the consumers through a pipeline of
slots in shared memory; an index beyond the last tile ends the CTA. The bits of D do not depend on
the order. A kernel of one thread resets the counter before each GEMM.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from ...builder import Builder, PipelineAsync, Reg, Traced
from ..kernel_launch import KernelArguments, LaunchShape
from ..kernel_scalars import global_pointer
from ..parameter_declaration import KernelParameters, parameter
from .tile_scheduler import ProcessTile, TileScheduler
from .tma_config import TmaConfig

COUNTER_BYTES = 16
SLOTS = 4  # even, so that pingpong warpgroups have slots of their own
WARPS = 4  # of a warpgroup


class TileQueue:
    """Pipeline of tile indices from the producer warp to the consumer warpgroups, and to the warps
    that load operands of their epilogues (``loads``), and to the one that loads block ``scales``.
    """

    def __init__(
        self, k: Builder, config: TmaConfig, *, loads: bool = False, scales: bool = False
    ) -> None:
        self.slots = k.dynamic_shared(4 * SLOTS, 16, dtype="u32")
        readers = 1 if config.pingpong else config.consumers
        self.pipeline = PipelineAsync(k, SLOTS, (WARPS + loads) * readers + scales)


class DynamicTileScheduler(TileScheduler):
    """Tile scheduler with an atomic counter at the address ``counter``."""

    knows_first_tile = False

    def __init__(
        self, queue: TileQueue, counter: Any, k: Builder, config: TmaConfig, *sizes: Any
    ) -> None:
        super().__init__(k, config, *sizes)
        self.slots, self.pipeline = queue.slots, queue.pipeline
        self.counter = global_pointer(k, counter).cast("u32")

    def for_each_tile_of_producer(self, process: ProcessTile) -> None:
        """The loop of the producer warp: take an index, publish it, process its tile."""
        k, pipeline = self.k, self.pipeline
        state, index = pipeline.make_producer_state(), k.var("u32")
        k.wait_for_prior_grids()

        def publish() -> None:
            pipeline.producer_acquire(state)
            (self.slots + state.stage).store(index)
            pipeline.producer_commit(state)
            state.advance()

        def take() -> None:
            index.set(self.counter.atomic("add", 1))
            publish()

        take()
        with k.while_(lambda: index < self.count):
            process(self.work_tile(index), None)
            take()
        if self.config.pingpong:  # ends the other warpgroup, too
            publish()

    def for_each_tile(self, process: ProcessTile, first: Any = 0, groups: int = 1) -> None:
        """The loop of a consumer warpgroup, over the indices that the producer publishes."""
        k, pipeline = self.k, self.pipeline
        state, index = pipeline.make_consumer_state(), k.var("u32")
        if groups > 1:
            with k.if_(first == 1):
                state.advance()

        def take() -> None:
            pipeline.consumer_wait(state)
            index.set((self.slots + state.stage).load(1)[0])
            k.syncwarp()
            with k.when(k.laneid == 0):
                pipeline.consumer_release(state.stage)
            for _ in range(groups):
                state.advance()

        take()
        with k.while_(lambda: index < self.count):
            process(self.work_tile(index), self.k_blocks)
            take()


# --- the kernel that resets the counter ---------------------------------------------------------


@dataclass(frozen=True)
class CounterParameters(KernelParameters):
    """The counter's address."""

    counter: Reg = parameter("u64", address="w")


def build(*_: object) -> Traced:
    """The kernel that resets the counter, the same for all problems."""
    return _build()


@cache
def _build() -> Traced:
    def kernel(k: Builder, p: CounterParameters) -> None:
        k.wait_for_prior_grids()
        k.launch_dependent_grids()
        global_pointer(k, p.counter).cast("u32").store(0)

    return CounterParameters.trace(kernel, "gemm_counter", block=1)


def launch_shape(*_: object) -> LaunchShape:
    """One thread."""
    return LaunchShape((1, 1, 1), (1, 1, 1), None, True)


def kernel_arguments(*_: object) -> KernelArguments:
    """The counter's address is the workspace's."""
    return CounterParameters.pack({})


def workspace_bytes(config: TmaConfig) -> int:
    """Bytes of the counter."""
    return COUNTER_BYTES if config.dynamic else 0
