"""Metadata of a whole sparse matrix, in blocks of the order in which wgmma.sp reads it.

A chunk of a row (4 elements, of which 2 are stored; of tf32 2 and 1, of 4-bit types 8 and 4, in
pairs) has 4 bits of metadata. A
block covers 64 rows by 16 chunks and has 128 words: word t is the metadata register of thread t of
the warpgroup for all instructions of the block. 8-bit types: one instruction, which reads the words
of all threads. 16- and 32-bit types: two instructions; selector 0 reads the words of threads 0 and
1 of each quad, selector 1 those of threads 2 and 3. So no word is stored twice.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ..dtypes import dtype
from .instruction_table import catalogue
from .sparse_metadata import FIRST, SECOND, stored_positions
from .sparsity import code_bits, sparsity_pattern

Array = npt.NDArray[Any]

BLOCK_ROWS, BLOCK_CHUNKS, BLOCK_WORDS = 64, 16, 128
BLOCK_BYTES = 4 * BLOCK_WORDS
BLOCKS_TOGETHER = 4  # the number of blocks along K is a multiple of it
FILLER = 0b0100  # of chunks beyond the matrix: the first elements, of every type
PAIRS = (4, 8)  # the pattern of 4-bit types: two pairs of four
_UNITS = 4  # 16 bits each, of a row of a block


def chunk_size(type_: str) -> int:
    """Elements of a row of dense A with a chunk of metadata: 4, 2 of tf32, 8 of 4-bit types."""
    return sparsity_pattern(type_)[1]


def block_k(type_: str) -> int:
    """Elements along K of a block: 64, 32 of tf32, 128 of 4-bit types."""
    return BLOCK_CHUNKS * chunk_size(type_)


def instructions_per_block(type_: str) -> int:
    """wgmma.sp instructions along the K of a block: each has a selector of its own."""
    return 2 if dtype(type_).bits > 8 else 1


def block_grid(type_: str, rows: int, columns: int) -> tuple[int, int]:
    """The number of blocks along M and along K of a matrix, at least one each."""
    step = block_k(type_) * BLOCKS_TOGETHER
    along_k = -(-max(columns, 1) // step) * BLOCKS_TOGETHER
    return -(-max(rows, 1) // BLOCK_ROWS), along_k


@cache
def _order(type_: str) -> Array:
    """(thread, half of its word) → index of the 16 bits in the rows of a block."""
    own = "u8" if dtype(type_).bits < 8 else type_  # a pair is as an element of 8 bits
    instruction = next(
        row for row in catalogue() if (row.family, row.a, row.n) == ("wgmma.sp", own, 8)
    )
    fragment = instruction.fragment("metadata")
    row, column = fragment.coordinates()
    per_unit = 16 // code_bits(sparsity_pattern(own))
    selector = np.arange(BLOCK_WORDS) % 4 // (4 // fragment.copies)
    unit = column // per_unit + selector[:, None] * (fragment.columns // per_unit)
    return np.asarray((row * _UNITS + unit)[:, [0, per_unit]])


def pack_metadata(type_: str, chunks: Array) -> Array:
    """The metadata of chunks (…, M, K / chunk size), 4 bits each, as int32 words (…, blocks along
    M, blocks along K, 128).
    """
    *lead, rows, columns = chunks.shape
    down, across = block_grid(type_, rows, columns * chunk_size(type_))
    padded = np.full((*lead, down * BLOCK_ROWS, across * BLOCK_CHUNKS), FILLER, np.uint8)
    padded[..., :rows, :columns] = chunks
    pairs = padded[..., 0::2] | padded[..., 1::2] << 4
    shape = (*lead, down, BLOCK_ROWS, across, _UNITS)
    units = pairs.view(np.uint16).reshape(shape).swapaxes(-3, -2)
    flat = units.reshape(*lead, down, across, BLOCK_ROWS * _UNITS)
    words = np.ascontiguousarray(flat[..., _order(type_)])
    return words.view(np.int32).reshape(*lead, down, across, BLOCK_WORDS)


def unpack_metadata(type_: str, words: Array, rows: int, columns: int) -> Array:
    """The inverse of ``pack_metadata``: the chunks of ``rows`` × ``columns`` dense elements."""
    *lead, down, across, _ = words.shape
    halves = np.ascontiguousarray(words).view(np.uint16)
    flat = np.empty((*lead, down, across, BLOCK_ROWS * _UNITS), np.uint16)
    flat[..., _order(type_).ravel()] = halves
    units = flat.reshape(*lead, down, across, BLOCK_ROWS, _UNITS).swapaxes(-3, -2)
    shape = (*lead, down * BLOCK_ROWS, across * BLOCK_CHUNKS // 2)
    pairs = np.ascontiguousarray(units).view(np.uint8).reshape(shape)
    chunks = np.stack([pairs & 15, pairs >> 4], -1).reshape(*shape[:-1], 2 * shape[-1])
    return chunks[..., :rows, : columns // chunk_size(type_)]


@cache
def chunk_table(type_: str) -> tuple[Array, Array]:
    """By the bits of a chunk's elements that are kept (bit i: element i, or pair i of 4-bit
    types): its metadata, and whether they are at most as many as are stored.
    """
    stored, group = sparsity_pattern(type_)
    if (stored, group) == PAIRS:
        stored, group = 2, 4
    kept = np.arange(1 << group)[:, None] >> np.arange(group) & 1 != 0
    chosen = stored_positions(kept, stored)
    if group == 2:
        metadata = np.where(chosen[:, 0] == 1, SECOND, FIRST)
    else:
        metadata = chosen[:, 0] | chosen[:, 1] << 2
    return metadata.astype(np.uint8), kept.sum(-1) <= stored


@cache
def positions_table(type_: str) -> tuple[Array, Array]:
    """By the metadata of a chunk: the positions of its stored elements, and whether the metadata is
    valid. The two indices of a chunk may have any order.
    """
    codes = np.arange(16)
    if sparsity_pattern(type_) == (1, 2):
        valid = np.isin(codes, (FIRST, SECOND))
        return np.asarray((codes == SECOND).astype(np.int64)[:, None]), valid
    low, high = codes & 3, codes >> 2
    if sparsity_pattern(type_) == PAIRS:
        return np.stack([2 * low, 2 * low + 1, 2 * high, 2 * high + 1], -1), low != high
    return np.stack([low, high], -1), low != high
