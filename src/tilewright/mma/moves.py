"""The instructions that bring fragments: ldmatrix, stmatrix, movmatrix."""

from __future__ import annotations

from functools import cache

from ..errors import LayoutError
from ..layout import Layout
from .fragments import Fragment, spread


@cache
def ldmatrix(count: int, trans: bool = False) -> Fragment:
    """What ldmatrix gives: ``count`` (1, 2, 4) matrices of 8×8 16-bit elements, one atop the next.

    Row r of the 8 * count is read from lane r's address. Register i is matrix i: thread 4g + q
    holds elements 2q and 2q + 1 of its row g, or of its column g with ``trans``.
    """
    if count not in (1, 2, 4):
        raise LayoutError(f"ldmatrix loads 1, 2 or 4 matrices, not {count}")
    rows = 8 * count
    if trans:
        return Fragment("b16", rows, 8, spread(((4, 2), (8, rows)), ((2, 1), (count, 8))))
    return Fragment("b16", rows, 8, spread(((4, 2 * rows), (8, 1)), ((2, rows), (count, 8))))


@cache
def ldmatrix_rows(count: int) -> Layout:
    """Lane → the row whose address it gives. The other lanes' addresses are not used."""
    return Layout(ldmatrix(count).rows, 1)
