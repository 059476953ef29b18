"""Kernels that copy matrices on the device, independent of the element type.

``copy_rows``: rows are contiguous in source and target, at any byte alignment. A thread writes one
aligned 16-byte vector of the target and reads the two aligned vectors of the source that hold it:

    source   |....abcd|efgh....|       here at byte 4 of a vector
    target       |abcdefgh|            words selected, bytes joined by a funnel shift

Vectors at the edge of a target row or at the end of the source are copied byte by byte, so that no
byte after the last one is read. (Bytes before the first belong to its allocation, which is
aligned.)

``copy_strided``: any strides, element by element.
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
CTAS_PER_SM = 4
MAX_JOBS = 3  # of one launch
JOB = {
    "source": "u64", "target": "u64",
    "source_row_stride": "s64", "target_row_stride": "s64",
    "source_batch_stride": "s64", "target_batch_stride": "s64",
    "extent": "s64", "vectors": "u32", "vectors_per_row": "u32", "magic": "u32", "shift": "u32",
    "row_bytes": "u32", "writable": "s32", "first_cta": "u32", "ctas": "u32",
}  # fmt: skip
"""The fields of a job of ``copy_rows``; strides and extents are bytes.

``extent``: from the first row to the end of the matrix. ``vectors``: of a matrix. ``magic`` and
``shift``: x // vectors_per_row = x · magic >> shift. ``writable``: bytes of a target row that may
be written.
"""

_UNROLLED = 2
_SIZES = {name: int(name[1:]) // 8 for name in ("u64", "s64", "u32", "s32")}
JOB_BYTES = sum(_SIZES[t] for t in JOB.values())


def wait_for_predecessors(k: Builder, programmatic: bool) -> None:
    """Let the next kernel start its prologue, then wait for the kernels before this one."""
    if programmatic:
        k.launch_dependent_grids()
        k.wait_for_prior_grids()


def global_pointer(k: Builder, dtype: str, address: Reg) -> Pointer:
    return k.pointer("global", dtype, address)


# --- rows to rows -------------------------------------------------------------------------------


@dataclass
class RowCopyJob:
    """One job of ``copy_rows`` in registers: the fields of ``JOB``."""

    source: Reg
    target: Reg
    source_row_stride: Reg
    target_row_stride: Reg
    source_batch_stride: Reg
    target_batch_stride: Reg
    extent: Reg
    vectors: Reg
    vectors_per_row: Reg
    magic: Reg
    shift: Reg
    row_bytes: Reg
    writable: Reg
    first_cta: Reg
    ctas: Reg


@dataclass
class MatrixBounds:
    """One matrix of a stack: the addresses of source and target, and the end of the source."""

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


def _copy_rows(k: Builder, jobs: Pointer, matrices: Reg, *, programmatic: bool) -> None:
    job = _job(k, jobs)
    index = (k.ctaid.x - job.first_cta) * THREADS + k.tid.x
    threads = job.ctas * THREADS
    wait_for_predecessors(k, programmatic)
    for matrix in k.range(k.ctaid.y, matrices, k.nctaid.y):
        batch = matrix.to("s64")
        source = job.source.view("s64") + batch * job.source_batch_stride
        target = job.target.view("s64") + batch * job.target_batch_stride
        bounds = MatrixBounds(source, target, source + job.extent)
        for first in k.range(index, job.vectors, threads * _UNROLLED, unroll=False):
            vectors = [_vector(k, job, bounds, first + u * threads) for u in range(_UNROLLED)]
            words = [_read(k, vector) for vector in vectors]
            for vector, own in zip(vectors, words, strict=True):
                _write(k, vector, own)
            any_edge = vectors[0].edge
            for vector in vectors[1:]:
                any_edge = any_edge | vector.edge
            with k.if_(any_edge):
                stop = k.min(first + _UNROLLED * threads, job.vectors)
                for item in k.range(first, stop, threads, unroll=False):
                    _copy_bytes(k, job, _vector(k, job, bounds, item))


def _job(k: Builder, jobs: Pointer) -> RowCopyJob:
    """The fields of this CTA's job."""
    offsets, offset = {}, 0
    for name, kind in JOB.items():
        offsets[name], offset = offset, offset + _SIZES[kind]
    which: Any = 0
    for i in range(1, MAX_JOBS):
        first_cta = jobs.add_bytes(i * JOB_BYTES + offsets["first_cta"]).cast("u32")[0]
        which = (k.ctaid.x >= first_cta).to("u32") + which
    job = jobs.add_bytes(which, JOB_BYTES)
    fields = {name: job.add_bytes(offsets[name]).cast(kind)[0] for name, kind in JOB.items()}
    for name in ("source", "target"):
        fields[name] = k.emit("cvta.to.global.u64", fields[name])
    return RowCopyJob(**fields)


