"""The producer's copies of the metadata of a sparse operand."""

from __future__ import annotations

from typing import Any

from ....builder import Builder, Pointer
from ....mma.metadata_blocks import BLOCK_BYTES, BLOCK_ROWS, block_k
from ...kernel_scalars import global_pointer
from ..launch.tma_parameters import SparsePairParameters, SparseParameters
from ..stage_operands import StageCopy
from ..tile_scheduler import WorkTileInfo
from ..tma_config import TmaConfig
from .metadata_stages import MetadataStages


class MetadataCopy(StageCopy):
    """Bulk copies of a stage's metadata, of a matrix, or of two that have halves of the tile. Rows
    beyond the last block of a matrix get its metadata: D does not depend on them.
    """

    def __init__(
        self, k: Builder, stages: MetadataStages, p: SparseParameters, config: TmaConfig
    ) -> None:
        self.k, self.stages = k, stages
        addresses = [p.metadata]
        if isinstance(p, SparsePairParameters) and config.swap:
            addresses.append(p.metadata2)
        self.each = stages.row_blocks // len(addresses)
        sources = [global_pointer(k, address) for address in addresses]
        self.sources = [source for source in sources for _ in range(self.each)]
        self.row_blocks, self.k_blocks = p.metadata_rows, p.metadata_columns

    def begin(self, tile: WorkTileInfo) -> Any:
        k, rows, each = self.k, self.row_blocks, self.each
        first = tile.row // (BLOCK_ROWS * (self.stages.row_blocks // each))
        self.rows = [k.min(first + i % each, rows - 1) for i in range(self.stages.row_blocks)]
        if tile.batch is not None:
            self.rows = [tile.batch * rows + row for row in self.rows]
        return self.stages.bytes

    def target(self, stage: Any) -> Any:
        return self.stages.address + stage * self.stages.bytes

    def issue(self, target: Any, first_k: Any, barrier: Pointer) -> None:
        k, stages = self.k, self.stages
        number = k.min(first_k // block_k(stages.type), self.k_blocks - stages.k_blocks)
        there = k.pointer("shared", "b8", target)
        for i, (row, matrix) in enumerate(zip(self.rows, self.sources, strict=True)):
            index = row * self.k_blocks + number  # of 512 bytes: less than 2^32
            source = (matrix + index.to("u64") * BLOCK_BYTES).aligned(16)
            size = stages.row_block_bytes
            k.bulk_load(there + i * size, source, size, barrier)
