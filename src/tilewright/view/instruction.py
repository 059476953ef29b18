"""A matrix instruction as its fragments stand in the product: A at the left, B above, C and D in
the corner between them, metadata and scales beside what they belong to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..errors import LayoutError
from ..mma import Fragment, Instruction
from .cells import GRAINS, cells, check_grain
from .fragment import HEADING, fragment_grid, heading_width, paint_heading, paint_register
from .grid import LEFT, TOP, Element, Grid, paint
from .svg import FAINT, SHADE, Picture, text_width
from .words import needs_words, status

SPACE = 28  # between panels
SHARED = (220, 60)  # the box that stands for an operand in shared memory

NAMES = {"metadata": "metadata", "scale_a": "scales of A", "scale_b": "scales of B"}


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of the picture; in shared memory where it has no grid."""

    name: str
    size: str
    fragment: Fragment | None
    grid: Grid | None

    @property
    def element(self) -> Element:
        return self.grid.element if self.grid else (1, 1)

    def room(self, element: Element) -> tuple[int, int]:
        """Width and height, heading included, with elements of this size."""
        if self.grid is None:
            return LEFT + SHARED[0], HEADING + TOP + SHARED[1]
        width, height = self.grid.size(element)
        return max(width, heading_width(self.fragment)), HEADING + height


def draw_instruction(i: Instruction, *, grain: str = "", hover: bool = True) -> str:
    """The SVG of a matrix instruction's fragments; ``grain`` and ``hover`` as for a fragment.

    LayoutError for what is no matrix instruction, and for another grain.
    """
    if not isinstance(i, Instruction):
        raise LayoutError(f"a matrix instruction is drawn, not {i!r}")
    check_grain(grain)
    grain = grain or _grain(i)
    to = Picture(i.opcode)
    to.text(0, 13, i.opcode, 14, bold=True)
    to.text(0, 29, f"{needs_words(i.needs, i.until)}; {status(i)}", 10, ink=FAINT)
    left = [_operand(i, n, grain) for n in ("metadata", "scale_a", "a") if n in i.operands]
    above = [_operand(i, n, grain) for n in ("b", "scale_b") if n in i.operands]
    corner = _results(i, grain)
    wide = max(above[0].element[0], corner[0].element[0])  # B's columns are those of D
    high = max(o.element[1] for o in (*left, *corner))
    lefts = [(o, (o.element[0], high)) for o in left]
    aboves = [(o, (wide if o is above[0] else o.element[0], o.element[1])) for o in above]
    corners = [(o, (wide if o is corner[0] else o.element[0], high)) for o in corner]
    middle = sum(o.room(size)[0] + SPACE for o, size in lefts)
    y = _band(to, aboves, middle, 44, hover) + SPACE
    lower = max(_band(to, lefts, 0, y, hover), _band(to, corners, middle, y, hover))
    _registers(to, [o.fragment for o in (*left, *above, *corner)], lower + SPACE)
    return to.render()


def _in_registers(i: Instruction, name: str) -> Fragment | None:
    """An operand's fragment; None for B of wgmma, which is in shared memory."""
    return None if name == "b" and i.asynchronous else i.fragment(name)


def _grain(i: Instruction) -> str:
    """The finest grain that all of A, B, C and D are drawn with when each is drawn alone."""
    found = [f for f in (_in_registers(i, name) for name in "abcd") if f is not None]
    return max((cells(f).grain for f in found), key=GRAINS.index)


def _operand(i: Instruction, name: str, grain: str) -> Operand:
    size = "×".join(map(str, i.matrix_shape(name))) + " " + getattr(i, name, "")
    fragment = _in_registers(i, name)
    if name in NAMES and grain == GRAINS[0]:
        grain = GRAINS[1]  # metadata and scales are small change
    grid = fragment_grid(fragment, grain) if fragment else None
    return Operand(NAMES.get(name, name.upper()), size, fragment, grid)


def _results(i: Instruction, grain: str) -> list[Operand]:
    """D and C, or both in one."""
    d, c = _operand(i, "d", grain), _operand(i, "c", grain)
    return [replace(d, name="C and D")] if d.fragment == c.fragment else [d, c]


def _band(
    to: Picture, operands: Sequence[tuple[Operand, Element]], x: int, y: int, hover: bool
) -> int:
    """Operands side by side, from (x, y) on; the lower edge."""
    below = y
    for operand, element in operands:
        if operand.grid is None:
            _paint_shared(to, operand, x, y)
        else:
            paint_heading(to, operand.fragment, operand.name, x, y)
            paint(to, operand.grid, x, y + HEADING, element, hover=hover)
        width, height = operand.room(element)
        x, below = x + width + SPACE, max(below, y + height)
    return below


def _paint_shared(to: Picture, operand: Operand, x: int, y: int) -> None:
    to.text(x, y + 11, f"{operand.name} {operand.size}", bold=True)
    to.rect(x + LEFT, y + HEADING + TOP, *SHARED, SHADE)
    middle = y + HEADING + TOP + SHARED[1] / 2
    to.text(x + LEFT + 12, middle + 3, "in shared memory, by its descriptor", 9, ink=FAINT)


def _registers(to: Picture, fragments: Sequence[Fragment | None], y: int) -> None:
    """How registers are shared: a strip for each way, with the types that have it."""
    ways: dict[tuple[int, int, int], list[Fragment]] = {}
    for f in fragments:
        if f is not None and f.word != f.dtype.bits:
            ways.setdefault((f.bits, f.dtype.bits, f.low), []).append(f)
    for sharing in ways.values():
        types = ", ".join(dict.fromkeys(f.type for f in sharing))
        to.text(0, y + 11.5, types, 10)
        paint_register(to, sharing[0], max(LEFT, text_width(types, 10) + 8), y)
        y += 36
