"""How the rows of a matrix are distributed over threads, and how a kernel on rows overlaps with the
kernel before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..target import DeviceSpec

HOPPER = 90  # the targets from here on can launch a kernel before the preceding one ends
MAX_THREADS = 1024  # of a CTA
MAX_CLUSTER = 8  # CTAs
VECTOR = 16  # bytes
_ELEMENTS = 32  # of a thread
_MIN_THREADS = 128  # of a CTA
_CLUSTER_THREADS = 512  # of a CTA that shares its row with others
_WARP = 32
_LINE = 128  # bytes: neighbouring threads of a row read at least a line, if the row has one
_REGISTERS = 64 << 10  # of an SM
AHEAD = 16 << 10
"""Bytes for each SM by which the prefetch of later rows is ahead: what the memory delivers in half
a microsecond, about the latency of a read."""
OWN = 32 << 10
"""Bytes for each SM that the first CTAs prefetch for themselves in a kernel without ``AHEAD``: what
the memory delivers in the microsecond between two kernels."""


@dataclass(frozen=True)
class RowLayout:
    """How a row is distributed. ``vectors``: of a thread; ``strided``: the elements of the input
    are not neighbours; ``resident``: the row fits in the registers of its threads; ``certain``: how
    many of a thread's vectors, the first ones, exist in all threads; ``registers``: of a thread, at
    most; ``ctas``: of a row, a cluster of CTAs of ``threads`` each, if one CTA is not enough.

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
    certain: int = 0
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
    ``clusters``: several CTAs may share a row that does not fit in one. They wait for each other in
    each reduction, so a row that one CTA has is faster.
    """
    vectors, most = -(-columns // width), _ELEMENTS // width
    threads = min(_LINE // (width * itemsize), _WARP)
    while threads > 1 and threads // 2 >= vectors:
        threads //= 2
    while threads < MAX_THREADS and threads * most < vectors:
        threads *= 2
    for of_cta, most_ctas in (
        (threads, 1), (_CLUSTER_THREADS, MAX_CLUSTER), (MAX_THREADS, MAX_CLUSTER)
    ):  # fmt: skip
        ctas = -(-vectors // (of_cta * most))
        if ctas <= most_ctas and (clusters or ctas == 1):
            return resident_layout(columns, width, of_cta, ctas, strided=strided)
    chunk = max(1, most // 2)
    certain = 0 if vectors % (threads * chunk) else chunk
    return RowLayout(width, chunk, threads, strided, resident=False, certain=certain)


def resident_layout(
    columns: int, width: int, threads: int, ctas: int, *, strided: bool = False, registers: int = 64
) -> RowLayout:
    """The layout of a row in the registers of ``ctas`` CTAs, each with equally many vectors of the
    row except the last one, which has the rest.
    """
    vectors = -(-columns // width)
    own = -(-vectors // (threads * ctas))
    rest = vectors - (ctas - 1) * threads * own
    certain = max(0, rest // threads)
    return RowLayout(width, own, threads, strided, True, certain, registers, ctas)


def overlapping(
    layout: RowLayout, itemsize: int, spec: DeviceSpec, *, stores_rows: bool, contiguous: bool
) -> RowLayout:
    """The layout of a kernel that starts before the preceding one has ended, where the device can.

    Its first CTAs wait for that end, and until then prefetch. ``stores_rows``: the result has a row
    for each row of x. Reads and stores then alternate, and a prefetch by all CTAs keeps the memory
    reading; a reduction, which only reads, is slower with it. So is a kernel that reads long rows
    again (not resident): it needs the L2 for these. ``contiguous``: whether the rows of a CTA are.
    """
    if spec.target.number < HOPPER:
        return layout
    layout = replace(layout, programmatic=True)
    if not contiguous:
        return layout
    alternates = stores_rows and layout.resident
    own = -(-(AHEAD if alternates else OWN) * spec.sms // (layout.capacity * itemsize))
    aligned = layout.width * itemsize == VECTOR
    return replace(layout, own=own, ahead=own if alternates else 0, aligned=aligned)
