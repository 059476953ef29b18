"""A table on stdout: columns as wide as what is in them, a line for each row, never cut off."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows below their headings; columns that are empty in all rows are left out."""
    used = [k for k in range(len(head)) if any(row[k] for row in rows)]
    widths = [max(len(line[k]) for line in (head, *rows)) for k in used]
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    console.print(_line([head[k] for k in used], widths, "bold"))
    for row in rows:
        console.print(_line([row[k] for k in used], widths))


def _line(cells: Sequence[str], widths: Sequence[int], style: str = "") -> Text:
    padded = [f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)]
    return Text("  ".join(padded).rstrip(), style)
