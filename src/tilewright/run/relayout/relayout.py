"""Relayout: copies a matrix on the device to a layout that the kernel can read.

``prepare(device, specs)`` selects a kernel for each copy and packs everything that depends on
shapes and strides; ``start(addresses, stream)`` then writes the addresses and launches. Copies from
rows to rows share one launch. On targets with programmatic dependent launch, a copy may start
while the kernel before it runs, and the kernel after it while the copy runs.

A row is what is contiguous in the target: a row of a row-major matrix, a column of a column-major
one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ...builder import Traced
from ...ptx import parameter_block
from ..devices.device_protocol import Dim3, ExecutionDevice, PreparedLaunch
from . import relayout_kernels as kernels
from . import transpose_kernel
from .relayout_kernels import CTAS_PER_SM, JOB, JOB_BYTES, MAX_JOBS, THREADS, VECTOR

_MAX_GRID_Y = _MAX_GRID_Z = 65535
_MAX_COUNT = 1 << 31  # vectors of a job, bytes of a row


class RelayoutSpec(NamedTuple):
    """A matrix, or a stack of matrices, to be copied.

    ``source`` and ``target`` are strides in elements, one for each dimension of ``shape``.
    ``padded``: the target's rows start at multiples of 16 bytes and may be written up to the next
    multiple.
    """

    shape: tuple[int, ...]
    itemsize: int
    source: tuple[int, ...]
    target: tuple[int, ...]
    padded: bool = False


class _Strides(NamedTuple):
    """The strides of the source or the target, in bytes."""

    element: int
    row: int
    batch: int

    def extent(self, rows: int, row_bytes: int) -> int:
        """Number of bytes from the first byte of the first row to the end of the matrix."""
        return max((rows - 1) * self.row, 0) + row_bytes


class _Copy(NamedTuple):
    """Copy ``number``: ``matrices`` matrices of ``rows`` rows of ``length`` elements."""

    number: int
    itemsize: int
    matrices: int
    rows: int
    length: int
    source: _Strides
    target: _Strides
    padded: bool

    def writable(self, row_bytes: int) -> int:
        """Number of bytes of a row of the target that may be written."""
        return -(-row_bytes // VECTOR) * VECTOR if self.padded else row_bytes


class _Slot(NamedTuple):
    """Where an address is written: at byte ``offset`` of the parameter block goes the address
    number ``address`` plus ``byte_offset``.
    """

    offset: int
    address: int
    byte_offset: int = 0


class _Launch(NamedTuple):
    start: PreparedLaunch
    block: bytes
    slots: tuple[_Slot, ...]


class RelayoutLaunches:
    """Prepared copies, to be launched with ``launches(addresses, stream)``.

    ``addresses`` are the source and the target of the first copy, of the second, and so on.
    """

    def __init__(self, launches: Sequence[_Launch]) -> None:
        self._launches = tuple(launches)

    def __call__(self, addresses: Sequence[int], stream: int = 0) -> None:
        for start, template, slots in self._launches:
            block = bytearray(template)
            for offset, address, byte_offset in slots:
                value = addresses[address] + byte_offset
                block[offset : offset + 8] = value.to_bytes(8, "little")
            start(bytes(block), stream)


@lru_cache(1024)
def prepare(device: ExecutionDevice, specs: tuple[RelayoutSpec, ...]) -> RelayoutLaunches:
    """The launches for these copies, none of which may read what another one writes."""
    row_copies: list[_Copy] = []
    launches = []
    for index, spec in enumerate(specs):
        if 0 in spec.shape:
            continue
        orders = [_copy(index, spec, row_major) for row_major in (True, False)]
        by_rows = next(filter(_is_row_copy, orders), None)
        transposing = next(filter(_is_transpose, orders), None)
        if by_rows is not None:
            row_copies.append(by_rows)
        elif transposing is not None:
            launches.append(_transpose_launch(device, transposing))
        else:
            best = min(orders, key=lambda copy: abs(copy.target.element))
            launches.append(_strided_launch(device, best))
    return RelayoutLaunches((*_row_launches(device, row_copies), *launches))


def _copy(index: int, spec: RelayoutSpec, row_major: bool) -> _Copy:
    """The copy whose rows are the matrix's rows, or (not ``row_major``) its columns."""
    order = 1 if row_major else -1
    rows, length = spec.shape[-2:][::order]
    stacked = len(spec.shape) == 3

    def in_bytes(strides: tuple[int, ...]) -> _Strides:
        row, element = (stride * spec.itemsize for stride in strides[-2:][::order])
        return _Strides(element, row, strides[0] * spec.itemsize if stacked else 0)

    matrices = spec.shape[0] if stacked else 1
    source, target = in_bytes(spec.source), in_bytes(spec.target)
    return _Copy(index, spec.itemsize, matrices, rows, length, source, target, spec.padded)


