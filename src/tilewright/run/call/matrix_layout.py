"""How a matrix lies in memory, as a kernel can read it: which index is contiguous, how far apart
the lines are, what divides their addresses.

    (m,k):(k,1)   rows are contiguous      (m,k):(1,m)   columns are
    (1,k):(s,1)   one line: any distance   (m,k):(2k,2)  neither: it must be copied first
"""

from __future__ import annotations

from typing import NamedTuple

from ... import dtypes
from ..arrays.array_view import ArrayView

ALIGN = 16  # bytes: the widest copy
L2_LINE = 128


class MatrixLayout(NamedTuple):
    """``rows``: whether rows are contiguous, else columns. ``leading`` counts elements from one
    line to the next, ``apart`` from one matrix of a stack to the next; ``align`` is the bytes (16
    to 1) that divide the address and both.
    """

    rows: bool
    leading: int
    align: int
    apart: int = 0


class ArraySignature(NamedTuple):
    """All of a view that a kernel's choice depends on: its address only modulo 16."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: str
    phase: int

    @property
    def itemsize(self) -> int:
        return max(1, dtypes.dtype(self.dtype).bits // 8)


def signature(view: ArrayView) -> ArraySignature:
    """The signature of an array's memory."""
    return ArraySignature(view.shape, view.strides, view.dtype, view.device, view.address % ALIGN)


def placed(s: ArraySignature) -> MatrixLayout | None:
    """The better placement of a matrix, rows before columns; None where it must be copied."""
    candidates = [layout_with_order(s, rows) for rows in (True, False)]
    return max(filter(None, candidates), key=lambda p: p.align, default=None)


def layout_with_order(s: ArraySignature, rows: bool) -> MatrixLayout | None:
    """The placement with rows (else columns) contiguous; None where it must be copied."""
    lines, length = s.shape[-2:] if rows else s.shape[:-3:-1]
    between, within = s.strides[-2:] if rows else s.strides[:-3:-1]
    if s.phase % s.itemsize:
        return None  # its elements themselves are not aligned
    if lines <= 1 or length == 0:  # one line at most, and nothing is read beyond its end
        between = padded(length, s.itemsize, ALIGN)
    if (length > 1 and within != 1) or between < 0:
        return None
    apart = s.strides[0] if len(s.shape) == 3 and s.shape[0] > 1 else 0
    if apart < 0 or (len(s.shape) == 3 and s.shape[0] > 1 and apart == 0):
        return None
    return MatrixLayout(rows, between, _divisor(s.phase | (between | apart) * s.itemsize), apart)


def compact(shape: tuple[int, ...], itemsize: int, rows: bool = True) -> MatrixLayout:
    """The placement of a fresh copy: lines begin at multiples of 128 bytes."""
    lines, length = shape[-2:] if rows else shape[:-3:-1]
    leading = padded(length, itemsize, ALIGN)
    return MatrixLayout(rows, leading, ALIGN, leading * lines if len(shape) == 3 else 0)


def padded(length: int, itemsize: int, align: int) -> int:
    """The least leading dimension for lines of this length that keeps the alignment; where that is
    the best there is, each begins at a line of the L2, which tensor copies like.
    """
    step = max((L2_LINE if align == ALIGN else align) // itemsize, 1)
    return max(-(-length // step), 1) * step


def _divisor(number: int) -> int:
    """The largest power of two, 16 at most, that divides the number."""
    return (number | ALIGN) & -(number | ALIGN)


def fresh(shape: tuple[int, ...], dtype: str, device: str) -> ArraySignature:
    """The signature of a new array: row-major, aligned."""
    rows, columns = shape[-2:]
    strides = (max(columns, 1), 1)
    if len(shape) == 3:
        strides = (max(rows, 1) * strides[0], *strides)
    return ArraySignature(shape, strides, dtype, device, 0)
