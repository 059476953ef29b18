"""The metadata of sparse prepared weights: a consumer warpgroup's registers.

A unit ends with its metadata, in blocks of 64 rows by 64 of K (``mma.metadata_blocks``). A word is
read by two wgmmas, with selector 0 and 1. As wgmma.sp reads the registers while it executes, and
ptxas does not know that, there are two sets, which chunks use alternately (``MetadataReader``).
"""

from __future__ import annotations

from typing import Any

from ....builder import Builder, Reg
from ....mma.metadata_blocks import BLOCK_BYTES, BLOCK_WORDS, instructions_per_block
from ....quantization.weight_format import WeightFormat

WORD = 4  # bytes


class UnitMetadata:
    """The metadata of chunks of ``steps`` wgmmas. ``first``: the shared address of the warpgroup's
    first unit in the first stage; ``never``: a condition that does not hold, which ptxas does not
    know.
    """

    def __init__(
        self, k: Builder, weights: WeightFormat, first: Any, steps: int, never: Any
    ) -> None:
        self.k, self.never = k, never
        self.per_block = instructions_per_block(weights.operand)
        thread = k.tid.x & (BLOCK_WORDS - 1)
        self.words = first + (thread * WORD + weights.metadata_offset)
        count = max(1, steps // self.per_block)
        self.sets = [[k.var("b32", 0) for _ in range(count)] for _ in range(2)]

    def load(self, stage_offset: Any, unit_offset: int, step: int, index: int) -> None:
        """Load the metadata of the chunk that begins at a step of a unit into set ``index``, whose
        wgmmas have completed.
        """
        words = self.k.pointer("shared", "b32", self.words + stage_offset)
        first = unit_offset + step // self.per_block * BLOCK_BYTES
        for i, word in enumerate(self.sets[index]):
            (words + (first + i * BLOCK_BYTES) // WORD).load(into=(word,))

    def operand(self, index: int, step: int, i: int) -> tuple[Reg, int]:
        """(metadata, selector) of wgmma ``i`` of the chunk that begins at ``step``."""
        block, selector = divmod(step + i, self.per_block)
        return self.sets[index][block - step // self.per_block], selector

    def keep(self, index: int) -> None:
        """Keep a set's registers until here, after the wait for the wgmmas that read it."""
        with self.k.when(self.never):
            for word in self.sets[index]:
                self.k.pointer("shared", "b32", self.words).store(word, order="volatile")
