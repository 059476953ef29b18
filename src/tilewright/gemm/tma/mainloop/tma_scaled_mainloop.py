"""Consumer mainloop of kernel ``tma`` with block scales.

A thread loads the scales that its accumulators need ahead: for each set of accumulators the next
k-block's when it has promoted the last one's. It multiplies them in at the promotion, while the
tensor core works on the next k-block. Scales of single columns pass through shared memory.
"""

from __future__ import annotations

from itertools import chain
from math import gcd
from typing import Any, NamedTuple

from ....builder import Builder, Reg
from ...block_scaling import BLOCK
from ...epilogue.operand_loads import load_vector
from ...kernel_scalars import global_pointer
from ...problem import Problem
from ..stage_operands import SharedStages
from ..tile_scheduler import TileScheduler, WorkTileInfo
from ..tma_arguments import ScaledParameters
from ..tma_config import TmaConfig
from ..tma_geometry import SCALE_BUFFERS, WARPGROUP, WGMMA_ROWS
from .tma_mainloop import PromotedMainloop

WARP_ROWS = 16  # rows of an accumulator that a warp holds, in two halves of 8


class ScaleOperand(NamedTuple):
    """The scales of the rows, or of the columns, of a CTA's tile: element (i, j), of ``type``, is
    the scale of block i of ``side`` rows or columns in block j of K. ``extent``: rows or columns of
    the matrix.
    """

    address: Reg
    stride: Reg
    k_stride: Reg
    batch_stride: Reg
    side: int
    extent: Reg
    type: str


