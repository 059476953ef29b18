"""The producer's copies of prepared weights: a bulk copy for each row block of a k-tile."""

from __future__ import annotations

from typing import Any

from ....builder import Builder, Pointer
from ....quantization.weight_format import UNIT_ROWS
from ...kernel_scalars import global_pointer
from ...problem import Problem
from ..launch.tma_parameters import WeightPairParameters, WeightParameters
from ..stage_operands import SharedStages, StageCopy, StageOperand
from ..tile_scheduler import TileScheduler, WorkTileInfo
from ..tma_config import TmaConfig
from ..tma_operand import UnitsOperand
from ..tma_producer import multicast_masks


class UnitCopy(StageCopy):
    """Bulk copies of the units of a tile. ``share``: which of the tile's row blocks this CTA loads,
    ``multicast``: for whom.
    """

    def __init__(
        self, k: Builder, stage: StageOperand, parameters: WeightParameters, *, share: Any,
        multicast: Any,
    ) -> None:  # fmt: skip
        assert isinstance(stage.operand, UnitsOperand)
        assert stage.operand.weights is not None
        self.k, self.operand, self.address = k, stage.operand, stage.address
        self.share, self.multicast = share, multicast
        self.unit_k = stage.operand.weights.unit_k
        self.along, self.unit_bytes = parameters.units_along, stage.operand.weights.unit_bytes
        self.row_blocks = (self._rows(parameters) + (UNIT_ROWS - 1)) // UNIT_ROWS
        self.matrices = [global_pointer(k, address) for address in self._addresses(parameters)]
        self.own = stage.operand.extent // UNIT_ROWS // stage.operand.sharers

    def _rows(self, parameters: WeightParameters) -> Any:
        """The rows of a matrix."""
        return parameters.n

    def _addresses(self, parameters: WeightParameters) -> list[Any]:
        """The addresses of the matrices that this CTA loads."""
        return [parameters.weights]

    def begin(self, tile: WorkTileInfo) -> Any:
        self._begin(tile.row // UNIT_ROWS + self.share * self.own, tile.batch)
        return self.operand.bytes

    def _begin(self, first: Any, batch: Any) -> None:
        """Go to the row block ``first`` of each matrix. The rows beyond the last row block repeat
        it: D does not depend on them.
        """
        k = self.k
        self.sources = []
        for weights in self.matrices:
            for i in range(self.own):
                row_block = k.min(first + i, self.row_blocks - 1)
                if batch is not None:
                    row_block = row_block + batch * self.row_blocks
                offset = (row_block * self.along).to("u64") * self.unit_bytes
                self.sources.append(weights + offset)

    def prefetch(self, first_k_block: Any, k_blocks: Any) -> None:
        """Prefetch k-blocks of the work tile to the L2."""
        each = self.operand.row_block_bytes
        first = self.k.mov(first_k_block, dtype="u32").to("u64") * each
        for source in self.sources:
            self.k.bulk_prefetch((source + first).aligned(16), k_blocks * each)

    def target(self, stage: Any) -> Any:
        offset = self.share * (self.own * self.operand.row_block_bytes)
        return self.address + stage * self.operand.bytes + offset

    def issue(self, target: Any, first_k: Any, barrier: Pointer) -> None:
        """A work tile without k-blocks is out of bounds, and gets the last units."""
        k, size = self.k, self.operand.row_block_bytes
        last = self.along - self.operand.depth // self.unit_k
        offset = k.min(first_k // self.unit_k, last).to("u64") * self.unit_bytes
        for i, source in enumerate(self.sources):
            there = k.pointer("shared", "b8", target) + i * size
            from_ = (source + offset).aligned(16)
            k.bulk_load(there, from_, size, barrier, multicast_mask=self.multicast)


class PairUnitCopy(UnitCopy):
    """Bulk copies of the units of two matrices, into either half of the tile. CTAs of a cluster
    that share the tile load one each; a CTA alone loads both.
    """

    def _rows(self, parameters: WeightParameters) -> Any:
        return parameters.n // 2

    def _addresses(self, parameters: WeightParameters) -> list[Any]:
        assert isinstance(parameters, WeightPairParameters)
        both = [parameters.weights, parameters.weights2]
        return both if self.multicast is None else [self.k.select(self.share == 0, *both)]

    def begin(self, tile: WorkTileInfo) -> Any:
        self._begin(tile.row // 2 // UNIT_ROWS, tile.batch)
        return self.operand.bytes

    def target(self, stage: Any) -> Any:
        if self.multicast is not None:
            return super().target(stage)
        return self.address + stage * self.operand.bytes


def unit_copy(
    k: Builder, problem: Problem, config: TmaConfig, p: WeightParameters, scheduler: TileScheduler,
    stages: SharedStages,
) -> UnitCopy:  # fmt: skip
    """The copy of prepared weights."""
    assert problem.weights is not None
    units = PairUnitCopy if problem.pair else UnitCopy
    multicast = multicast_masks(k, config, scheduler)[0]
    return units(k, stages.left, p, share=scheduler.rank_n, multicast=multicast)
