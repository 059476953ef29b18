"""Gather of A's rows: a free warp of the producer warpgroup copies the rows that indices name.

    offsets of a tile's rows   in shared memory, those of rows i, i + 4, … together
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
from ..launch.tma_parameters import GroupedParameters
from ..mainloop.scale_load_warp import ScaleLoadWarp
from ..stage_operands import SharedStages
from ..tile_scheduler import TileScheduler, WorkTileInfo
from ..tma_config import TmaConfig
from ..tma_geometry import LINES_AT_ONCE
from .gathered_rows import GatheredRows

LANES, VECTOR = 32, 16  # bytes of a copy
ATOM_ROWS = 8  # after which the swizzle repeats


class GatherPipeline(PipelineTmaAsync):
    """A pipeline whose stages are written by ``cp.async``, too."""

    def consumer_wait(self, state: PipelineState) -> None:
        """Wait until the stage is full, and order its copies before wgmma reads it."""
        super().consumer_wait(state)
        self.k.fence_async()


class GatherWarp:
    """The warp that fills the tile of A, which is K-major, of all stages; ``scales``: the block
    scales that it copies, too.
    """

    def __init__(
        self, k: Builder, problem: Problem, config: TmaConfig, p: GroupedParameters,
        stages: SharedStages, scheduler: TileScheduler, rows: GatheredRows,
        scales: ScaleLoadWarp | None,
    ) -> None:  # fmt: skip
        self.rows, self.scales = rows, scales
        self.k, self.config, self.parameters = k, config, p
        stage = stages.right if config.swap else stages.left
        self.operand, self.address = stage.operand, stage.address
        self.pipeline, self.scheduler = stages.pipeline, scheduler
        self.state = stages.pipeline.make_producer_state()
        self.elements = VECTOR // self.operand.size  # of a copy
        assert self.operand.swizzle == LANES // LINES_AT_ONCE * VECTOR
        lanes = LANES // LINES_AT_ONCE  # of a line
        self.line, self.first_element = k.laneid // lanes, k.laneid % lanes * self.elements
        self.source = global_pointer(k, p.a).cast(self.operand.type) + self.first_element
        self.run_length = config.gather_run(self.operand.extent)
        self.offsets = k.dynamic_shared(config.gather_bytes(problem), 16, dtype="u32")

    def run(self) -> None:
        """Load the rows of all work tiles. All lanes of the warp call it."""
        self.k.wait_for_prior_grids()
        self.scheduler.for_each_tile(self._load_tile)

    def _load_tile(self, tile: WorkTileInfo, _: Any) -> None:
        k, bk = self.k, self.config.tile[2]
        self._load_offsets(tile)
        if self.scales:
            self.scales.begin(tile)
        for block in k.range(0, k.max(tile.k_blocks, 1), unroll=False):
            self._fill_stage(block * bk)

    def _load_offsets(self, tile: WorkTileInfo) -> None:
        """The offsets of the tile's rows in units of 16 bytes. Rows behind the group repeat its
        last one: D does not depend on them.
        """
        k, p, extent = self.k, self.parameters, self.operand.extent
        assert tile.rows is not None
        first = tile.column if self.config.swap else tile.row
        last = tile.rows.first + tile.rows.count - 1
        k.syncwarp()
        for i in range(0, extent, LANES):
            row = k.laneid + i
            offset = self.rows.row(k.min(first + row, last)) * p.pitch_a
            at = row % LINES_AT_ONCE * self.run_length + row // LINES_AT_ONCE
            with k.when(row < extent):
                (self.offsets + at).store(offset)
        k.syncwarp()

    def _fill_stage(self, first_k: Any) -> None:
        """Copy the tile's k-block that begins at ``first_k``; zeros behind K."""
        k, state, operand = self.k, self.state, self.operand
        if self.scales:
            self.scales.load()
        self.pipeline.producer_acquire(state)
        tensor = make_tensor(
            k.pointer("shared", operand.type, self.address + state.stage * operand.bytes),
            operand.layout,
        )
        with k.if_(first_k + operand.depth <= self.parameters.k):
            self._copy_columns(tensor, first_k, whole=True)
        with k.else_():
            self._copy_columns(tensor, first_k, whole=False)
        if self.scales:
            self.scales.store(state.stage)
        k.cp_async_mbarrier_arrive(self.pipeline.full + state.stage, noinc=True)
        state.advance()

    def _copy_columns(self, tensor: Tensor, first_k: Any, *, whole: bool) -> None:
        """Copy the columns of a stage; all of their elements exist if they are ``whole``."""
        k, operand, count = self.k, self.operand, None
        for first in range(0, operand.depth, operand.line_elements):
            column = self.first_element + first
            if not whole:
                left = self.parameters.k.view("s32") - (column + first_k).view("s32")
                count = k.min(k.max(left, 0).view("u32"), self.elements) * operand.size
            self._copy_lines(tensor, column, self.source + (first_k + first), count)

    def _copy_lines(self, tensor: Tensor, column: Any, source: Any, count: Any) -> None:
        """Copy ``count`` bytes of each row from ``source`` on to column ``column`` of the tile."""
        k, operand, step = self.k, self.operand, LINES_AT_ONCE
        starts = [tensor.at((self.line + i, column)) for i in range(0, ATOM_ROWS, step)]
        address, own = source.address(), self.offsets + self.line * self.run_length
        count_of_lines, offsets = operand.extent // step, list[Any]()
        for number in range(count_of_lines):
            if number % 4 == 0:  # loads are ahead: ptxas keeps their order with the copies
                ahead = range(len(offsets), min(number + 8, count_of_lines), 4)
                for i in ahead:
                    offsets += (own + i).aligned(16).load(4)
            atom, part = divmod(number * step, ATOM_ROWS)
            there = starts[part // step] + atom * (ATOM_ROWS * operand.line_elements)
            from_ = k.emit("mad.wide.u32", offsets[number], VECTOR, address)
            from_ = k.pointer("global", "b8", from_)
            k.cp_async(there.aligned(VECTOR), from_.aligned(VECTOR), VECTOR, valid=count)
