"""The kernel of ``compress_24``, with the bits of the NumPy steps; memory-bound.

A thread makes a word of metadata (``mma.metadata_blocks``), of 8-bit elements one in each of two
consecutive blocks: it loads the 8 chunks of rows that each word describes, 16 bytes at a time, and
stores their elements. So a thread has 64 bytes in flight, and a quad of threads reads 128
consecutive bytes of each row.
"""

from __future__ import annotations

from collections.abc import Callable
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
    block_grid,
    block_k,
    chunk_size,
    chunk_table,
)
from ..mma.sparse_metadata import FIRST, SECOND
from ..quantization.array_access import ArrayInfo
from .sparse24 import METADATA_TYPE, Sparse24, chunk_place

LOAD = 16  # bytes that a thread loads at once
GATHER_BYTES = 0x10204080  # times a word of bytes that are 0 or 1: these as its highest bits
BYTE_SIGNS = 0xBA98  # prmt: the sign of each byte, in all bits of the byte
FP8 = ("e4m3", "e5m2")
NONE = 2**63 - 1  # no chunk has too many elements


class CompressionForm(NamedTuple):
    """What a kernel is traced for: the elements' type, and what is kept: ``magnitude``, ``mask`` or
    all that is not zero. ``whole_pairs``: rows are multiples of 32 bytes.
    """

    type: str
    prune: str
    whole_pairs: bool = False

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

    @property
    def blocks(self) -> int:
        """Consecutive blocks of metadata of a CTA, along K."""
        return 2 if self.size == 1 else 1


