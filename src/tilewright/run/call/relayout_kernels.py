"""The kernels that copy matrices on the device. They move bits, whatever they mean.

``lines``: both sides contiguous along the same index, at any byte. A thread writes an aligned
vector of the target and reads the two aligned vectors of the source that hold it:

    source   |....abcd|efgh....|       byte 4 of a vector, say
    target       |abcdefgh|            words chosen by select, bytes joined by a funnel shift

What lies at an edge, of a line of the target or at the source's end, goes byte by byte: no byte
beyond the last one's is read. (Those before the first are in its allocation, which is aligned.)

``transposed``: the source contiguous along the other index. A warp reads words along the source's
lines, exchanges elements among its registers, and writes words along the target's, with a tile in
shared memory between whose pitch is an odd number of words.

``strided``: any strides, element by element.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

from ...builder import Builder, Pointer, Reg, Traced, trace

THREADS = 256
WARPS = THREADS // 32
VECTOR = 16  # bytes
CTAS = 4  # on an SM at once
MOST_JOBS = 3  # copies of lines in one launch
JOB = {
    "source": "u64", "target": "u64",
    "source_line": "s64", "target_line": "s64", "source_apart": "s64", "target_apart": "s64",
    "reach": "s64", "vectors": "u32", "per_line": "u32", "magic": "u32", "shift": "u32",
    "length": "u32", "room": "s32", "begin": "u32", "ctas": "u32",
}  # fmt: skip
"""The fields of a copy of lines: addresses; bytes from line to line, from matrix to matrix, from
the first line to where the matrix ends; vectors of a matrix and of a line, and what divides by the
latter; bytes of a line, and how many of it may be written; its CTAs.
"""

_UNROLLED = 2
_RESIDENT = {1: 3, 2: 5, 4: 6, 8: 6}  # CTAs of ``transposed`` on an SM, by bytes of an element
_SIZES = {name: int(name[1:]) // 8 for name in ("u64", "s64", "u32", "s32")}
JOB_BYTES = sum(_SIZES[t] for t in JOB.values())


def _wait(k: Builder, programmatic: bool) -> None:
    """Let the next kernel set itself up, and wait for those before."""
    if programmatic:
        k.launch_dependent_grids()
        k.wait_on_dependent_grids()


def _global(k: Builder, dtype: str, address: Reg) -> Pointer:
    return k.pointer("global", dtype, address)


# --- lines --------------------------------------------------------------------------------------


def _lines(k: Builder, jobs: Any, count: Any, *, programmatic: bool) -> None:
    job = _job(k, jobs)
    index = (k.ctaid.x - job.begin) * THREADS + k.tid.x
    threads = job.ctas * THREADS
    _wait(k, programmatic)
    for matrix in k.range(k.ctaid.y, count, k.nctaid.y):
        far = matrix.to("s64")
        job.from_ = job.source.view("s64") + far * job.source_apart
        job.to = job.target.view("s64") + far * job.target_apart
        job.end = job.from_ + job.reach
        for first in k.range(index, job.vectors, threads * _UNROLLED, unroll=False):
            at = [_vector(k, job, first + u * threads) for u in range(_UNROLLED)]
            for vector in at:
                _read(k, vector)
            for vector in at:
                _write(k, vector)
            left = at[0].edge
            for vector in at[1:]:
                left = left | vector.edge
            with k.if_(left):
                stop = k.min(first + _UNROLLED * threads, job.vectors)
                for item in k.range(first, stop, threads, unroll=False):
                    _by_bytes(k, job, _vector(k, job, item))


def _job(k: Builder, jobs: Pointer) -> SimpleNamespace:
    """The fields of this CTA's job."""
    offsets, at = {}, 0
    for name, kind in JOB.items():
        offsets[name], at = at, at + _SIZES[kind]
    which: Any = 0
    for i in range(1, MOST_JOBS):
        begin = jobs.add_bytes(i * JOB_BYTES + offsets["begin"]).cast("u32")[0]
        which = (k.ctaid.x >= begin).to("u32") + which
    own = jobs.add_bytes(which, JOB_BYTES)
    found = {name: own.add_bytes(offsets[name]).cast(kind)[0] for name, kind in JOB.items()}
    for end in ("source", "target"):
        found[end] = k.emit("cvta.to.global.u64", found[end])
    return SimpleNamespace(**found)


