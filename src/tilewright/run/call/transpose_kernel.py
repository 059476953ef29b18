"""The kernel that copies and transposes a matrix on the device.

``transposed``: the source contiguous along the other index. A warp reads words along the source's
lines, exchanges elements among its registers, and writes words along the target's, with a tile in
shared memory between whose pitch is an odd number of words.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from ...builder import Builder, Pointer, Reg, Traced, trace
from .relayout_kernels import THREADS, WARPS, MatrixBounds, global_pointer, wait_for_predecessors

_RESIDENT = {1: 3, 2: 5, 4: 6, 8: 6}  # CTAs of ``transposed`` on an SM, by bytes of an element


def tile(size: int) -> tuple[int, int]:
    """Elements of a tile of ``transposed`` along the source's lines, and across them."""
    per = max(4 // size, 1)
    return 32 * per, per * (64 if size == 4 else 32)


@dataclass
class TransposeParams:
    """The parameters of ``transposed``, in order."""

    length: Reg
    lines: Reg
    count: Reg
    room: Reg
    source: Pointer
    target: Pointer
    source_line: Reg
    target_line: Reg
    source_apart: Reg
    target_apart: Reg
    reach: Reg


@dataclass
class TransposeCta:
    """What a CTA's tiles share: ``per`` elements of ``size`` bytes in a ``word``, the pitch in
    words, the tile in shared memory, this thread's lane and warp, the first i.
    """

    params: TransposeParams
    size: int
    per: int
    word: str
    pitch: int
    shared: Pointer
    lane: Reg
    warp: Reg
    i: Reg


@dataclass
class SourceWord:
    """A word of the source, as the aligned words ``low`` and ``high`` shifted by ``bits``.

    ``edge``: these words end beyond the matrix, and are not read.
    """

    low: Any
    high: Any = None
    bits: Any = None
    edge: Any = False


def _transposed(
    k: Builder, length: Reg, lines: Reg, count: Reg, room: Reg, source: Pointer, target: Pointer,
    source_line: Reg, target_line: Reg, source_apart: Reg, target_apart: Reg, reach: Reg,
    *, size: int, programmatic: bool,
) -> None:  # fmt: skip
    """Element (i, j) is at ``source + i size + j source_line`` and is copied to ``target + j size +
    i target_line``; ``length`` counts i, ``lines`` j, ``room`` how many of j may be written.
    """
    params = TransposeParams(
        length, lines, count, room, source, target,
        source_line, target_line, source_apart, target_apart, reach,
    )  # fmt: skip
    wide, across = tile(size)
    per = max(4 // size, 1)
    word = f"b{max(32, 8 * size)}"
    pitch = across // per + 1
    shared = k.shared(word, wide * pitch)
    lane, warp = k.tid.x & 31, k.tid.x >> 5
    i = k.ctaid.x * wide
    cta = TransposeCta(params, size, per, word, pitch, shared, lane, warp, i)
    tiles = (lines + (across - 1)) // across
    wait_for_predecessors(k, programmatic)
    for matrix in k.range(k.ctaid.z, count, k.nctaid.z):
        far = matrix.to("s64")
        begin = source.address().view("s64") + far * source_apart
        to = target.address().view("s64") + far * target_apart
        bounds = MatrixBounds(begin, to, begin + reach)
        for tile_ in k.range(k.ctaid.y, tiles, k.nctaid.y):
            j = tile_ * across
            _gather(k, cta, bounds, j)
            k.barrier()
            _scatter(k, cta, bounds, j)
            k.barrier()


def _gather(k: Builder, cta: TransposeCta, bounds: MatrixBounds, j: Reg) -> None:
    """The tile to shared memory, by words along the target's rows."""
    p, per = cta.params, cta.per
    column, line = cta.i + cta.lane * per, j + cta.warp * per
    across = bounds.source + column.to("s64") * cta.size
    address = across + line.to("s64") * p.source_line
    place = cta.shared + (cta.lane * cta.pitch + cta.warp)
    beyond = p.source_line * (WARPS * per - per + 1)
    at: list[SourceWord] = []
    edge: Any = False
    groups = range((cta.pitch - 1) // WARPS)
    for step in (WARPS * per * group + y for group in groups for y in range(per)):
        valid = (column < p.length) & (line + step < p.lines)
        at.append(_word(k, cta, bounds, address, valid))
        address = address + (p.source_line if (step + 1) % per else beyond)
        edge = at[-1].edge | edge
    words = [_joined(k, word) for word in at] if per > 1 else [word.low for word in at]
    for group in groups:
        for x, word in enumerate(_turned(k, words[group * per : (group + 1) * per])):
            place[x * 32 * cta.pitch + WARPS * group] = word
    if per > 1:
        with k.if_(edge):
            _patch(k, cta, bounds, place.cast(f"u{8 * cta.size}"), across, column, line)


def _word(
    k: Builder, cta: TransposeCta, bounds: MatrixBounds, address: Reg, valid: Reg
) -> SourceWord:
    """Start to read the word of elements at ``address``, by the aligned words that hold it."""
    if cta.per == 1:
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


def _patch(
    k: Builder, cta: TransposeCta, bounds: MatrixBounds, place: Pointer, across: Reg,
    column: Reg, line: Reg,
) -> None:  # fmt: skip
    """This thread's words at the end of the matrix again, element by element."""
    p, per = cta.params, cta.per
    for n in k.range(4 * per, unroll=False):
        index = (n // per) * (WARPS * per) + n % per
        own = line + index
        address = across + own.to("s64") * p.source_line
        edge = (address + 7 & -4) > bounds.end
        source = global_pointer(k, f"u{8 * cta.size}", address)
        for x in range(per):
            with k.if_(edge & (own < p.lines) & (column + x < p.length)):
                place[index + x * 32 * cta.pitch * per] = source[x]


def _turned(k: Builder, words: list[Any]) -> list[Any]:
    """Elements (line, place in the word) exchanged: 1, 2 or 4 words of as many elements."""
    prmt = k.ptx.prmt.b32
    if len(words) == 1:
        return words
    if len(words) == 2:
        return [prmt(*words, 0x5410), prmt(*words, 0x7632)]
    even, odd = ([prmt(*words[y : y + 2], how) for y in (0, 2)] for how in (0x5140, 0x7362))
    return [prmt(*pair, how) for pair in (even, odd) for how in (0x5410, 0x7632)]


def _scatter(k: Builder, cta: TransposeCta, bounds: MatrixBounds, tile_j: Reg) -> None:
    """The tile from shared memory; row i of it stands at (i mod per) 32 + i / per."""
    p, per, row = cta.params, cta.per, cta.i + cta.warp
    slot = (cta.warp % per) * 32 + cta.warp // per
    place = cta.shared + (slot * cta.pitch + cta.lane)
    address = bounds.target + row.to("s64") * p.target_line
    aligned = ((bounds.target | p.target_line) & (4 - 1)) == 0
    for half in range(0, cta.pitch - 1, 32):
        j = tile_j + (half + cta.lane) * per
        at = address + j.to("s64") * cta.size
        fits = j + per <= p.room
        with k.if_(fits & aligned if per > 1 else fits):
            to = at
            for u in range(4 * per):
                word = place[u * (WARPS // per) * cta.pitch + half]
                with k.when(row + WARPS * u < p.length):
                    global_pointer(k, cta.word, to)[0] = word
                to = to + p.target_line * WARPS
        if per > 1:
            with k.else_():
                _scatter_elements(k, cta, place, at, row, j)


def _scatter_elements(
    k: Builder, cta: TransposeCta, place: Pointer, at: Reg, row: Reg, j: Reg
) -> None:
    p, bits = cta.params, 8 * cta.size
    for u in k.range(4 * cta.per, unroll=False):
        word = place[u * (WARPS // cta.per * cta.pitch)].view("u32")
        there = row + u * WARPS < p.length
        target = global_pointer(k, f"u{bits}", at + (u * WARPS).to("s64") * p.target_line)
        for x in range(cta.per):
            element = (word >> bits * x).to("u16")
            with k.when(there & (j + x < p.lines)):
                target[x] = element


@cache
def transposed(size: int, programmatic: bool) -> Traced:
    """A copy that transposes, for elements of 1, 2, 4 or 8 bytes; distances are bytes; grid (tiles
    along the source's lines, tiles across, matrices), or less of the latter.
    """
    counts = dict.fromkeys(("length", "lines", "count", "room"), "u32")
    pointers = dict.fromkeys(("source", "target"), f"ptr u{8 * size}")
    params = {f.name: (counts | pointers).get(f.name, "s64") for f in fields(TransposeParams)}
    return trace(
        _transposed, {"size": size, "programmatic": programmatic}, params=params, lines=False,
        name=f"copy_transposed_{8 * size}", block=THREADS, min_ctas=_RESIDENT[size],
    )  # fmt: skip
