"""A grid: a matrix of coloured cells with up to two lines of text, axes and tooltips.

Markup is assembled from columns of strings, because there may be thousands of cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate, repeat
from operator import mul

import numpy as np

from .cell_runs import Array, Runs, each
from .palette import RANK
from .svg import FAINT, INK, LINE, Picture, text_width

SIZE, AXIS = 9, 8  # of the text in cells and on the axes
HEIGHTS = {0: 5, 1: 14, 2: 24}  # of a cell, by its lines of text
DOWN = {0: (), 1: (3,), 2: (-1, 8)}  # of each line's base from the middle of the cell
GAP = 24  # between tiles
LEFT, TOP = 22, 14  # room for the numbers on the axes

Element = tuple[int, int]  # width and height of an element of the matrix


@dataclass(frozen=True, slots=True)
class Axis:
    """Rows or columns: their number, the sizes of their modes, and the names of the blocks of the
    innermost mode; ``labels`` if they are not numbered from 0.
    """

    count: int
    modes: tuple[int, ...] = ()
    blocks: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    @property
    def cuts(self) -> list[int]:
        """The sizes of blocks, from the smallest, that a line separates."""
        return [n for n in dict.fromkeys(accumulate(self.modes, mul)) if 1 < n < self.count]

    @property
    def room(self) -> int:
        """The width of the widest block's name."""
        return max((text_width(name, AXIS) + 4 for name in self.blocks), default=0)

    def label(self, index: int) -> str:
        return self.labels[index] if self.labels else str(index)

    @property
    def wide(self) -> int:
        """The width of the widest label."""
        labels = self.labels or (str(self.count - 1),)
        return text_width(max(labels, key=len), AXIS)


