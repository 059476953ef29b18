"""The picture of a fragment: a heading, the grid, and the elements within a register.

T5     lane 5 (of a warpgroup: thread 5)
r0.1   its register 0, the second of the elements there; ``r0`` where there is one
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ..errors import LayoutError
from ..mma import Fragment
from .cell_runs import each, plural, span
from .fragment_cells import REGISTERS, Cells, Naming, cells, check_grain, listed
from .grid import AXIS, LEFT, SIZE, Axis, Grid, paint
from .palette import LANES
from .panel import HEADING, paint_heading
from .svg import FAINT, PAPER, SHADE, Picture

STRIP = 256  # width of a register
LABEL = 24  # width of a part of it that has room for text


def draw_fragment(
    fragment: Fragment, title: str = "", *, name: str = "", grain: str = "", hover: bool = True
) -> str:
    """The SVG of a fragment, called ``name`` under the heading ``title``.

    ``grain`` is the content of a cell: an ``element``, the elements that share a ``register``, or
    all adjacent elements of a ``thread``; by default the finest one with few cells. ``hover`` adds
    a tooltip with the bits of each cell, which doubles the size. Raises LayoutError for another
    grain or object.
    """
    if not isinstance(fragment, Fragment):
        raise LayoutError(f"expected a Fragment, got {fragment!r}")
    check_grain(grain)
    to = Picture(title or f"{name} {fragment.layout}".strip())
    y = 0
    if title:
        to.text(0, 12, title, 13, bold=True)
        y = 22
    paint_heading(to, heading(fragment, name), 0, y)
    shown = fragment_grid(fragment, grain)
    paint(to, shown, 0, y + HEADING, shown.element, hover=hover)
    if fragment.word != fragment.dtype.bits:
        y += HEADING + shown.size(shown.element)[1] + 14
        paint_register(to, fragment, LEFT, y)
    return to.render()


def fragment_grid(fragment: Fragment, grain: str = "", naming: Naming = REGISTERS) -> Grid:
    """The grid of a fragment; each cell shows the lane and the register that hold it."""
    c = cells(fragment, grain)
    rows, columns = fragment.shape[-2:]
    colours = each(lambda t: LANES[t % len(LANES)] if t >= 0 else PAPER, c.thread[:, 0])
    lines = (_lanes(c), _values(fragment, c, naming))
    titles = partial(_titles, fragment, c, naming)
    return Grid(fragment.tiles, Axis(rows), Axis(columns), c.runs, colours, lines, titles)


def _lanes(c: Cells) -> list[str]:
    """``T5``, ``T0–3`` for several holders, "" for none."""
    if c.thread.shape[1] == 1:
        return each(lambda t: f"T{t}" if t >= 0 else "", c.thread[:, 0])
    sets, which = np.unique(c.thread, axis=0, return_inverse=True)
    held = [[t for t in threads if t >= 0] for threads in sets.tolist()]
    names = np.array(["T" + listed(threads) if threads else "" for threads in held], object)
    chosen: list[str] = names[which.ravel()].tolist()
    return chosen


def _values(fragment: Fragment, c: Cells, naming: Naming) -> list[str]:
    """``r0.1``, ``r0 ×2`` for an element in two registers."""
    texts = each(
        lambda v, n: naming.short(fragment, v, n) if v >= 0 else "", c.value[:, 0], c.runs.length
    )
    if c.value.shape[1] == 1:
        return texts
    ordered = np.sort(c.value, axis=1)
    many = 1 + (np.diff(ordered, axis=1) != 0).sum(1) - (ordered[:, 0] < 0)
    return [f"{text} ×{n}" if n > 1 else text for text, n in zip(texts, many.tolist(), strict=True)]


def heading(fragment: Fragment, name: str) -> tuple[str, str, str]:
    """Name, shape and type; registers; the layout."""
    rows, columns = fragment.shape[-2:]
    many = f"{fragment.tiles} of " if fragment.tiles > 1 else ""
    first = f"{name} {many}{rows}×{columns} {fragment.type}".strip()
    return first, held(fragment), rule(fragment)


def held(fragment: Fragment) -> str:
    """``4 registers a lane``."""
    each = "lane" if fragment.threads <= 32 else "thread"
    size = "64-bit " if fragment.word == 64 else ""
    caption = f"{fragment.count} {size}{plural('register', fragment.count)} a {each}"
    return caption + (f", each element {fragment.copies} times" if fragment.copies > 1 else "")


def rule(fragment: Fragment) -> str:
    """The layout, and what it maps to: ``((4,8),2):((16,1),8) (T, value) → row + 8 column``."""
    down, across = ("column", "row") if fragment.transposed else ("row", "column")
    return f"{fragment.layout} (T, value) → {down} + {fragment.rows} {across}"


def paint_register(to: Picture, fragment: Fragment, x: float, y: float) -> None:
    """A register and its elements, the most significant bit at the left."""
    per, scale = fragment.word // fragment.bits, STRIP / fragment.word
    bits, width = fragment.dtype.bits, fragment.dtype.bits * STRIP / fragment.word
    to.rect(x, y, STRIP, 16, SHADE)
    for part in range(per):
        low = part * fragment.bits + fragment.low
        left = x + STRIP - low * scale - width
        to.rect(left, y, width, 16, LANES[part % 4])
        if width >= LABEL:
            to.text(left + width / 2, y + 11.5, f".{part}", SIZE, anchor="middle")
            _bit(to, left + 1, y, low + bits - 1)
            _bit(to, left + width - 1, y, low, "end")
    if width < LABEL:
        _bit(to, x, y, fragment.word - 1)
        _bit(to, x + STRIP, y, 0, "end")
    caption = f"a register: r0.0 … r0.{per - 1}" if per > 1 else "a register: r0"
    to.text(x + STRIP + 8, y + 11.5, caption, SIZE, ink=FAINT)
    to.reach(0, y + 30)


def _bit(to: Picture, x: float, y: float, bit: int, anchor: str = "start") -> None:
    to.text(x, y + 25, str(bit), AXIS - 1, ink=FAINT, anchor=anchor)


# --- tooltips ------------------------------------------------------------------------------------

NAMED = 16  # holders that are listed; the others are counted


def _titles(fragment: Fragment, c: Cells, naming: Naming) -> list[list[str]]:
    """``row 3, column 5: lane 13, register 1, bits 16..31``."""
    rows, columns = c.runs.spans
    parts = [
        each(lambda t: f"product {t}, " * (fragment.tiles > 1), c.runs.tile),
        each(lambda r, n: f"{plural('row', n)} {span(r, n)}, ", c.runs.row, rows),
        each(lambda k, n: f"{plural('column', n)} {span(k, n)}: ", c.runs.column, columns),
    ]
    for copy in range(min(c.thread.shape[1], NAMED)):
        parts += _holder(fragment, c, naming, copy)
    if c.thread.shape[1] > NAMED:
        more = (c.thread >= 0).sum(1) - NAMED
        parts.append(each(lambda n: f"; {n} others" if n > 0 else "", more))
    return parts


def _holder(fragment: Fragment, c: Cells, naming: Naming, copy: int) -> list[list[str]]:
    thread, value = c.thread[:, copy], c.value[:, copy]
    who = ("; " if copy else "") + ("lane" if fragment.threads <= 32 else "thread")

    def where(v: int, n: int) -> str:
        return naming.place(fragment, v, n) if v >= 0 else "" if copy else "nobody"

    return [
        each(lambda t: f"{who} {t}, " if t >= 0 else "", thread),
        each(where, value, c.runs.length),
    ]
