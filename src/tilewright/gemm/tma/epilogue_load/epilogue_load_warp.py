"""Epilogue load warp of kernel ``tma``: a free warp of the producer warpgroup loads operands of a
consumer warpgroup's epilogues: matrices by tensor copies, as far ahead as their stages permit, and
the vectors of a work tile, before its matrices.

The loads of the first work tile are issued when the kernel starts, those of the next while its
mainloop runs: the math warps do not wait for global memory. Elements outside of the operand are 0.
"""

from __future__ import annotations

from typing import Any

from ....builder import Builder
from ...epilogue.operand_loads import EpilogueOperands
from ...problem import Problem
from ..tile_scheduler import TileScheduler, WorkTileInfo
from ..tma_config import TmaConfig, d_corner
from ..tma_epilogue import copy_by_tma
from .operand_stages import LoadedOperand, OperandStages, WarpgroupStages
from .vector_stages import VectorLoad, VectorStages


class EpilogueLoadWarp:
    """The loads for one consumer warpgroup. ``operands``: the epilogue's, with the kernel's
    parameters; ``matrices``, ``vectors``: the stages of those that are loaded; ``consumer``: the
    index of the warpgroup. The vectors of cooperative warpgroups are loaded for the first one.
    """

    def __init__(
        self, k: Builder, problem: Problem, config: TmaConfig, operands: EpilogueOperands,
        matrices: OperandStages | None, vectors: VectorStages | None, scheduler: TileScheduler,
        consumer: Any,
    ) -> None:  # fmt: skip
        self.k, self.problem, self.config, self.operands = k, problem, config, operands
        self.scheduler, self.consumer, self.matrices = scheduler, consumer, matrices
        if matrices:
            self.stages = WarpgroupStages(matrices, consumer, loads=True)
        self.vectors = None
        if vectors:
            buffer = consumer if config.pingpong else k.const("u32", 0)
            self.vectors = VectorLoad(vectors, operands, buffer)

    def run(self) -> None:
        """Load the operands of all work tiles of the warpgroup. All lanes of the warp call it."""
        self.k.wait_for_prior_grids()
        if self.config.pingpong:
            self.scheduler.for_each_tile(self._load_work_tile, self.consumer, 2)
        else:
            self.scheduler.for_each_tile(self._load_work_tile)

    def _load_work_tile(self, work_tile: WorkTileInfo, _: Any) -> None:
        k, config = self.k, self.config
        row, column = d_corner(self.problem, config, work_tile.row, work_tile.column)
        with k.if_(work_tile.partial < 0 if config.mixes_partials else True):
            if self.vectors:
                self._load_vectors(self.vectors, row, column, work_tile.batch)
            if self.matrices:
                self._load_matrices(self.matrices, row, column, work_tile.batch)

    def _load_vectors(self, vectors: VectorLoad, row: Any, column: Any, batch: Any) -> None:
        """Load the vectors of the work tile at (``row``, ``column``) of the kernel's product."""
        at = (column, row) if self.config.swap else (row, column)
        with self.k.if_(True if self.config.pingpong else self.consumer == 0):
            vectors.load(*at, batch)

    def _load_matrices(self, matrices: OperandStages, row: Any, column: Any, batch: Any) -> None:
        """Load the matrices of a work tile."""
        k, config = self.k, self.config
        if not config.pingpong:
            row = row + self.consumer * config.d_warpgroup_rows(self.problem)
        with k.if_(k.elect()):
            for number in range(matrices.tiles):
                self._load_tile(number, row, column, batch)
        k.syncwarp()
        self.stages.advance()

    def _load_tile(self, number: int, row: Any, column: Any, batch: Any) -> None:
        """Load epilogue tile ``number`` of each matrix."""
        k, full = self.k, self.stages.full(number)
        assert self.matrices is not None
        matrices = self.matrices.operands
        self.stages.wait(number)
        k.mbarrier_arrive(full, bytes=sum(operand.tile.bytes for operand in matrices))
        for operand in matrices:
            at = operand.tile.coordinates(number, row, column)
            own_batch = batch if "b" in operand.source.varies else None
            buffer = self.stages.buffer(number, operand)
            copy_by_tma(k, buffer, self._map(operand), (*at, own_batch), operand.tile, full)

    def _map(self, operand: LoadedOperand) -> Any:
        return getattr(self.operands.parameters, f"map_{operand.name}")
