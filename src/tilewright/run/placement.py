"""How a matrix lies in memory, as a kernel can read it: which index is contiguous, how far apart
the lines are, what divides their addresses.

    (m,k):(k,1)   rows are contiguous      (m,k):(1,m)   columns are
    (1,k):(s,1)   one line: any distance   (m,k):(2k,2)  neither: it must be copied first
"""

from __future__ import annotations

from typing import NamedTuple

from .arrays import ArrayView

ALIGN = 16  # bytes: the widest copy


class Placement(NamedTuple):
    """``rows``: whether rows are contiguous, else columns. ``leading`` counts elements from one
    line to the next, ``align`` is the bytes (16 to 2) that divide address and leading dimension.
    """

    rows: bool
    leading: int
    align: int


class Signature(NamedTuple):
    """All of a view that a kernel's choice depends on: its address only modulo 16."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: str
    phase: int

    @property
    def itemsize(self) -> int:
        return 4 if self.dtype == "f32" else 2


def signature(view: ArrayView) -> Signature:
    """The signature of an array's memory."""
    return Signature(view.shape, view.strides, view.dtype, view.device, view.address % ALIGN)


def placed(s: Signature) -> Placement | None:
    """The better placement of a matrix, rows before columns; None where it must be copied."""
    candidates = [placed_by(s, rows) for rows in (True, False)]
    return max(filter(None, candidates), key=lambda p: p.align, default=None)


def placed_by(s: Signature, rows: bool) -> Placement | None:
    """The placement with rows (else columns) contiguous; None where it must be copied."""
    lines, length = s.shape if rows else s.shape[::-1]
    between, within = s.strides if rows else s.strides[::-1]
    if s.phase % s.itemsize:
        return None  # its elements themselves are not aligned
    if lines <= 1 or length == 0:
        between = max(length, 1)  # one line at most, and nothing is read beyond its end
    if (length > 1 and within != 1) or between < 0:
        return None
    return Placement(rows, between, _divisor(s.phase | between * s.itemsize))


def compact(shape: tuple[int, ...], itemsize: int, rows: bool = True) -> Placement:
    """The placement of a fresh copy: lines begin at multiples of 16 bytes."""
    return Placement(rows, padded(shape[rows], itemsize, ALIGN), ALIGN)


def padded(length: int, itemsize: int, align: int) -> int:
    """The least leading dimension for lines of this length that keeps the alignment."""
    step = max(align // itemsize, 1)
    return max(-(-length // step), 1) * step


def _divisor(number: int) -> int:
    """The largest power of two, 16 at most, that divides the number."""
    return (number | ALIGN) & -(number | ALIGN)
