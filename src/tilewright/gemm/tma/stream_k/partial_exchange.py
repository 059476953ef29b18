"""Exchange of partial accumulators between CTAs, through the workspace of stream-K.

The workspace has a flag for each warpgroup of each CTA that shares the rows of a tile, then the
accumulators of these warpgroups, in the order of registers and threads: each access is coalesced.
A warpgroup stores its accumulators and sets its flag (release); the owner of the tile waits for the
flag (acquire), and adds them. A kernel before the GEMM resets the flags (``flag_reset``).
"""

from __future__ import annotations

from typing import Any

from ....builder import Builder, Pointer
from ....target import DeviceSpec
from ...kernel_scalars import global_pointer
from ...problem import Problem
from ..tile_scheduler import WorkTileInfo
from ..tma_config import TmaConfig
from ..tma_geometry import WARPGROUP
from .stream_k_tile_scheduler import StreamKTileScheduler

VECTOR = 4  # accumulators that a thread stores together
FLAG_BYTES, FLAGS_ALIGNMENT = 4, 128


class PartialExchange:
    """The exchange for consumer warpgroup ``consumer``. ``workspace``: its address."""

    def __init__(
        self, k: Builder, problem: Problem, config: TmaConfig, scheduler: StreamKTileScheduler,
        workspace: Any, consumer: Any,
    ) -> None:  # fmt: skip
        self.k, self.scheduler, self.barrier = k, scheduler, consumer + 1
        self.thread = k.tid.x & (WARPGROUP - 1)
        self.registers, self.parts = config.accumulator_registers, parts(config)
        self.part = consumer if self.parts > 1 else 0
        self.flags = global_pointer(k, workspace).cast("u32")
        partials = self.flags.add_bytes(flag_bytes(config, k.nctaid.x))
        self.partials = partials.cast(problem.accumulator_type)

    def store(self, accumulators: list[list[Any]], partial: Any) -> None:
        """Store the accumulators as number ``partial``, and set the flag."""
        flag, place = self._places(partial)
        values = [value for block in accumulators for value in block]
        for first in range(0, len(values), VECTOR):
            place.store(values[first : first + VECTOR], index=first * WARPGROUP)
        self._synchronize()
        with self.k.when(self.thread == 0):
            flag.store(1, order="release.gpu")

    def add_all(self, accumulators: list[list[Any]], tile: WorkTileInfo) -> None:
        """Add the partial accumulators of a tile that this CTA owns, in the order of K."""
        self.scheduler.for_each_partial(tile, lambda partial: self._add(accumulators, partial))

    def _add(self, accumulators: list[list[Any]], partial: Any) -> None:
        """Wait for the flag of number ``partial``, and add its accumulators."""
        k = self.k
        flag, place = self._places(partial)
        with k.if_(self.thread == 0):
            is_set = k.var("u32", 0)
            with k.while_(lambda: is_set == 0):
                is_set.set(flag.load(order="acquire.gpu")[0])
        self._synchronize()
        values = [value for block in accumulators for value in block]
        for first in range(0, len(values), VECTOR):
            others = place.load(VECTOR, index=first * WARPGROUP)
            for value, other in zip(values[first : first + VECTOR], others, strict=True):
                k.add(value, other, into=value)

    def _places(self, partial: Any) -> tuple[Pointer, Pointer]:
        """The flag, and this thread's first accumulators, of number ``partial``."""
        unit = partial * self.parts + self.part
        elements = unit.to("u64") * (self.registers * WARPGROUP)
        first = self.partials + elements + self.thread * VECTOR
        return self.flags + unit, first.aligned(VECTOR * first.size)

    def _synchronize(self) -> None:
        """Synchronize this warpgroup."""
        self.k.emit("bar.sync", self.barrier, WARPGROUP)


# --- the workspace ------------------------------------------------------------------------------


def parts(config: TmaConfig) -> int:
    """Warpgroups that share the rows of a tile."""
    return 1 if config.pingpong else config.epilogue_warpgroups


def flags(config: TmaConfig, ctas: Any) -> Any:
    """The number of flags, of a grid of ``ctas``."""
    return ctas * parts(config)


def flag_bytes(config: TmaConfig, ctas: Any) -> Any:
    """Bytes of the workspace before the partial accumulators."""
    return (flags(config, ctas) * FLAG_BYTES + (FLAGS_ALIGNMENT - 1)) & -FLAGS_ALIGNMENT


def grid_ctas(config: TmaConfig, device: DeviceSpec) -> int:
    """The CTAs of the grid: all that are resident."""
    return config.resident_clusters(device) * config.ctas


def shares_tiles(problem: Problem, config: TmaConfig, device: DeviceSpec) -> bool:
    """Whether CTAs share the k-blocks of some tiles."""
    return config.stream_k > 0 and stream_k_tiles(problem, config, device) > 0


def stream_k_tiles(problem: Problem, config: TmaConfig, device: DeviceSpec) -> int:
    """Work tiles (of clusters) whose k-blocks are shared out: those of the tail wave."""
    return config.cluster_tiles(problem) % config.resident_clusters(device)


def workspace_bytes(problem: Problem, config: TmaConfig, device: DeviceSpec) -> int:
    """Bytes of the flags and of the partial accumulators of all CTAs."""
    if not shares_tiles(problem, config, device):
        return 0
    ctas = grid_ctas(config, device)
    size: int = flag_bytes(config, ctas) + ctas * config.tile[0] * config.tile[1] * 4
    return size
