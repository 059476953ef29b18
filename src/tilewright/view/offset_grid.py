"""Grids of offsets: each cell shows the offset of an element, coloured by its piece of memory.

Lines separate the modes of rows and columns. A cell is one element, or a run of adjacent elements
with consecutive offsets in one piece of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import repeat

import numpy as np

from ..errors import LayoutError
from ..layout import idx2crd
from ..layout.int_tuple import IntTuple, flatten, text, unflatten
from ..layout.memory.banks import BANKS, WORD
from ..layout.memory.sectors import SECTOR
from .cell_runs import Runs, each, plural, runs, singles, spans
from .grid import Axis, Grid
from .layout_planes import Array, Plane
from .palette import EIGHT

GRAINS = ("element", "run")
MOST = 1 << 13  # the most elements before runs are drawn
LINE = 32  # elements of one mode in a row


@dataclass(frozen=True, slots=True)
class MemoryUnits:
    """The unit of offsets: elements of ``bits`` bits. A colour stands for ``piece`` bits of memory;
    ``banked`` memory has 32 banks.
    """

    bits: int
    piece: int
    banked: bool = False

    def pieces(self, offset: Array) -> Array:
        """The number of the piece in which an element starts."""
        return offset * self.bits // self.piece

    def banks(self, offset: Array, count: Array) -> tuple[Array, Array]:
        """The first bank of ``count`` elements from an offset on, and the number of banks."""
        word = 8 * WORD
        low, high = offset * self.bits // word, ((offset + count) * self.bits - 1) // word
        return low % BANKS, high - low + 1

    def colours(self, offset: Array) -> list[str]:
        return [EIGHT[k] for k in (self.pieces(offset) % len(EIGHT)).tolist()]


def check_bits(bits: int) -> None:
    """Raise LayoutError for an invalid size of an element; 0 stands for no size."""
    if bits.__class__ is not int or not 0 <= bits <= 1024:
        raise LayoutError(f"bits must be 1 to 1024, or 0 to show no banks, got {bits!r}")


COUNTED = MemoryUnits(1, 1)  # offsets without memory


def shared(bits: int) -> MemoryUnits:
    """Shared memory: a colour is 16 bytes, four banks."""
    return MemoryUnits(bits, 128, banked=True)


def global_memory(bits: int) -> MemoryUnits:
    """Global memory: a colour is a sector."""
    return MemoryUnits(bits, 8 * SECTOR)


@dataclass(frozen=True, slots=True)
class Sheet:
    """One plane, ready to be cut into cells: (rows, columns) of numbers; ``crd`` of rows and
    columns are columns of strings that, joined, are their coordinates.

    Where ``there`` is False nothing is drawn: the end of the last line of a long mode.
    """

    rows: Axis
    columns: Axis
    before: Array
    offsets: Array
    there: Array
    crd: Callable[[Array, Array], list[Iterable[str]]]


def offset_grids(
    shown: Plane, memory: MemoryUnits = COUNTED, grain: str = "", *, flat: bool = False
) -> list[Grid]:
    """The grid of each plane; ``flat`` for a layout of one mode, which is drawn in lines.

    Without a grain, elements while they are few, and else runs.
    """
    grain = grain or GRAINS[shown.offsets.size > MOST]
    sheets = [_lines(shown)] if flat else _sheets(shown)
    grid = _coordinates if shown.counts else partial(_grid, memory, grain)
    return [grid(sheet) for sheet in sheets]


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
    axes = [axis(shown.mode(i), shown.shape[i]) for i in (1, 2)]
    down, across = (np.array(shown.coordinates(i), object) for i in (1, 2))
    whole = np.ones(shown.shape[1:], bool)

    def coordinate(further: str, row: Array, column: Array) -> list[Iterable[str]]:
        rows, columns = down[row].tolist(), across[column].tolist()
        return [repeat("("), rows, repeat(","), columns, repeat(further)]

    sheets = []
    for name, before, offsets in zip(shown.names(), shown.before, shown.offsets, strict=True):
        further = name.removeprefix("(_,_") or ")"
        sheets.append(Sheet(*axes, before, offsets, whole, partial(coordinate, further)))
    return sheets


def _lines(shown: Plane) -> Sheet:
    """One mode, in lines of at most ``LINE``."""
    count, names = shown.shape[1], np.array(shown.coordinates(1), object)
    wide = min(count, LINE)
    rows = -(-count // wide)
    index = np.arange(rows * wide).reshape(rows, wide)
    at = np.minimum(index, count - 1)
    before, offsets = (x[0, :, 0][at] for x in (shown.before, shown.offsets))
    down = Axis(rows, labels=tuple(str(r * wide) for r in range(rows)))
    across = Axis(wide, axis(shown.mode(1), count).modes)
    there = index < count
    return Sheet(down, across, before, offsets, there, lambda r, c: [names[r * wide + c].tolist()])


def _grid(memory: MemoryUnits, grain: str, sheet: Sheet) -> Grid:
    piece = memory.pieces(sheet.offsets)

    def joined(down: bool) -> Array:
        o, p, t = (x.T[None] if down else x[None] for x in (sheet.offsets, piece, sheet.there))
        joins: Array = (np.diff(o) == 1) & (np.diff(p) == 0) & t[..., 1:]
        return joins

    cut = singles(*piece.shape) if grain == GRAINS[0] else runs(joined)
    made = cut.where(lambda row, column: sheet.there[row, column])
    first = sheet.offsets[made.row, made.column]
    lines = [spans(first, made.length, "–")]
    if memory.banked:
        lines.append(["b" + at for at in spans(*memory.banks(first, made.length), "–")])
    titles = partial(_titles, sheet, made, first, memory)
    return Grid(1, sheet.rows, sheet.columns, made, memory.colours(first), tuple(lines), titles)


def _titles(sheet: Sheet, made: Runs, first: Array, memory: MemoryUnits) -> list[Iterable[str]]:
    """``(3,5): offset 205, inside 197, bytes 410..411, bank 6``."""
    titles = sheet.crd(made.row, made.column)
    if made.longest > 1:
        down, across = (n - 1 for n in made.spans)
        titles += [repeat(" … "), *sheet.crd(made.row + down, made.column + across)]
    titles += [repeat(": offset "), spans(first, made.length)]
    before = sheet.before[made.row, made.column]
    if (before != first).any():
        titles += [repeat(", inside "), spans(before, made.length)]
    if memory.banked:
        titles += [repeat(", "), *_bytes(first, made.length, memory.bits)]
        titles += [repeat(", bank "), spans(*memory.banks(first, made.length))]
    return titles


def _bytes(offset: Array, count: Array, bits: int) -> list[Iterable[str]]:
    """``byte 6``, ``bytes 6..7``; ``bits 28..31`` of elements that are no bytes."""
    what, size = ("byte", 8) if bits % 8 == 0 else ("bit", 1)
    many = count * bits // size
    return [each(lambda n: f"{plural(what, n)} ", many), spans(offset * bits // size, many)]


def _coordinates(sheet: Sheet) -> Grid:
    """Of a layout that maps to coordinates: those, each with its colour."""
    made = singles(*sheet.offsets.shape).where(lambda row, column: sheet.there[row, column])
    first = sheet.offsets[made.row, made.column]
    colours = COUNTED.colours(np.unique(first, return_inverse=True)[1].ravel())

    def titles() -> list[Iterable[str]]:
        return [*sheet.crd(made.row, made.column), repeat(" is mapped to "), first.tolist()]

    return Grid(1, sheet.rows, sheet.columns, made, colours, (first.tolist(),), titles)
