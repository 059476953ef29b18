"""The cells of a fragment's picture: runs of adjacent elements with consecutive values of one lane.

The grain of a cell is one element, the elements that share a register, or all adjacent elements of
a lane. If several lanes or registers hold an element, the cell shows the first and lists the
others; a cell of an element that no lane holds is empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..errors import LayoutError
from ..mma import Fragment
from .cell_runs import Array, Runs, plural, runs, span

GRAINS = ("element", "register", "thread")  # fine to coarse
MOST = {"element": 256, "register": 4096}  # the most cells before a coarser grain is used


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells, and the holders of their first elements: threads and values, (cells, holders).

    Holders are ordered by thread, then value, and padded with -1.
    """

    grain: str
    runs: Runs
    thread: Array
    value: Array

    def __len__(self) -> int:
        return len(self.runs)


def cells(fragment: Fragment, grain: str = "") -> Cells:
    """The cells of a fragment; without a grain, the finest one with at most ``MOST`` cells."""
    if grain:
        return _cells(fragment, grain)
    for fine, most in MOST.items():
        made = _cells(fragment, fine)
        if len(made) <= most:
            return made
    return _cells(fragment, GRAINS[-1])


def check_grain(grain: str) -> None:
    if grain and grain not in GRAINS:
        raise LayoutError(f"grain must be one of {', '.join(GRAINS)}, got {grain!r}")


def holders(fragment: Fragment) -> tuple[Array, Array]:
    """The holders of each element: threads and values, (tiles, rows, columns, holders)."""
    shape = (fragment.tiles, fragment.columns, fragment.rows)
    held, places = _sorted(fragment, int(np.prod(shape)))
    first = np.searchsorted(places, np.arange(np.prod(shape) + 1))
    many = np.diff(first)
    copy = np.arange(many.max())
    at = np.minimum(first[:-1, None] + copy, len(held) - 1)
    thread, value = np.divmod(held[at].reshape(*shape, -1), fragment.values)
    nobody = (copy >= many[:, None]).reshape(thread.shape)
    thread[nobody] = value[nobody] = -1
    if not fragment.transposed:
        thread, value = thread.swapaxes(1, 2), value.swapaxes(1, 2)
    return thread, value


def _sorted(fragment: Fragment, size: int) -> tuple[Array, Array]:
    """The holders, as thread * values + value, sorted by their index in the tile; the indices."""
    places = fragment.indices().ravel()
    if not 0 <= places.min() <= places.max() < size:
        outside = places.min() if places.min() < 0 else places.max()
        tile = f"{fragment.rows}×{fragment.columns}"
        raise LayoutError(f"{fragment.layout} must stay in the tile {tile}, got index {outside}")
    held = np.argsort(places, kind="stable")
    return held, places[held]


def _cells(fragment: Fragment, grain: str) -> Cells:
    thread, value = holders(fragment)

    def joined(down: bool) -> Array:
        first = [x[..., 0].swapaxes(1, 2) if down else x[..., 0] for x in (thread, value)]
        return _joined(fragment, *first, grain)

    made = runs(joined)
    return Cells(grain, made, made.first(thread), made.first(value))


def _joined(fragment: Fragment, thread: Array, value: Array, grain: str) -> Array:
    """Whether each element of a line belongs to the cell of the previous one."""
    if grain == "element":
        return np.zeros((*thread.shape[:-1], thread.shape[-1] - 1), bool)
    joined = (np.diff(thread) == 0) & (np.diff(value) == 1)
    if grain == "register":
        joined &= np.diff(value * fragment.bits // fragment.word) == 0
    return joined


# --- in words ----------------------------------------------------------------------------------


def _short(fragment: Fragment, value: int, count: int) -> str:
    """The registers of ``count`` values: ``r0``, ``r0.1`` (element 1 of it), ``r0–1``."""
    per = fragment.word // fragment.bits
    register, part = divmod(value, per)
    if part == 0 and count % per == 0:
        return "r" + span(register, count // per, "–")
    if part + count <= per:
        return f"r{register}." + span(part, count, "–")
    last = divmod(value + count - 1, per)
    return f"r{register}.{part}–{last[0]}.{last[1]}"


def _place(fragment: Fragment, value: int, count: int) -> str:
    """The registers of ``count`` values in full: ``register 1, bits 16..31``."""
    per = fragment.word // fragment.bits
    register, part = divmod(value, per)
    if part + count > per:
        return "registers " + span(register, (part + count - 1) // per + 1)
    low = part * fragment.bits + fragment.low
    width = (count - 1) * fragment.bits + fragment.dtype.bits
    return f"register {register}, {plural('bit', width)} {span(low, width)}"


class Naming(NamedTuple):
    """The names of values: short ones in cells, full ones in tooltips."""

    short: Callable[[Fragment, int, int], str]
    place: Callable[[Fragment, int, int], str]


REGISTERS = Naming(_short, _place)
VALUES = Naming(
    lambda _, value, count: "V" + span(value, count, "–"),
    lambda _, value, count: f"{plural('value', count)} {span(value, count)}",
)


def listed(numbers: list[int]) -> str:
    """``0–3``, ``0,2``, ``0,2,…,126``."""
    ordered = sorted(set(numbers))
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"{ordered[0]}–{ordered[-1]}"
    if len(ordered) > 4:
        return f"{ordered[0]},{ordered[1]},…,{ordered[-1]}"
    return ",".join(map(str, ordered))