def _is_row_copy(copy: _Copy) -> bool:
    """Whether rows are contiguous in source and target."""
    fits = copy.itemsize * copy.length + 2 * VECTOR < _MAX_COUNT
    contiguous = copy.source.element == copy.itemsize == copy.target.element
    return fits and copy.length > 1 and contiguous


def _is_transpose(copy: _Copy) -> bool:
    """Whether rows are contiguous in the target, and columns in the source."""
    return copy.source.row == copy.itemsize == copy.target.element


def _programmatic(device: ExecutionDevice) -> bool:
    return device.target.target.runs("sm_90")


def _prepared(
    device: ExecutionDevice, traced: Traced, grid: Dim3, block: Dim3, values: dict[str, Any],
    slots: Sequence[_Slot],
) -> _Launch:  # fmt: skip
    start = device.prepare(device.compile(traced), grid, block, programmatic=_programmatic(device))
    packed = parameter_block.pack(traced.entry, [values[p.name] for p in traced.params])
    return _Launch(start, packed, tuple(slots))


# --- rows to rows -------------------------------------------------------------------------------

Job = tuple[dict[str, int], tuple[_Slot, _Slot]]


def _row_launches(device: ExecutionDevice, copies: list[_Copy]) -> Iterator[_Launch]:
    """Launches of up to ``MAX_JOBS`` jobs each; jobs of a launch have equally many matrices."""
    for matrices in dict.fromkeys(copy.matrices for copy in copies):
        jobs = [job for copy in copies if copy.matrices == matrices for job in _row_jobs(copy)]
        for first in range(0, len(jobs), MAX_JOBS):
            yield _row_launch(device, jobs[first : first + MAX_JOBS], matrices)


