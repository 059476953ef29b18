"""Block scales of the stages in shared memory, and the tensor copies that load them.

A stage has, besides the tiles of A and B, the f32 scales of its k-block: those of the rows of the
CTA's tile, then those of its columns; of two matrices B those of both. Those whose strides a tensor
map has are loaded by the producer, a box for each side; the others by the scale load warp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....builder import Builder, Pointer
from ...block_scaling import BLOCK
from ...problem import Problem
from ..stage_operands import StageCopy
from ..tile_scheduler import WorkTileInfo
from ..tma_config import TmaConfig
from .scale_run import LINE, RUN_ALIGNMENT, ScaleRun


@dataclass(frozen=True)
class StageScales:
    """The scales of the stages, from the shared ``address`` on: of the tile's rows and columns."""

    address: Any
    rows: ScaleRun
    columns: ScaleRun

    @classmethod
    def of(cls, k: Builder, problem: Problem, config: TmaConfig) -> StageScales:
        """Allocate the shared memory."""
        size = config.stages * config.scale_stage_bytes(problem)
        a, b = config.scale_runs(problem)
        address = k.dynamic_shared(size, RUN_ALIGNMENT).address()
        rows, columns = (b, a) if config.swap else (a, b)
        return cls(address, rows, columns)

    def rows_at(self, stage: Any) -> Any:
        """The shared address of the scales of a stage's rows."""
        return self.address + stage * (self.rows.bytes + self.columns.bytes)

    def columns_at(self, stage: Any) -> Any:
        """The shared address of the scales of a stage's columns."""
        return self.rows_at(stage) + self.rows.bytes


class ScaleCopy(StageCopy):
    """Tensor copies of the scales of a tile's rows, or of its columns. ``maps``: one for each
    matrix.
    """

    def __init__(
        self, k: Builder, scales: StageScales, maps: tuple[Pointer, ...], *, of_rows: bool
    ) -> None:
        self.k, self.maps, self.of_rows = k, maps, of_rows
        self.run = scales.rows if of_rows else scales.columns
        self.address = scales.rows_at if of_rows else scales.columns_at

    def begin(self, tile: WorkTileInfo) -> Any:
        run = self.run
        first = (tile.row if self.of_rows else tile.column) // run.matrices
        self.first = (first // run.side) & -(run.first_line // run.side)
        self.batch = tile.batch if run.stacked else None
        return run.copied_bytes * run.matrices

    def target(self, stage: Any) -> Any:
        return self.address(stage)

    def issue(self, target: Any, first_k: Any, barrier: Pointer) -> None:
        """Blocks beyond the matrix, and of a work tile without k-blocks, get scales of 0."""
        k, block = self.k, first_k // BLOCK
        at = (block & -LINE, self.first) if self.run.contiguous == "k" else (self.first, block)
        batch = () if self.batch is None else (self.batch,)
        for i, map_ in enumerate(self.maps):
            there = k.pointer("shared", "b8", target + i * self.run.matrix_bytes)
            k.tma_load(there, map_, (*at, *batch), barrier)


def scale_copies(
    k: Builder, scales: StageScales, maps: tuple[tuple[Pointer, ...], tuple[Pointer, ...]]
) -> list[StageCopy]:
    """The tensor copies of scales. ``maps``: of those of the rows and of the columns."""
    sides = zip(maps, (scales.rows, scales.columns), (True, False), strict=True)
    return [
        ScaleCopy(k, scales, each, of_rows=of_rows)
        for each, run, of_rows in sides
        if run.contiguous
    ]
