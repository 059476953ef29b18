"""``SparseBlock``: one block of a sparse matrix, from its elements to the registers of metadata.

A block is 64 rows by 16 chunks of ``mma.metadata_blocks``: the 128 words that the threads of a
warpgroup read for one or two instructions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..errors import ProblemError
from ..mma import MmaInstruction
from ..mma.instruction_table import catalogue
from ..mma.metadata_blocks import (
    BLOCK_CHUNKS,
    BLOCK_ROWS,
    BLOCK_WORDS,
    block_k,
    chunk_size,
    instructions_per_block,
    pack_metadata,
    positions_table,
)
from ..notebook_display import Drawable
from ..quantization.array_access import Array

WORD_CHUNKS = 8  # of 4 bits in a word


@dataclass(frozen=True, eq=False)
class SparseBlock(Drawable):
    """Where the elements of a block are stored, and the metadata of its chunks.

    ``type``: of the elements. ``chunks``: metadata (64, 16), 4 bits each. Raises ProblemError for
    another shape, and for metadata that are invalid.
    """

    type: str
    chunks: Array = field(repr=False)

    def __post_init__(self) -> None:
        given = np.shape(self.chunks)
        if given != (BLOCK_ROWS, BLOCK_CHUNKS):
            raise ProblemError(f"chunks must have shape (64, 16), got {given}")
        chunks = np.asarray(self.chunks)
        if chunks.dtype.kind not in "iu" or ((chunks < 0) | (chunks > 15)).any():
            raise ProblemError("chunks must be integers from 0 to 15")
        if not positions_table(self.type)[1][chunks].all():
            raise ProblemError(f"chunks must have valid metadata of {self.type}")

    @property
    def columns(self) -> int:
        """Columns of the dense block."""
        return block_k(self.type)

    @property
    def instruction(self) -> MmaInstruction:
        """The narrowest wgmma.sp of the type."""
        return next(
            row for row in catalogue(family="wgmma.sp", a=self.type, n=8) if row.b == self.type
        )

    def stored_columns(self) -> Array:
        """(64, columns): the column among the stored elements, or -1 of a zero."""
        size = chunk_size(self.type)
        positions = positions_table(self.type)[0][self.chunks]
        each = positions.shape[-1]
        found = np.full((BLOCK_ROWS, BLOCK_CHUNKS, size), -1)
        columns = np.arange(BLOCK_CHUNKS)[:, None] * each + np.arange(each)
        np.put_along_axis(found, positions, np.broadcast_to(columns, positions.shape), -1)
        return found.reshape(BLOCK_ROWS, self.columns)

    def places_of_chunks(self) -> tuple[Array, Array]:
        """(64, 16) each: the thread of the warpgroup whose word has a chunk's metadata, and the
        lowest of their 4 bits.
        """
        words = np.empty((BLOCK_WORDS, WORD_CHUNKS), np.int64)  # the number of each nibble's chunk
        numbers = np.arange(BLOCK_ROWS * BLOCK_CHUNKS).reshape(BLOCK_ROWS, BLOCK_CHUNKS)
        words[...] = 0
        for digit in range(3):  # a chunk's number by its hexadecimal digits
            nibbles = (numbers >> 4 * digit & 15).astype(np.uint8)
            packed = pack_metadata(self.type, nibbles)[0, 0].view(np.uint32)[:, None]
            words |= (packed >> 4 * np.arange(WORD_CHUNKS, dtype=np.uint32) & 15).astype(
                np.int64
            ) << 4 * digit
        where = np.empty(numbers.size, np.int64)
        where[words.ravel()] = np.arange(words.size)
        thread, nibble = np.divmod(where.reshape(numbers.shape), WORD_CHUNKS)
        return thread, 4 * nibble

    def selectors(self) -> Array:
        """(16,): the instruction of the block that reads a chunk, which is its selector, too."""
        return np.arange(BLOCK_CHUNKS) * instructions_per_block(self.type) // BLOCK_CHUNKS
