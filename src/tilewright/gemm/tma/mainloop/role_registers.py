"""Registers of a thread of the producer's and of the consumers' warpgroups."""

from __future__ import annotations

from ....target import DEFAULT_DEVICE
from ...columns import N
from ..tma_config import TmaConfig
from ..tma_geometry import OVERLAPPED, TmaGeometry

# (producer warpgroup, consumer warpgroup), by the number of consumers.
REGISTERS = {2: (24, 240), 3: (32, 160), 4: (24, 112)}
COPY_REGISTERS = {2: (40, 232), 4: (40, 112)}  # with a scale load warp, or a gather warp
UNIT = 8  # registers of a thread that are allocated together
OTHER_REGISTERS = 24  # of a thread with prepared weights besides accumulators and fragments


def role_registers(config: TmaConfig, copies: bool) -> tuple[int | None, int | None]:
    """Those that setmaxnreg sets; None: as launched. ``copies``: with a scale load warp, or a
    gather warp.
    """
    if config.overlapped:
        return None, None
    table = REGISTERS | COPY_REGISTERS if copies else REGISTERS
    return table.get(config.consumers, (None, None))


def launched_registers(config: TmaGeometry[N]) -> N:
    """Registers of a thread where grids overlap."""
    of_all = DEFAULT_DEVICE.limits.registers_per_sm // (OVERLAPPED * config.threads)
    registers: N = of_all // UNIT * UNIT
    return registers
