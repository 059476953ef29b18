"""Consumer mainloop of kernel ``tma`` with block scales.

A thread reads the scales of a stage in shared memory while the stage's wgmmas run, and multiplies
its accumulators by them at the promotion, an FMA instead of an addition. Where each column has a
scale of its own, its scales are read at the promotion, and the stage is released after it.
"""

from __future__ import annotations

from typing import Any

from ....builder import Builder
from ...problem import Problem
from ..stage_operands import SharedStages
from ..tile_scheduler import TileScheduler
from ..tma_config import TmaConfig
from ..tma_geometry import WARPGROUP, WGMMA_ROWS
from .scale_load_warp import LANES, SCALE_BYTES, StageScales
from .tma_mainloop import AccumulatorTile, PromotedMainloop

WARP_ROWS = 16  # rows of an accumulator that a warp holds, in two halves of 8


class ScaledMainloop(PromotedMainloop):
    """The mainloop with block scales, those of the stages in shared memory."""

    release_threads = LANES  # every warp arrives, for it has read scales itself

    def __init__(
        self, k: Builder, problem: Problem, config: TmaConfig, scales: StageScales,
        stages: SharedStages, scheduler: TileScheduler, consumer: Any, *more: Any,
    ) -> None:  # fmt: skip
        super().__init__(k, problem, config, stages, scheduler, consumer, *more)
        self.scales = scales
        self.single_rows, self.single_columns = (
            run.unit == 1 for run in (scales.rows, scales.columns)
        )
        lane = k.tid.x & (WARPGROUP - 1)
        row = (lane >> 5) * WARP_ROWS + ((lane & 31) >> 2) if self.single_rows else 0
        if config.consumers > 1 and not config.pingpong:
            row = row + consumer * (config.warpgroup_rows // scales.rows.unit)
        self.own_row = k.mov((k.const("u32", 0) + row) * SCALE_BYTES)
        self.own_column = k.mov(((lane & 3) * 2 + scales.columns.first) * SCALE_BYTES)
        self.rows = [self._row_registers() for _ in self.sets if self.single_columns]
        self.factors = [self._factor_registers(tiles) for tiles in self.sets]

    def _row_registers(self) -> list[list[Any]]:
        """Of each 64-row block the scales of a thread's two rows, or the one of both."""
        each = 2 if self.single_rows else 1
        return [[self.k.var("f32", 0.0) for _ in range(each)] for _ in self.blocks]

    def _factor_registers(self, tiles: list[AccumulatorTile]) -> dict[tuple[int, int], list[Any]]:
        """What a thread's accumulators are multiplied by, of its two rows or of both: by block and
        unit of columns, where these share a scale.
        """
        if self.single_columns:
            return {}
        unit, each = self.scales.columns.unit, 2 if self.single_rows else 1
        return {
            (tile.block, number): [self.k.var("f32", 0.0) for _ in range(each)]
            for tile in tiles
            for number in range(tile.column // unit, -(-(tile.column + tile.columns) // unit))
        }

    def _issue(self, index: int) -> None:
        super()._issue(index)
        stage = self.scales.at(self.state.stage)
        if self.single_columns:
            for block in {tile.block for tile in self.sets[index]}:
                self._read_rows(stage, block, self.rows[index][block])
        else:
            self._multiply_scales(stage, self.factors[index])

    def _read_rows(self, stage: Any, block: int, into: list[Any]) -> None:
        """Read the scales of a thread's rows of a 64-row block."""
        run = self.scales.rows
        for half, scale in enumerate(into):
            number = run.first + (block * WGMMA_ROWS + half * (WARP_ROWS // 2)) // run.unit
            self._at(stage + self.own_row, number).load(into=(scale,))

    def _at(self, address: Any, number: int) -> Any:
        """Pointer to the scale ``number`` scales from an address on."""
        return self.k.pointer("shared", "f32", address) + number

    def _multiply_scales(self, stage: Any, factors: dict[tuple[int, int], list[Any]]) -> None:
        """The products of the scales of rows and of units of columns."""
        k, rows, columns = self.k, dict[int, list[Any]](), dict[int, Any]()
        for (block, number), products in factors.items():
            if block not in rows:
                rows[block] = [k.var("f32") for _ in products]
                self._read_rows(stage, block, rows[block])
            if number not in columns:
                columns[number] = self._at(stage, self.scales.columns.first + number).load(1)[0]
            for product, row in zip(products, rows[block], strict=True):
                k.mul(row, columns[number], into=product)

    def _add(self, index: int) -> None:
        """Add a set to the total, each accumulator times the product of its two scales."""
        if not self.single_columns:
            self._release_read(index)
        last = self.previous if self._reads_last(index) else self.state.stage
        own = self.scales.at(last) + self.own_column if self.single_columns else None
        for tile in self.sets[index]:
            total = self.total[tile.block][tile.column // 2 : (tile.column + tile.columns) // 2]
            for i in range(0, len(total), 4):  # 8 columns: two neighbours of each of two rows
                factors = self._factors(index, tile.block, tile.column + i * 2, own)
                for j, factor in enumerate(factors):
                    self.k.mad(tile.registers[i + j], factor, total[i + j], into=total[i + j])
        if self.single_columns:
            self._release_read(index)

    def _factors(self, index: int, block: int, column: int, own: Any) -> list[Any]:
        """What a thread's four accumulators of 8 columns are multiplied by. ``own``: the address of
        the scales of its columns, where each has one.
        """
        if own is None:
            factors = self.factors[index][block, column // self.scales.columns.unit]
            return [x for x in (factors if len(factors) == 2 else factors * 2) for _ in range(2)]
        rows = self.rows[index][block]
        pair = self._at(own, column).aligned(8).load(2)
        return [row * scale for row in (rows if len(rows) == 2 else rows * 2) for scale in pair]

    def _release_read(self, index: int) -> None:
        if self._reads_last(index):
            self.k.syncwarp()
        super()._release_read(index)
