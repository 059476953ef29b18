"""How the rows of a matrix are distributed over threads, and how a kernel on rows overlaps with the
kernel before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..target import DeviceSpec

HOPPER = 90  # the targets from here on can launch a kernel before the preceding one ends
MAX_THREADS = 1024  # of a CTA
MAX_CLUSTER = 8  # CTAs
MAX_RESIDENT = 2048  # threads of an SM
VECTOR = 16  # bytes
_ELEMENTS = 32  # of a thread
_MIN_THREADS = 128  # of a CTA
_CLUSTER_THREADS = 256  # of a CTA, above which CTAs share a row
_WARP = 32
_LINE = 128  # bytes: neighbouring threads of a row read at least a line, if the row has one
_REGISTERS = 64 << 10  # of an SM
AHEAD = 16 << 10
"""Bytes by which the prefetch of later rows is ahead, for each SM: what the memory delivers to an
SM in a few microseconds, so that rows are in the L2 when their CTA starts, but not long before."""


@dataclass(frozen=True)
class RowLayout:
    """How a row is distributed. ``vectors``: of a thread; ``strided``: the elements of the input
    are not neighbours; ``resident``: the row fits in the registers of its threads; ``full``: all
    vectors of all threads exist; ``registers``: of a thread, at most; ``ctas``: of a row, a cluster
    of CTAs of ``threads`` each, if one CTA is not enough.

    ``programmatic``: the kernel may start before the preceding one has ended. ``own``: how many
    CTAs, the first ones, prefetch their own rows to the L2. ``ahead``: a CTA prefetches the rows of
    the one that is as many CTAs further on (0: none). ``aligned``: rows begin and end at multiples
    of 16 bytes.
    """

    width: int
    vectors: int
    threads: int
    strided: bool = False
    resident: bool = True
    full: bool = False
    registers: int = 64
    ctas: int = 1
    programmatic: bool = False
    own: int = 0
    ahead: int = 0
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
        """Elements in the registers of a CTA's threads."""
        return self.block * self.vectors * self.width

    @property
    def min_ctas(self) -> int:
        """CTAs that should be resident on an SM."""
        return min(_WARP, _REGISTERS // (self.registers * self.block))


def row_layout(
    columns: int, width: int, itemsize: int = 4, strided: bool = False, clusters: bool = False
) -> RowLayout:
    """The layout for rows of ``columns`` elements of ``itemsize`` bytes in vectors of ``width``: as
    few threads as have the row in their registers and read whole lines of memory at a time.
    ``clusters``: several CTAs may share a row.
    """
    vectors, most = -(-columns // width), _ELEMENTS // width
    threads = min(_LINE // (width * itemsize), _WARP)
    while threads > 1 and threads // 2 >= vectors:
        threads //= 2
    while threads < MAX_THREADS and threads * most < vectors:
        threads *= 2
    ctas = 1
    if clusters and threads > _CLUSTER_THREADS:
        ctas, threads = MAX_CLUSTER + 1, _CLUSTER_THREADS // 2
        while ctas > MAX_CLUSTER and threads < MAX_THREADS:
            threads *= 2
            ctas = -(-vectors // (threads * most))
        if ctas > MAX_CLUSTER:
            ctas = 1
    own = -(-vectors // (threads * ctas))
    resident = own <= most
    own = own if resident else max(1, most // 2)
    full = vectors % (threads * ctas * own) == 0
    return RowLayout(width, own, threads, strided, resident, full, ctas=ctas)


def overlapping(
    layout: RowLayout, itemsize: int, spec: DeviceSpec, *, stores_rows: bool, contiguous: bool
) -> RowLayout:
    """The layout of a kernel that starts before the preceding one has ended, where the device can.

    Its first CTAs wait for that end, and until then prefetch. ``stores_rows``: the result has a row
    for each row of x. Reads and stores then alternate, and a prefetch by all CTAs keeps the memory
    reading; a reduction, which only reads, is slower with it. So is a kernel that reads long rows
    again (not resident): it needs the L2 for these. ``contiguous``: the rows of a CTA are.
    """
    if spec.target.number < HOPPER:
        return layout
    layout = replace(layout, programmatic=True)
    if not contiguous:
        return layout
    own, ahead = MAX_RESIDENT // layout.block * spec.sms, 0
    if stores_rows and layout.resident:
        own = ahead = AHEAD * spec.sms // (layout.capacity * itemsize)
    return replace(layout, own=own, ahead=ahead, aligned=layout.width * itemsize == VECTOR)
