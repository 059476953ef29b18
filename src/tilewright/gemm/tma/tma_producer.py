"""Producer warp of kernel ``tma``: its mainloop issues the tensor copies of all k-blocks.

    for each work tile, for each k-block:
        wait until the stage is empty
        expect the transaction bytes, issue the copies of A and B

CTAs of a cluster that read the same tile each load a share and multicast it to all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...builder import Builder, PipelineTmaAsync
from .stage_operands import StageCopy
from .tile_scheduler import TileScheduler, WorkTileInfo
from .tma_config import TmaConfig

OUT_OF_BOUNDS_K = (1 << 32) - (1 << 16)  # before the first element: copies fill zeros


class TmaProducer:
    """The producer's mainloop: fills the stages of all work tiles by the copies of its operands."""

    def __init__(
        self,
        k: Builder,
        config: TmaConfig,
        pipeline: PipelineTmaAsync,
        scheduler: TileScheduler,
    ) -> None:
        self.k, self.config, self.pipeline, self.scheduler = k, config, pipeline, scheduler
        self.state = pipeline.make_producer_state()

    def run(self, copies: Sequence[StageCopy]) -> None:
        """Load all work tiles of this CTA by these copies."""
        self.copies = copies
        self.scheduler.for_each_tile_of_producer(self._load_tile)
        if self.config.ctas > 1:
            self._drain()

    def _drain(self) -> None:
        """Wait until all stages are empty: this CTA must not end before others of its cluster have
        arrived at its barriers.
        """
        for _ in self.k.range(0, self.config.stages, unroll=False):
            self.pipeline.producer_acquire(self.state)
            self.state.advance()

    def _load_tile(self, tile: WorkTileInfo, _: Any) -> None:
        k, bk = self.k, self.config.tile[2]
        if tile.window is not None:  # of an empty one nothing is in bounds
            begin = tile.window.first
        else:
            begin = k.select(tile.k_blocks == 0, OUT_OF_BOUNDS_K, tile.first_k_block * bk)
        first, *others = [copy.begin(tile) for copy in self.copies]
        size = first
        for other in others:
            size = size + other
        k.wait_for_prior_grids()
        for block in k.range(0, k.max(tile.k_blocks, 1), unroll=False):
            self._load_stage(block, begin, size)

    def _load_stage(self, block: Any, begin: Any, size: Any) -> None:
        """Fill the next stage with a k-block."""
        state = self.state
        self.pipeline.producer_acquire(state)
        full = self.pipeline.producer_expect_transaction(state, size)
        targets = [copy.target(state.stage) for copy in self.copies]
        first_k = block * self.config.tile[2] + begin
        for copy, target in zip(self.copies, targets, strict=True):
            copy.issue(target, first_k, full)
        state.advance()


def multicast_masks(k: Builder, config: TmaConfig, scheduler: TileScheduler) -> tuple[Any, Any]:
    """The CTAs of the cluster that receive this CTA's share of the left and the right operand; None
    where it is not shared.
    """
    cm, cn = config.cluster
    left = right = None
    if cn > 1:
        left = (k.const("u32", sum(1 << j * cm for j in range(cn))) << scheduler.rank_m).to("u16")
    if cm > 1:
        right = (k.const("u32", (1 << cm) - 1) << (scheduler.rank_n * cm)).to("u16")
    return left, right
