"""Cells of a picture: runs of adjacent elements along the rows or the columns.

The cells of a matrix contain each element once. Text is made for each distinct value once, because
pictures of ``wgmma`` have thousands of cells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Runs:
    """One entry for each cell: its first element, and its ``length`` along the row, or (``down``)
    the column.
    """

    down: bool
    tile: Array
    row: Array
    column: Array
    length: Array

    def __len__(self) -> int:
        return len(self.row)

    @property
    def longest(self) -> int:
        """The length of the longest cell."""
        return int(self.length.max())

    @property
    def spans(self) -> tuple[Array, Array]:
        """The number of rows and columns of each cell."""
        one = self.length * 0 + 1
        return (self.length, one) if self.down else (one, self.length)

    def where(self, kept: Callable[[Array, Array], Array]) -> Runs:
        """The cells for whose (row, column) ``kept`` is true."""
        k = kept(self.row, self.column)
        return Runs(self.down, *(x[k] for x in (self.tile, self.row, self.column, self.length)))

    def first(self, elements: Array) -> Array:
        """The entries of an array (tiles, rows, columns, …) at the cells' first elements."""
        found: Array = elements[self.tile, self.row, self.column]
        return found


def runs(joined: Callable[[bool], Array]) -> Runs:
    """The cells of a matrix. ``joined(down)`` returns (tiles, lines, along - 1): for each element
    but the first of a line, whether it belongs to the cell of the previous one. Lines are rows, or
    columns if no elements are joined along the rows.
    """
    for down in (False, True):
        joins = joined(down)
        if joins.any():
            break
    return cut(joins, down)


def cut(joins: Array, down: bool = False) -> Runs:
    """The cells of lines, which are rows, or (``down``) columns."""
    tiles, lines, along = joins.shape
    begins = np.ones((tiles, lines, along + 1), bool)
    begins[..., 1:] = ~joins
    start = np.flatnonzero(begins)
    length = np.diff(np.append(start, begins.size))
    tile, line, along = np.unravel_index(start, begins.shape)
    return Runs(down, tile, *((along, line) if down else (line, along)), length)


def singles(rows: int, columns: int) -> Runs:
    """A cell for each element of a matrix."""
    row, column = (x.ravel() for x in np.indices((rows, columns)))
    return Runs(False, row * 0, row, column, row * 0 + 1)


def each(make: Callable[..., str], *keys: Array) -> list[str]:
    """``make`` of the integer keys of each entry, called once for equal keys."""
    code = keys[0]
    for key in keys[1:]:
        code = code * (int(key.max()) + 1) + key
    first, inverse = np.unique(code, return_index=True, return_inverse=True)[1:]
    made = [make(*key) for key in zip(*(key[first].tolist() for key in keys), strict=True)]
    chosen: list[str] = np.array(made, object)[inverse].tolist()
    return chosen


def span(first: int, count: int, separator: str = "..") -> str:
    """``5``, ``4..5``."""
    return str(first) if count == 1 else f"{first}{separator}{first + count - 1}"


def spans(first: Array, count: Array, separator: str = "..") -> list[str]:
    """``span`` of each entry."""
    if (count == 1).all():
        return list(map(str, first.tolist()))
    if (count == count[0]).all():
        more = int(count[0]) - 1
        return [f"{one}{separator}{one + more}" for one in first.tolist()]
    return each(lambda one, n: span(one, n, separator), first, count)


def plural(noun: str, count: int) -> str:
    return noun if count == 1 else noun + "s"
