"""The picture of a layout: the offset in each cell, coloured by bank, or by the offset modulo 8.

With the bits of an element the second line of a cell is the shared-memory bank, of 32 with 4 bytes
each, and a colour is 16 bytes: 4 banks. Large layouts are drawn by runs of offsets that follow one
another; of a layout without end, a corner.
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

CORNER = (64, 512, 512)  # planes, rows and columns that are drawn at most
CELLS = 1 << 14  # that are drawn at most
ELEMENTS = 1 << 16  # that are drawn at most, in runs
WIDE = 1600  # pixels of planes side by side
HEADING, SPACE = 34, 24


@raises(LayoutError)
def draw_layout(
    layout: Any, title: str = "", *, bits: int = 0, grain: str = "", hover: bool = True
) -> str:
    """The SVG of a layout, composed layout, swizzle, tensor (its layout) or shape.

    ``bits`` is the size of an element, 0 where banks do not matter. ``grain`` is what a cell holds:
    an ``element``, or a ``run`` of neighbours with ascending offsets of one colour; without one,
    cells stay few. ``hover`` lets each cell say in a browser where it is. LayoutError for a layout
    with dynamic numbers, and for another grain or size.
    """
    check_bits(bits)
    if grain and grain not in GRAINS:
        raise LayoutError(f"no grain {grain!r}", hint=f"grains are {', '.join(GRAINS)}")
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
    """The grids of all of a layout, or of a corner that has not too many cells."""
    for elements in (ELEMENTS, CELLS):
        shown = plane(layout, corner(layout, elements))
        memory = shared(bits) if bits and not shown.counts else COUNTED
        grids = offset_grids(shown, memory, grain, flat=len(layout) == 1)
        if sum(len(grid.runs) for grid in grids) <= CELLS:
            break
    return shown, grids


def corner(layout: AnyLayout, elements: int) -> Size:
    """Planes, rows and columns of a layout, or of a large one its first."""
    if len(layout) == 1:
        return 1, min(size_of(layout)[1], elements), 1
    planes, rows, columns = map(min, size_of(layout), CORNER)
    rows = min(rows, max(elements // columns, 128))
    columns = min(columns, elements // rows)
    return min(planes, elements // (rows * columns)), rows, columns


def _about(shown: Plane, bits: int, rank: int) -> str:
    """``64×64, offsets 0 … 4095; 16 bits each; a colour is 16 bytes, …``."""
    size, part = (_size(s, rank) for s in (size_of(shown.layout), shown.shape))
    said = size if size == part else f"the first {part} of {size}"
    if not shown.counts:
        said += f", offsets {shown.offsets.min()} … {shown.offsets.max()}"
    if bits and not shown.counts:
        said += f"; {bits} bits each; a colour is 16 bytes, the banks 0–3, 4–7, … of 32"
    return said


def _size(size: Size, rank: int) -> str:
    return "×".join(map(str, (*size[1:], *size[:1])[:rank]))


def _paint_planes(to: Picture, grids: list[Grid], names: list[str], hover: bool) -> None:
    """Planes side by side, in as many rows as they need."""
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
