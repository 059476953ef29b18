"""The kernel of ``compress_24``, with the bits of the NumPy steps; memory-bound.

A thread makes one word of metadata (``mma.metadata_blocks``): it loads the 8 chunks of rows that
the word describes, 16 bytes at a time, and stores their elements. A quad of threads reads 128
consecutive bytes of each row.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..builder import Builder, Pointer, Reg, Traced, trace
from ..dtypes import dtype
from ..errors import MetadataError, ProblemError
from ..lazy_imports import provided
from ..mma.metadata_blocks import (
    BLOCK_ROWS,
    BLOCK_WORDS,
    FILLER,
    block_grid,
    block_k,
    chunk_size,
    chunk_table,
)
from ..mma.sparse_metadata import SECOND
from ..quantization.array_access import ArrayInfo
from .sparse24 import METADATA_TYPE, Sparse24

LOAD = 16  # bytes that a thread loads at once
NONE = 2**63 - 1  # no chunk has too many elements


class CompressionForm(NamedTuple):
    """What a kernel is traced for: the elements' type, and whether the largest are kept."""

    type: str
    prune: bool

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return dtype(self.type).bits // 8 if self.type != "tf32" else 4

    @property
    def chunk(self) -> int:
        return chunk_size(self.type)

    @property
    def chunks_per_load(self) -> int:
        return LOAD // self.size // self.chunk


