"""Metadata of a sparse operand of kernel ``multistage``: copies to a stage, registers.

mma.sp reads the metadata of 16 rows as wgmma.sp does: word t of a group of 16 rows in a block of
``mma.metadata_blocks`` is the register of lane t, and the two instructions of a block of 16- or
32-bit types have selectors 0 and 1. A stage has 128 bytes for each group of rows and each block
along K.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...builder import Builder, Pointer, Reg
from ...mma.metadata_blocks import BLOCK_BYTES, BLOCK_ROWS, block_k, instructions_per_block
from ..problem import Problem
from .multistage_config import Config

GROUP_ROWS, GROUP_BYTES = 16, 128  # of a group of rows in a block: a word for each lane
GROUPS = BLOCK_ROWS // GROUP_ROWS
CHUNK = 16  # bytes that a cp.async copies
CHUNKS = GROUP_BYTES // CHUNK


class MetadataTile:
    """The metadata of a tile. ``grid``: blocks of the matrix along M (or N) and K; ``shared``:
    where those of the first stage begin. Rows beyond the last block get metadata of its rows: D
    does not depend on them.
    """

    def __init__(
        self,
        k: Builder,
        problem: Problem,
        config: Config,
        source: Pointer,
        grid: tuple[Reg, Reg],
        batch: Any,
        shared: Pointer,
    ) -> None:
        self.k, self.type, self.shared, self.source = k, problem.a, shared, source
        self.grid, self.batch = grid, batch
        side = 0 if problem.sparse == "a" else 1
        self.side, self.warps = side, config.warps
        self.warp_groups = config.warp_tile[side] // GROUP_ROWS
        self.blocks = config.tile[2] // block_k(self.type)
        self.total = config.tile[side] // GROUP_ROWS * self.blocks * CHUNKS
        self.threads = config.threads
        self.count = -(-self.total // self.threads)
        self.cursors = [k.pointer("global", "b8", k.var("u64", 0)) for _ in range(self.count)]

    def move_to(self, first_row: Any) -> None:
        """Continue with the tile that begins at this row."""
        k, (row_blocks, k_blocks) = self.k, self.grid
        for i, cursor in enumerate(self.cursors):
            index = self._index(i)
            number, group = index // CHUNKS % self.blocks, index // (CHUNKS * self.blocks)
            group = first_row // GROUP_ROWS + group
            row = k.min(group // GROUPS, row_blocks - 1)
            if self.batch is not None:
                row = self.batch * row_blocks + row
            block = (row * k_blocks + number).to("u64")  # less than 2^32
            within = group % GROUPS * GROUP_BYTES + index % CHUNKS * CHUNK
            cursor.set(self.source + (block * BLOCK_BYTES + within.to("u64")))

    def _index(self, i: int) -> Reg:
        """The number of this thread's chunk ``i`` in the tile."""
        number: Reg = self.k.tid.x + i * self.threads
        return number

    def copy(self, first_k: Any, stage: Any, enabled: Any) -> Iterator[None]:
        """Copy the metadata of the k-tile that begins at ``first_k``, a chunk for each ``next``."""
        k = self.k
        block = (first_k // block_k(self.type)).to("u64") * BLOCK_BYTES
        for i, cursor in enumerate(self.cursors):
            index = self._index(i)
            exists = enabled
            if (i + 1) * self.threads > self.total:
                exists = enabled & (index < self.total)
            with k.when(exists):
                there = self.shared.add_bytes(stage + index * CHUNK)
                k.cp_async(there, (cursor + block).aligned(CHUNK), CHUNK)
            yield

    def partition(self, first_warp: Any) -> None:
        """Allocate the registers of two parts of K, as those of fragments; ``first_warp``: the
        number of this thread's warp along the rows.
        """
        k = self.k
        group = first_warp * (self.warp_groups * self.blocks * GROUP_BYTES)
        self.own = self.shared.add_bytes(group + k.laneid * 4)
        self.words = [[k.var("b32", 0) for _ in range(self.warp_groups)] for _ in range(2)]

    def load(self, part: int, stage: Any) -> Iterator[None]:
        """Load the words of a part of K from the stage at byte ``stage``; a load each ``next``."""
        block = part // instructions_per_block(self.type)
        here = self.own.add_bytes(stage)
        for group, word in enumerate(self.words[part % 2]):
            at = here.add_bytes((group * self.blocks + block) * GROUP_BYTES)
            at.cast("b32").load(into=(word,))
            yield

    def operand(self, part: int, row: int) -> tuple[Reg, int]:
        """(metadata, selector) of the instruction of fragment ``row`` of A in a part of K."""
        return self.words[part % 2][row], part % instructions_per_block(self.type)
