"""The picture of a layout: the offset in each cell, coloured by bank, or by the offset modulo 8.

With the bits of an element the second line of a cell is the shared-memory bank, of 32 with 4 bytes
each, and a colour is 16 bytes: 4 banks. Lines separate the modes that rows and columns are nested
in. Large layouts are drawn by runs of offsets that follow one another; of a layout without end, a
corner.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np

from ..errors import LayoutError
from ..layout import Layout, Swizzle, composition, idx2crd
from ..layout.int_tuple import IntTuple, flatten, text, unflatten
from .grid import SIZE, Axis, Grid, paint
from .palette import EIGHT
from .plane import AnyLayout, Array, Plane, Size, as_layout, plane, size_of
from .runs import Runs, each, plural, runs, spans
from .svg import FAINT, Picture, text_width

GRAINS = ("element", "run")
MOST = 1 << 13  # elements of all planes, beyond which runs are drawn
CORNER = (64, 256, 256)  # planes, rows and columns that are drawn at most
ELEMENTS = 1 << 14  # that are drawn at most
LINE = 32  # elements of one mode in a row
BANKS, WORD, PIECE = 32, 32, 128  # of shared memory; bits of a bank, and of a colour
WIDE = 1600  # pixels of planes side by side
HEADING, SPACE = 34, 24


def draw_layout(
    layout: Any, title: str = "", *, bits: int = 0, grain: str = "", hover: bool = True
) -> str:
    """The SVG of a layout, composed layout, swizzle, tensor (its layout) or shape.

    ``bits`` is the size of an element, 0 where banks do not matter. ``grain`` is what a cell holds:
    an ``element``, or a ``run`` of neighbours with ascending offsets of one colour; without one,
    cells stay few. ``hover`` lets each cell say in a browser where it is. LayoutError for a layout
    with dynamic numbers, and for another grain or size.
    """
    check(bits, grain)
    if isinstance(layout, Swizzle):
        title, layout, grain = title or str(layout), pattern(layout), grain or GRAINS[1]
    layout = as_layout(layout)
    shown = plane(layout, corner(layout))
    to = Picture(title or str(layout))
    to.text(0, 12, title or str(layout), 13, bold=True)
    about = _about(shown, bits, len(layout))
    to.text(0, 27, f"{layout}: {about}" if title else about, SIZE + 1, ink=FAINT)
    grids = layout_grids(shown, bits, grain, flat=len(layout) == 1)
    _paint_planes(to, grids, shown.names(), hover)
    return to.render()


def check(bits: int, grain: str) -> None:
    if grain and grain not in GRAINS:
        raise LayoutError(f"no grain {grain!r}", hint=f"grains are {', '.join(GRAINS)}")
    if bits.__class__ is not int or not 0 <= bits <= 1024:
        raise LayoutError(f"an element has 1 to 1024 bits (0: no banks), not {bits!r}")


def pattern(swizzle: Swizzle) -> AnyLayout:
    """The smallest layout that shows all of what a swizzle does: the bits that it reads count the
    rows, those that it changes the pieces of a row.
    """
    count, piece = 1 << swizzle.bits, 1 << swizzle.base
    read, changed = (mask & -mask or piece for mask in (swizzle.yyy_msk, swizzle.zzz_msk))
    made: AnyLayout = composition(swizzle, Layout((count, (piece, count)), (read, (1, changed))))
    return made


def corner(layout: AnyLayout) -> Size:
    """Planes, rows and columns that are drawn: all, or of large layouts the first."""
    if len(layout) == 1:
        return 1, min(size_of(layout)[1], ELEMENTS), 1
    planes, rows, columns = map(min, size_of(layout), CORNER)
    rows = min(rows, max(ELEMENTS // columns, CORNER[1] // 2))
    columns = min(columns, ELEMENTS // rows)
    return min(planes, ELEMENTS // (rows * columns)), rows, columns


def _about(shown: Plane, bits: int, rank: int) -> str:
    """``64×64, offsets 0 … 4095; 16 bits each; a colour is 16 bytes, …``."""
    size, part = (_size(s, rank) for s in (size_of(shown.layout), shown.shape))
    said = size if size == part else f"the first {part} of {size}"
    if not shown.counts:
        said += f", offsets {shown.offsets.min()} … {shown.offsets.max()}"
    if bits:
        said += f"; {bits} bits each; a colour is 16 bytes, the banks 0–3, 4–7, … of 32"
    return said


def _size(size: Size, rank: int) -> str:
    return "×".join(map(str, (*size[1:], *size[:1])[:rank]))


# --- grids ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sheet:
    """One plane, ready to be cut into cells: (rows, columns) of numbers, and their coordinates.

    Where ``there`` is False nothing is drawn: the end of the last line of a long mode.
    """

    rows: Axis
    columns: Axis
    before: Array
    offsets: Array
    there: Array
    crd: Any  # (row, column) → text


def layout_grids(shown: Plane, bits: int, grain: str = "", *, flat: bool = False) -> list[Grid]:
    """The grid of each plane; ``flat`` for a layout of one mode, which is drawn in lines."""
    grain = grain or GRAINS[shown.offsets.size > MOST]
    sheets = [_lines(shown)] if flat else _sheets(shown)
    return [_grid(sheet, bits, grain, shown.counts) for sheet in sheets]


def axis(shape: IntTuple, count: int) -> Axis:
    """The rows or columns of a mode."""
    leaves = flatten(shape)
    modes = [i for i, s in enumerate(leaves) if s > 1]
    if len(modes) < 2:
        return Axis(count)
    inner, blocks = leaves[modes[0]], []
    for i in range(0, count, inner):
        crd = list(flatten(idx2crd(i, shape)))
        crd[modes[0]] = "_"
        blocks.append(text(unflatten(crd, shape)))
    return Axis(count, tuple(leaves[i] for i in modes), tuple(blocks))


def _sheets(shown: Plane) -> list[Sheet]:
    rows, columns = (axis(shown.mode(i), shown.shape[i]) for i in (1, 2))
    down, across, names = (shown.coordinates(i) for i in (1, 2, 0))
    whole = np.ones(shown.shape[1:], bool)
    sheets = []
    for i, name in enumerate(names):
        further = f",{name[1:-1].removesuffix(',')}" if len(shown.layout) > 2 else ""
        crd = partial(lambda more, r, c: f"({down[r]},{across[c]}{more})", further)
        sheets.append(Sheet(rows, columns, shown.before[i], shown.offsets[i], whole, crd))
    return sheets


def _lines(shown: Plane) -> Sheet:
    """One mode, in lines of at most ``LINE``."""
    count, names = shown.shape[1], shown.coordinates(1)
    wide = min(count, LINE)
    rows = -(-count // wide)
    index = np.arange(rows * wide).reshape(rows, wide)
    at = np.minimum(index, count - 1)
    before, offsets = (x[0, :, 0][at] for x in (shown.before, shown.offsets))
    columns = Axis(wide, axis(shown.mode(1), count).modes)
    return Sheet(
        Axis(rows, unit=wide), columns, before, offsets, index < count,
        lambda r, c: names[r * wide + c],
    )  # fmt: skip


def _grid(sheet: Sheet, bits: int, grain: str, counts: bool) -> Grid:
    offsets = np.unique(sheet.offsets, return_inverse=True)[1] if counts else sheet.offsets
    offsets = offsets.reshape(sheet.offsets.shape)
    kind = (offsets * bits // PIECE if bits and not counts else offsets) % len(EIGHT)

    def joined(down: bool) -> Array:
        o, k, t = (x.T[None] if down else x[None] for x in (offsets, kind, sheet.there))
        if grain != GRAINS[1] or counts:
            return np.zeros((1, o.shape[1], o.shape[2] - 1), bool)
        joins: Array = (np.diff(o) == 1) & (k[..., 1:] == k[..., :-1]) & t[..., 1:]
        return joins

    made = runs(joined).where(lambda row, column: sheet.there[row, column])
    first = sheet.offsets[made.row, made.column]
    colours = [EIGHT[k] for k in kind[made.row, made.column].tolist()]
    lines = [first.tolist() if counts else spans(first, made.length, "–")]
    if bits and not counts:
        lines.append(["b" + at for at in spans(*banks(first, made.length, bits), "–")])
    said = partial(_said, sheet, made, first, bits)
    return Grid(1, sheet.rows, sheet.columns, made, colours, tuple(lines), said)


def banks(offset: Array, count: Array, bits: int) -> tuple[Array, Array]:
    """The first bank of ``count`` elements from an offset on, and how many banks they are in."""
    low, high = offset * bits // WORD, ((offset + count) * bits - 1) // WORD
    return low % BANKS, high - low + 1


def _said(sheet: Sheet, made: Runs, first: Array, bits: int) -> list[Iterable[str]]:
    """``(3,5): offset 205, of 197 inside, byte 410, bank 6``."""
    said: list[Iterable[str]] = [each(sheet.crd, made.row, made.column)]
    if made.longest > 1:
        down, across = (n - 1 for n in made.spans)
        last = each(sheet.crd, made.row + down, made.column + across)
        said += [repeat(" … "), last]
    if first.dtype == object:
        return [*said, repeat(" is mapped to "), first.tolist()]
    said += [repeat(": offset "), spans(first, made.length)]
    before = sheet.before[made.row, made.column]
    if (before != first).any():
        said += [repeat(", inside "), spans(before, made.length)]
    if bits:
        said += [repeat(", "), _bytes(first, made.length, bits)]
        said += [repeat(", bank "), spans(*banks(first, made.length, bits))]
    return said


def _bytes(offset: Array, count: Array, bits: int) -> list[str]:
    """``byte 6``, ``bytes 6..7``; ``bits 28..31`` of elements that are no bytes."""
    what, size = ("byte", 8) if bits % 8 == 0 else ("bit", 1)
    many = count * bits // size
    places = spans(offset * bits // size, many)
    return [f"{plural(what, n)} {at}" for n, at in zip(many.tolist(), places, strict=True)]


# --- the picture ---------------------------------------------------------------------------------


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
