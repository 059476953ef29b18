"""The parameters of a launch (``LaunchSetup``), and its state as reports see it (``LaunchState``).

``launcher.RunningLaunch`` implements ``LaunchState``. Fault reports, deadlock reports and host
functions depend on this protocol only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ...native.native_record import Record
from ...target import Limits
from ..codegen.loaded_kernel import LoadedKernel
from ..state.global_memory import GlobalMemory

if TYPE_CHECKING:
    from ..program.program import Program

Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class LaunchSetup:
    """One launch: grid, block, packed parameters, dynamic shared memory, limits and options."""

    grid: Dim3
    block: Dim3
    params: bytes
    shared: int
    limits: Limits
    sms: int
    seed: int = 0
    step_limit: int = 0
    cluster: Dim3 = (1, 1, 1)
    explicit: bool = False  # the caller or the kernel specifies the cluster
    checked: bool = False
    stack: int = 0  # bytes of stack per thread, if the kernel uses a stack
    number: int = 0  # index among the launches of the machine
    cooperative: bool = False  # all CTAs are co-resident and may wait for each other
    programmatic: bool = False  # may start before the previous grid has ended

    @property
    def cluster_size(self) -> int:
        return math.prod(self.cluster)

    @property
    def ctas(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def warps(self) -> int:
        return -(-self.threads // 32)

    def resident(self, shared_bytes: int) -> int:
        """The number of CTAs that are resident on a GPU."""
        limits = self.limits
        memory = limits.shared_per_sm // max(1, shared_bytes + limits.shared_reserved)
        threads = limits.threads_per_sm // (32 * self.warps)
        ctas = self.sms * max(1, min(limits.blocks_per_sm, threads, memory))
        return max(1, ctas // self.cluster_size) * self.cluster_size


class LaunchState(Protocol):
    """A launch in progress, as its reports and host functions see it."""

    memory: GlobalMemory
    kernel: LoadedKernel
    setup: LaunchSetup
    launch: Record

    @property
    def program(self) -> Program:
        """The program of the kernel."""

    def renew(self) -> None:
        """Make the current allocations visible to the launch."""
