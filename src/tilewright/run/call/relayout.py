"""Relayout: copies a matrix on the device to a layout that the kernel can read.

``prepare(device, moves)`` finds a kernel for each move and makes all that depends on shapes and
strides; ``start(addresses, stream)`` writes addresses and launches. Moves that keep lines as lines
go in one launch. Where the target has programmatic launches, what follows may set itself up while
a copy runs, and a copy while what precedes it does.
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
from .relayout_kernels import CTAS, JOB, JOB_BYTES, MOST_JOBS, THREADS, VECTOR

_MOST_Y = _MOST_Z = 65535
_MOST_COUNT = 1 << 31  # vectors of a job, bytes of a line


class RelayoutSpec(NamedTuple):
    """A matrix, or a stack of them, to be copied. ``shape`` and strides are of the one or the
    other, strides in elements. ``padded``: the target's lines begin at multiples of 16 bytes and
    may be written up to the next one.
    """

    shape: tuple[int, ...]
    itemsize: int
    source: tuple[int, ...]
    target: tuple[int, ...]
    padded: bool = False


class _End(NamedTuple):
    """How one side lies, in bytes."""

    within: int
    between: int
    apart: int

    def reach(self, lines: int, length: int) -> int:
        """Where a matrix ends, from the first byte of its first line."""
        return max((lines - 1) * self.between, 0) + length


class _Way(NamedTuple):
    """A move seen by lines of the target."""

    move: int
    size: int
    count: int
    lines: int
    length: int
    source: _End
    target: _End
    padded: bool

    def room(self, length: int) -> int:
        """Number of bytes of a row that may be written, from the bytes it has."""
        return -(-length // VECTOR) * VECTOR if self.padded else length


class _Slot(NamedTuple):
    """Where in a parameter block an address goes: that of ``which``, and some bytes more."""

    place: int
    which: int
    more: int = 0


class _Launch(NamedTuple):
    start: PreparedLaunch
    block: bytes
    slots: tuple[_Slot, ...]


class RelayoutLaunches:
    """Prepared moves: ``start(addresses, stream)``, the first move's source and target, the next's
    ….
    """

    def __init__(self, launches: Sequence[_Launch]) -> None:
        self._launches = tuple(launches)

    def __call__(self, addresses: Sequence[int], stream: int = 0) -> None:
        for start, given, slots in self._launches:
            block = bytearray(given)
            for place, which, more in slots:
                block[place : place + 8] = (addresses[which] + more).to_bytes(8, "little")
            start(bytes(block), stream)


@lru_cache(1024)
def prepare(device: ExecutionDevice, moves: tuple[RelayoutSpec, ...]) -> RelayoutLaunches:
    """The launches for these moves, none of which reads what another writes."""
    lines: list[_Way] = []
    launches = []
    for index, move in enumerate(moves):
        if 0 in move.shape:
            continue
        by_rows, by_columns = (_way(index, move, rows) for rows in (True, False))
        found = [w for w in (by_rows, by_columns) if _keeps_lines(w)]
        turned = [w for w in (by_rows, by_columns) if _turns(w)]
        if found:
            lines += found[:1]
        elif turned:
            launches.append(_transposed(device, turned[0]))
        else:
            nearest = min(by_rows, by_columns, key=lambda w: abs(w.target.within))
            launches.append(_strided(device, nearest))
    return RelayoutLaunches((*_all_lines(device, lines), *launches))


def _way(index: int, move: RelayoutSpec, rows: bool) -> _Way:
    """A move whose lines are the rows, or the columns."""
    size, turn = move.itemsize, 1 if rows else -1
    lines, length = move.shape[-2:][::turn]
    stack = len(move.shape) == 3
    ends = []
    for strides in (move.source, move.target):
        between, within = strides[-2:][::turn]
        ends.append(_End(within * size, between * size, strides[0] * size if stack else 0))
    count = move.shape[0] if stack else 1
    return _Way(index, size, count, lines, length, *ends, move.padded)


def _keeps_lines(way: _Way) -> bool:
    fits = way.size * way.length + 2 * VECTOR < _MOST_COUNT
    return fits and way.length > 1 and way.source.within == way.size == way.target.within


def _turns(way: _Way) -> bool:
    return way.source.between == way.size == way.target.within


def _programmatic(device: ExecutionDevice) -> bool:
    return device.target.target.runs("sm_90")


def _prepared(
    device: ExecutionDevice, traced: Traced, grid: Dim3, block: Dim3, values: dict[str, Any],
    slots: Sequence[_Slot],
) -> _Launch:  # fmt: skip
    start = device.prepare(device.compile(traced), grid, block, programmatic=_programmatic(device))
    packed = parameter_block.pack(traced.entry, [values[p.name] for p in traced.params])
    return _Launch(start, packed, tuple(slots))


# --- lines --------------------------------------------------------------------------------------

Job = tuple[dict[str, int], tuple[_Slot, _Slot]]


def _all_lines(device: ExecutionDevice, ways: list[_Way]) -> Iterator[_Launch]:
    """As few launches as may be: of jobs with as many matrices."""
    for count in dict.fromkeys(way.count for way in ways):
        jobs = [job for way in ways if way.count == count for job in _jobs(way)]
        for first in range(0, len(jobs), MOST_JOBS):
            yield _lines(device, jobs[first : first + MOST_JOBS], count)


def _jobs(way: _Way) -> Iterator[Job]:
    """The job of a move; several where its vectors are too many to be counted."""
    length = way.length * way.size
    per_line = -(-(length if way.padded else length + VECTOR - 1) // VECTOR)
    most = (_MOST_COUNT - 1) // per_line
    shift = (per_line - 1).bit_length() + 31
    for first in range(0, way.lines, most):
        lines = min(way.lines - first, most)
        job = {
            "source_line": way.source.between, "target_line": way.target.between,
            "source_apart": way.source.apart, "target_apart": way.target.apart,
            "reach": way.source.reach(lines, length), "length": length, "room": way.room(length),
            "vectors": lines * per_line, "per_line": per_line,
            "magic": -(-(1 << shift) // per_line), "shift": shift,
        }  # fmt: skip
        source = _Slot(0, 2 * way.move, first * way.source.between)
        yield job, (source, _Slot(8, 2 * way.move + 1, first * way.target.between))


def _lines(device: ExecutionDevice, jobs: Sequence[Job], count: int) -> _Launch:
    """One launch of several jobs: each has its share of the CTAs that run at once."""
    at_once = device.target.sms * CTAS
    shared = max(at_once // min(count, at_once), len(jobs))
    total = sum(job["vectors"] for job, _ in jobs)
    packed, slots, begin = b"", [], 0
    for i, (job, ends) in enumerate(jobs):
        vectors = job["vectors"]
        ctas = min(-(-vectors // THREADS), max(shared * vectors // total, 1))
        packed += _packed(job | {"begin": begin, "ctas": ctas})
        slots += [slot._replace(place=i * JOB_BYTES + slot.place) for slot in ends]
        begin += ctas
    packed += _packed({"begin": begin}) * (MOST_JOBS - len(jobs))
    traced = kernels.lines(_programmatic(device))
    grid = begin, min(count, _MOST_Y), 1
    values = {"jobs": packed, "count": count}
    return _prepared(device, traced, grid, (THREADS, 1, 1), values, slots)


def _packed(job: dict[str, int]) -> bytes:
    """A job as the kernel reads it; what is missing is 0."""
    return b"".join(
        job.get(name, 0).to_bytes(int(kind[1:]) // 8, "little", signed=kind[0] == "s")
        for name, kind in JOB.items()
    )


# --- one move, one launch -----------------------------------------------------------------------


def _transposed(device: ExecutionDevice, way: _Way) -> _Launch:
    """The target's lines are counted by the index that is contiguous in the source."""
    traced = transpose_kernel.transposed(way.size, _programmatic(device))
    wide, across = transpose_kernel.tile(way.size)
    turned = _End(way.source.between, way.source.within, way.source.apart)
    values = {
        "length": way.lines, "lines": way.length, "count": way.count,
        "room": way.room(way.length * way.size) // way.size, "source": 0, "target": 0,
        "source_line": turned.between, "target_line": way.target.between,
        "source_apart": way.source.apart, "target_apart": way.target.apart,
        "reach": turned.reach(way.length, way.lines * way.size),
    }  # fmt: skip
    tiles = -(-way.lines // wide), min(-(-way.length // across), _MOST_Y)
    grid = (*tiles, min(way.count, _MOST_Z))
    slots = _slots(traced, way)
    return _prepared(device, traced, grid, (THREADS, 1, 1), values, slots)


def _strided(device: ExecutionDevice, way: _Way) -> _Launch:
    traced = kernels.strided(way.size, _programmatic(device))
    values = {"rows": way.lines, "columns": way.length, "count": way.count}
    for name, end in (("source", way.source), ("target", way.target)):
        strides = {"row": end.between, "column": end.within, "apart": end.apart}
        values |= {f"{name}_{axis}": far // way.size for axis, far in strides.items()} | {name: 0}
    grid = (
        -(-way.lines // kernels.ROWS),
        min(-(-way.length // kernels.BLOCK[0]), _MOST_Y),
        min(way.count, _MOST_Z),
    )
    return _prepared(device, traced, grid, kernels.BLOCK, values, _slots(traced, way))


def _slots(traced: Traced, way: _Way) -> Iterator[_Slot]:
    names = [p.name for p in traced.params]
    places = [p.offset for p in parameter_block.layout(traced.entry).parameters]
    for end, name in enumerate(("source", "target")):
        yield _Slot(places[names.index(name)], 2 * way.move + end)
