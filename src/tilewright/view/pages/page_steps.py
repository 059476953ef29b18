"""The steps of a page: pictures of a tile in which the same element is marked.

A step has a grid, the positions of the tile's elements in it, and a sentence about an element.
Elements are identified by coordinates (``m`` and ``k``). Elements with equal common coordinates are
marked in all steps, so an element of A marks a row of C and, in B, its factors. Elements are
numbered with the first coordinate fastest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from ...layout import Swizzle
from ...layout.memory.banks import BANKS, WAVEFRONT
from ...mma import Fragment
from ..cell_runs import cut, each, span
from ..fragment_cells import GRAINS, VALUES, holders
from ..fragment_picture import fragment_grid
from ..grid import Axis, Grid
from ..layout_planes import Array, Plane
from ..offset_grid import LINE, MemoryUnits, offset_grids
from ..palette import LANES

NOWHERE = -1
LINES = 256  # the most lines of memory that are drawn
RUNS = 1 << 10  # the most elements before runs are drawn


@dataclass(frozen=True, slots=True)
class PageTile:
    """Coordinates and their sizes: ``PageTile(("m", "k"), (128, 32))``."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def size(self) -> int:
        return prod(self.sizes)

    def coordinates(self) -> list[Array]:
        """Each coordinate, for all elements."""
        return list(np.unravel_index(np.arange(self.size), self.sizes, order="F"))


@dataclass(frozen=True, slots=True)
class PageStep:
    """A picture of a page, and the description of an element in it.

    ``group`` names the operand if there are several. ``places`` (elements, copies) are the
    positions of elements in the grid, row * columns + column, or ``NOWHERE``. ``says`` is a
    sentence with names in braces: coordinates, and ``facts``, which are numbers for each element.
    """

    group: str
    title: str
    about: str
    tile: PageTile
    grid: Grid
    places: Array
    says: str
    facts: dict[str, Array]

    @property
    def heading(self) -> str:
        """``A: in registers``; ``In registers``."""
        named = f"{self.group}: {self.title}" if self.group else self.title
        return named[0].upper() + named[1:]


# --- a layout over a tile ------------------------------------------------------------------------


def offset_step(
    group: str, title: str, about: str, tile: PageTile, shown: Plane, memory: MemoryUnits, says: str
) -> PageStep:
    """The offset of each element, drawn on the tile."""
    flat = len(tile.sizes) == 1
    grain = "run" if tile.size > RUNS and memory.piece > 1 else ""
    grid = offset_grids(shown, memory, grain, flat=flat)[0]
    before, offset = (x[0].ravel(order="F") for x in (shown.before, shown.offsets))
    facts = {"before": before, "offset": offset}
    if memory.piece > 1:
        facts["byte"] = offset * memory.bits // 8
        facts["piece"] = memory.pieces(offset)
    if memory.banked:
        facts["bank"] = memory.banks(offset, offset * 0 + 1)[0]
    return PageStep(group, title, about, tile, grid, on_tile(tile), says, facts)


def on_tile(tile: PageTile, *, transposed: bool = False) -> Array:
    """Positions if the grid's rows and columns are the tile's; one mode is drawn in lines."""
    if transposed or len(tile.sizes) == 1:
        return np.arange(tile.size)[:, None]
    row, column = tile.coordinates()
    place: Array = (row * tile.sizes[1] + column)[:, None]
    return place


def swizzle_facts(swizzle: Swizzle, before: Array) -> dict[str, Array]:
    """The bits that a swizzle reads, those that it changes, and their new value."""
    read, changed = swizzle.yyy_msk, swizzle.zzz_msk
    low = [(mask & -mask).bit_length() - 1 for mask in (read, changed)]
    return {
        "read": (before & read) >> low[0],
        "was": (before & changed) >> low[1],
        "becomes": (swizzle(before) & changed) >> low[1],
    }


# --- memory --------------------------------------------------------------------------------------


def memory_step(
    group: str,
    title: str,
    about: str,
    tile: PageTile,
    offset: Array,
    memory: MemoryUnits,
    says: str,
) -> PageStep:
    """Memory by lines, with the element at each offset; ``line`` and ``at`` are its position."""
    whole = memory.piece > 1 and 8 * WAVEFRONT % memory.bits == 0
    wide = 8 * WAVEFRONT // memory.bits if whole else LINE
    line, column = np.divmod(offset, wide)
    used, row = np.unique(line, return_inverse=True)
    if len(used) > LINES:
        about += f"; the first {LINES} of {len(used)} lines"
    used, row = used[:LINES], row.ravel()
    place = np.where(row < len(used), row * wide + column, NOWHERE)
    held = _first(place, len(used) * wide).reshape(-1, wide)
    offsets = used[:, None] * wide + np.arange(wide)
    scale = memory.bits // 8 if memory.piece > 1 and memory.bits % 8 == 0 else 1
    rows = Axis(len(used), labels=tuple(str(n * wide * scale) for n in used.tolist()))
    grid = element_grid(
        tile, held, memory.pieces(offsets), lambda r, c: memory.colours(offsets[r, c]),
        rows, _columns(memory, wide),
    )  # fmt: skip
    return PageStep(
        group, title, about, tile, grid, place[:, None], says, {"line": line, "at": column}
    )


