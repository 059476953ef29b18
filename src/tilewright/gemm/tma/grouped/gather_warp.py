"""Gather of A's rows: a free warp of the producer warpgroup copies the rows that indices name.

    rows of a work tile        lane l holds the indices of rows l, l + 32, …
    16 bytes of a line         8 lanes copy a line of 128 bytes, so the warp copies 4 lines at once

The copies are ``cp.async`` to where a tensor copy would write, swizzled as it would, and each lane
arrives at the stage's full barrier. They are of the generic proxy: a consumer's fence follows.
"""

from __future__ import annotations

from typing import Any

from ....builder import Builder, PipelineState, PipelineTmaAsync
from ....layout import Tensor, make_tensor
from ...kernel_scalars import global_pointer
from ...problem import Problem
from ..stage_operands import SharedStages
from ..tile_scheduler import TileScheduler, WorkTileInfo
from ..tma_arguments import GroupedParameters
from ..tma_config import TmaConfig
from .grouped_tile_scheduler import limited

LANES, VECTOR = 32, 16  # bytes of a copy
ATOM_ROWS = 8  # after which the swizzle repeats


class GatherPipeline(PipelineTmaAsync):
    """A pipeline whose stages are written by ``cp.async``, too."""

    def consumer_wait(self, state: PipelineState) -> None:
        """Wait until the stage is full, and order its copies before wgmma reads it."""
        super().consumer_wait(state)
        self.k.fence_async()


class GatherWarp:
    """The warp that fills the tile of A, which is K-major, of all stages."""

    def __init__(
        self, k: Builder, problem: Problem, config: TmaConfig, p: GroupedParameters,
        stages: SharedStages, scheduler: TileScheduler,
    ) -> None:  # fmt: skip
        assert problem.groups is not None
        self.k, self.config, self.parameters = k, config, p
        stage = stages.right if config.swap else stages.left
        self.operand, self.address = stage.operand, stage.address
        self.pipeline, self.scheduler = stages.pipeline, scheduler
        self.state = stages.pipeline.make_producer_state()
        self.indices = global_pointer(k, p.gather).cast(problem.groups.gather)
        self.elements = VECTOR // self.operand.size  # of a copy
        lanes = self.operand.swizzle // VECTOR  # of a line
        self.lines_at_once = LANES // lanes
        self.first_row, self.first_element = k.laneid // lanes, k.laneid % lanes * self.elements
        self.source = global_pointer(k, p.a).cast(self.operand.type) + self.first_element
        self.rows = [k.var("u32", 0) for _ in range(0, self.operand.extent, LANES)]

    def run(self) -> None:
        """Load the rows of all work tiles. All lanes of the warp call it."""
        self.k.wait_for_prior_grids()
        self.scheduler.for_each_tile(self._load_tile)

    def _load_tile(self, tile: WorkTileInfo, _: Any) -> None:
        k, bk = self.k, self.config.tile[2]
        self._load_indices(tile)
        for block in k.range(0, k.max(tile.k_blocks, 1), unroll=False):
            self._fill_stage(block * bk)

    def _load_indices(self, tile: WorkTileInfo) -> None:
        """Rows behind the group repeat its last one: D does not depend on them. An index that is no
        row of A is taken for the nearest row.
        """
        k, p = self.k, self.parameters
        assert tile.rows is not None
        first = tile.column if self.config.swap else tile.row
        last, zero = tile.rows.first + tile.rows.count - 1, k.const("u32", 0)
        for i, row in enumerate(self.rows):
            position = k.min(first + (k.laneid + i * LANES), last)
            index = (self.indices + position).load(1)[0]
            row.set(limited(k, index, zero, p.rows_a - 1))

    def _fill_stage(self, first_k: Any) -> None:
        """Copy the tile's k-block that begins at ``first_k``; zeros behind K."""
        k, state, operand = self.k, self.state, self.operand
        self.pipeline.producer_acquire(state)
        address = self.address + state.stage * operand.bytes
        tensor = make_tensor(k.pointer("shared", operand.type, address), operand.layout)
        for first in range(0, operand.depth, operand.line_elements):
            column = self.first_element + first
            left = self.parameters.k.view("s32") - (column + first_k).view("s32")
            count = k.min(k.max(left, 0).view("u32"), self.elements) * operand.size
            self._copy_lines(tensor, column, self.source + (first_k + first), count)
        k.cp_async_mbarrier_arrive(self.pipeline.full + state.stage, noinc=True)
        state.advance()

    def _copy_lines(self, tensor: Tensor, column: Any, source: Any, count: Any) -> None:
        """Copy ``count`` bytes of each row from ``source`` on to column ``column`` of the tile."""
        k, operand, step = self.k, self.operand, self.lines_at_once
        starts = [tensor.at((self.first_row + i, column)) for i in range(0, ATOM_ROWS, step)]
        for i in range(0, operand.extent, step):
            row = k.shfl("idx", self.rows[i // LANES], self.first_row + i % LANES)
            vectors = k.emit("mul.wide.u32", row, self.parameters.pitch_a)
            atom, part = divmod(i, ATOM_ROWS)
            there = starts[part // step] + atom * (ATOM_ROWS * operand.line_elements)
            from_ = source + vectors * self.elements
            k.cp_async(there.aligned(VECTOR), from_.aligned(VECTOR), VECTOR, valid=count)
