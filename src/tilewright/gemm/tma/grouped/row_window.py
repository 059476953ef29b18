"""Row windows: a tensor map through which a copy accesses ``count`` rows from ``first`` on, which
are known only when the kernel runs. The copy's other rows are out of bounds: a store does not write
them, a load fills them with zeros.

Row r of the window has the coordinates (2^30 - count + r, first + count, 2^30) along three
dimensions with strides of one row, one row, and 2^34 bytes less one row; the first has 2^30
elements. Addresses are computed modulo 2^64, in which 2^30 · 2^34 is 0:

    (2^30 - count + r) · S + (first + count) · S + 2^30 · (2^34 - S) = (first + r) · S
"""

from __future__ import annotations

from typing import Any

SIZE = 1 << 30
_WRAP = 1 << 34  # bytes, times SIZE: 2^64


def window_shape() -> tuple[int, int, int]:
    """The extents of the three dimensions."""
    return SIZE, (1 << 31) - 1, SIZE + 1


def window_strides(row_bytes: int) -> tuple[int, int, int]:
    """Their strides in bytes, of rows ``row_bytes`` apart."""
    return row_bytes, row_bytes, _WRAP - row_bytes


def window_coordinates(row: Any, first: Any, count: Any) -> tuple[Any, Any, Any]:
    """The coordinates of row ``row`` of the matrix in the window of ``count`` rows from ``first``
    on.
    """
    end = first + count
    return row + SIZE - end, end, SIZE