def _vector(k: Builder, job: RowCopyJob, bounds: MatrixBounds, item: Reg) -> TargetVector:
    """The target's vector number ``item``: its row is item // vectors_per_row."""
    row = (k.ptx.mul.wide.u32(item, job.magic) >> job.shift).to("u32")
    column = item - row * job.vectors_per_row
    begin = bounds.target + row.to("s64") * job.target_row_stride
    offset = (column * VECTOR).view("s32") - (begin.to("s32") & VECTOR - 1)
    source = bounds.source + row.to("s64") * job.source_row_stride + offset.to("s64")
    read = source & -VECTOR
    whole = (offset >= 0) & (offset <= job.writable - VECTOR)
    whole = whole & ((source + (2 * VECTOR - 1) & -VECTOR) <= bounds.end)
    exists = item < job.vectors
    return TargetVector(
        offset=offset, source=source, read=global_pointer(k, "b32", read).aligned(VECTOR),
        target=global_pointer(k, "b32", begin + offset.to("s64")).aligned(VECTOR),
        phase=source.to("s32") & VECTOR - 1, whole=exists & whole, edge=exists & ~whole,
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
        shifted = (phase & 4 * step) != 0
        remaining = range(len(words) - step)
        words = [k.select(shifted, words[i + step], words[i]) for i in remaining]
    bits = (phase & 3) << 3
    joined = [k.ptx.shf.r.wrap.b32(words[i], words[i + 1], bits) for i in range(4)]
    with k.when(vector.whole):
        vector.target.store(joined)


def _copy_bytes(k: Builder, job: RowCopyJob, vector: TargetVector) -> None:
    """A vector at an edge: copy only the bytes that belong to its row."""
    source, target = global_pointer(k, "u8", vector.source), vector.target.cast("u8")
    with k.if_(vector.edge):
        for first in (0, VECTOR // 2):
            half = range(first, first + VECTOR // 2)
            valid = [(vector.offset + i).view("u32") < job.row_bytes for i in half]
            values = []
            for i, p in zip(half, valid, strict=True):
                with k.when(p):
                    values.append(source[i])
            for i, p, value in zip(half, valid, values, strict=True):
                with k.when(p):
                    target[i] = value


@cache
def copy_rows(programmatic: bool) -> Traced:
    """Up to ``MAX_JOBS`` copies of rows; grid (CTAs of all jobs, matrices, 1)."""
    params = {"jobs": f"bytes {MAX_JOBS * JOB_BYTES} align 8", "matrices": "u32"}
    return trace(
        _copy_rows, {"programmatic": programmatic}, name="copy_rows", params=params, lines=False,
        block=THREADS, min_ctas=CTAS_PER_SM,
    )  # fmt: skip


# --- any strides --------------------------------------------------------------------------------

BLOCK = (32, 8, 1)
ROWS = 32  # per CTA


def _copy_strided(
    k: Builder, rows: Reg, columns: Reg, matrices: Reg, source: Pointer, target: Pointer,
    source_row_stride: Reg, source_column_stride: Reg, source_batch_stride: Reg,
    target_row_stride: Reg, target_column_stride: Reg, target_batch_stride: Reg,
    *, programmatic: bool,
) -> None:  # fmt: skip
    """Each thread copies four rows of a column, in a grid-stride loop over columns."""
    first = k.ctaid.x * ROWS + k.tid.y
    valid = [first + BLOCK[1] * u < rows for u in range(ROWS // BLOCK[1])]
    begin = k.ctaid.y * BLOCK[0] + k.tid.x
    i = first.to("s64")
    wait_for_predecessors(k, programmatic)
    for matrix in k.range(k.ctaid.z, matrices, k.nctaid.z):
        batch = matrix.to("s64")
        read = source + (i * source_row_stride + batch * source_batch_stride)
        write = target + (i * target_row_stride + batch * target_batch_stride)
        for column in k.range(begin, columns, k.nctaid.y * BLOCK[0]):
            j, values = column.to("s64"), []
            for u, p in enumerate(valid):
                element = read + (j * source_column_stride + source_row_stride * (BLOCK[1] * u))
                with k.when(p):
                    values.append(element[0])
            for u, p in enumerate(valid):
                element = write + (j * target_column_stride + target_row_stride * (BLOCK[1] * u))
                with k.when(p):
                    element[0] = values[u]


@cache
def copy_strided(size: int, programmatic: bool) -> Traced:
    """A copy for elements of 1, 2, 4 or 8 bytes; strides count elements and may be negative."""
    pointer, axes = f"ptr u{8 * size}", ("row", "column", "batch")
    strides = {f"{side}_{axis}_stride": "s64" for side in ("source", "target") for axis in axes}
    params = dict.fromkeys(("rows", "columns", "matrices"), "u32")
    params |= {"source": pointer, "target": pointer} | strides
    return trace(
        _copy_strided, {"programmatic": programmatic}, params=params, lines=False,
        name=f"copy_strided_{8 * size}",
    )  # fmt: skip
