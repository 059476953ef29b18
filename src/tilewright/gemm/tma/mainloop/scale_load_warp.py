"""Scale load warp of kernel ``tma``: a free warp of the producer warpgroup copies block scales.

A stage has, besides the tiles of A and B, the f32 scales of its k-block: those of the columns of
the CTA's tile, then those of its rows. Where 128 rows or columns share a scale, there is one for
each part of the tile that surely has one scale. The warp runs ahead as the producer does, and its
lanes arrive at the stage's full barrier, so no math warp waits for global memory.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

from ....builder import Builder, PipelineTmaAsync, Reg
from ...epilogue.operand_loads import load_vector
from ...kernel_scalars import global_pointer
from ...problem import Problem
from ..tile_scheduler import TileScheduler, WorkTileInfo
from ..tma_arguments import ScaledParameters
from ..tma_config import TmaConfig

LANES = 32
SCALE_WARP = 3  # of the producer warpgroup
SCALE_BYTES = 4


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


class ScaleRun(NamedTuple):
    """The scales of a tile's rows or columns in a stage: ``length`` of them from number ``first``
    on, each of ``unit`` rows or columns.
    """

    first: int
    length: int
    unit: int


@dataclass(frozen=True)
class StageScales:
    """The scales of the stages in shared memory, from ``address`` on."""

    address: Any
    bytes: int
    rows: ScaleRun
    columns: ScaleRun

    @classmethod
    def of(cls, k: Builder, problem: Problem, config: TmaConfig) -> StageScales:
        """Allocate the shared memory."""
        size = config.scale_stage_bytes(problem)
        address = k.dynamic_shared(config.stages * size, 16).address()
        row_unit, column_unit = config.scale_units(problem)
        columns = ScaleRun(0, config.tile[1] // column_unit, column_unit)  # read in pairs
        rows = ScaleRun(columns.length, config.tile[0] // row_unit, row_unit)
        return cls(address, size, rows, columns)

    def at(self, stage: Any) -> Any:
        """The shared address of a stage's scales."""
        return self.address + stage * self.bytes


def scale_operands(
    problem: Problem, config: TmaConfig, p: ScaledParameters
) -> tuple[ScaleOperand, ScaleOperand]:
    """The scales of the tile's rows and of its columns."""
    scaling = problem.scaling
    assert scaling is not None
    a = ScaleOperand(
        p.scale_a, p.scale_a_m, p.scale_a_k, p.scale_a_batch, scaling.rows, p.m, scaling.types[0]
    )
    b = ScaleOperand(
        p.scale_b, p.scale_b_n, p.scale_b_k, p.scale_b_batch, scaling.columns, p.n, scaling.types[1]
    )
    return (b, a) if config.swap else (a, b)


class _ScaleCopy:
    """A lane's copies of one scale in each 32 of a run. Scales of f32 are copied by ``cp.async``,
    others are loaded by ``load`` and converted.
    """

    def __init__(self, k: Builder, operand: ScaleOperand, run: ScaleRun, lane: Any) -> None:
        self.k, self.operand, self.run, self.lane = k, operand, run, lane
        self.base = global_pointer(k, operand.address).cast(operand.type)
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
        for number, offset in zip(self.numbers, self.offsets, strict=True):
            index = k.min(first + (self.lane + number) * self.run.unit, operand.extent - 1)
            k.mov(start + (index // operand.side).to("u64") * operand.stride, into=offset)
        for value in self.loaded:
            value.set(0.0)

    def load(self) -> None:
        """Load the scales of other types than f32."""
        for value, offset in zip(self.loaded, self.offsets, strict=False):
            value.set(load_vector(self.k, self.base + offset, self.operand.type, 1)[0])

    def store(self, stage: Any, exists: Any) -> None:
        """Copy or store the scales to a stage, whose address this is, and go to the next k-block.
        They are 0 unless the k-block ``exists``.
        """
        k = self.k
        own = k.pointer("shared", "f32", stage + (self.lane + self.run.first) * SCALE_BYTES)
        for i, (number, offset) in enumerate(zip(self.numbers, self.offsets, strict=True)):
            left = self.run.length - number
            with k.when(self.lane < left) if left < LANES else nullcontext():
                if self.loaded:
                    (own + number).store(self.loaded[i])
                else:
                    k.cp_async(own + number, self.base + offset, SCALE_BYTES, valid=exists)
            k.add(offset, self.operand.k_stride, into=offset)


class ScaleLoadWarp:
    """The warp that fills the scales of all stages. ``pipeline``: of the stages, whose full barrier
    each lane arrives at.
    """

    def __init__(
        self, k: Builder, problem: Problem, config: TmaConfig, parameters: ScaledParameters,
        scales: StageScales, pipeline: PipelineTmaAsync, scheduler: TileScheduler,
    ) -> None:  # fmt: skip
        self.k, self.scales, self.pipeline, self.scheduler = k, scales, pipeline, scheduler
        left, right = scale_operands(problem, config, parameters)
        self.rows = _ScaleCopy(k, left, scales.rows, k.laneid)
        self.columns = _ScaleCopy(k, right, scales.columns, k.laneid)
        self.state = pipeline.make_producer_state()

    def run(self) -> None:
        """Load the scales of all work tiles. All lanes of the warp call it."""
        self.k.wait_for_prior_grids()
        self.scheduler.for_each_tile(self._load_tile)

    def _load_tile(self, tile: WorkTileInfo, _: Any) -> None:
        k = self.k
        self.rows.begin(tile.row, tile)
        self.columns.begin(tile.column, tile)
        exists = tile.k_blocks != 0
        for _ in k.range(0, k.max(tile.k_blocks, 1), unroll=False):
            with k.if_(exists):
                self.rows.load()
                self.columns.load()
            self._fill_stage(exists)

    def _fill_stage(self, exists: Any) -> None:
        k, state = self.k, self.state
        self.pipeline.producer_acquire(state)
        stage = self.scales.at(state.stage)
        self.rows.store(stage, exists)
        self.columns.store(stage, exists)
        k.cp_async_mbarrier_arrive(self.pipeline.full + state.stage, noinc=True)
        state.advance()
