"""Metadata of a sparse operand in a stage of kernel ``tma``.

The metadata of a 64-row block's k-block are contiguous in global memory (``mma.metadata_blocks``),
so one bulk copy fills each 64-row block of a stage, and a thread reads one word for each block of
metadata: for two instructions of 16- or 32-bit types, or for one of 8-bit types.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from ....builder import Builder, Reg
from ....mma.metadata_blocks import (
    BLOCK_BYTES,
    BLOCK_ROWS,
    BLOCK_WORDS,
    block_k,
    instructions_per_block,
)
from ...problem import Problem
from ..tma_config import TmaConfig


class MetadataStages:
    """The metadata of all stages in shared memory, from ``address`` on. ``never``: a condition that
    does not hold, which ptxas does not know.
    """

    def __init__(self, problem: Problem, config: TmaConfig, address: Reg, never: Any) -> None:
        self.type, self.address, self.never = problem.a, address, never
        self.row_blocks = config.tile[0] // BLOCK_ROWS
        self.k_blocks = config.tile[2] // block_k(self.type)
        self.row_block_bytes = self.k_blocks * BLOCK_BYTES
        self.bytes = config.metadata_bytes(problem)


class MetadataReader:
    """The metadata registers of a consumer warpgroup, which computes ``blocks`` (64-row blocks of
    the tile, those of the first warpgroup), ``first_block`` further on: two sets, which the
    k-blocks use alternately.

    A set must not change while wgmmas that read it are in flight, and ptxas does not know: to it
    the registers are free after the instruction. ``keep``, a store that is never executed, makes it
    keep them until the wgmmas have completed.
    """

    def __init__(
        self, k: Builder, stages: MetadataStages, first_block: Any, blocks: list[int]
    ) -> None:
        self.k, self.stages, self.blocks = k, stages, blocks
        thread = k.tid.x & (BLOCK_WORDS - 1)
        own = stages.address + first_block * stages.row_block_bytes + thread * 4
        self.first = k.pointer("shared", "b32", own)
        self.per_block = instructions_per_block(stages.type)
        self.sets = [
            [[k.var("b32", 0) for _ in range(stages.k_blocks)] for _ in blocks] for _ in range(2)
        ]

    def load(self, stage: Any, index: int) -> None:
        """Load the metadata of a stage, which is full, into a set."""
        here = self.first.cast("b8") + stage * self.stages.bytes
        for block, words in zip(self.blocks, self.sets[index], strict=True):
            for j, word in enumerate(words):
                at = here + (block * self.stages.row_block_bytes + j * BLOCK_BYTES)
                at.cast("b32").load(into=(word,))

    def operand(self, index: int, block: int, instruction: int) -> tuple[Reg, int]:
        """(metadata, selector) of a stage's wgmma of a 64-row block."""
        number, selector = divmod(instruction, self.per_block)
        return self.sets[index][block][number], selector

    def keep(self, index: int) -> None:
        """Keep a set's registers until here, after the wait for the wgmmas that read it."""
        with self.k.when(self.stages.never):
            for word in chain.from_iterable(self.sets[index]):
                self.first.store(word, order="volatile")
