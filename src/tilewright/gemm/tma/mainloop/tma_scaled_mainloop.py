"""Consumer mainloop of kernel ``tma`` with block scales.

A thread reads the scales of a stage in shared memory while the stage's wgmmas run, and multiplies
its accumulators by them at the promotion, an FMA instead of an addition. Where each column has a
scale of its own, a thread's scales are many: a promotion reads those of the next one as it frees
their registers, and those for which there are no registers at its begin. 64-row blocks share them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ....builder import Builder
from ...block_scaling import BLOCK
from ...columns import power_of_two_divisor
from ...problem import Problem
from ..stage_operands import SharedStages
from ..tile_scheduler import TileScheduler, WorkTileInfo
from ..tma_config import TmaConfig
from ..tma_geometry import WARPGROUP, WGMMA_ROWS
from .held_scales import held_scales
from .scale_run import LINE, SCALE_BYTES, ScaleRun
from .stage_scales import StageScales
from .tma_mainloop import AccumulatorTile, PromotedMainloop

LANES = 32
WARP_ROWS = 16  # rows of an accumulator that a warp holds, in two halves of 8


class ReadScales(NamedTuple):
    """The scales of a set in registers: of a thread's two rows of each 64-row block, or the one of
    both; of the units of columns that share one.
    """

    rows: dict[int, list[Any]]
    columns: dict[int, Any]


class ScaledMainloop(PromotedMainloop):
    """The mainloop with block scales, those of the stages in shared memory."""

    release_threads = LANES  # every warp arrives, for it has read scales itself

    def __init__(
        self, k: Builder, problem: Problem, config: TmaConfig, scales: StageScales,
        stages: SharedStages, scheduler: TileScheduler, consumer: Any, *more: Any,
    ) -> None:  # fmt: skip
        super().__init__(k, problem, config, stages, scheduler, consumer, *more)
        self.scales, rows, columns = scales, scales.rows, scales.columns
        self.single_rows, self.single_columns = rows.side == 1, columns.side == 1
        self.half = config.tile[1] // columns.matrices  # columns of the tile in each matrix
        self.unit = power_of_two_divisor(self.half, BLOCK)  # columns that lie in one block
        lane = k.tid.x & (WARPGROUP - 1)
        row = (lane >> 5) * WARP_ROWS + ((lane & 31) >> 2) if self.single_rows else 0
        if self.single_rows and config.consumers > 1 and not config.pingpong:
            row = row + consumer * config.d_warpgroup_rows(problem)
        self.lane_row = k.mov((k.const("u32", 0) + row) * (rows.step * SCALE_BYTES))
        self.lane_column = k.mov((lane & 3) * (2 * columns.step * SCALE_BYTES))
        self.k_block = k.var("u32", 0)  # of the current stage
        self.read = [self._registers(tiles) for tiles in self.sets]
        spans = [(tiles[0].column, tiles[0].columns) for tiles in self.sets]
        self.same_columns = not self.by_stage and spans[0] == spans[1]
        self.pairs = self._pairs(spans) if self.single_columns else []
        self.held = held_scales(problem, config)

    def _pairs(self, spans: list[tuple[int, int]]) -> list[dict[int, list[Any]]]:
        """Registers for the scales of each set's columns, (first, number) of which are ``spans``:
        two for each 8 columns. Sets are promoted alternately, and so have the same registers.
        """
        longest = max(columns for _, columns in spans)
        pairs = [[self.k.var("f32", 0.0) for _ in range(2)] for _ in range(longest // 8)]
        return [
            dict(zip(range(first, first + columns, 8), pairs, strict=False))
            for first, columns in spans
        ]

    def begin(self, tile: WorkTileInfo, first_row: Any) -> None:
        rows, columns = self.scales.rows, self.scales.columns
        self.first_row = (tile.row // rows.matrices & (rows.first_line - 1)) + first_row
        self.first_column = tile.column // columns.matrices & (columns.first_line - 1)
        self.own_row = _first_scale(self.lane_row, rows, tile.row)
        self.own_column = _first_scale(self.lane_column, columns, tile.column)
        self.k.mov(tile.first_k_block, into=self.k_block)

    def _registers(self, tiles: list[AccumulatorTile]) -> ReadScales:
        """Registers for the scales of a set."""
        each, unit = 2 if self.single_rows else 1, self.unit
        rows = {tile.block: [self.k.var("f32", 0.0) for _ in range(each)] for tile in tiles}
        first, end = tiles[0].column, tiles[0].column + tiles[0].columns
        units = () if self.single_columns else range(first // unit, -(-end // unit))
        return ReadScales(rows, {number: self.k.var("f32", 0.0) for number in units})

    def _issue(self, index: int) -> None:
        super()._issue(index)
        stage, (rows, columns) = self.state.stage, self.read[index]
        for block, scales in rows.items():
            self._read_rows(stage, block, scales)
        run, first = self.scales.columns, self.scales.columns_at(stage)
        for number, scale in columns.items():
            matrix, column = divmod(number * self.unit, self.half)
            block, of_matrix = _block(run, self.first_column, column), matrix * run.matrix_bytes
            self._at(first + of_matrix, block, run, self.k_block).load(into=(scale,))

    def _read_rows(self, stage: Any, block: int, into: list[Any]) -> None:
        """Read the scales of a thread's rows of a 64-row block."""
        run, address = self.scales.rows, self.scales.rows_at(stage) + self.own_row
        matrix, block = divmod(block, len(self.blocks) // run.matrices)
        address = address + matrix * run.matrix_bytes
        for half, scale in enumerate(into):
            number: Any = block * WGMMA_ROWS + half * (WARP_ROWS // 2)
            if not self.single_rows:
                number = _block(run, self.first_row, number)
            self._at(address, number, run, self.k_block).load(into=(scale,))

    def _at(self, address: Any, number: Any, run: ScaleRun, k_block: Any) -> Any:
        """Pointer to the scale ``number`` blocks of rows or columns from an address on."""
        if run.contiguous == "k":
            address = address + (k_block & (LINE - 1)) * SCALE_BYTES
        return self.k.pointer("shared", "f32", address) + number * run.step

    def _advance(self, index: int) -> None:
        super()._advance(index)
        if self._reads_last(index):
            self.k_block.set(self.k_block + 1)

    def _read_ahead(self, index: int) -> None:
        """Read the scales of the columns of a set that has just been issued."""
        if self.single_columns:
            for column in self._held(index):
                self._read_pair(index, column)

    def _held(self, index: int) -> list[int]:
        """The columns of a set, the first of each 8, whose scales registers hold from the set
        before on.
        """
        return list(self.pairs[index])[: self.held]

    def _read_pair(self, index: int, column: int, last: bool = False) -> None:
        """Read the scales of a thread's two neighbours of 8 columns, of the current stage, or of
        the ``last`` one.
        """
        run, own = self.scales.columns, self.pairs[index][column]
        matrix, column = divmod(column, self.half)
        last = last and self._reads_last(index)
        stage = self.previous if last else self.state.stage
        k_block = self.k_block - 1 if last else self.k_block
        first = self.scales.columns_at(stage) + self.own_column + matrix * run.matrix_bytes
        there = self._at(first, column, run, k_block)
        if run.step == 1 and not run.anywhere:
            there.aligned(8).load(2, into=tuple(own))
            return
        for i, scale in enumerate(own):
            (there + i * run.step).load(into=(scale,))

    def _add(self, index: int, following: int | None = None) -> None:
        """Add a set to the total, each accumulator times the product of its two scales."""
        if self.single_columns:
            self._add_columns(index, following)
            return
        self._release_read(index)
        rows, columns = self.read[index]
        products = {
            (block, number): [row * scale for row in scales]
            for block, scales in rows.items()
            for number, scale in columns.items()
        }
        for tile in self.sets[index]:
            for column in range(tile.column, tile.column + tile.columns, 8):
                scale = products[tile.block, column // self.unit]
                factors = [scale[half % len(scale)] for half in (0, 0, 1, 1)]
                self._add_scaled(tile, column, factors)

    def _add_columns(self, index: int, following: int | None) -> None:
        """The same where each column has a scale. As soon as the registers of 8 columns are free,
        the scales of the following set's columns are read into them.
        """
        for column in list(self.pairs[index])[self.held :]:
            self._read_pair(index, column, last=True)
        ahead: list[tuple[int, int]] = []
        if following is not None and not (self.same_columns and index == 0):
            ahead = [(following, column) for column in self._held(following)]
        rows = self.read[index].rows
        for number, (column, pair) in enumerate(self.pairs[index].items()):
            for tile in self.sets[index]:
                products = [[row * scale for scale in pair] for row in rows[tile.block]]
                self._add_scaled(tile, column, products[0] + products[-1])
            if number < len(ahead):
                self._read_pair(*ahead[number])
        for more in ahead[len(self.pairs[index]) :]:  # a set of 8 columns more follows
            self._read_pair(*more)
        self._release_read(index)

    def _add_scaled(self, tile: AccumulatorTile, column: int, factors: list[Any]) -> None:
        """Add a thread's accumulators of 8 columns, two neighbours of each of two rows, times
        ``factors``.
        """
        first, total = (column - tile.column) // 2, self.total[tile.block]
        for i, factor in enumerate(factors):
            at = column // 2 + i
            self.k.mad(tile.registers[first + i], factor, total[at], into=total[at])

    def _release_read(self, index: int) -> None:
        if self._reads_last(index):
            self.k.syncwarp()
        super()._release_read(index)


def _first_scale(own: Any, run: ScaleRun, first: Any) -> Any:
    """A thread's offset ``own`` from the scale of the tile's first row or column, from the first
    scale of a stage, which a tensor copy loads from a multiple of 16 bytes on.
    """
    if run.anywhere and run.contiguous == "mn":
        return own + (first & (LINE - 1)) * SCALE_BYTES
    return own


def _block(run: ScaleRun, first: Any, offset: int) -> Any:
    """The block of a run at this offset from a row or column, whose tile begins at ``first`` in the
    first line.
    """
    if run.length == 1 and run.first_line == run.side:
        return 0
    return (first + offset) // run.side
