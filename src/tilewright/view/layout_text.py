"""Layouts as text: tables of offsets as CuTe's ``print_layout`` prints them.

(_2,_3):(_1,_2)
      0   1   2
    +---+---+---+
 0  | 0 | 2 | 4 |
    +---+---+---+
 1  | 1 | 3 | 5 |
    +---+---+---+
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from ..errors import LayoutError, raises
from ..layout import IntTuple
from ..layout.composed_layout import inside
from .fragment_cells import holders
from .layout_planes import Plane, as_layout, plane
from .palette import EIGHT, LANES
from .svg import PAPER
from .tiled_picture import tv_fragment


def layout_text(layout: Any, *, colour: bool = False) -> str:
    """A layout's notation and the table of its offsets, for two modes exactly as CuTe prints them.

    A layout of one mode is a column; of more than two modes there is one table for each coordinate
    of the further modes. ``colour``: cells have the colours of ``draw_layout``, the offset modulo
    8, by the escape sequences of terminals. Raises LayoutError for a dynamic layout.
    """
    given = as_layout(layout)
    shown = plane(given)
    lines = [f"{given:cute}"]
    coloured = colour and not shown.counts
    for name, numbers in zip(shown.names(), shown.offsets, strict=True):
        lines += [name] * bool(name)
        fills = [[EIGHT[n % 8] for n in row] for row in numbers.tolist()] if coloured else None
        lines += _table(numbers.tolist(), _width(shown), fills)
    return "\n".join([*lines, ""])


def print_layout(layout: Any) -> None:
    """Print ``layout_text`` of a layout, in colour if standard output is a terminal."""
    sys.stdout.write(layout_text(layout, colour=terminal_has_colour()))


def terminal_has_colour() -> bool:
    """Whether standard output is a terminal, and the variable NO_COLOR is not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


@raises(LayoutError)
def tv_text(layout_tv: Any, tile_mn: IntTuple, *, colour: bool = False) -> str:
    """The table of a layout (thread, value) → index in a column-major tile (M, N); each cell shows
    the first thread and value that hold the element. ``colour``: that of the thread's lane.
    """
    fragment = tv_fragment(layout_tv, tile_mn)
    thread, value = (x[0, :, :, 0].tolist() for x in holders(fragment))
    texts = [
        [f"T{t} V{v}" if t >= 0 else "" for t, v in zip(*line, strict=True)]
        for line in zip(thread, value, strict=True)
    ]
    width = max(len(text) for line in texts for text in line)
    fills = [[LANES[t % 32] if t >= 0 else PAPER for t in row] for row in thread]
    return "\n".join([f"{layout_tv:cute}", *_table(texts, width, fills if colour else None), ""])


def _width(shown: Plane) -> int:
    """The width of a cell: as in CuTe, the number of digits of the inner layout's cosize."""
    if shown.counts:
        return max(map(len, shown.offsets.flat))
    return len(str(inside(shown.layout).cosize()))


def _table(
    lines: Sequence[Sequence[object]], width: int, fills: Sequence[Sequence[str]] | None = None
) -> list[str]:
    """The lines of a table; ``fills``: the colours of its cells."""
    columns = len(lines[0])
    rule = "    " + f"+{'-' * (width + 2)}" * columns + "+"
    made = ["    " + "".join(f"  {column:{width}} " for column in range(columns))]
    for row, line in enumerate(lines):
        cells = [f" {number:>{width}} " for number in line]
        if fills is not None:
            cells = [_filled(cell, fill) for cell, fill in zip(cells, fills[row], strict=True)]
        made += [rule, f"{row:2}  {''.join(f'|{cell}' for cell in cells)}|"]
    return [*made, rule]


def _filled(text: str, colour: str) -> str:
    """Dark text on a 24-bit background colour."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"\x1b[38;2;26;26;26;48;2;{red};{green};{blue}m{text}\x1b[0m"
