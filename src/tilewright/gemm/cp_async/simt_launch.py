"""The launch of kernel ``simt``: which CTA computes which tile of D, and when grids start.

The order of tiles is that of ``rasterization``, by parameters in place of divisions, which take a
small product a tenth of a microsecond.

With programmatic dependent launch a grid starts while the one ahead runs: its CTAs are placed where
that one leaves room. Where all of them find room at once, or none before a CTA ends, they are
spread evenly over the SMs. Else some SMs would have more of them than others, and the grid would
take as long as those: 1.2 times as long in measurements (``benchmarks/NOTES.md``). There unused
shared memory leaves no room.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...builder import Builder, Reg
from ...target import DeviceSpec
from ..kernel_launch import LaunchShape, unused_shared
from ..parameter_declaration import parameter
from ..problem import Problem
from .cp_async_parameters import CpAsyncParameters
from .simt_config import SimtConfig

PROGRAMMATIC_TARGET = "sm_90"
_BITS = 31  # of a tile's index


def launched_config(config: SimtConfig, device: DeviceSpec) -> SimtConfig:
    """The configuration of the kernel that the device launches."""
    return replace(config, programmatic=device.target.runs(PROGRAMMATIC_TARGET))


def launch_shape(problem: Problem, config: SimtConfig, device: DeviceSpec) -> LaunchShape:
    """The launch: a CTA for each tile of each D and each part of split-K."""
    tiles, resident = config.tiles(problem), config.resident(device.limits)
    cluster = (1, config.split, 1) if config.in_cluster else None
    each, unused = -(-tiles * config.split // device.sms), 0  # CTAs of an SM
    if config.programmatic and each < resident < 2 * each:
        unused = unused_shared(each, config.shared_bytes, device.limits)
    grid, block = (tiles, config.split, 1), (config.threads, 1, 1)
    return LaunchShape(grid, block, cluster, config.programmatic, unused)


@dataclass(frozen=True)
class SimtParameters(CpAsyncParameters):
    """Parameters of kernel ``simt``: ``group_tiles``, the number of tiles in a group of rows of
    tiles; ``whole_groups``, the number of groups with all rows; ``last_rows``, the number of rows
    of tiles in the group after them; and multiplier and shift of the divisions by ``group_tiles``
    and by ``last_rows``.
    """

    group_tiles: Reg = parameter("u32")
    group_multiplier: Reg = parameter("u32")
    group_shift: Reg = parameter("u32")
    whole_groups: Reg = parameter("u32")
    last_rows: Reg = parameter("u32")
    last_multiplier: Reg = parameter("u32")
    last_shift: Reg = parameter("u32")


def raster_values(problem: Problem, config: SimtConfig) -> dict[str, int]:
    """The values of these parameters."""
    bm, bn, _ = config.tile
    rows, columns = -(-problem.m // bm), -(-problem.n // bn)
    whole, last = divmod(rows, config.group)
    tiles = columns * min(rows, config.group)
    (group_multiplier, group_shift), (last_multiplier, last_shift) = map(divisor, (tiles, last))
    return {
        "group_tiles": tiles, "group_multiplier": group_multiplier, "group_shift": group_shift,
        "whole_groups": whole, "last_rows": last, "last_multiplier": last_multiplier,
        "last_shift": last_shift,
    }  # fmt: skip


def divisor(number: int) -> tuple[int, int]:
    """(multiplier, shift) of ``quotient``; of 0, which is never used, those of 1."""
    shift = max(0, number - 1).bit_length()
    return -(-(1 << _BITS + shift) // max(1, number)), shift


def quotient(k: Builder, dividend: Any, multiplier: Any, shift: Any) -> Any:
    """``dividend``, below 2^31, over the number of this multiplier and shift."""
    return k.emit("mul.hi.u32", dividend + dividend, multiplier) >> shift


def tile_coordinates(k: Builder, p: SimtParameters, index: Any, group: int) -> tuple[Any, Any]:
    """(row, column) of tile ``index``, in groups of ``group`` rows of tiles."""
    number = quotient(k, index, p.group_multiplier, p.group_shift)
    within = index - number * p.group_tiles
    whole = number < p.whole_groups
    column = k.select(whole, within // group, quotient(k, within, p.last_multiplier, p.last_shift))
    return number * group + within - column * k.select(whole, group, p.last_rows), column
