"""Workspace of a GEMM: the partial accumulators of split-K or stream-K, or the counter of a
dynamic tile scheduler, then the partial results of an epilogue's reductions.
"""

from __future__ import annotations

from math import prod
from typing import Any, Protocol

from ..target import DeviceSpec
from .columns import power_of_two_divisor
from .cp_async.multistage_config import STAGED_ROWS
from .cp_async.simt_config import VECTOR, SimtConfig
from .epilogue.reductions import ReductionRegion, reduction_regions
from .problem import Problem
from .tma import dynamic_tile_scheduler, tma_reductions
from .tma.stream_k import partial_exchange
from .tma.tma_config import TmaConfig

WARP_ELEMENTS = 128  # that a warp of the cp.async kernels stores at a time: 4 of each lane
SPLIT_UNIT_ROWS, SPLIT_UNIT_COLUMNS = 16, 32  # of a unit in split-K's reduction, at most
F64_UNIT = 8, 8  # of an mma.sync's accumulators: 8 by 4 lanes with 2 columns each


class SplitKConfig(Protocol):
    """What the workspace takes from the configuration of a GEMM kernel."""

    def __hash__(self) -> int: ...
    @property
    def tile(self) -> tuple[int, int, int]: ...
    @property
    def cluster(self) -> tuple[int, int]: ...
    @property
    def split(self) -> int: ...
    @property
    def group(self) -> int: ...
    @property
    def swap(self) -> Any: ...
    @property
    def programmatic(self) -> bool: ...
    def cluster_tiles(self, problem: Problem) -> int: ...
    def unsplit_tiles(self, problem: Problem, device: DeviceSpec) -> int: ...


# --- split-K --------------------------------------------------------------------------------------


def d_tile(config: SplitKConfig) -> tuple[int, int]:
    """Rows and columns of D in a tile."""
    bm, bn, _ = config.tile
    return (bn, bm) if config.swap else (bm, bn)


def split_tiles(problem: Problem, config: SplitKConfig, device: DeviceSpec) -> int:
    """The number of tiles that are split along K."""
    tiles = config.cluster_tiles(problem) - config.unsplit_tiles(problem, device)
    return tiles * prod(config.cluster)


def split_k_bytes(problem: Problem, config: SplitKConfig, device: DeviceSpec) -> int:
    """Bytes of the partial accumulators of all split tiles."""
    tile = config.tile[0] * config.tile[1] * 4
    return split_tiles(problem, config, device) * config.split * tile


# --- reductions of an epilogue --------------------------------------------------------------------


def unit_shape(problem: Problem, config: Any) -> tuple[int, int]:
    """Rows and columns of D in a unit: a warp's elements that have one partial result."""
    if isinstance(config, TmaConfig):
        return tma_reductions.unit_shape(problem, config)
    if isinstance(config, SimtConfig) and not config.has_partials:
        return config.lanes[0] * VECTOR, config.lanes[1] * VECTOR
    if problem.is_f64:
        return F64_UNIT
    if config.split > 1:
        return SPLIT_UNIT_ROWS, power_of_two_divisor(config.tile[1], SPLIT_UNIT_COLUMNS)
    stored = STAGED_ROWS if problem.sparse == "b" else config.warp_tile[1]  # columns at a time
    columns = power_of_two_divisor(stored, WARP_ELEMENTS)
    return WARP_ELEMENTS // columns, columns


def regions(problem: Problem, config: Any) -> tuple[ReductionRegion, ...]:
    """Where the partial results of all reductions are."""
    if problem.epilogue is None or not problem.epilogue.partial_reductions:
        return ()
    return reduction_regions(problem, *unit_shape(problem, config))


def regions_offset(problem: Problem, config: Any, device: DeviceSpec) -> int:
    """Bytes of the workspace before the first region."""
    of_scheduler = 0
    if isinstance(config, TmaConfig):
        of_scheduler = dynamic_tile_scheduler.workspace_bytes(config)
        of_scheduler += partial_exchange.workspace_bytes(problem, config, device)
    return of_scheduler + split_k_bytes(problem, config, device)


def workspace_bytes(problem: Problem, config: Any, device: DeviceSpec) -> int:
    """Bytes of the whole workspace."""
    ends = (region.end for region in regions(problem, config))
    return regions_offset(problem, config, device) + max(ends, default=0)
