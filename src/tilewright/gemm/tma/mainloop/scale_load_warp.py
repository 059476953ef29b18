"""Scale load warp of kernel ``tma``: a free warp of the producer warpgroup copies block scales
that tensor copies cannot load, of bf16 and ue8m0 or of any strides.

The warp runs ahead as the producer does, and its lanes arrive at the stage's full barrier, so no
math warp waits for global memory.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NamedTuple

from ....builder import Builder, PipelineTmaAsync, Reg
from ...epilogue.operand_loads import load_vector
from ...kernel_scalars import global_pointer
from ...problem import Problem
from ..grouped.gathered_rows import GatheredRows
from ..launch.tma_parameters import ScaledPairParameters, ScaledParameters
from ..tile_scheduler import TileScheduler, WorkTileInfo
from ..tma_config import TmaConfig
from .scale_run import SCALE_BYTES, ScaleRun
from .stage_scales import StageScales

LANES = 32
SCALE_WARP = 3  # of the producer warpgroup


class ScaleOperand(NamedTuple):
    """The scales of the rows, or of the columns, of a CTA's tile: element (i, j), of ``type``, is
    the scale of block i of rows or columns in block j of K. ``addresses``: one for each matrix.
    ``extent``: rows or columns of the product; ``gathered``: the rows of A that they are.
    """

    addresses: tuple[Reg, ...]
    stride: Reg
    k_stride: Reg
    batch_stride: Reg
    extent: Reg
    type: str
    gathered: GatheredRows | None = None


def scale_operands(
    problem: Problem, config: TmaConfig, p: ScaledParameters, gathered: GatheredRows | None = None
) -> tuple[ScaleOperand, ScaleOperand]:
    """The scales of the tile's rows and of its columns."""
    scaling = problem.scaling
    assert scaling is not None
    type_a, type_b = scaling.types
    own: tuple[Reg, ...] = (p.scale_b,)
    n = p.n
    if isinstance(p, ScaledPairParameters):
        own, n = (p.scale_b, p.scale_b2), p.n // 2
    a = ScaleOperand((p.scale_a,), p.scale_a_m, p.scale_a_k, p.scale_a_batch, p.m, type_a, gathered)
    b = ScaleOperand(own, p.scale_b_n, p.scale_b_k, p.scale_b_batch, n, type_b)
    return (b, a) if config.swap else (a, b)


class _ScaleCopy:
    """A lane's copies of one scale in each 32 of a run, of matrix ``number``. Scales of f32 are
    copied by ``cp.async``, others are loaded by ``load`` and converted.
    """

    def __init__(
        self, k: Builder, operand: ScaleOperand, run: ScaleRun, lane: Any, number: int
    ) -> None:
        self.k, self.operand, self.run, self.lane = k, operand, run, lane
        self.base = global_pointer(k, operand.addresses[number]).cast(operand.type)
        self.offset = number * run.matrix_bytes  # in a stage
        self.numbers = range(0, run.length, LANES)
        self.offsets = [k.var("u64", 0) for _ in self.numbers]
        self.loaded = [k.var("f32", 0.0) for _ in self.numbers if operand.type != "f32"]

    def begin(self, first: Any, tile: WorkTileInfo) -> None:
        """Go to the work tile whose first row or column is ``first``. Those beyond the matrix get
        the last one's scale.
        """
        k, operand = self.k, self.operand
        block = tile.first_k_block
        start = (block if isinstance(block, Reg) else k.const("u32", block)).to("u64")
        start = start * operand.k_stride
        if tile.batch is not None:
            start = start + tile.batch.to("u64") * operand.batch_stride
        run = self.run
        first, last = first // run.matrices // run.side, (operand.extent - 1) // run.side
        for number, offset in zip(self.numbers, self.offsets, strict=True):
            index = k.min(first + (self.lane + number), last)
            if operand.gathered is not None:
                index = operand.gathered.row(index)
            k.mov(start + index.to("u64") * operand.stride, into=offset)
        for value in self.loaded:
            value.set(0.0)

    def load(self) -> None:
        """Load the scales of other types than f32."""
        for value, offset in zip(self.loaded, self.offsets, strict=False):
            value.set(load_vector(self.k, self.base + offset, self.operand.type, 1)[0])

    def store(self, address: Any, exists: Any) -> None:
        """Copy or store the scales to a shared address, and go to the next k-block. They are 0
        unless the k-block ``exists``.
        """
        k = self.k
        own = k.pointer("shared", "f32", address + (self.offset + self.lane * SCALE_BYTES))
        for i, (number, offset) in enumerate(zip(self.numbers, self.offsets, strict=True)):
            left = self.run.length - number
            with k.when(self.lane < left) if left < LANES else nullcontext():
                if self.loaded:
                    (own + number).store(self.loaded[i])
                else:
                    k.cp_async(own + number, self.base + offset, SCALE_BYTES, valid=exists)
            k.add(offset, self.operand.k_stride, into=offset)


class ScaleLoadWarp:
    """The warp that fills the scales of all stages that no tensor copy loads. ``pipeline``: of the
    stages, whose full barrier each lane arrives at.
    """

    def __init__(
        self, k: Builder, problem: Problem, config: TmaConfig, parameters: ScaledParameters,
        scales: StageScales, pipeline: PipelineTmaAsync, scheduler: TileScheduler,
        gathered: GatheredRows | None = None,
    ) -> None:  # fmt: skip
        self.k, self.scales, self.pipeline, self.scheduler = k, scales, pipeline, scheduler
        left, right = scale_operands(problem, config, parameters, gathered)
        self.rows = _copies(k, left, scales.rows)
        self.columns = _copies(k, right, scales.columns)
        self.state = pipeline.make_producer_state()

    def run(self) -> None:
        """Load the scales of all work tiles. All lanes of the warp call it."""
        self.k.wait_for_prior_grids()
        self.scheduler.for_each_tile(self._load_tile)

    def _load_tile(self, tile: WorkTileInfo, _: Any) -> None:
        k, state = self.k, self.state
        self.begin(tile)
        for _ in k.range(0, k.max(tile.k_blocks, 1), unroll=False):
            self.load()
            self.pipeline.producer_acquire(state)
            self.store(state.stage)
            k.cp_async_mbarrier_arrive(self.pipeline.full + state.stage, noinc=True)
            state.advance()

    def begin(self, tile: WorkTileInfo) -> None:
        """Go to a work tile."""
        for rows in self.rows:
            rows.begin(tile.row, tile)
        for columns in self.columns:
            columns.begin(tile.column, tile)
        self.exists = tile.k_blocks != 0

    def load(self) -> None:
        """Load the scales of the next k-block that are converted."""
        with self.k.if_(self.exists):
            for copy in (*self.rows, *self.columns):
                copy.load()

    def store(self, stage: Any) -> None:
        """Copy or store the scales of the k-block to a stage that is empty."""
        for rows in self.rows:
            rows.store(self.scales.rows_at(stage), self.exists)
        for columns in self.columns:
            columns.store(self.scales.columns_at(stage), self.exists)


def _copies(k: Builder, operand: ScaleOperand, run: ScaleRun) -> list[_ScaleCopy]:
    """The copies of a run, unless tensor copies load it."""
    numbers = () if run.contiguous else range(run.matrices)
    return [_ScaleCopy(k, operand, run, k.laneid, number) for number in numbers]