def _vector(k: Builder, job: Any, item: Reg) -> SimpleNamespace:
    """Where the target's vector number ``item`` lies and what it holds. ``whole``: 16 bytes of a
    line, whose vectors of the source end within the matrix; else it is at an edge.
    """
    line = (k.ptx.mul.wide.u32(item, job.magic) >> job.shift).to("u32")
    column = item - line * job.per_line
    begin = job.to + line.to("s64") * job.target_line
    offset = (column * VECTOR).view("s32") - (begin.to("s32") & VECTOR - 1)
    source = job.from_ + line.to("s64") * job.source_line + offset.to("s64")
    read = source & -VECTOR
    whole = (offset >= 0) & (offset <= job.room - VECTOR)
    whole = whole & ((source + (2 * VECTOR - 1) & -VECTOR) <= job.end)
    there = item < job.vectors
    return SimpleNamespace(
        offset=offset, source=source, read=_global(k, "b32", read).aligned(VECTOR),
        target=_global(k, "b32", begin + offset.to("s64")).aligned(VECTOR),
        phase=source.to("s32") & VECTOR - 1, whole=there & whole, edge=there & ~whole,
    )  # fmt: skip


def _read(k: Builder, vector: Any) -> None:
    with k.when(vector.whole):
        low = vector.read.load(4)
    with k.when(vector.whole & (vector.phase != 0)):
        high = vector.read.load(4, index=4)
    vector.words = (*low, *high)


def _write(k: Builder, vector: Any) -> None:
    words, phase = vector.words, vector.phase
    for step in (2, 1):
        further = (phase & 4 * step) != 0
        kept = range(len(words) - step)
        words = [k.select(further, words[i + step], words[i]) for i in kept]
    bits = (phase & 3) << 3
    joined = [k.ptx.shf.r.wrap.b32(words[i], words[i + 1], bits) for i in range(4)]
    with k.when(vector.whole):
        vector.target.store(joined)