def launch(w: Any, given: ArrayInfo, form: CompressionForm, device: Any) -> Sparse24:
    """Compress a contiguous matrix, or stack, by a kernel.

    Raises ProblemError for rows that are not multiples of 16 bytes, or not contiguous, and
    MetadataError for the first chunk with too many elements.
    """
    arrays, run = provided("arrays"), provided("launcher")
    view, kind = arrays.view(w), arrays.kind_of(w)
    *lead, rows, columns = given.shape
    compact = view.strides == _compact(given.shape) or 0 in given.shape
    if columns * form.size % LOAD or view.address % LOAD or not compact:
        raise ProblemError(
            f"w must be contiguous, with rows of a multiple of {LOAD} bytes, to be compressed by a "
            f"kernel, got {given}",
            hint="on the CPU, device=None compresses any array",
        )
    down, across = block_grid(form.type, rows, columns)
    values = kind.empty(w, (*lead, rows, columns // 2), given.dtype)
    metadata = kind.empty(w, (*lead, down, across, BLOCK_WORDS), METADATA_TYPE)
    excess = kind.empty(w, (1,), "s64")
    excess[...] = NONE
    batch = int(np.prod(lead))
    if rows and batch:
        sizes = rows, columns, down, across
        arguments = w, values, metadata, excess, *sizes
        run(_kernel(form), (batch * down * across,), (BLOCK_WORDS,), arguments, device=device)
    finish = kind.finish or (lambda like, array: array)
    if not form.prune and (first := int(excess[0])) != NONE:
        row, column = divmod(first, columns)
        raise MetadataError(
            f"row {row % rows}, columns {column} to {column + form.chunk - 1}: more than "
            f"{form.chunk // 2} of {form.chunk} are not zero",
            hint="prune='magnitude' keeps the largest",
        )
    return Sparse24(finish(w, values), finish(w, metadata), form.type)


def _compact(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


@cache
def _kernel(form: CompressionForm) -> Traced:
    stored = "f32" if form.type == "tf32" else form.type
    params = {
        "w": f"ptr {stored} align 16", "values": f"ptr {stored} align 8", "metadata": "ptr s32",
        "excess": "ptr s64", "rows": "u32", "columns": "u32", "down": "u32", "across": "u32",
    }  # fmt: skip
    name = f"compress_24_{form.type}{'_magnitude' * form.prune}"
    statics = {"form": form}
    return trace(_compress, statics, params=params, name=name, block=BLOCK_WORDS, lines=False)


def _compress(
    k: Builder, w: Pointer, values: Pointer, metadata: Pointer, excess: Pointer, rows: Reg,
    columns: Reg, down: Reg, across: Reg, *, form: CompressionForm,
) -> None:  # fmt: skip
    """A block of metadata for a CTA, a word for each thread: its two halves have 4 chunks each."""
    block, thread = k.ctaid.x, k.tid.x
    row_block, k_block = block // across, block % across
    matrix, row_block = row_block // down, row_block % down
    row = row_block * BLOCK_ROWS + (thread >> 5) * 16 + ((thread & 31) >> 2)
    column = k_block * block_k(form.type)
    quarter = block_k(form.type) // 4
    if form.size > 1:  # a row and the row 8 below, a quarter of the block's K
        places = [(row + 8 * half, column + (thread & 3) * quarter) for half in range(2)]
    else:  # two quarters of a row; odd threads 8 rows below
        first = column + ((thread & 2) >> 1) * (2 * quarter)
        row = row + (thread & 1) * 8
        places = [(row, first + half * quarter) for half in range(2)]
    halves = [_unit(k, form, w, values, excess, matrix, rows, columns, at) for at in places]
    metadata[(block * BLOCK_WORDS + thread).to("u64")] = (halves[0] | halves[1] << 16).view("s32")


def _unit(
    k: Builder, form: CompressionForm, w: Pointer, values: Pointer, excess: Pointer, matrix: Reg,
    rows: Reg, columns: Reg, at: tuple[Any, Any],
) -> Any:  # fmt: skip
    """Compress 4 chunks from (row, column) on; returns their 16 bits of metadata."""
    row, first = at
    bits = k.var("u32", FILLER * 0x1111)
    line = (matrix * rows + row).to("u64") * columns.to("u64")
    elements = form.chunks_per_load * form.chunk
    for i in range(4 // form.chunks_per_load):
        column = first + i * elements
        shift = 4 * form.chunks_per_load * i
        with k.if_((row < rows) & (column < columns)):
            offset = line + column.to("u64")
            words = [word.view("u32") for word in (w + offset).aligned(LOAD).cast("b32").load(4)]
            found, stored = _chunks(k, form, words, excess, offset)
            clear = ~(((1 << 4 * form.chunks_per_load) - 1) << shift) & 0xFFFFFFFF
            bits.set(bits & clear | found << shift)
            target = (values + (offset >> 1)).aligned(8).cast("b32")
            target.store([word.view("b32") for word in stored])
    return bits


def _chunks(
    k: Builder, form: CompressionForm, words: list[Any], excess: Pointer, offset: Any
) -> tuple[Any, list[Any]]:
    """The metadata of the chunks of 16 bytes, and their stored elements in two words."""
    per_chunk = form.chunk * form.size // 4  # words
    found, stored = k.const("u32", 0), []
    for i in range(form.chunks_per_load):
        chunk = words[i * per_chunk : (i + 1) * per_chunk]
        sizes = _magnitudes(k, form, chunk)
        kept = _kept(k, form, sizes)
        mask = k.const("u32", 0)
        for position, keep in enumerate(kept):
            mask = mask | k.select(keep, 1 << position, 0)
        if not form.prune:
            _check(k, form, mask, excess, offset + i * form.chunk)
        code = _metadata(k, form, mask)
        found = found | code << 4 * i
        stored.append(_stored(k, form, chunk, code))
    if form.size == 1:
        stored = [stored[0] | stored[1] << 16, stored[2] | stored[3] << 16]
    return found, stored


def _magnitudes(k: Builder, form: CompressionForm, chunk: list[Any]) -> list[Any]:
    """Integers in the order of the magnitudes, as ``compression.magnitudes`` has them."""
    if form.type == "tf32":
        return [word & 0x7FFFFFFF for word in chunk]
    if form.size == 2:
        return [half for word in chunk for half in (word & 0x7FFF, word >> 16 & 0x7FFF)]
    (word,) = chunk
    if form.type == "s8":
        return [
            k.emit("abs.s32", k.emit("bfe.s32", word.view("s32"), 8 * i, 8)).view("u32")
            for i in range(4)
        ]
    return [word >> 8 * i & (0xFF if form.type == "u8" else 0x7F) for i in range(4)]


def _kept(k: Builder, form: CompressionForm, sizes: list[Any]) -> list[Any]:
    """Which elements are kept: those that are not zero, or the larger half."""
    if not form.prune:
        return [size != 0 for size in sizes]
    count = len(sizes)
    larger = [k.const("u32", 0) for _ in sizes]
    for first in range(count):
        for second in range(first + 1, count):
            wins = sizes[second] > sizes[first]
            larger[first] = larger[first] + k.select(wins, 1, 0)
            larger[second] = larger[second] + k.select(wins, 0, 1)
    return [number < count // 2 for number in larger]


def _check(k: Builder, form: CompressionForm, mask: Any, excess: Pointer, offset: Any) -> None:
    """Report a chunk with too many elements."""
    with k.if_(k.emit("popc.b32", mask) > form.chunk // 2):
        excess.reduce("min", offset.view("s64"), order="relaxed.gpu")


def _metadata(k: Builder, form: CompressionForm, mask: Any) -> Any:
    """The metadata of a chunk by the bits of the elements that are kept, from a table."""
    codes = chunk_table(form.type)[0]
    table = sum(int(code) << 4 * i for i, code in enumerate(codes))
    if form.chunk == 2:
        return k.const("u32", table) >> (mask << 2) & 15
    shifted = k.const("u64", table) >> (mask << 2)
    return shifted.to("u32") & 15


def _stored(k: Builder, form: CompressionForm, chunk: list[Any], code: Any) -> Any:
    """The stored elements of a chunk: a word of tf32 and 16-bit types, half a word of others."""
    if form.type == "tf32":
        return k.select(code == SECOND, chunk[1], chunk[0])
    low, high = code & 3, code >> 2
    if form.size == 2:
        selector = low * 0x22 + high * 0x2200 + 0x1010
        return k.emit("prmt.b32", chunk[0].view("b32"), chunk[1].view("b32"), selector).view("u32")
    word = chunk[0].view("b32")
    return k.emit("prmt.b32", word, word, low | high << 4).view("u32") & 0xFFFF
