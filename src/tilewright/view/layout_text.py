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

import sys
from collections.abc import Sequence
from typing import Any

from ..errors import LayoutError, raises
from ..layout import IntTuple
from ..layout.composed_layout import inside
from .fragment_cells import holders
from .layout_planes import Plane, as_layout, plane
from .tiled_picture import tv_fragment


def layout_text(layout: Any) -> str:
    """A layout's notation and the table of its offsets, for two modes exactly as CuTe prints them.

    A layout of one mode is a column; of more than two modes there is one table for each coordinate
    of the further modes. Raises LayoutError for a dynamic layout.
    """
    given = as_layout(layout)
    shown = plane(given)
    lines = [f"{given:cute}"]
    for name, numbers in zip(shown.names(), shown.offsets, strict=True):
        lines += [name] * bool(name)
        lines += _table(numbers.tolist(), _width(shown))
    return "\n".join([*lines, ""])


def print_layout(layout: Any) -> None:
    """Print ``layout_text`` of a layout."""
    sys.stdout.write(layout_text(layout))


@raises(LayoutError)
def tv_text(layout_tv: Any, tile_mn: IntTuple) -> str:
    """The table of a layout (thread, value) → index in a column-major tile (M, N); each cell shows
    the first thread and value that hold the element.
    """
    fragment = tv_fragment(layout_tv, tile_mn)
    thread, value = (x[0, :, :, 0].tolist() for x in holders(fragment))
    texts = [
        [f"T{t} V{v}" if t >= 0 else "" for t, v in zip(*line, strict=True)]
        for line in zip(thread, value, strict=True)
    ]
    width = max(len(text) for line in texts for text in line)
    return "\n".join([f"{layout_tv:cute}", *_table(texts, width), ""])


def _width(shown: Plane) -> int:
    """The width of a cell: as in CuTe, the number of digits of the inner layout's cosize."""
    if shown.counts:
        return max(map(len, shown.offsets.flat))
    return len(str(inside(shown.layout).cosize()))


def _table(lines: Sequence[Sequence[object]], width: int) -> list[str]:
    columns = len(lines[0])
    rule = "    " + f"+{'-' * (width + 2)}" * columns + "+"
    made = ["    " + "".join(f"  {column:{width}} " for column in range(columns))]
    for row, line in enumerate(lines):
        cells = "".join(f"| {number:>{width}} " for number in line)
        made += [rule, f"{row:2}  {cells}|"]
    return [*made, rule]
