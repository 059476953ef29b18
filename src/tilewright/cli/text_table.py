"""Prints tables on stdout: one line per row, never truncated."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a header and rows; a column that is empty in every row is omitted."""
    used = [k for k in range(len(header)) if any(row[k] for row in rows)]
    widths = [max(len(line[k]) for line in (header, *rows)) for k in used]
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    console.print(_line([header[k] for k in used], widths, "bold"))
    for row in rows:
        console.print(_line([row[k] for k in used], widths))


def _line(cells: Sequence[str], widths: Sequence[int], style: str = "") -> Text:
    padded = [f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)]
    return Text("  ".join(padded).rstrip(), style)
