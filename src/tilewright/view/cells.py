"""A fragment as cells: runs of neighbouring elements that one lane holds side by side.

A cell is one element, the elements of a row or column that share a register, or all neighbours of
one lane: the grain. Cells cover the matrix, each element once; where several lanes or registers
hold an element, a cell speaks of the first and names the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..mma import Fragment

Array = npt.NDArray[Any]

GRAINS = ("element", "register", "thread")  # fine to coarse
MOST = {"element": 256, "register": 4096}  # cells, beyond which the next grain is drawn


@dataclass(frozen=True, slots=True)
class Cells:
    """One entry for each cell: where it is, and the thread and first value that hold it.

    A cell is ``length`` elements of a row, or of a column where ``down``.
    """

    grain: str
    down: bool
    tile: Array
    row: Array
    column: Array
    length: Array
    thread: Array
    value: Array
    others: tuple[tuple[tuple[int, int], ...], ...]  # of each: (thread, value) of further copies

    def __len__(self) -> int:
        return len(self.row)

    @property
    def run(self) -> int:
        """Elements of the longest cell."""
        return int(self.length.max())


def cells(fragment: Fragment, grain: str = "") -> Cells:
    """The cells of a fragment; without a grain, the finest that keeps them few."""
    if grain:
        return _cells(fragment, grain)
    for fine, most in MOST.items():
        made = _cells(fragment, fine)
        if len(made) <= most:
            return made
    return _cells(fragment, GRAINS[-1])


def holders(fragment: Fragment) -> tuple[Array, Array]:
    """Who holds each element: threads and values, (tiles, rows, columns, copies)."""
    order = np.argsort(fragment.places(), axis=None, kind="stable")
    shape = (fragment.tiles, fragment.columns, fragment.rows, fragment.copies)
    thread, value = np.divmod(order.reshape(shape), fragment.values)
    if not fragment.transposed:
        thread, value = thread.swapaxes(1, 2), value.swapaxes(1, 2)
    return thread, value


def _cells(fragment: Fragment, grain: str) -> Cells:
    thread, value = holders(fragment)
    for down in (False, True):  # along rows; where nothing joins, along columns
        first = [x[..., 0].swapaxes(1, 2) if down else x[..., 0] for x in (thread, value)]
        joined = _joined(fragment, *first, grain)
        if joined.any():
            break
    begins = np.ones(first[0].shape, bool)
    begins[..., 1:] = ~joined
    start = np.flatnonzero(begins)
    length = np.diff(np.append(start, begins.size))
    tile, line, along = np.unravel_index(start, begins.shape)
    row, column = (along, line) if down else (line, along)
    others = _others(thread[tile, row, column], value[tile, row, column])
    return Cells(grain, down, tile, row, column, length, *(x.ravel()[start] for x in first), others)


def _joined(fragment: Fragment, thread: Array, value: Array, grain: str) -> Array:
    """Whether each element of a line belongs to the cell of the one before it."""
    if grain == "element":
        return np.zeros((*thread.shape[:-1], thread.shape[-1] - 1), bool)
    joined = (np.diff(thread) == 0) & (np.diff(value) == 1)
    if grain == "register":
        joined &= np.diff(value * fragment.bits // fragment.word) == 0
    return joined


def _others(thread: Array, value: Array) -> tuple[tuple[tuple[int, int], ...], ...]:
    if thread.shape[-1] == 1:
        return ()
    pairs = np.stack([thread, value], -1)[:, 1:].tolist()
    return tuple(tuple((t, v) for t, v in cell) for cell in pairs)


def each(make: Callable[..., str], *keys: Array) -> list[str]:
    """``make`` of every entry's keys (whole numbers); those that repeat are made once."""
    code = keys[0]
    for key in keys[1:]:
        code = code * (int(key.max()) + 1) + key
    first, inverse = np.unique(code, return_index=True, return_inverse=True)[1:]
    made = [make(*key) for key in zip(*(key[first].tolist() for key in keys), strict=True)]
    chosen: list[str] = np.array(made, object)[inverse].tolist()
    return chosen


# --- in words ----------------------------------------------------------------------------------


def span(first: int, count: int, separator: str = "..") -> str:
    """``5``, ``4..5``."""
    return str(first) if count == 1 else f"{first}{separator}{first + count - 1}"


def plural(noun: str, count: int) -> str:
    return noun if count == 1 else noun + "s"


def short(fragment: Fragment, value: int, count: int) -> str:
    """Where ``count`` values from this one lie: ``r0``, ``r0.1`` (part 1 of it), ``r0–1``."""
    per = fragment.word // fragment.bits
    register, part = divmod(value, per)
    if part == 0 and count % per == 0:
        return "r" + span(register, count // per, "–")
    if part + count <= per:
        return f"r{register}." + span(part, count, "–")
    last = divmod(value + count - 1, per)
    return f"r{register}.{part}–{last[0]}.{last[1]}"


def place(fragment: Fragment, value: int, count: int) -> str:
    """The same in full: ``register 1, bits 16..31``."""
    per = fragment.word // fragment.bits
    register, part = divmod(value, per)
    if part + count > per:
        return "registers " + span(register, (part + count - 1) // per + 1)
    low = part * fragment.bits + fragment.low
    width = (count - 1) * fragment.bits + fragment.dtype.bits
    return f"register {register}, {plural('bit', width)} {span(low, width)}"


def listed(numbers: list[int]) -> str:
    """``0–3``, ``0,2``."""
    ordered = sorted(set(numbers))
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"{ordered[0]}–{ordered[-1]}"
    return ",".join(map(str, ordered))
