"""How the rows of a matrix are distributed over threads, and how a kernel on rows overlaps with the
kernel before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..target import DeviceSpec

HOPPER = 90  # the targets from here on can launch a kernel before the preceding one ends
MAX_THREADS = 1024
_ELEMENTS = 32  # of a thread
_MIN_THREADS = 128  # of a CTA
_WARP = 32
_LINE = 128  # bytes: neighbouring threads of a row read at least a line, if the row has one
_REGISTERS = 64 << 10  # of an SM
PREFETCHED = 16 << 10
"""Bytes by which the prefetch of later rows is ahead, for each SM: what the memory delivers to an
SM in some microseconds, so that a row is in the L2 when its CTA begins, and not long before."""


@dataclass(frozen=True)
class RowLayout:
    """How a row is distributed. ``vectors``: of a thread; ``strided``: the elements of the input
    are not neighbours; ``resident``: the row fits in the registers of its threads; ``full``: all
    vectors of all threads exist; ``registers``: of a thread, at most.

    ``programmatic``: the kernel may start before the preceding one has ended. ``ahead``: a row's
    CTA prefetches the row that is as many rows further on to the L2, and the first ones also their
    own; None: no prefetch. ``aligned``: rows begin and end at multiples of 16 bytes.
    """

    width: int
    vectors: int
    threads: int
    strided: bool = False
    resident: bool = True
    full: bool = False
    registers: int = 64
    programmatic: bool = False
    ahead: int | None = None
    aligned: bool = False

    @property
    def rows(self) -> int:
        """Rows of a CTA: more than one if a row has at most one warp."""
        return max(1, _MIN_THREADS // self.threads) if self.threads <= _WARP else 1

    @property
    def block(self) -> int:
        """Threads of a CTA."""
        return self.threads * self.rows

    @property
    def capacity(self) -> int:
        """Elements in the registers of a row's threads."""
        return self.threads * self.vectors * self.width

    @property
    def min_ctas(self) -> int:
        """CTAs that should be resident on an SM."""
        return min(_WARP, _REGISTERS // (self.registers * self.block))


def row_layout(columns: int, width: int, itemsize: int = 4, strided: bool = False) -> RowLayout:
    """The layout for rows of ``columns`` elements of ``itemsize`` bytes in vectors of ``width``: as
    few threads as have the row in their registers and read whole lines of memory at a time.
    """
    vectors, most = -(-columns // width), _ELEMENTS // width
    threads = min(_LINE // (width * itemsize), _WARP)
    while threads > 1 and threads // 2 >= vectors:
        threads //= 2
    while threads < MAX_THREADS and threads * most < vectors:
        threads *= 2
    own = -(-vectors // threads)
    resident = own <= most
    own = own if resident else max(1, most // 2)
    return RowLayout(width, own, threads, strided, resident, vectors % (threads * own) == 0)


def overlapping(layout: RowLayout, itemsize: int, stores_rows: bool, spec: DeviceSpec) -> RowLayout:
    """The layout of a kernel that starts before the preceding one has ended, where the device can.

    ``stores_rows``: the result has a row for each row of x. Reads and stores then alternate, and a
    prefetch keeps the memory reading; a reduction, which only reads, is slower with it. Rows that
    are read again (not resident) need the L2 for themselves: a CTA prefetches the part of its own
    row that it reads first. Several rows of a CTA are too short for a prefetch of each.
    """
    if spec.target.number < HOPPER:
        return layout
    layout = replace(layout, programmatic=True)
    if layout.strided or layout.rows > 1 or not stores_rows:
        return layout
    ahead = PREFETCHED * spec.sms // (layout.capacity * itemsize) if layout.resident else 0
    aligned = layout.width * itemsize == 16
    return replace(layout, ahead=ahead, aligned=aligned)