class ScaleLoads:
    """The scales of some rows, or columns, of each work tile. ``indices`` are those of the tile, in
    registers or as numbers; ``sets``: how many k-blocks' scales are in registers at once.
    """

    def __init__(self, k: Builder, operand: ScaleOperand, indices: list[Any], sets: int) -> None:
        self.k, self.operand, self.indices = k, operand, indices
        self.base = global_pointer(k, operand.address)
        self.pointers = [k.var("u64", 0) for _ in indices]
        self.scales = [[k.var("f32", 0.0) for _ in indices] for _ in range(sets)]

    def begin(self, first: Any, batch: Any, k_block: Any) -> None:
        """Go to the work tile whose first row or column is ``first``, and to a k-block of it. The
        scales are 0 until they are loaded, for a work tile may have no k-block.
        """
        k, operand = self.k, self.operand
        start = k.const("u32", 0).to("u64")
        if batch is not None:
            start = start + batch.to("u64") * operand.batch_stride
        block = k_block if isinstance(k_block, Reg) else k.const("u32", k_block)
        start = start + block.to("u64") * operand.k_stride
        for pointer, index in zip(self.pointers, self.indices, strict=True):
            inside = k.min(first + index, operand.extent - 1)
            k.mov(start + (inside // operand.side).to("u64") * operand.stride, into=pointer)
        for scale in chain.from_iterable(self.scales):
            scale.set(0.0)

    def load(self, number: int) -> None:
        """Load the current k-block's scales into set ``number``."""
        for pointer, scale in zip(self.pointers, self.scales[number], strict=True):
            at = self.base.cast(self.operand.type) + pointer
            scale.set(load_vector(self.k, at, self.operand.type, 1)[0])

    def advance(self) -> None:
        """Go to the next k-block."""
        for pointer in self.pointers:
            self.k.add(pointer, self.operand.k_stride, into=pointer)


class SharedScaleLoads(ScaleLoads):
    """The scales of all columns of each work tile, a scale each: more than a thread has registers
    for. A thread loads some of them for its warpgroup, which reads them in shared memory at
    ``address``; ``barrier``: of the warpgroup.
    """

    def __init__(
        self, k: Builder, operand: ScaleOperand, columns: int, address: Any, barrier: Any
    ) -> None:
        self.thread = k.tid.x & (WARPGROUP - 1)
        own = [self.thread + i for i in range(0, columns, WARPGROUP)]
        super().__init__(k, operand, own, SCALE_BUFFERS)
        self.number, self.barrier = columns, barrier
        first = k.pointer("shared", "f32", address)
        self.buffers = [first + i * columns for i in range(SCALE_BUFFERS)]

    def share(self, number: int) -> None:
        """Store the loaded scales of set ``number`` in shared memory, for the warpgroup."""
        k = self.k
        for i, scale in enumerate(self.scales[number]):
            with k.when(self.thread + i * WARPGROUP < self.number):
                self.buffers[number].store(scale, index=self.thread + i * WARPGROUP)
        k.emit("bar.sync", self.barrier, WARPGROUP)

    def neighbours(self, number: int, column: int) -> tuple[Reg, ...]:
        """The scales of this thread's two neighbours among the 8 columns from ``column`` on."""
        own = (self.thread & 3) * 2 + column
        return (self.buffers[number] + own).aligned(8).load(2)


class ScaledMainloop(PromotedMainloop):
    """The mainloop with block scales. ``begin`` precedes each ``run``. ``shared``: where the scales
    of columns are in shared memory.
    """

    def __init__(
        self, k: Builder, problem: Problem, config: TmaConfig, parameters: ScaledParameters,
        shared: Any, stages: SharedStages, scheduler: TileScheduler, consumer: Any, *more: Any,
    ) -> None:  # fmt: skip
        super().__init__(k, problem, config, stages, scheduler, consumer, *more)
        assert problem.scaling is not None
        p, sides = parameters, (problem.scaling.rows, problem.scaling.columns)
        types = problem.scaling.types
        a = ScaleOperand(
            p.scale_a, p.scale_a_m, p.scale_a_k, p.scale_a_batch, sides[0], p.m, types[0]
        )  # fmt: skip
        b = ScaleOperand(
            p.scale_b, p.scale_b_n, p.scale_b_k, p.scale_b_batch, sides[1], p.n, types[1]
        )  # fmt: skip
        left, right = (b, a) if config.swap else (a, b)
        self.rows = ScaleLoads(k, left, self._row_indices(left.side), len(self.sets))
        self.columns: ScaleLoads
        if right.side == 1:
            n = config.tile[1]
            own = shared + consumer * (SCALE_BUFFERS * n * 4)
            self.columns = SharedScaleLoads(k, right, n, own, consumer + 1)
        else:
            self.unit, zero = gcd(config.tile[1], BLOCK), k.const("u32", 0)
            first = [zero + column for column in range(0, config.tile[1], self.unit)]
            self.columns = ScaleLoads(k, right, first, len(self.sets))
        self.ahead = k.var("u32", 0)  # k-blocks of the work tile whose scales are not loaded yet

    def _row_indices(self, side: int) -> list[Any]:
        """Rows with a scale of their own: of each block, one or the two of this thread."""
        lane = self.k.tid.x & (WARPGROUP - 1)
        row = (lane >> 5) * WARP_ROWS + ((lane & 31) >> 2)
        zero = self.k.const("u32", 0)
        halves = [row, row + WARP_ROWS // 2] if side == 1 else [zero]
        return [half + block * WGMMA_ROWS for block in self.blocks for half in halves]

    def begin(self, tile: WorkTileInfo, first_row: Any) -> None:
        """Go to a work tile, of which this warpgroup computes the rows from ``first_row`` on."""
        self.ahead.set(tile.k_blocks)
        self.rows.begin(tile.row + first_row, tile.batch, tile.first_k_block)
        self.columns.begin(tile.column, tile.batch, tile.first_k_block)
        for index in range(len(self.sets)):
            self._load(index)

    def _load(self, index: int) -> None:
        """Load the scales of a set's next k-block, if there is one."""
        k = self.k
        with k.when(self.ahead != 0):
            self.rows.load(index)
            self.columns.load(index)
        if self._reads_last(index):
            self.rows.advance()
            self.columns.advance()
            k.max(self.ahead, 1, into=self.ahead)
            self.ahead.set(self.ahead - 1)

    def _add(self, index: int) -> None:
        """Add a set to the total, each accumulator times the product of its two scales."""
        self._release_read(index)
        if isinstance(self.columns, SharedScaleLoads):
            self.columns.share(index)
        for tile in self.sets[index]:
            total = self.total[tile.block][tile.column // 2 : (tile.column + tile.columns) // 2]
            rows = self._row_scales(tile.block, index)
            factors: dict[int, list[Any]] = {}
            for i in range(0, len(total), 4):  # 8 columns: two neighbours of each of two rows
                column = tile.column + i * 2
                for j, factor in enumerate(self._factors(rows, column, index, factors)):
                    self.k.mad(tile.registers[i + j], factor, total[i + j], into=total[i + j])
        self._load(index)

    def _row_scales(self, block: int, index: int) -> list[Any]:
        """The scales of a thread's two rows of a 64-row block."""
        scales = self.rows.scales[index]
        each = len(scales) // len(self.blocks)
        own = scales[block * each : (block + 1) * each]
        return own if each == 2 else own * 2

    def _factors(
        self, rows: list[Any], column: int, index: int, known: dict[int, list[Any]]
    ) -> list[Any]:
        """What a thread's four accumulators of 8 columns are multiplied by. ``known``: of columns
        that share a scale.
        """
        if isinstance(self.columns, SharedScaleLoads):
            pair = self.columns.neighbours(index, column)
            return [row * scale for row in rows for scale in pair]
        group = column // self.unit
        if group not in known:
            scale = self.columns.scales[index][group]
            same = rows[0] is rows[1]
            first = rows[0] * scale
            second = first if same else rows[1] * scale
            known[group] = [first, first, second, second]
        return known[group]
