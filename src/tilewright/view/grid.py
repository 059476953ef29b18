"""A fragment's cells as a grid: in each the lane and the register that hold it, coloured by lane.

    T5     lane 5 (of a warpgroup: thread 5)
    r0.1   its register 0, the second of the elements there; ``r0`` where there is one

Markup is put together from columns of strings, each string made once: the grids of ``wgmma`` have
thousands of cells.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat

from ..mma import Fragment
from .cells import Array, Cells, cells, each, listed, place, plural, short, span
from .palette import LANES
from .svg import FAINT, LINE, Picture, text_width

SIZE, AXIS = 9, 8  # of the text in cells and on the axes
CELL_HEIGHT = 24
GAP = 24  # between tiles
LEFT, TOP = 22, 14  # room for the axes

Element = tuple[int, int]  # width and height of an element of the matrix


@dataclass(frozen=True, slots=True)
class Grid:
    """A fragment ready to be painted: its cells, and the two lines of text in each."""

    fragment: Fragment
    cells: Cells
    lanes: list[str]
    registers: list[str]

    @property
    def element(self) -> Element:
        """The least size of an element so that the text fits."""
        longest = max(map(len, self.lanes + self.registers))
        wide, run = text_width("0" * longest, SIZE) + 6, self.cells.run
        if self.cells.down:
            return wide, -(-CELL_HEIGHT // run)
        return -(-wide // run), CELL_HEIGHT

    def size(self, element: Element) -> tuple[int, int]:
        """Width and height of the grid with its axes."""
        rows = self.fragment.shape[-2]
        wide = self.fragment.tiles * self.step(element) - GAP
        return LEFT + wide, TOP + rows * element[1]

    def step(self, element: Element) -> int:
        """From a tile to the next."""
        return int(self.fragment.shape[-1]) * element[0] + GAP


def grid(fragment: Fragment, grain: str = "") -> Grid:
    """The grid of a fragment."""
    c = cells(fragment, grain)
    lanes = each("T{}".format, c.thread)
    registers = each(lambda value, n: short(fragment, value, n), c.value, c.length)
    for index, others in enumerate(c.others):
        lanes[index] = "T" + listed([int(c.thread[index]), *(t for t, _ in others)])
        values = {int(c.value[index]), *(v for _, v in others)}
        registers[index] += f" ×{len(values)}" * (len(values) > 1)
    return Grid(fragment, c, lanes, registers)


def paint(
    to: Picture, shown: Grid, x: int, y: int, element: Element, *, hover: bool = True
) -> None:
    """Paint grid and axes with the upper left corner at (x, y)."""
    left, top = x + LEFT, y + TOP
    for tile in range(shown.fragment.tiles):
        _axes(to, shown, left + tile * shown.step(element), top, element)
    corners = _corners(shown, left, top, element)
    to.paint([f'<g stroke="{LINE}" stroke-width="0.5">'])
    to.paint(_boxes(shown, corners, hover))
    to.paint([f'</g><g font-size="{SIZE}" text-anchor="middle" pointer-events="none">'])
    to.paint(_texts(shown, corners))
    to.paint(["</g>"])
    wide, high = shown.size(element)
    to.reach(x + wide, y + high)


def _corners(shown: Grid, x: int, y: int, element: Element) -> tuple[Array, ...]:
    """x, y, width and height of each cell."""
    c, (width, height) = shown.cells, element
    one = c.length * 0 + 1
    along, down = (one, c.length) if c.down else (c.length, one)
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
        return _by_lane(shown, map("".join, zip(*outlines, strict=True)))
    fill = each(lambda t: f'<path fill="{LANES[t % len(LANES)]}" d="', shown.cells.thread)
    open_, end = repeat('"><title>'), repeat("</title></path>")
    return map("".join, zip(fill, *outlines, open_, *_said(shown), end, strict=False))


def _by_lane(shown: Grid, outlines: Iterable[str]) -> Iterable[str]:
    """All cells of one colour as one path."""
    paths: dict[str, list[str]] = {colour: [] for colour in LANES}
    for thread, outline in zip(shown.cells.thread.tolist(), outlines, strict=True):
        paths[LANES[thread % len(LANES)]].append(outline)
    return (f'<path fill="{colour}" d="{"".join(d)}"/>' for colour, d in paths.items() if d)


def _said(shown: Grid) -> list[list[str]]:
    """What a browser says of a cell: ``row 3, column 5: lane 13, register 1, bits 16..31``."""
    c, fragment = shown.cells, shown.fragment
    one = c.length * 0 + 1
    rows, columns = (c.length, one) if c.down else (one, c.length)
    who = "lane" if fragment.threads <= 32 else "thread"
    where = each(lambda v, n: place(fragment, v, n), c.value, c.length)
    for index, others in enumerate(c.others):
        n = int(c.length[index])
        where[index] += "".join(f"; {who} {t}, {place(fragment, v, n)}" for t, v in others)
    return [
        each(lambda t: f"product {t}, " * (fragment.tiles > 1), c.tile),
        each(lambda r, n: f"{plural('row', n)} {span(r, n)}, ", c.row, rows),
        each(lambda k, n: f"{plural('column', n)} {span(k, n)}: ", c.column, columns),
        each((who + " {}, ").format, c.thread),
        where,
    ]


def _texts(shown: Grid, corners: tuple[Array, ...]) -> Iterable[str]:
    x, y, wide, high = corners
    middle = each('<text x="{}" y="'.format, x + wide // 2)
    above, below = (each('{}">'.format, y + high // 2 + down) for down in (-1, 8))
    end = repeat("</text>")
    columns = (middle, above, shown.lanes, end, middle, below, shown.registers, end)
    return map("".join, zip(*columns, strict=False))


def _axes(to: Picture, shown: Grid, x: int, y: int, element: Element) -> None:
    rows, columns = shown.fragment.shape[-2:]
    (width, height), c = element, shown.cells
    to.paint([f'<g font-size="{AXIS}" fill="{FAINT}" text-anchor="middle">'])
    widest = text_width(str(columns - 1), AXIS) + 2
    to.paint(
        f'<text x="{int(x + k * width + width / 2)}" y="{y - 4}">{k}</text>'
        for k in range(0, columns, _step(width, widest, 1 if c.down else c.run))
    )
    to.paint(
        f'<text x="{x - 11}" y="{int(y + r * height + height / 2 + 3)}">{r}</text>'
        for r in range(0, rows, _step(height, AXIS + 1, c.run if c.down else 1))
    )
    to.paint(["</g>"])


def _step(size: int, room: int, run: int) -> int:
    """Every how many there is a number: a run, doubled until there is room."""
    step = run
    while step * size < room:
        step *= 2
    return step
