"""The kernels that copy matrices on the device. They move bits, whatever they mean.

``lines``: both sides contiguous along the same index, at any byte. A thread writes an aligned
vector of the target and reads the two aligned vectors of the source that hold it:

    source   |....abcd|efgh....|       byte 4 of a vector, say
    target       |abcdefgh|            words chosen by select, bytes joined by a funnel shift

What lies at an edge, of a line of the target or at the source's end, goes byte by byte: no byte
beyond the last one's is read. (Those before the first are in its allocation, which is aligned.)

``strided``: any strides, element by element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
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
_SIZES = {name: int(name[1:]) // 8 for name in ("u64", "s64", "u32", "s32")}
JOB_BYTES = sum(_SIZES[t] for t in JOB.values())


def wait_for_predecessors(k: Builder, programmatic: bool) -> None:
    """Let the next kernel set itself up, and wait for those before."""
    if programmatic:
        k.launch_dependent_grids()
        k.wait_for_prior_grids()


def global_pointer(k: Builder, dtype: str, address: Reg) -> Pointer:
    return k.pointer("global", dtype, address)


# --- lines --------------------------------------------------------------------------------------


@dataclass
class RowCopyJob:
    """One job of ``lines`` as the kernel reads it: the fields of ``JOB``, in registers."""

    source: Reg
    target: Reg
    source_line: Reg
    target_line: Reg
    source_apart: Reg
    target_apart: Reg
    reach: Reg
    vectors: Reg
    per_line: Reg
    magic: Reg
    shift: Reg
    length: Reg
    room: Reg
    begin: Reg
    ctas: Reg


@dataclass
class MatrixBounds:
    """One matrix of a stack: where source and target begin, and where the source ends."""

    source: Reg
    target: Reg
    end: Reg


@dataclass
class TargetVector:
    """16 aligned bytes of the target and the source vectors that hold them.

    ``whole``: all 16 bytes belong to a row, and the source vectors end within the matrix. ``edge``:
    the vector exists and is not whole.
    """

    offset: Reg
    source: Reg
    read: Pointer
    target: Pointer
    phase: Reg
    whole: Reg
    edge: Reg


def _lines(k: Builder, jobs: Pointer, count: Reg, *, programmatic: bool) -> None:
    job = _job(k, jobs)
    index = (k.ctaid.x - job.begin) * THREADS + k.tid.x
    threads = job.ctas * THREADS
    wait_for_predecessors(k, programmatic)
    for matrix in k.range(k.ctaid.y, count, k.nctaid.y):
        far = matrix.to("s64")
        source = job.source.view("s64") + far * job.source_apart
        target = job.target.view("s64") + far * job.target_apart
        bounds = MatrixBounds(source, target, source + job.reach)
        for first in k.range(index, job.vectors, threads * _UNROLLED, unroll=False):
            at = [_vector(k, job, bounds, first + u * threads) for u in range(_UNROLLED)]
            words = [_read(k, vector) for vector in at]
            for vector, own in zip(at, words, strict=True):
                _write(k, vector, own)
            left = at[0].edge
            for vector in at[1:]:
                left = left | vector.edge
            with k.if_(left):
                stop = k.min(first + _UNROLLED * threads, job.vectors)
                for item in k.range(first, stop, threads, unroll=False):
                    _by_bytes(k, job, _vector(k, job, bounds, item))


def _job(k: Builder, jobs: Pointer) -> RowCopyJob:
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
    return RowCopyJob(**found)


def _vector(k: Builder, job: RowCopyJob, bounds: MatrixBounds, item: Reg) -> TargetVector:
    """Where the target's vector number ``item`` lies and what it holds. ``whole``: 16 bytes of a
    line, whose vectors of the source end within the matrix; else it is at an edge.
    """
    line = (k.ptx.mul.wide.u32(item, job.magic) >> job.shift).to("u32")
    column = item - line * job.per_line
    begin = bounds.target + line.to("s64") * job.target_line
    offset = (column * VECTOR).view("s32") - (begin.to("s32") & VECTOR - 1)
    source = bounds.source + line.to("s64") * job.source_line + offset.to("s64")
    read = source & -VECTOR
    whole = (offset >= 0) & (offset <= job.room - VECTOR)
    whole = whole & ((source + (2 * VECTOR - 1) & -VECTOR) <= bounds.end)
    there = item < job.vectors
    return TargetVector(
        offset=offset, source=source, read=global_pointer(k, "b32", read).aligned(VECTOR),
        target=global_pointer(k, "b32", begin + offset.to("s64")).aligned(VECTOR),
        phase=source.to("s32") & VECTOR - 1, whole=there & whole, edge=there & ~whole,
    )  # fmt: skip


def _read(k: Builder, vector: TargetVector) -> tuple[Reg, ...]:
    """The eight words of the source vectors that hold a target vector."""
    with k.when(vector.whole):
        low = vector.read.load(4)
    with k.when(vector.whole & (vector.phase != 0)):
        high = vector.read.load(4, index=4)
    return (*low, *high)


def _write(k: Builder, vector: TargetVector, words: Sequence[Reg]) -> None:
    phase = vector.phase
    for step in (2, 1):
        further = (phase & 4 * step) != 0
        kept = range(len(words) - step)
        words = [k.select(further, words[i + step], words[i]) for i in kept]
    bits = (phase & 3) << 3
    joined = [k.ptx.shf.r.wrap.b32(words[i], words[i + 1], bits) for i in range(4)]
    with k.when(vector.whole):
        vector.target.store(joined)


def _by_bytes(k: Builder, job: RowCopyJob, vector: TargetVector) -> None:
    """A vector at an edge: those of its bytes that are the line's."""
    source, target = global_pointer(k, "u8", vector.source), vector.target.cast("u8")
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
    wait_for_predecessors(k, programmatic)
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
