"""A grid with little markup, for pages with many grids: a fifth of the size of ``grid.paint``.

A colour is one path of thick lines, the edges of cells are merged into long lines, and the texts of
a row are one text with spaces, which the style sheet must preserve. Two lines of text become one if
they fit; if there are many cells, they have neither text nor edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import floor, gcd

import numpy as np

from .cell_runs import Array
from .grid import AXIS, DOWN, SIZE, Element, Grid, paint_axes, paint_cuts
from .svg import LINE, Picture, escape

CELLS = 1 << 10  # the most cells with text
LEAST = 10  # the fewest pixels of an element with text, for the mouse
WIDE = 15  # the most pixels of an element with two lines of text joined
ROOM, FEW = 40, 32  # pixels between the numbers of rows, where these are more than a few
PITCH = 6  # pixels of a character, spread a little


def shortened(shown: Grid) -> Grid:
    """The grid with the lines of text that are painted."""
    if len(shown.runs) > CELLS:
        return replace(shown, lines=())
    if len(shown.lines) < 2:
        return shown
    together = replace(shown, lines=([" ".join(pair) for pair in zip(*shown.lines, strict=True)],))
    fits = element_of(together)[0] <= max(WIDE, element_of(shown)[0])
    return together if fits else shown


def element_of(shown: Grid) -> Element:
    """The size of an element; the width of a cell is a whole number of characters."""
    height = max(shown.element[1], LEAST * bool(shown.lines))
    if not shown.lines:
        return shown.element
    across = shown.runs.spans[1]
    unit = PITCH // gcd(PITCH, *across.tolist())
    wide = max(LEAST, int((-(-(shown.letters * PITCH + 5) // across)).max()))
    return -(-wide // unit) * unit, height


def paint_brief(to: Picture, shown: Grid, element: Element) -> None:
    """Paint a grid of one tile, its axes at the upper left corner of the picture."""
    (left, top), (width, height) = shown.corner, element
    paint_axes(to, shown, left, top, element, ROOM if shown.rows.count > FEW else AXIS + 1)
    cell = _cells(shown)
    to.paint(['<g fill="none">'])
    to.paint(_colours(shown, cell, left, top, element))
    to.paint(["</g>"])
    if shown.lines:
        edges = "".join((*_across(cell, left, top, element), *_down(cell, left, top, element)))
        to.paint([f'<path fill="none" stroke="{LINE}" stroke-width="0.5" d="{edges}"/>'])
        to.paint([f'<g font-size="{SIZE}" pointer-events="none">'])
        to.paint(_texts(shown, left, top, element))
        to.paint(["</g>"])
    paint_cuts(to, shown, left, top, element)
    to.reach(left + shown.columns.count * width, top + shown.rows.count * height)


def _cells(shown: Grid) -> Array:
    """(rows, columns) → the number of the element's cell, or -1."""
    cell = np.full((shown.rows.count, shown.columns.count), -1)
    r = shown.runs
    for step in range(r.longest):
        long = np.flatnonzero(r.length > step)
        row, column = r.row[long], r.column[long]
        cell[(row + step, column) if r.down else (row, column + step)] = long
    return cell


def _spans(differs: Array) -> Iterator[tuple[int, int, int]]:
    """(line, begin, end) of the stretches of True along each line of a matrix."""
    padded = np.pad(differs.astype(np.int8), ((0, 0), (1, 1)))
    line, begin = np.nonzero(np.diff(padded, axis=1) == 1)
    end = np.nonzero(np.diff(padded, axis=1) == -1)[1]
    return zip(line.tolist(), begin.tolist(), end.tolist(), strict=True)


def _colours(shown: Grid, cell: Array, x: int, y: int, element: Element) -> Iterator[str]:
    """Each colour as lines, as thick as the group of equal rows."""
    width, height = element
    names, which = np.unique(np.array(shown.colours), return_inverse=True)
    colour = np.where(cell >= 0, which.ravel()[cell], -1)
    new = np.append(True, (colour[1:] != colour[:-1]).any(axis=1))
    rows = np.flatnonzero(new)
    lines: dict[tuple[int, int], list[tuple[int, float, int]]] = {}
    for i in range(len(names)):
        for line, begin, end in _spans(colour[rows] == i):
            many = int((np.append(rows, len(colour))[line + 1]) - rows[line]) * height
            place = (x + begin * width, y + int(rows[line]) * height + many / 2)
            lines.setdefault((i, many), []).append((*place, (end - begin) * width))
    for (i, many), parts in lines.items():
        yield f'<path stroke="{names[i]}" stroke-width="{many}" d="{"".join(_path(parts))}"/>'


def _path(parts: list[tuple[int, float, int]]) -> Iterator[str]:
    """Horizontal lines (x, y, length), relative to the previous one if it has the same y."""
    end, level = 0, -1.0
    for x, y, length in parts:
        yield f"m{x - end} 0h{length}" if y == level else f"M{x} {y:g}h{length}"
        end, level = x + length, y


def _across(cell: Array, x: int, y: int, element: Element) -> Iterator[str]:
    """The edges between rows."""
    width, height = element
    padded = np.pad(cell, ((1, 1), (0, 0)), constant_values=-1)
    for row, begin, end in _spans(padded[1:] != padded[:-1]):
        yield f"M{x + begin * width} {y + row * height}h{(end - begin) * width}"


def _down(cell: Array, x: int, y: int, element: Element) -> Iterator[str]:
    """The edges between columns."""
    width, height = element
    padded = np.pad(cell, ((0, 0), (1, 1)), constant_values=-1)
    for column, begin, end in _spans((padded[:, 1:] != padded[:, :-1]).T):
        yield f"M{x + column * width} {y + begin * height}v{(end - begin) * height}"


def _texts(shown: Grid, x: int, y: int, element: Element) -> Iterator[str]:
    """The texts of each row as one text, each centred in its cell."""
    (width, height), r = element, shown.runs
    down, across = r.spans
    middle = ((r.column + across / 2) * width / PITCH).tolist()
    base = y + r.row * height + down * height // 2
    for under, texts in zip(DOWN[len(shown.lines)], shown.lines, strict=True):
        longest = max(range(len(texts)), key=lambda i: len(texts[i]))
        phase = (middle[longest] - len(texts[longest]) / 2) % 1
        lines: dict[int, list[tuple[int, str]]] = {}
        for at, baseline, text in zip(middle, (base + under).tolist(), texts, strict=True):
            start = floor(at - len(text) / 2 - phase + 0.5)
            lines.setdefault(baseline, []).append((start, text))
        for baseline, parts in lines.items():
            yield _line(x + phase * PITCH, baseline, parts)


def _line(x: float, y: int, parts: list[tuple[int, str]]) -> str:
    first, line = parts[0][0], ""
    for start, text in parts:
        line = line.ljust(start - first) + text
    place = f'x="{x + first * PITCH:g}" y="{y}" textLength="{len(line) * PITCH}"'
    return f"<text {place}>{escape(line)}</text>"