@dataclass(frozen=True, slots=True)
class Grid:
    """Cells with their colours and lines of text. ``titles`` returns columns of strings whose rows,
    joined, are the tooltips of the cells.
    """

    tiles: int
    rows: Axis
    columns: Axis
    runs: Runs
    colours: list[str]
    lines: tuple[list[str], ...]
    titles: Callable[[], list[list[str]]]

    @property
    def element(self) -> Element:
        """The smallest size of an element in which the text fits."""
        height = HEIGHTS[len(self.lines)]
        if not self.lines:
            return height, height
        down, across = self.runs.spans
        widths = [text_width("0" * n, SIZE) + 6 for n in range(self.letters.max() + 1)]
        wide = np.array(widths)[self.letters]
        return int((-(-wide // across)).max()), -(-height // int(down.min()))

    @property
    def letters(self) -> Array:
        """The number of characters of each cell's longest line."""
        return np.array([list(map(len, line)) for line in self.lines]).max(axis=0)

    @property
    def corner(self) -> tuple[int, int]:
        """The space of the axes, at the left and above."""
        left = max(LEFT, self.rows.wide + 6)
        return left + self.rows.room, TOP + (AXIS + 4) * bool(self.columns.blocks)

    def size(self, element: Element) -> tuple[int, int]:
        """Width and height of the grid with its axes."""
        left, top = self.corner
        wide = self.tiles * self.step(element) - GAP
        return left + wide, top + self.rows.count * element[1]

    def step(self, element: Element) -> int:
        """The distance from one tile to the next."""
        return self.columns.count * element[0] + GAP


def paint(
    to: Picture, shown: Grid, x: int, y: int, element: Element, *, hover: bool = True
) -> None:
    """Paint grid and axes with the upper left corner at (x, y)."""
    left, top = x + shown.corner[0], y + shown.corner[1]
    for tile in range(shown.tiles):
        paint_axes(to, shown, left + tile * shown.step(element), top, element)
    corners = _corners(shown, left, top, element)
    to.paint([f'<g stroke="{LINE}" stroke-width="0.5">'])
    to.paint(_boxes(shown, corners, hover))
    to.paint([f'</g><g font-size="{SIZE}" text-anchor="middle" pointer-events="none">'])
    to.paint(_texts(shown, corners))
    to.paint(["</g>"])
    for tile in range(shown.tiles):
        paint_cuts(to, shown, left + tile * shown.step(element), top, element)
    wide, high = shown.size(element)
    to.reach(x + wide, y + high)


def _corners(shown: Grid, x: int, y: int, element: Element) -> tuple[Array, ...]:
    """x, y, width and height of each cell."""
    c, (width, height) = shown.runs, element
    down, along = c.spans
    left = c.column * width + c.tile * shown.step(element) + x
    return left, c.row * height + y, along * width, down * height


def _boxes(shown: Grid, corners: tuple[Array, ...], hover: bool) -> Iterable[str]:
    x, y, wide, high = corners
    outlines = (
        each("M{} ".format, x),
        each("{}h".format, y),
        each(lambda w, h: f"{w}v{h}h-{w}z", wide, high),
    )
    if not hover:
        return by_colour(shown.colours, map("".join, zip(*outlines, strict=True)))
    fill, middle = repeat('<path fill="'), repeat('" d="')
    open_, end = repeat('"><title>'), repeat("</title></path>")
    columns = (fill, shown.colours, middle, *outlines, open_, *shown.titles(), end)
    return map("".join, zip(*columns, strict=False))


def by_colour(colours: list[str], outlines: Iterable[str]) -> Iterable[str]:
    """One path for all cells of a colour."""
    paths: dict[str, list[str]] = {}
    for colour, outline in zip(colours, outlines, strict=True):
        paths.setdefault(colour, []).append(outline)
    ordered = sorted(paths, key=lambda colour: RANK.get(colour, len(RANK)))
    return (f'<path fill="{colour}" d="{"".join(paths[colour])}"/>' for colour in ordered)


def _texts(shown: Grid, corners: tuple[Array, ...]) -> Iterable[str]:
    x, y, wide, high = corners
    middle = each('<text x="{}" y="'.format, x + wide // 2)
    heights = [each('{}">'.format, y + high // 2 + down) for down in DOWN[len(shown.lines)]]
    columns = []
    for height, line in zip(heights, shown.lines, strict=True):
        columns += [middle, height, line, repeat("</text>")]
    return map("".join, zip(*columns, strict=False))


# --- axes ----------------------------------------------------------------------------------------


def paint_axes(
    to: Picture, shown: Grid, x: int, y: int, element: Element, room: int = AXIS + 1
) -> None:
    """Paint the numbers of rows (at least ``room`` apart) and columns, and the names of their
    blocks; (x, y) is the corner of the cells.
    """
    (width, height), c, rows, columns = element, shown.runs, shown.rows, shown.columns
    to.paint([f'<g font-size="{AXIS}" fill="{FAINT}" text-anchor="middle">'])
    to.paint(
        f'<text x="{int(x + k * width + width / 2)}" y="{y - 4}">{columns.label(k)}</text>'
        for k in range(0, columns.count, _step(width, columns.wide + 2, 1 if c.down else c.longest))
    )
    left = x - max(11, 4 + rows.wide // 2)
    to.paint(
        f'<text x="{left}" y="{int(y + r * height + height / 2 + 3)}">{rows.label(r)}</text>'
        for r in range(0, rows.count, _step(height, room, c.longest if c.down else 1))
    )
    to.paint(["</g>"])
    _paint_blocks(to, shown, x, y, element)


def _step(size: int, room: int, run: int) -> int:
    """The distance between numbers, in elements: a run, doubled until they fit."""
    step = run
    while step * size < room:
        step *= 2
    return step


def _paint_blocks(to: Picture, shown: Grid, x: int, y: int, element: Element) -> None:
    (width, height), rows, columns = element, shown.rows, shown.columns
    if columns.blocks:
        wide = columns.modes[0] * width
        every = _step(wide, columns.room, 1)
        for k, name in list(enumerate(columns.blocks))[::every]:
            to.text(x + k * wide + 1, y - TOP - 2, name, AXIS, ink=FAINT)
    if rows.blocks:
        high, left = rows.modes[0] * height, shown.corner[0] - rows.room
        every = _step(high, AXIS + 2, 1)
        for r, name in list(enumerate(rows.blocks))[::every]:
            to.text(x - left, y + r * high + AXIS, name, AXIS, ink=FAINT, anchor="end")


def paint_cuts(to: Picture, shown: Grid, x: int, y: int, element: Element) -> None:
    """Paint lines between the blocks of rows and columns, heavier for outer modes."""
    (width, height), rows, columns = element, shown.rows, shown.columns
    wide, high = columns.count * width, rows.count * height
    levels: dict[float, list[str]] = {}
    for level, n in enumerate(rows.cuts):
        lines = (f"M{x} {y + r * height}h{wide}" for r in range(n, rows.count, n))
        levels.setdefault(1 + level / 2, []).extend(lines)
    for level, n in enumerate(columns.cuts):
        lines = (f"M{x + k * width} {y}v{high}" for k in range(n, columns.count, n))
        levels.setdefault(1 + level / 2, []).extend(lines)
    to.paint(
        f'<path stroke="{INK}" stroke-width="{weight}" fill="none" d="{"".join(lines)}"/>'
        for weight, lines in sorted(levels.items())
    )
