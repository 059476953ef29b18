"""Producer warp of kernel ``tma``: its mainloop issues the tensor copies of all k-blocks.

    for each work tile, for each k-block:
        wait until the stage is empty
        expect the transaction bytes, issue the copies of A and B

CTAs of a cluster that read the same tile each load a share and multicast it to all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...builder import Builder, PipelineTmaAsync, Pointer, Reg
from .tile_scheduler import TileScheduler, WorkTileInfo
from .tma_config import TmaConfig
from .tma_operand import TmaOperand

OUT_OF_BOUNDS_K = (1 << 32) - (1 << 16)  # before the first element: copies fill zeros
OperandMaps = tuple[Pointer, Pointer]  # of full tiles, of the last tile


@dataclass(frozen=True)
class SharedStages:
    """The stages in shared memory: both operands with their addresses, and the pipeline."""

    left: TmaOperand
    right: TmaOperand
    left_address: Reg
    right_address: Reg
    pipeline: PipelineTmaAsync


class TmaProducer:
    """The producer's mainloop. ``limits``: M and N of the product that wgmma computes; ``second``:
    the tensor map of the second matrix B of a pair, which loads the right half of a tile.
    """

    def __init__(
        self, k: Builder, config: TmaConfig, stages: SharedStages, scheduler: TileScheduler,
        maps: tuple[OperandMaps, OperandMaps], limits: tuple[Any, Any],
        second: Pointer | None = None,
    ) -> None:  # fmt: skip
        self.second = second
        self.k, self.config, self.stages, self.scheduler = k, config, stages, scheduler
        self.maps, self.limits = maps, limits
        self.state = stages.pipeline.make_producer_state()
        self.multicast_left, self.multicast_right = self._multicast_masks()

    def run(self) -> None:
        """Load all work tiles of this CTA."""
        self.scheduler.for_each_tile_of_producer(self._load_tile)

    def _multicast_masks(self) -> tuple[Any, Any]:
        """The CTAs of the cluster that receive this CTA's share of either operand."""
        k, (cm, cn) = self.k, self.config.cluster
        rank_m, rank_n = self.scheduler.rank_m, self.scheduler.rank_n
        left = right = None
        if cn > 1:
            left = (k.const("u32", sum(1 << j * cm for j in range(cn))) << rank_m).to("u16")
        if cm > 1:
            right = (k.const("u32", (1 << cm) - 1) << (rank_n * cm)).to("u16")
        return left, right

    def _load_tile(self, tile: WorkTileInfo, _: Any) -> None:
        k, stages, bk = self.k, self.stages, self.config.tile[2]
        begin = k.select(tile.k_blocks == 0, OUT_OF_BOUNDS_K, tile.first_k_block * bk)
        sides = zip((stages.left, stages.right), self.maps, self.limits, strict=True)
        found = [
            operand.map_and_bytes(k, maps, first, limit)
            for (operand, maps, limit), first in zip(sides, (tile.row, tile.column), strict=True)
        ]
        (left_map, left_bytes), (right_map, right_bytes) = found
        size = left_bytes + right_bytes
        k.wait_for_prior_grids()
        for block in k.range(0, k.max(tile.k_blocks, 1), unroll=False):
            self._load_stage(tile, block, begin, (left_map, right_map), size)

    def _load_stage(
        self, tile: WorkTileInfo, block: Any, begin: Any, maps: tuple[Any, Any], size: Any
    ) -> None:
        """Fill the next stage with a k-block."""
        k, stages, state = self.k, self.stages, self.state
        left, right, scheduler = stages.left, stages.right, self.scheduler
        stages.pipeline.producer_acquire(state)
        full = stages.pipeline.producer_expect_transaction(state, size)
        left_target = stages.left_address + state.stage * left.bytes
        right_target = stages.right_address + state.stage * right.bytes
        first_k = block * self.config.tile[2] + begin
        at_left, at_right = (tile.row, first_k, tile.batch), (tile.column, first_k, tile.batch)
        left.load(k, left_target, maps[0], at_left, full, scheduler.rank_n, self.multicast_left)
        if self.second is None:
            share, multicast = scheduler.rank_m, self.multicast_right
            right.load(k, right_target, maps[1], at_right, full, share, multicast)
        else:
            self._load_pair(right_target, (maps[1], self.second), at_right, full)
        state.advance()

    def _load_pair(self, target: Any, maps: tuple[Any, Any], at: Any, barrier: Pointer) -> None:
        """Load both halves of the right operand, each from its matrix; CTAs of a cluster that share
        them load one each.
        """
        k, right, rank = self.k, self.stages.right, self.scheduler.rank_m
        column, first_k, batch = at
        row = column // 2
        if self.config.cluster[0] > 1:
            map_ = k.select(rank == 0, *(k.map_address(m) for m in maps))
            right.load(
                k, target, map_, (row, first_k, batch), barrier, rank, self.multicast_right,
                advances=False,
            )  # fmt: skip
            return
        for share, map_ in enumerate(maps):
            right.load(k, target, map_, (row, first_k, batch), barrier, share, advances=False)
