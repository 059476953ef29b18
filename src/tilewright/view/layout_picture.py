"""The picture of a layout: the offset in each cell, coloured by bank, or by the offset modulo 8.

If the size of an element is given, the second line of a cell is its shared-memory bank (32 banks of
4 bytes), and a colour stands for 16 bytes, which are 4 banks. Cells of large layouts are runs of
consecutive offsets; of very large layouts only a corner is drawn.
"""

from __future__ import annotations

from typing import Any

from ..errors import LayoutError, raises
from ..layout import Swizzle
from ..layout.composed_layout import AnyLayout
from .grid import SIZE, Grid, paint
from .layout_planes import Plane, Size, as_layout, plane, size_of
from .offset_grid import COUNTED, GRAINS, check_bits, offset_grids, shared
from .svg import FAINT, Picture, text_width

CORNER = (64, 512, 512)  # the most planes, rows and columns that are drawn
CELLS = 1 << 14  # the most cells
ELEMENTS = 1 << 16  # the most elements, drawn as runs
WIDE = 1600  # the most pixels of planes side by side
HEADING, SPACE = 34, 24


@raises(LayoutError)
def draw_layout(
    layout: Any, title: str = "", *, bits: int = 0, grain: str = "", hover: bool = True
) -> str:
    """The SVG of a layout, composed layout, swizzle, tensor (its layout) or shape.

    ``bits`` is the size of an element, or 0 to show no banks. ``grain`` is the content of a cell:
    an ``element``, or a ``run`` of adjacent elements with ascending offsets of one colour; by
    default runs if elements are many. ``hover`` adds a tooltip to each cell. Raises LayoutError for
    a dynamic layout, and for another grain or size.
    """
    check_bits(bits)
    if grain and grain not in GRAINS:
        raise LayoutError(f"grain must be one of {', '.join(GRAINS)}, got {grain!r}")
    if isinstance(layout, Swizzle):
        title, grain = title or str(layout), grain or GRAINS[1]
    layout = as_layout(layout)
    shown, grids = _cells(layout, bits, grain)
    to = Picture(title or str(layout))
    to.text(0, 12, title or str(layout), 13, bold=True)
    about = _about(shown, bits, len(layout))
    to.text(0, 27, f"{layout}: {about}" if title else about, SIZE + 1, ink=FAINT)
    _paint_planes(to, grids, shown.names(), hover)
    return to.render()


def _cells(layout: AnyLayout, bits: int, grain: str) -> tuple[Plane, list[Grid]]:
    """The grids of a layout, or of a corner of it with at most ``CELLS`` cells."""
    for elements in (ELEMENTS, CELLS):
        shown = plane(layout, corner(layout, elements))
        memory = shared(bits) if bits and not shown.counts else COUNTED
        grids = offset_grids(shown, memory, grain, flat=len(layout) == 1)
        if sum(len(grid.runs) for grid in grids) <= CELLS:
            break
    return shown, grids


def corner(layout: AnyLayout, elements: int) -> Size:
    """The number of planes, rows and columns of a layout that are drawn."""
    if len(layout) == 1:
        return 1, min(size_of(layout)[1], elements), 1
    planes, rows, columns = map(min, size_of(layout), CORNER)
    rows = min(rows, max(elements // columns, 128))
    columns = min(columns, elements // rows)
    return min(planes, elements // (rows * columns)), rows, columns


def _about(shown: Plane, bits: int, rank: int) -> str:
    """``64×64, offsets 0 … 4095; 16 bits each; a colour is 16 bytes, …``."""
    size, part = (_size(s, rank) for s in (size_of(shown.layout), shown.shape))
    caption = size if size == part else f"the first {part} of {size}"
    if not shown.counts:
        caption += f", offsets {shown.offsets.min()} … {shown.offsets.max()}"
    if bits and not shown.counts:
        caption += f"; {bits} bits each; a colour is 16 bytes, the banks 0–3, 4–7, … of 32"
    return caption


def _size(size: Size, rank: int) -> str:
    return "×".join(map(str, (*size[1:], *size[:1])[:rank]))


def _paint_planes(to: Picture, grids: list[Grid], names: list[str], hover: bool) -> None:
    """Planes side by side, wrapped into rows."""
    sizes = [grid.element for grid in grids]
    element = max(w for w, _ in sizes), max(h for _, h in sizes)
    x, y, below = 0, HEADING, HEADING
    for grid, name in zip(grids, names, strict=True):
        width, height = grid.size(element)
        if x and x + width > WIDE:
            x, y = 0, below + SPACE
        if name:
            to.text(x, y + 8, name, SIZE + 1)
        paint(to, grid, x, y + 14 * bool(name), element, hover=hover)
        x, below = x + max(width, text_width(name, SIZE + 1)) + SPACE, y + height + 14 * bool(name)