def _by_bytes(k: Builder, job: Any, vector: Any) -> None:
    """A vector at an edge: those of its bytes that are the line's."""
    source, target = _global(k, "u8", vector.source), vector.target.cast("u8")
    with k.if_(vector.edge):
        for first in (0, VECTOR // 2):
            some = range(first, first + VECTOR // 2)
            valid = [(vector.offset + i).view("u32") < job.length for i in some]
            moved = []
            for i, p in zip(some, valid, strict=True):
                with k.when(p):
                    moved.append(source[i])
            for i, p, value in zip(some, valid, moved, strict=True):
                with k.when(p):
                    target[i] = value


@cache
def lines(programmatic: bool) -> Traced:
    """Copies of lines, up to ``MOST_JOBS`` at once; grid (CTAs of all, matrices, 1)."""
    params = {"jobs": f"bytes {MOST_JOBS * JOB_BYTES} align 8", "count": "u32"}
    return trace(
        _lines, {"programmatic": programmatic}, name="copy_lines", params=params, lines=False,
        block=THREADS, min_ctas=CTAS,
    )  # fmt: skip


# --- transposed ---------------------------------------------------------------------------------


def tile(size: int) -> tuple[int, int]:
    """Elements of a tile of ``transposed`` along the source's lines, and across them."""
    per = max(4 // size, 1)
    return 32 * per, per * (64 if size == 4 else 32)


def _transposed(
    k: Builder, length: Any, lines: Any, count: Any, room: Any, source: Any, target: Any,
    source_line: Any, target_line: Any, source_apart: Any, target_apart: Any, reach: Any,
    *, size: int, programmatic: bool,
) -> None:  # fmt: skip
    """Element (i, j) lies at ``source + i size + j source_line``, and is to lie at ``target + j
    size + i target_line``; ``length`` counts i, ``lines`` j, ``room`` what of j may be written.
    """
    wide, across = tile(size)
    job = SimpleNamespace(**{k_: v for k_, v in locals().items() if k_ not in ("k", "job")})
    job.per = max(4 // size, 1)
    job.word = f"b{max(32, 8 * size)}"
    job.pitch = across // job.per + 1
    job.shared = k.shared(job.word, wide * job.pitch)
    job.lane, job.warp = k.tid.x & 31, k.tid.x >> 5
    job.i = k.ctaid.x * wide
    tiles = (lines + (across - 1)) // across
    _wait(k, programmatic)
    for matrix in k.range(k.ctaid.z, count, k.nctaid.z):
        far = matrix.to("s64")
        job.from_ = source.address().view("s64") + far * source_apart
        job.to = target.address().view("s64") + far * target_apart
        job.end = job.from_ + reach
        for tile_ in k.range(k.ctaid.y, tiles, k.nctaid.y):
            job.j = tile_ * across
            _gather(k, job)
            k.barrier()
            _scatter(k, job)
            k.barrier()


def _gather(k: Builder, job: Any) -> None:
    """The tile to shared memory, by words along the target's lines."""
    per = job.per
    job.column, job.line = job.i + job.lane * per, job.j + job.warp * per
    across = job.from_ + job.column.to("s64") * job.size
    address = across + job.line.to("s64") * job.source_line
    place = job.shared + (job.lane * job.pitch + job.warp)
    beyond = job.source_line * (WARPS * per - per + 1)
    at: list[Any] = []
    edge: Any = False
    groups = range((job.pitch - 1) // WARPS)
    for line in (WARPS * per * group + y for group in groups for y in range(per)):
        at.append(_word(k, job, address, line))
        address = address + (job.source_line if (line + 1) % per else beyond)
        edge = at[-1].edge | edge
    words = [_joined(k, word) for word in at] if per > 1 else [word.low for word in at]
    for group in groups:
        for x, word in enumerate(_turned(k, words[group * per : (group + 1) * per])):
            place[x * 32 * job.pitch + WARPS * group] = word
    if per > 1:
        with k.if_(edge):
            _patch(k, job, place.cast(f"u{8 * job.size}"), across)


def _word(k: Builder, job: Any, address: Reg, line: Any) -> SimpleNamespace:
    """Start to read the word of elements at ``address``, ``line`` lines on, by the aligned words
    that hold it; ``edge``: these end beyond the matrix.
    """
    there = (job.column < job.length) & (job.line + line < job.lines)
    if job.per == 1:
        with k.when(there):
            return SimpleNamespace(low=_global(k, job.word, address)[0], edge=False)
    read, phase = address & -4, address.to("s32") & 3
    whole = (address + 7 & -4) <= job.end
    pointer = _global(k, "b32", read)
    with k.when(there & whole):
        low = pointer[0]
    with k.when(there & whole & (phase != 0)):
        high = pointer[1]
    return SimpleNamespace(low=low, high=high, bits=phase << 3, edge=there & ~whole)


def _joined(k: Builder, word: Any) -> Reg:
    return k.ptx.shf.r.wrap.b32(word.low, word.high, word.bits)


def _patch(k: Builder, job: Any, place: Pointer, across: Reg) -> None:
    """This thread's words at the end of the matrix again, element by element."""
    per = job.per
    for n in k.range(4 * per, unroll=False):
        index = (n // per) * (WARPS * per) + n % per
        line = job.line + index
        address = across + line.to("s64") * job.source_line
        edge = (address + 7 & -4) > job.end
        source = _global(k, f"u{8 * job.size}", address)
        for x in range(per):
            with k.if_(edge & (line < job.lines) & (job.column + x < job.length)):
                place[index + x * 32 * job.pitch * per] = source[x]


def _turned(k: Builder, words: list[Any]) -> list[Any]:
    """Elements (line, place in the word) exchanged: 1, 2 or 4 words of as many elements."""
    prmt = k.ptx.prmt.b32
    if len(words) == 1:
        return words
    if len(words) == 2:
        return [prmt(*words, 0x5410), prmt(*words, 0x7632)]
    even, odd = ([prmt(*words[y : y + 2], how) for y in (0, 2)] for how in (0x5140, 0x7362))
    return [prmt(*pair, how) for pair in (even, odd) for how in (0x5410, 0x7632)]


def _scatter(k: Builder, job: Any) -> None:
    """The tile from shared memory; row i of it stands at (i mod per) 32 + i / per."""
    per, row = job.per, job.i + job.warp
    slot = (job.warp % per) * 32 + job.warp // per
    place = job.shared + (slot * job.pitch + job.lane)
    address = job.to + row.to("s64") * job.target_line
    aligned = ((job.to | job.target_line) & (4 - 1)) == 0
    for half in range(0, job.pitch - 1, 32):
        j = job.j + (half + job.lane) * per
        at = address + j.to("s64") * job.size
        fits = j + per <= job.room
        with k.if_(fits & aligned if per > 1 else fits):
            to = at
            for u in range(4 * per):
                word = place[u * (WARPS // per) * job.pitch + half]
                with k.when(row + WARPS * u < job.length):
                    _global(k, job.word, to)[0] = word
                to = to + job.target_line * WARPS
        if per > 1:
            with k.else_():
                _scatter_elements(k, job, place, at, row, j)


def _scatter_elements(k: Builder, job: Any, place: Pointer, at: Reg, row: Reg, j: Reg) -> None:
    bits = 8 * job.size
    for u in k.range(4 * job.per, unroll=False):
        word = place[u * (WARPS // job.per * job.pitch)].view("u32")
        there = row + u * WARPS < job.length
        target = _global(k, f"u{bits}", at + (u * WARPS).to("s64") * job.target_line)
        for x in range(job.per):
            element = (word >> bits * x).to("u16")
            with k.when(there & (j + x < job.lines)):
                target[x] = element


@cache
def transposed(size: int, programmatic: bool) -> Traced:
    """A copy that transposes, for elements of 1, 2, 4 or 8 bytes; distances are bytes; grid (tiles
    along the source's lines, tiles across, matrices), or less of the latter.
    """
    pointer = f"ptr u{8 * size}"
    distances = ("source_line", "target_line", "source_apart", "target_apart", "reach")
    params = dict.fromkeys(("length", "lines", "count", "room"), "u32")
    params |= {"source": pointer, "target": pointer} | dict.fromkeys(distances, "s64")
    return trace(
        _transposed, {"size": size, "programmatic": programmatic}, params=params, lines=False,
        name=f"copy_transposed_{8 * size}", block=THREADS, min_ctas=_RESIDENT[size],
    )  # fmt: skip


# --- any strides --------------------------------------------------------------------------------

BLOCK = (32, 8, 1)
ROWS = 32  # of a CTA


def _strided(
    k: Builder, rows: Any, columns: Any, count: Any, source: Any, target: Any,
    source_row: Any, source_column: Any, source_apart: Any,
    target_row: Any, target_column: Any, target_apart: Any, *, programmatic: bool,
) -> None:  # fmt: skip
    """A few rows of a column for each thread, which walks on where the grid ends."""
    first = k.ctaid.x * ROWS + k.tid.y
    there = [first + BLOCK[1] * u < rows for u in range(ROWS // BLOCK[1])]
    begin = k.ctaid.y * BLOCK[0] + k.tid.x
    i = first.to("s64")
    _wait(k, programmatic)
    for matrix in k.range(k.ctaid.z, count, k.nctaid.z):
        far = matrix.to("s64")
        from_ = source + (i * source_row + far * source_apart)
        to = target + (i * target_row + far * target_apart)
        for column in k.range(begin, columns, k.nctaid.y * BLOCK[0]):
            j, moved = column.to("s64"), []
            for u, p in enumerate(there):
                place = from_ + (j * source_column + source_row * (BLOCK[1] * u))
                with k.when(p):
                    moved.append(place[0])
            for u, p in enumerate(there):
                place = to + (j * target_column + target_row * (BLOCK[1] * u))
                with k.when(p):
                    place[0] = moved[u]


@cache
def strided(size: int, programmatic: bool) -> Traced:
    """A copy for elements of 1, 2, 4 or 8 bytes; strides count elements and may be negative."""
    pointer, axes = f"ptr u{8 * size}", ("row", "column", "apart")
    strides = {f"{end}_{axis}": "s64" for end in ("source", "target") for axis in axes}
    params = dict.fromkeys(("rows", "columns", "count"), "u32")
    params |= {"source": pointer, "target": pointer} | strides
    return trace(
        _strided, {"programmatic": programmatic}, params=params, lines=False,
        name=f"copy_strided_{8 * size}",
    )  # fmt: skip
