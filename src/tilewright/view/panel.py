"""Panels: grids with headings, placed side by side or as the operands of a product.

metadata, scales …  A | B, scales …      B above what it makes, A at its left
                      | C and D
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .grid import SIZE, Element, Grid, paint
from .svg import FAINT, INK, Picture, text_width

HEADING = 42  # height of a heading
SPACE = 28  # between panels


@dataclass(frozen=True, slots=True)
class Panel:
    """A grid and up to three lines above it."""

    heading: tuple[str, ...]
    grid: Grid

    @property
    def element(self) -> Element:
        return self.grid.element

    def room(self, element: Element) -> tuple[int, int]:
        """Width and height, heading included, with elements of this size."""
        width, height = self.grid.size(element)
        return max(width, heading_width(self.heading)), HEADING + height

    def paint(self, to: Picture, x: int, y: int, element: Element, hover: bool) -> None:
        paint_heading(to, self.heading, x, y)
        paint(to, self.grid, x, y + HEADING, element, hover=hover)


def paint_heading(to: Picture, lines: Sequence[str], x: int, y: int) -> None:
    """A bold line and two more. ``HEADING`` high."""
    to.text(x, y + 11, lines[0], bold=True)
    for line, (down, ink) in zip(lines[1:], ((24, INK), (36, FAINT)), strict=False):
        to.text(x, y + down, line, SIZE + 1, ink=ink)


def heading_width(lines: Sequence[str]) -> int:
    return max(text_width(lines[0], 12), *(text_width(line, SIZE + 1) for line in lines[1:]), 0)


def paint_band(
    to: Picture, panels: Sequence[tuple[Panel, Element]], x: int, y: int, hover: bool
) -> int:
    """Paint panels side by side from (x, y) on; returns their lower edge."""
    below = y
    for panel, element in panels:
        panel.paint(to, x, y, element, hover)
        width, height = panel.room(element)
        x, below = x + width + SPACE, max(below, y + height)
    return below


def paint_product(
    to: Picture, left: list[Panel], above: list[Panel], corner: list[Panel], y: int, hover: bool
) -> int:
    """Paint A and its metadata at the left, B above, C or D in the corner; returns the lower edge.

    Rows of A are as high as those of C, and columns of B as wide as those of C.
    """
    wide = max(above[0].element[0], corner[0].element[0])
    high = max(panel.element[1] for panel in (*left, *corner))
    lefts = [(p, (p.element[0], high)) for p in left]
    aboves = [(p, (wide if p is above[0] else p.element[0], p.element[1])) for p in above]
    corners = [(p, (wide if p is corner[0] else p.element[0], high)) for p in corner]
    middle = sum(p.room(size)[0] + SPACE for p, size in lefts)
    below = paint_band(to, aboves, middle, y, hover) + SPACE
    ends = ((lefts, 0), (corners, middle))
    return max(paint_band(to, panels, x, below, hover) for panels, x in ends)
