"""Epilogue load warp of kernel ``tma``: a free warp of the producer warpgroup loads the matrix
operands of a consumer warpgroup's epilogues, as far ahead as its stages permit.

The copies of the first work tile are issued when the kernel starts, those of the next while its
mainloop runs: the math warps do not wait for global memory. Elements outside of the operand are 0.
"""

from __future__ import annotations

from typing import Any

from ....builder import Builder
from ...problem import Problem
from ..tile_scheduler import TileScheduler, WorkTileInfo
from ..tma_config import TmaConfig, d_corner
from ..tma_epilogue import copy_by_tma
from .operand_stages import LoadedOperand, OperandStages, WarpgroupStages


class EpilogueLoadWarp:
    """The loads for one consumer warpgroup. ``parameters``: the kernel's, with the operands' tensor
    maps; ``consumer``: the index of the warpgroup.
    """

    def __init__(
        self, k: Builder, problem: Problem, config: TmaConfig, parameters: Any,
        stages: OperandStages, scheduler: TileScheduler, consumer: Any,
    ) -> None:  # fmt: skip
        self.k, self.problem, self.config, self.parameters = k, problem, config, parameters
        self.operands, self.scheduler, self.consumer = stages.operands, scheduler, consumer
        self.tiles = stages.tiles
        self.stages = WarpgroupStages(stages, consumer, loads=True)

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
        if not config.pingpong:
            row = row + self.consumer * config.d_warpgroup_rows(self.problem)
        with k.if_(work_tile.partial < 0 if config.tail else True):
            with k.if_(k.elect()):
                for number in range(self.tiles):
                    self._load_tile(number, row, column, work_tile.batch)
            k.syncwarp()
            self.stages.advance()

    def _load_tile(self, number: int, row: Any, column: Any, batch: Any) -> None:
        """Load epilogue tile ``number`` of each operand."""
        k, full = self.k, self.stages.full(number)
        self.stages.wait(number)
        k.mbarrier_arrive(full, bytes=sum(operand.tile.bytes for operand in self.operands))
        for operand in self.operands:
            at = operand.tile.coordinates(number, row, column)
            own_batch = batch if "b" in operand.source.varies else None
            buffer = self.stages.buffer(number, operand)
            copy_by_tma(k, buffer, self._map(operand), (*at, own_batch), operand.tile, full)

    def _map(self, operand: LoadedOperand) -> Any:
        return getattr(self.parameters, f"map_{operand.name}")