def launch(
    w: Any, given: ArrayInfo, form: CompressionForm, device: Any, mask: Any = None
) -> Sparse24:
    """Compress a contiguous matrix, or stack, by a kernel. ``mask``: contiguous, u8, 0 or 1.

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
    form = form._replace(whole_pairs=columns * form.size % (2 * LOAD) == 0)
    down, across = block_grid(form.type, rows, columns)
    values = kind.empty(w, (*lead, rows, columns // 2), given.dtype)
    metadata = kind.empty(w, (*lead, down, across, BLOCK_WORDS), METADATA_TYPE)
    excess = kind.empty(w, (1,), "s64")
    excess[...] = NONE
    batch = int(np.prod(lead))
    if rows and batch:
        sizes = rows, columns, down, across
        masks = () if mask is None else (mask,)
        arguments = *masks, w, values, metadata, excess, *sizes
        grid = batch * down * -(-across // form.blocks)
        run(_kernel(form), (grid,), (BLOCK_WORDS,), arguments, device=device)
    finish = kind.finish or (lambda like, array: array)
    if form.prune != "magnitude" and (first := int(excess[0])) != NONE:
        where = np.unravel_index(first // form.chunk, (*lead, rows, columns // form.chunk))
        raise MetadataError(
            f"{chunk_place(where, form.chunk)}: more than {form.chunk // 2} of {form.chunk} are "
            f"{'kept' if form.prune else 'not zero'}",
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
    whole = LOAD if form.whole_pairs else LOAD // 2
    params = {
        "w": f"ptr {stored} align {LOAD}", "values": f"ptr {stored} align {whole}",
        "metadata": "ptr s32", "excess": "ptr s64", "rows": "u32", "columns": "u32", "down": "u32",
        "across": "u32",
    }  # fmt: skip
    name = "_".join(filter(None, ("compress_24", form.type, form.prune)))
    statics = {"form": form}
    body: Callable[..., None] = _compress
    if form.prune == "mask":
        body, params = _compress_by_mask, {"mask": "ptr u8 align 4"} | params
    return trace(body, statics, params=params, name=name, block=BLOCK_WORDS, lines=False)


def _compress_by_mask(
    k: Builder, mask: Pointer, w: Pointer, values: Pointer, metadata: Pointer, excess: Pointer,
    rows: Reg, columns: Reg, down: Reg, across: Reg, *, form: CompressionForm,
) -> None:  # fmt: skip
    _compress(k, w, values, metadata, excess, rows, columns, down, across, form=form, mask=mask)


def _compress(
    k: Builder, w: Pointer, values: Pointer, metadata: Pointer, excess: Pointer, rows: Reg,
    columns: Reg, down: Reg, across: Reg, *, form: CompressionForm, mask: Pointer | None = None,
) -> None:  # fmt: skip
    """The blocks of metadata of a CTA, of each a word for each thread: its two halves have 4 chunks
    each.
    """
    thread, ctas_across = k.tid.x, (across + (form.blocks - 1)) // form.blocks
    line, first = k.ctaid.x // ctas_across, k.ctaid.x % ctas_across * form.blocks
    matrix, row_block = line // down, line % down
    words = []  # every load is issued before the first is used
    for i in range(form.blocks):
        places = _places(form, thread, row_block * BLOCK_ROWS, (first + i) * block_k(form.type))
        words.append(
            [load for at in places for load in _loads(k, form, w, mask, matrix, rows, columns, at)]
        )
    for i, loads in enumerate(words):
        bits = _store_elements(k, form, loads, values, excess)
        with k.when(first + i < across):
            target = (line * across + first + i) * BLOCK_WORDS + thread
            metadata[target.to("u64")] = bits.view("s32")


def _places(form: CompressionForm, thread: Reg, row: Any, column: Any) -> list[tuple[Any, Any]]:
    """Row and column of the first chunk of each half of a thread's word, in the block at (row,
    column).
    """
    row, quarter = row + (thread >> 5) * 16 + ((thread & 31) >> 2), block_k(form.type) // 4
    if form.size > 1:  # a row and the row 8 below, a quarter of the block's K
        return [(row + 8 * half, column + (thread & 3) * quarter) for half in range(2)]
    # Two quarters of a row; odd threads 8 rows below.
    first = column + ((thread & 2) >> 1) * (2 * quarter)
    return [(row + (thread & 1) * 8, first + half * quarter) for half in range(2)]


def _store_elements(
    k: Builder, form: CompressionForm, loads: list[Any], values: Pointer, excess: Pointer
) -> Any:
    """Store the elements that are kept of the chunks of a word; its bits."""
    bits = k.const("u32", 0)
    together = 2 if form.whole_pairs else 1  # loads of 32 consecutive bytes, a store of 16
    for i in range(0, len(loads), together):
        stored = list[Any]()
        for j, (words, masks, offset, _) in enumerate(loads[i : i + together], i):
            found, more = _chunks(k, form, words, masks, excess, offset)
            bits = bits | found << 4 * form.chunks_per_load * j
            stored += more
        with k.when(loads[i][3]):
            target = (values + (loads[i][2] >> 1)).aligned(8 * together).cast("b32")
            target.store([word.view("b32") for word in stored])
    return bits


def _loads(
    k: Builder, form: CompressionForm, w: Pointer, mask: Pointer | None, matrix: Reg, rows: Reg,
    columns: Reg, at: tuple[Any, Any],
) -> list[tuple[list[Any], list[Any], Any, Any]]:  # fmt: skip
    """Load 4 chunks from (row, column) on, zeros outside the matrix: for each 16 bytes their words,
    those of the mask, the number of the first element, and whether they are inside. The metadata of
    zeros is FILLER.
    """
    row, first = at
    line, found = (matrix * rows + row).to("u64") * columns.to("u64"), []
    for i in range(4 // form.chunks_per_load):
        column = first + i * form.chunks_per_load * form.chunk
        inside, offset = (row < rows) & (column < columns), line + column.to("u64")
        words = [k.var("b32", 0) for _ in range(LOAD // 4)]
        count = form.chunks_per_load * form.chunk // 4 if mask is not None else 0
        masks = [k.var("b32", 0) for _ in range(count)]
        with k.when(inside):
            (w + offset).aligned(LOAD).cast("b32").load(4, into=words)
            if mask is not None:
                here = (mask + offset).aligned(4 * count).cast("b32")
                here.load(count, into=masks if count > 1 else (masks[0],))
        every = ([word.view("u32") for word in group] for group in (words, masks))
        found.append((*every, offset, inside))
    return found


def _chunks(
    k: Builder, form: CompressionForm, words: list[Any], masks: list[Any], excess: Pointer,
    offset: Any,
) -> tuple[Any, list[Any]]:  # fmt: skip
    """The metadata of the chunks of 16 bytes, and their stored elements in two words."""
    if form.size == 1 and form.prune == "magnitude":
        pairs = [_pair(k, form, words[i : i + 2]) for i in (0, 2)]
        return pairs[0][0] | pairs[1][0] << 8, [pair[1] for pair in pairs]
    per_chunk = form.chunk * form.size // 4  # words
    found, stored = k.const("u32", 0), []
    for i in range(form.chunks_per_load):
        chunk = words[i * per_chunk : (i + 1) * per_chunk]
        if form.prune == "magnitude":
            code = _largest(k, _magnitudes(k, form, chunk))
        else:
            kept, chunk = _kept(k, form, chunk, masks, i)
            _check(k, form, kept, excess, offset + i * form.chunk)
            code = _metadata(k, form, kept)
        found = found | code << 4 * i
        stored.append(_stored(k, form, chunk, code))
    if form.size == 1:
        stored = [stored[0] | stored[1] << 16, stored[2] | stored[3] << 16]
    return found, stored


def _kept(
    k: Builder, form: CompressionForm, chunk: list[Any], masks: list[Any], i: int
) -> tuple[Any, list[Any]]:
    """Which elements of chunk ``i`` of a load are kept, as bits, and the chunk with zeros for the
    others. The mask has a byte for each element, 0 or 1.
    """
    if not masks:
        bits = k.const("u32", 0)
        for position, size in enumerate(_magnitudes(k, form, chunk)):
            bits = bits | k.select(size != 0, 1 << position, 0)
        return bits, chunk
    if form.chunk == 2:
        first, second = (masks[0] >> 16 * i + 8 * j & 1 for j in range(2))
        return first | second << 1, [chunk[0] * first, chunk[1] * second]
    mask = masks[i]
    if form.size == 1:
        left = [chunk[0] & mask * 0xFF]
    else:  # bytes 2 j and 2 j + 1 of the mask, each over a half word
        halves = (mask >> 16 * j & 0x101 for j in range(2))
        left = [
            word & ((half & 1) * 0xFFFF | (half >> 8) * 0xFFFF0000)
            for word, half in zip(chunk, halves, strict=True)
        ]
    return mask * GATHER_BYTES >> 28, left


def _magnitudes(k: Builder, form: CompressionForm, chunk: list[Any]) -> list[Any]:
    """Integers in the order of the magnitudes, as ``compression.magnitudes`` has them."""
    if form.type == "tf32":
        return [word & 0x7FFFFFFF for word in chunk]
    if form.size == 2:
        return [half for word in chunk for half in (word & 0x7FFF, word >> 16 & 0x7FFF)]
    word = _magnitude_bytes(k, form, *chunk)
    return [word >> 8 * i & (0x7F if form.type in FP8 else 0xFF) for i in range(4)]


def _pair(k: Builder, form: CompressionForm, chunks: list[Any]) -> tuple[Any, Any]:
    """The metadata and the stored bytes of the larger halves of two chunks of 8-bit elements, by
    the network of ``_largest`` on both, in the halves of words. Keys are less than 2^10 and so, as
    bits of f16, subnormal numbers in the same order: max.f16x2 is also that of two integers.
    """

    def extremes(a: Any, b: Any) -> tuple[Any, Any]:
        halves = a.view("f16x2"), b.view("f16x2")
        return k.max(*halves).view("u32"), k.min(*halves).view("u32")

    first, second = (_magnitude_bytes(k, form, word).view("b32") for word in chunks)
    mask, keys = (0x7F007F if form.type in FP8 else 0xFF00FF), []
    for i in range(4):
        both = k.emit("prmt.b32", first, second, 0x4400 + 0x1111 * i).view("u32")
        keys.append((both & mask) * 4 + (3 - i) * 0x10001)
    (high, low), (high2, low2) = extremes(*keys[:2]), extremes(*keys[2:])
    largest, smaller = extremes(high, high2)
    other = extremes(smaller, extremes(low, low2)[0])[0]
    # A key ends with 3 minus the position, so the larger of these is that of the first element.
    front, back = extremes(largest & 0x30003, other & 0x30003)
    codes = back * 4 + front ^ 0xF000F
    bytes_ = back * 16 + front ^ 0x770033  # the second chunk's are bytes 4 to 7 of both
    selector = (bytes_ | bytes_ >> 8).view("b32")
    stored = k.emit("prmt.b32", *(word.view("b32") for word in chunks), selector)
    return codes & 15 | codes >> 12, stored.view("u32")


def _magnitude_bytes(k: Builder, form: CompressionForm, word: Any) -> Any:
    """The magnitudes of four 8-bit elements; of floats with their signs."""
    if form.type != "s8":
        return word
    # The sign of each byte in all of its bits, then its two's complement.
    signs = k.emit("prmt.b32", word.view("b32"), word.view("b32"), BYTE_SIGNS).view("u32")
    return (word ^ signs) + (signs & 0x01010101)  # no carries: -128 becomes 128


def _largest(k: Builder, sizes: list[Any]) -> Any:
    """The metadata that keep the larger half of a chunk, the first ones of equals. Of four: a key
    is a magnitude and, below it, 3 minus the position; the largest key of two pairs is one of the
    two largest, and the other one is the smaller of these or the largest of the rest.
    """
    if len(sizes) == 2:
        return k.select(sizes[1] > sizes[0], SECOND, FIRST)
    keys = [size << 2 | 3 - i for i, size in enumerate(sizes)]
    (high, low), (high2, low2) = ((k.max(a, b), k.min(a, b)) for a, b in (keys[:2], keys[2:]))
    second = k.max(k.min(high, high2), k.max(low, low2))
    positions = [(key & 3) ^ 3 for key in (k.max(high, high2), second)]
    return k.min(*positions) | k.max(*positions) << 2


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
