"""The kernel that copies and transposes a matrix on the device.

A warp reads words along the source's contiguous dimension, transposes the elements within its
registers, and stages a tile in shared memory, whose pitch is an odd number of words to avoid bank
conflicts. It then writes words along the target's contiguous dimension.

A source row is what is contiguous in the source, a target row what is contiguous in the target:
element (i, j) is number i of source row j and number j of target row i.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from ...builder import Builder, Pointer, Reg, Traced, trace
from .relayout_kernels import THREADS, WARPS, MatrixBounds, global_pointer, wait_for_predecessors

_RESIDENT = {1: 3, 2: 5, 4: 6, 8: 6}  # CTAs per SM, by bytes of an element


def tile(size: int) -> tuple[int, int]:
    """Extents of a CTA's tile in i and in j, for elements of ``size`` bytes."""
    per = max(4 // size, 1)
    return 32 * per, per * (64 if size == 4 else 32)


@dataclass
class TransposeParams:
    """The parameters of the kernel, in order. Strides and ``extent`` (from the first source row to
    the end of the matrix) are bytes.

    ``length`` and ``rows``: extents in i and in j. ``writable``: how many elements of a target row
    may be written.
    """

    length: Reg
    rows: Reg
    matrices: Reg
    writable: Reg
    source: Pointer
    target: Pointer
    source_row_stride: Reg
    target_row_stride: Reg
    source_batch_stride: Reg
    target_batch_stride: Reg
    extent: Reg


@dataclass
class TransposeCta:
    """The tile of a CTA: ``per_word`` elements of ``size`` bytes in a ``word``, the pitch in words,
    the shared memory, this thread's lane and warp, and the tile's first i.
    """

    params: TransposeParams
    size: int
    per_word: int
    word: str
    pitch: int
    shared: Pointer
    lane: Reg
    warp: Reg
    i: Reg


@dataclass
class SourceWord:
    """A word of the source: the aligned words ``low`` and ``high``, joined and shifted by ``bits``.

    ``edge``: these words end beyond the matrix and are not read.
    """

    low: Any
    high: Any = None
    bits: Any = None
    edge: Any = False


def _copy_transposed(
    k: Builder, length: Reg, rows: Reg, matrices: Reg, writable: Reg,
    source: Pointer, target: Pointer, source_row_stride: Reg, target_row_stride: Reg,
    source_batch_stride: Reg, target_batch_stride: Reg, extent: Reg,
    *, size: int, programmatic: bool,
) -> None:  # fmt: skip
    """Element (i, j) is at ``source + i size + j source_row_stride`` and is copied to
    ``target + j size + i target_row_stride``.
    """
    params = TransposeParams(
        length, rows, matrices, writable, source, target, source_row_stride, target_row_stride,
        source_batch_stride, target_batch_stride, extent,
    )  # fmt: skip
    tile_length, tile_rows = tile(size)
    per_word = max(4 // size, 1)
    word = f"b{max(32, 8 * size)}"
    pitch = tile_rows // per_word + 1
    shared = k.shared(word, tile_length * pitch)
    lane, warp = k.tid.x & 31, k.tid.x >> 5
    i = k.ctaid.x * tile_length
    cta = TransposeCta(params, size, per_word, word, pitch, shared, lane, warp, i)
    tiles = (rows + (tile_rows - 1)) // tile_rows
    wait_for_predecessors(k, programmatic)
    for matrix in k.range(k.ctaid.z, matrices, k.nctaid.z):
        batch = matrix.to("s64")
        read = source.address().view("s64") + batch * source_batch_stride
        write = target.address().view("s64") + batch * target_batch_stride
        bounds = MatrixBounds(read, write, read + extent)
        for tile_ in k.range(k.ctaid.y, tiles, k.nctaid.y):
            j = tile_ * tile_rows
            _gather(k, cta, bounds, j)
            k.barrier()
            _scatter(k, cta, bounds, j)
            k.barrier()


def _gather(k: Builder, cta: TransposeCta, bounds: MatrixBounds, j: Reg) -> None:
    """Load a tile to shared memory, stored there as words along the target's rows."""
    p, per_word = cta.params, cta.per_word
    i, row = cta.i + cta.lane * per_word, j + cta.warp * per_word
    base = bounds.source + i.to("s64") * cta.size
    address = base + row.to("s64") * p.source_row_stride
    stored = cta.shared + (cta.lane * cta.pitch + cta.warp)
    to_next_group = p.source_row_stride * (WARPS * per_word - per_word + 1)
    loaded: list[SourceWord] = []
    edge: Any = False
    groups = range((cta.pitch - 1) // WARPS)
    for step in (WARPS * per_word * group + y for group in groups for y in range(per_word)):
        valid = (i < p.length) & (row + step < p.rows)
        loaded.append(_load_word(k, cta, bounds, address, valid))
        address = address + (p.source_row_stride if (step + 1) % per_word else to_next_group)
        edge = loaded[-1].edge | edge
    words = [_joined(k, x) for x in loaded] if per_word > 1 else [x.low for x in loaded]
    for group in groups:
        block = words[group * per_word : (group + 1) * per_word]
        for x, word in enumerate(_transpose_words(k, block)):
            stored[x * 32 * cta.pitch + WARPS * group] = word
    if per_word > 1:
        with k.if_(edge):
            _gather_elements(k, cta, bounds, stored.cast(f"u{8 * cta.size}"), base, i, row)


def _load_word(
    k: Builder, cta: TransposeCta, bounds: MatrixBounds, address: Reg, valid: Reg
) -> SourceWord:
    """Load the aligned words that hold the word of elements at ``address``."""
    if cta.per_word == 1:
        with k.when(valid):
            return SourceWord(global_pointer(k, cta.word, address)[0])
    read, phase = address & -4, address.to("s32") & 3
    whole = (address + 7 & -4) <= bounds.end
    pointer = global_pointer(k, "b32", read)
    with k.when(valid & whole):
        low = pointer[0]
    with k.when(valid & whole & (phase != 0)):
        high = pointer[1]
    return SourceWord(low, high, phase << 3, valid & ~whole)


def _joined(k: Builder, word: SourceWord) -> Reg:
    joined: Reg = k.ptx.shf.r.wrap.b32(word.low, word.high, word.bits)
    return joined


def _gather_elements(
    k: Builder, cta: TransposeCta, bounds: MatrixBounds, stored: Pointer, base: Reg,
    i: Reg, row: Reg,
) -> None:  # fmt: skip
    """Load this thread's words at the end of the matrix again, element by element."""
    p, per_word = cta.params, cta.per_word
    for n in k.range(4 * per_word, unroll=False):
        index = (n // per_word) * (WARPS * per_word) + n % per_word
        j = row + index
        address = base + j.to("s64") * p.source_row_stride
        edge = (address + 7 & -4) > bounds.end
        source = global_pointer(k, f"u{8 * cta.size}", address)
        for x in range(per_word):
            with k.if_(edge & (j < p.rows) & (i + x < p.length)):
                stored[index + x * 32 * cta.pitch * per_word] = source[x]


def _transpose_words(k: Builder, words: list[Any]) -> list[Any]:
    """Transpose n words of n elements each, for n = 1, 2 or 4."""
    prmt = k.ptx.prmt.b32
    if len(words) == 1:
        return words
    if len(words) == 2:
        return [prmt(*words, 0x5410), prmt(*words, 0x7632)]
    even, odd = (
        [prmt(*words[y : y + 2], selector) for y in (0, 2)] for selector in (0x5140, 0x7362)
    )
    return [prmt(*pair, selector) for pair in (even, odd) for selector in (0x5410, 0x7632)]


def _scatter(k: Builder, cta: TransposeCta, bounds: MatrixBounds, tile_j: Reg) -> None:
    """Store the tile to the target. Target row i of the tile is row (i mod per_word) · 32 +
    i / per_word of shared memory.
    """
    p, per_word, row = cta.params, cta.per_word, cta.i + cta.warp
    slot = (cta.warp % per_word) * 32 + cta.warp // per_word
    stored = cta.shared + (slot * cta.pitch + cta.lane)
    row_address = bounds.target + row.to("s64") * p.target_row_stride
    aligned = ((bounds.target | p.target_row_stride) & (4 - 1)) == 0
    for half in range(0, cta.pitch - 1, 32):
        j = tile_j + (half + cta.lane) * per_word
        first = row_address + j.to("s64") * cta.size
        fits = j + per_word <= p.writable
        with k.if_(fits & aligned if per_word > 1 else fits):
            address = first
            for u in range(4 * per_word):
                word = stored[u * (WARPS // per_word) * cta.pitch + half]
                with k.when(row + WARPS * u < p.length):
                    global_pointer(k, cta.word, address)[0] = word
                address = address + p.target_row_stride * WARPS
        if per_word > 1:
            with k.else_():
                _scatter_elements(k, cta, stored, first, row, j)


def _scatter_elements(
    k: Builder, cta: TransposeCta, stored: Pointer, first: Reg, row: Reg, j: Reg
) -> None:
    p, bits = cta.params, 8 * cta.size
    for u in k.range(4 * cta.per_word, unroll=False):
        word = stored[u * (WARPS // cta.per_word * cta.pitch)].view("u32")
        valid = row + u * WARPS < p.length
        address = first + (u * WARPS).to("s64") * p.target_row_stride
        target = global_pointer(k, f"u{bits}", address)
        for x in range(cta.per_word):
            element = (word >> bits * x).to("u16")
            with k.when(valid & (j + x < p.rows)):
                target[x] = element


@cache
def copy_transposed(size: int, programmatic: bool) -> Traced:
    """A transposing copy for elements of 1, 2, 4 or 8 bytes.

    The grid is (tiles in i, tiles in j, matrices); y and z may be smaller.
    """
    counts = dict.fromkeys(("length", "rows", "matrices", "writable"), "u32")
    pointers = dict.fromkeys(("source", "target"), f"ptr u{8 * size}")
    params = {f.name: (counts | pointers).get(f.name, "s64") for f in fields(TransposeParams)}
    return trace(
        _copy_transposed, {"size": size, "programmatic": programmatic}, params=params, lines=False,
        name=f"copy_transposed_{8 * size}", block=THREADS, min_ctas=_RESIDENT[size],
    )  # fmt: skip
