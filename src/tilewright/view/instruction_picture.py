"""The picture of a matrix instruction: A at the left, B above, C and D in the corner between them,
metadata and scales next to their operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..dtypes import dtype
from ..errors import LayoutError
from ..mma import Fragment, MmaInstruction
from .cell_runs import cut, each, span
from .fragment_cells import GRAINS, cells, check_grain
from .fragment_picture import fragment_grid, heading, paint_register
from .grid import LEFT, Axis, Grid
from .instruction_text import needs_words, status
from .palette import EIGHT
from .panel import SPACE, Panel, paint_product
from .svg import FAINT, Picture, text_width

CORE_ROW_BITS = 128  # of a core matrix's row
NAMES = {"metadata": "metadata", "scale_a": "scales of A", "scale_b": "scales of B"}


@dataclass(frozen=True, slots=True)
class OperandPanel(Panel):
    """An operand of the picture, and its fragment: None in shared memory."""

    fragment: Fragment | None


def draw_instruction(i: MmaInstruction, *, grain: str = "", hover: bool = True) -> str:
    """The SVG of a matrix instruction's fragments; ``grain`` and ``hover`` as for a fragment.

    Raises LayoutError for another object or grain.
    """
    if not isinstance(i, MmaInstruction):
        raise LayoutError(f"expected a matrix instruction, got {i!r}")
    check_grain(grain)
    grain = grain or _grain(i)
    to = Picture(i.opcode)
    to.text(0, 13, i.opcode, 14, bold=True)
    to.text(0, 29, f"{needs_words(i.needs, i.until)}; {status(i)}", 10, ink=FAINT)
    left = [_operand(i, n, grain) for n in ("metadata", "scale_a", "a") if n in i.operands]
    above = [_operand(i, n, grain) for n in ("b", "scale_b") if n in i.operands]
    corner = _results(i, grain)
    lower = paint_product(to, left, above, corner, 44, hover)
    _registers(to, [o.fragment for o in (*left, *above, *corner)], lower + SPACE)
    return to.render()


def _in_registers(i: MmaInstruction, name: str) -> Fragment | None:
    """An operand's fragment; None for B of wgmma, which is in shared memory."""
    return None if name == "b" and i.asynchronous else i.fragment(name)


def _grain(i: MmaInstruction) -> str:
    """The coarsest of the grains with which A, B, C and D would be drawn separately."""
    found = [f for f in (_in_registers(i, name) for name in "abcd") if f is not None]
    return max((cells(f).grain for f in found), key=GRAINS.index)


def _operand(i: MmaInstruction, name: str, grain: str, title: str = "") -> OperandPanel:
    title = title or NAMES.get(name, name.upper())
    fragment = _in_registers(i, name)
    if fragment is None:
        return _in_shared_memory(i, name, title)
    if name in NAMES and grain == GRAINS[0]:
        grain = GRAINS[1]  # metadata and scales are drawn coarser
    return OperandPanel(heading(fragment, title), fragment_grid(fragment, grain), fragment)


def _in_shared_memory(i: MmaInstruction, name: str, title: str) -> OperandPanel:
    """B of wgmma, K-major: a cell is a row of a core matrix, 16 bytes along K."""
    depth, columns = i.matrix_shape(name)[-2:]
    per = CORE_ROW_BITS // dtype(getattr(i, name)).bits
    joined = np.ones((1, columns, depth - 1), bool)
    joined[..., per - 1 :: per] = False
    runs = cut(joined, down=True)
    colours = each(lambda n: EIGHT[n % len(EIGHT)], runs.column)

    def titles() -> list[list[str]]:
        where = each(lambda n, k: f"core matrix ({n // 8}, {k // per}), row {n % 8}: ",
                     runs.column, runs.row)  # fmt: skip
        return [where, each(lambda n, k: f"column {n}, rows {span(k, per)}", runs.column, runs.row)]

    grid = Grid(1, Axis(depth), Axis(columns), runs, colours, (), titles)
    lines = (
        f"{title} {depth}×{columns} {getattr(i, name)}",
        "in shared memory, by its descriptor",
        "a colour is a row, 16 bytes, of a core matrix of 8 rows (K-major, no swizzle)",
    )
    return OperandPanel(lines, grid, None)


def _results(i: MmaInstruction, grain: str) -> list[OperandPanel]:
    """D and C, or one panel for both if their fragments are equal."""
    if i.fragment("d") == i.fragment("c"):
        return [_operand(i, "d", grain, "C and D")]
    return [_operand(i, "d", grain), _operand(i, "c", grain)]


def _registers(to: Picture, fragments: Sequence[Fragment | None], y: int) -> None:
    """The elements within a register: one strip for each packing, with the types that use it."""
    ways: dict[tuple[int, int, int], list[Fragment]] = {}
    for f in fragments:
        if f is not None and f.word != f.dtype.bits:
            ways.setdefault((f.bits, f.dtype.bits, f.low), []).append(f)
    for sharing in ways.values():
        types = ", ".join(dict.fromkeys(f.type for f in sharing))
        to.text(0, y + 11.5, types, 10)
        paint_register(to, sharing[0], max(LEFT, text_width(types, 10) + 8), y)
        y += 36
