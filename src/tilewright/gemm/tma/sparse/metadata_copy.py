"""The producer's copies of the metadata of a sparse operand."""

from __future__ import annotations

from typing import Any

from ....builder import Builder, Pointer
from ....mma.metadata_blocks import BLOCK_BYTES, BLOCK_ROWS, block_k
from ..stage_operands import StageCopy
from ..tile_scheduler import WorkTileInfo
from .metadata_stages import MetadataStages


class MetadataCopy(StageCopy):
    """Bulk copies of a stage's metadata; ``grid``: the blocks of the matrix along M and K. Rows
    beyond the last block get its metadata: D does not depend on them.
    """

    def __init__(self, k: Builder, stages: MetadataStages, source: Pointer, grid: Any) -> None:
        self.k, self.stages, self.source = k, stages, source
        self.row_blocks, self.k_blocks = grid

    def begin(self, tile: WorkTileInfo) -> Any:
        k, rows = self.k, self.row_blocks
        first = tile.row // BLOCK_ROWS
        self.rows = [k.min(first + i, rows - 1) for i in range(self.stages.row_blocks)]
        if tile.batch is not None:
            self.rows = [tile.batch * rows + row for row in self.rows]
        return self.stages.bytes

    def target(self, stage: Any) -> Any:
        return self.stages.address + stage * self.stages.bytes

    def issue(self, target: Any, first_k: Any, barrier: Pointer) -> None:
        k, stages = self.k, self.stages
        number = k.min(first_k // block_k(stages.type), self.k_blocks - stages.k_blocks)
        there = k.pointer("shared", "b8", target)
        for i, row in enumerate(self.rows):
            index = row * self.k_blocks + number  # of 512 bytes: less than 2^32
            source = (self.source + index.to("u64") * BLOCK_BYTES).aligned(16)
            size = stages.row_block_bytes
            k.bulk_load(there + i * size, source, size, barrier)
