"""The picture of one fragment: what it is, its grid, and how its elements share a register."""

from __future__ import annotations

from ..errors import LayoutError
from ..mma import Fragment
from .cells import GRAINS, plural
from .grid import AXIS, LEFT, SIZE, grid, paint
from .palette import LANES
from .svg import FAINT, SHADE, Picture, text_width

HEADING = 42  # height of what stands above a grid
STRIP = 256  # width of a register
LABEL = 24  # width of a part of it that has room for text


def draw_fragment(
    fragment: Fragment, title: str = "", *, name: str = "", grain: str = "", hover: bool = True
) -> str:
    """The SVG of a fragment: an operand (its ``name``) of what ``title`` says.

    ``grain`` is what a cell may hold: an ``element``, the neighbours that share a ``register``, or
    all neighbours of a ``thread``; without one, cells stay few. ``hover`` lets each cell say in a
    browser where its bits are; it doubles the size. LayoutError for another grain.
    """
    check_grain(grain)
    to = Picture(title or f"{name} {fragment.layout}".strip())
    y = 0
    if title:
        to.text(0, 12, title, 13, bold=True)
        y = 22
    paint_heading(to, fragment, name, 0, y)
    shown = grid(fragment, grain)
    paint(to, shown, 0, y + HEADING, shown.element, hover=hover)
    if fragment.word != fragment.dtype.bits:
        y += HEADING + shown.size(shown.element)[1] + 14
        paint_register(to, fragment, LEFT, y)
    return to.render()


def check_grain(grain: str) -> None:
    if grain and grain not in GRAINS:
        raise LayoutError(f"no grain {grain!r}", hint=f"grains are {', '.join(GRAINS)}")


def paint_heading(to: Picture, fragment: Fragment, name: str, x: int, y: int) -> None:
    """Name, shape and type; registers; the layout. ``HEADING`` high."""
    rows, columns = fragment.shape[-2:]
    many = f"{fragment.tiles} of " if fragment.tiles > 1 else ""
    to.text(x, y + 11, f"{name} {many}{rows}×{columns} {fragment.type}".strip(), bold=True)
    to.text(x, y + 24, held(fragment), SIZE + 1)
    to.text(x, y + 36, rule(fragment), SIZE + 1, ink=FAINT)


def heading_width(fragment: Fragment) -> int:
    return max(text_width(said, SIZE + 1) for said in (rule(fragment), held(fragment)))


def held(fragment: Fragment) -> str:
    """``4 registers a lane``."""
    each = "lane" if fragment.threads <= 32 else "thread"
    size = "64-bit " if fragment.word == 64 else ""
    said = f"{fragment.count} {size}{plural('register', fragment.count)} a {each}"
    return said + (f", each element {fragment.copies} times" if fragment.copies > 1 else "")


def rule(fragment: Fragment) -> str:
    """The layout, and what it maps to: ``((4,8),2):((16,1),8) (T, value) → row + 8 column``."""
    down, across = ("column", "row") if fragment.transposed else ("row", "column")
    return f"{fragment.layout} (T, value) → {down} + {fragment.rows} {across}"


def paint_register(to: Picture, fragment: Fragment, x: float, y: float) -> None:
    """A register with its elements, the highest bit at the left."""
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
    said = f"a register: r0.0 … r0.{per - 1}" if per > 1 else "a register: r0"
    to.text(x + STRIP + 8, y + 11.5, said, SIZE, ink=FAINT)
    to.reach(0, y + 30)


def _bit(to: Picture, x: float, y: float, bit: int, anchor: str = "start") -> None:
    to.text(x, y + 25, str(bit), AXIS - 1, ink=FAINT, anchor=anchor)