def _first(place: Array, size: int) -> Array:
    """Position → the first element there, or ``NOWHERE``."""
    held = np.full(size, NOWHERE)
    there = np.flatnonzero(place >= 0)[::-1]
    held[place[there]] = there
    return held


def _columns(memory: MemoryUnits, wide: int) -> Axis:
    """The elements of a line, under their banks."""
    together = memory.piece // memory.bits
    if not memory.banked or together < 1 or wide % together:
        return Axis(wide)
    names = tuple(f"b{k}–{k + 3}" for k in range(0, BANKS, 4))
    return Axis(wide, (together, wide // together), names)


def element_grid(
    tile: PageTile,
    held: Array,
    kind: Array,
    colours: Callable[[Array, Array], list[str]],
    rows: Axis,
    columns: Axis,
) -> Grid:
    """A grid of elements. A cell shows the coordinates of adjacent elements of one ``kind``;
    ``held`` are the elements' numbers, or ``NOWHERE``.
    """
    crd = [np.where(held >= 0, c[held], 2 * NOWHERE) for c in tile.coordinates()]
    steps = [np.diff(c, axis=1) for c in crd]
    ascends = np.sum([step == 1 for step in steps], 0) == 1
    stays = np.sum([step == 0 for step in steps], 0) == len(steps) - 1
    there = (held[:, 1:] >= 0) & (held[:, :-1] >= 0)
    made = cut((ascends & stays & there & (np.diff(kind, axis=1) == 0))[None])
    made = made.where(lambda r, c: held[r, c] >= 0)
    at, last = (made.row, made.column), (made.row, made.column + made.length - 1)
    texts = [each(lambda a, b: span(a, b - a + 1, "–"), c[at], c[last]) for c in crd]
    lines = (list(map(",".join, zip(*texts, strict=True))),)
    return Grid(1, rows, columns, made, colours(*at), lines, list)


# --- threads and values --------------------------------------------------------------------------


def holder_step(
    group: str, title: str, about: str, tile: PageTile, fragment: Fragment, says: str
) -> PageStep:
    """The holder of each element, drawn on the tile: ``thread``, ``value``, ``warp``, ``lane``, and
    the number of ``others`` that hold it too.
    """
    thread, value = (x[0] for x in holders(fragment))
    if fragment.transposed:
        thread, value = thread.swapaxes(0, 1), value.swapaxes(0, 1)
    thread, value = (x.reshape(tile.size, -1, order="F") for x in (thread, value))
    grain = GRAINS[-1] if tile.size > RUNS // 4 else GRAINS[0]
    facts = holder_facts(thread[:, 0], value[:, 0]) | {"others": (thread >= 0).sum(1) - 1}
    grid = fragment_grid(fragment, grain, VALUES)
    places = on_tile(tile, transposed=fragment.transposed)
    return PageStep(group, title, about, tile, grid, places, says, facts)


def holder_facts(thread: Array, value: Array) -> dict[str, Array]:
    return {"thread": thread, "value": value, "warp": thread // 32, "lane": thread % 32}


def register_step(
    group: str, title: str, about: str, tile: PageTile, held: Array, per: int, says: str,
    facts: dict[str, Array],
) -> PageStep:  # fmt: skip
    """Registers: one row for each thread with its values, ``per`` of which share a register.

    ``held`` (threads, values) are the elements.
    """
    threads, values = held.shape
    flat, every = held.ravel(), np.arange(tile.size)
    copies = np.bincount(flat[flat >= 0], minlength=tile.size).max()
    order = np.argsort(flat, kind="stable")
    first = np.searchsorted(flat[order], every)
    places = order[np.minimum(first[:, None] + np.arange(copies), order.size - 1)]
    places[flat[places] != every[:, None]] = NOWHERE
    registers = np.broadcast_to(np.arange(values) // per, held.shape)
    rows = Axis(threads, labels=tuple(f"T{t}" for t in range(threads)))
    columns = _registers(values, per)
    grid = element_grid(
        tile, held, registers, lambda r, c: [LANES[t % 32] for t in r.tolist()], rows, columns
    )
    return PageStep(group, title, about, tile, grid, places, says, facts)


def _registers(values: int, per: int) -> Axis:
    if per == 1 or values % per:
        return Axis(values)
    return Axis(values, (per, values // per), tuple(f"r{i}" for i in range(values // per)))