def _row_jobs(copy: _Copy) -> Iterator[Job]:
    """The job of a copy; several jobs if its number of vectors exceeds 31 bits."""
    row_bytes = copy.length * copy.itemsize
    per_row = -(-(row_bytes if copy.padded else row_bytes + VECTOR - 1) // VECTOR)
    max_rows = (_MAX_COUNT - 1) // per_row
    shift = (per_row - 1).bit_length() + 31
    for first in range(0, copy.rows, max_rows):
        rows = min(copy.rows - first, max_rows)
        job = {
            "source_row_stride": copy.source.row, "target_row_stride": copy.target.row,
            "source_batch_stride": copy.source.batch, "target_batch_stride": copy.target.batch,
            "extent": copy.source.extent(rows, row_bytes),
            "row_bytes": row_bytes, "writable": copy.writable(row_bytes),
            "vectors": rows * per_row, "vectors_per_row": per_row,
            "magic": -(-(1 << shift) // per_row), "shift": shift,
        }  # fmt: skip
        source = _Slot(0, 2 * copy.number, first * copy.source.row)
        yield job, (source, _Slot(8, 2 * copy.number + 1, first * copy.target.row))


def _row_launch(device: ExecutionDevice, jobs: Sequence[Job], matrices: int) -> _Launch:
    """One launch of several jobs, each with its share of the resident CTAs."""
    resident = device.target.sms * CTAS_PER_SM
    per_matrix = max(resident // min(matrices, resident), len(jobs))
    total = sum(job["vectors"] for job, _ in jobs)
    packed, slots, first_cta = b"", [], 0
    for i, (job, job_slots) in enumerate(jobs):
        vectors = job["vectors"]
        ctas = min(-(-vectors // THREADS), max(per_matrix * vectors // total, 1))
        packed += _packed(job | {"first_cta": first_cta, "ctas": ctas})
        slots += [slot._replace(offset=i * JOB_BYTES + slot.offset) for slot in job_slots]
        first_cta += ctas
    packed += _packed({"first_cta": first_cta}) * (MAX_JOBS - len(jobs))
    traced = kernels.copy_rows(_programmatic(device))
    grid = first_cta, min(matrices, _MAX_GRID_Y), 1
    values = {"jobs": packed, "matrices": matrices}
    return _prepared(device, traced, grid, (THREADS, 1, 1), values, slots)


def _packed(job: dict[str, int]) -> bytes:
    """A job as the kernel reads it; a missing field is 0."""
    return b"".join(
        job.get(name, 0).to_bytes(int(kind[1:]) // 8, "little", signed=kind[0] == "s")
        for name, kind in JOB.items()
    )


# --- other copies, one launch each --------------------------------------------------------------


def _transpose_launch(device: ExecutionDevice, copy: _Copy) -> _Launch:
    """A transposing copy. The kernel's ``length`` counts along the source's contiguous dimension,
    which is ``copy.rows``.
    """
    traced = transpose_kernel.copy_transposed(copy.itemsize, _programmatic(device))
    tile_length, tile_rows = transpose_kernel.tile(copy.itemsize)
    source = _Strides(copy.source.row, copy.source.element, copy.source.batch)
    values = {
        "length": copy.rows, "rows": copy.length, "matrices": copy.matrices,
        "writable": copy.writable(copy.length * copy.itemsize) // copy.itemsize,
        "source": 0, "target": 0,
        "source_row_stride": source.row, "target_row_stride": copy.target.row,
        "source_batch_stride": source.batch, "target_batch_stride": copy.target.batch,
        "extent": source.extent(copy.length, copy.rows * copy.itemsize),
    }  # fmt: skip
    tiles = -(-copy.rows // tile_length), min(-(-copy.length // tile_rows), _MAX_GRID_Y)
    grid = (*tiles, min(copy.matrices, _MAX_GRID_Z))
    return _prepared(device, traced, grid, (THREADS, 1, 1), values, _slots(traced, copy))


def _strided_launch(device: ExecutionDevice, copy: _Copy) -> _Launch:
    """A copy between any strides."""
    traced = kernels.copy_strided(copy.itemsize, _programmatic(device))
    values = {"rows": copy.rows, "columns": copy.length, "matrices": copy.matrices}
    for name, side in (("source", copy.source), ("target", copy.target)):
        strides = {"row": side.row, "column": side.element, "batch": side.batch}
        values |= {f"{name}_{x}_stride": s // copy.itemsize for x, s in strides.items()} | {name: 0}
    grid = (
        -(-copy.rows // kernels.ROWS),
        min(-(-copy.length // kernels.BLOCK[0]), _MAX_GRID_Y),
        min(copy.matrices, _MAX_GRID_Z),
    )
    return _prepared(device, traced, grid, kernels.BLOCK, values, _slots(traced, copy))


def _slots(traced: Traced, copy: _Copy) -> tuple[_Slot, _Slot]:
    """The parameters ``source`` and ``target``."""
    layout = parameter_block.layout(traced.entry).parameters
    offsets = {p.name: x.offset for p, x in zip(traced.params, layout, strict=True)}
    first = 2 * copy.number
    return _Slot(offsets["source"], first), _Slot(offsets["target"], first + 1)
