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
from typing import Any

from .plane import Array, Plane, as_layout, plane


def layout_text(layout: Any) -> str:
    """A layout's notation and its offsets, rows down and columns across, to the letter as CuTe has
    them for layouts of two modes.

    One mode is a column; of more than two there is a table for each coordinate of the further ones.
    LayoutError for a layout with dynamic numbers.
    """
    given = as_layout(layout)
    shown = plane(given)
    lines = [f"{given:cute}"]
    for name, numbers in zip(shown.names(), shown.offsets, strict=True):
        lines += [name] * bool(name)
        lines += _table(numbers, _width(shown))
    return "\n".join([*lines, ""])


def print_layout(layout: Any) -> None:
    """Print ``layout_text`` of a layout."""
    sys.stdout.write(layout_text(layout))


def _width(shown: Plane) -> int:
    """Of a number: CuTe counts the digits of the inner layout's cosize."""
    if shown.counts:
        return max(map(len, shown.offsets.flat))
    return len(str(getattr(shown.layout, "inner", shown.layout).cosize()))


def _table(numbers: Array, width: int) -> list[str]:
    columns = numbers.shape[1]
    rule = "    " + f"+{'-' * (width + 2)}" * columns + "+"
    lines = ["    " + "".join(f"  {column:{width}} " for column in range(columns))]
    for row, line in enumerate(numbers.tolist()):
        cells = "".join(f"| {number:>{width}} " for number in line)
        lines += [rule, f"{row:2}  {cells}|"]
    return [*lines, rule]
