"""A roofline in one file: TFLOP/s over operations for each byte, ours and torch's, under the
ceilings of the device.

A dot is ours, a dash torch's for the same product, and a line joins them; the mouse over either
names it. SVG in HTML, no script, nothing from elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

from tilewright.view.palette import EIGHT
from tilewright.view.svg import FAINT, INK, LINE, SHADE, Picture, number

from .report import Record, line_of, tflops

WIDTH, HEIGHT, LEFT, TOP = 900, 520, 60, 30
POLICY = "default-src 'none'"
STEPS = (1, 2, 5)  # marked in a decade of TFLOP/s


class Axis(NamedTuple):
    """A logarithmic axis: ``low`` lies at pixel ``start``, ``high`` at ``end``."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)


class Plot(NamedTuple):
    """A picture, and where values lie in it."""

    to: Picture
    x: Axis
    y: Axis


def page(records: Sequence[Record], about: dict[str, Any]) -> str:
    """The page of all rows that were measured."""
    measured = [r for r in records if r["state"] == "measured"]
    title = f"tilewright beside torch on {about['device']}"
    versions = ", ".join(f"{name} {said}" for name, said in about.items() if name != "device")
    picture = roofline(measured).render() if measured else "<p>no row was measured</p>"
    table = "\n".join(line_of(record) for record in records)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">
<title>{escape(title)}</title>
</head>
<body>
<h1>{escape(title)}</h1>
<p>{escape(versions)}. A dot is ours, a dash torch's for the same product.</p>
{picture}
<pre>{escape(table)}</pre>
</body>
</html>
"""


def roofline(records: Sequence[Record]) -> Picture:
    """The plot of measured rows."""
    plot = _axes(records)
    _ceilings(plot, records)
    types = list(dict.fromkeys(r["type"] for r in records))
    for record in records:
        _point(plot, record, EIGHT[types.index(record["type"]) % len(EIGHT)])
    for i, name in enumerate(types):
        y = TOP + 20 + 18 * i
        plot.to.paint([_dot(LEFT + 20, y - 4, EIGHT[i % len(EIGHT)], name)])
        plot.to.text(LEFT + 32, y, name)
    return plot.to


def _axes(records: Sequence[Record]) -> Plot:
    """The grid: intensity by powers of four, rates by 1, 2, 5 of each decade."""
    intensities = [r["intensity"] for r in records]
    rates = [tflops(r, whose) for r in records for whose in ("", "torch_")]
    rates += [r["ceiling"] for r in records if "ceiling" in r]
    first, last = _outer(intensities, 4)
    low, high = _outer(rates, 10)
    x = Axis(4.0**first, 4.0**last, LEFT, LEFT + WIDTH)
    y = Axis(10.0**low, 10.0**high, TOP + HEIGHT, TOP)
    to = Picture("attained TFLOP/s over operations for each byte")
    to.rect(LEFT, TOP, WIDTH, HEIGHT)
    for power in range(first, last + 1):
        at = 4.0**power
        to.paint([_line(x(at), TOP, x(at), TOP + HEIGHT, SHADE)])
        to.text(x(at), TOP + HEIGHT + 16, number(at), 11, ink=FAINT, anchor="middle")
    for at in (step * 10.0**power for power in range(low, high) for step in STEPS):
        to.paint([_line(LEFT, y(at), LEFT + WIDTH, y(at), SHADE)])
        to.text(LEFT - 6, y(at) + 4, number(at), 11, ink=FAINT, anchor="end")
    to.text(LEFT + WIDTH / 2, TOP + HEIGHT + 36, "operations for each byte", anchor="middle")
    to.text(LEFT, TOP - 10, "TFLOP/s")
    return Plot(to, x, y)


def _outer(values: Sequence[float], base: int) -> tuple[int, int]:
    """Powers of ``base`` with all values between them."""
    low = math.floor(math.log(min(values), base))
    return low, max(math.ceil(math.log(max(values), base)), low + 1)


def _ceilings(plot: Plot, records: Sequence[Record]) -> None:
    """Of each rate of arithmetic a horizontal line, from where memory's own line meets it."""
    known = [r for r in records if "ceiling" in r]
    if not known:
        return
    bandwidth = known[0]["bandwidth"]
    x, y = plot.x, plot.y
    types: dict[float, list[str]] = {}
    for record in known:
        names = types.setdefault(round(record["ceiling"], 3), [])
        names += [record["type"]] * (record["type"] not in names)
    for ceiling, names in types.items():
        start = min(max(ceiling / bandwidth, x.low), x.high)
        plot.to.paint([_line(x(start), y(ceiling), x.end, y(ceiling), LINE)])
        said = f"{', '.join(names)}: {ceiling:.0f} TFLOP/s"
        plot.to.text(x.end - 6, y(ceiling) - 5, said, 11, ink=FAINT, anchor="end")
    low, high = max(x.low, y.low / bandwidth), min(x.high, max(types) / bandwidth)
    if low < high:
        ends = x(low), y(low * bandwidth), x(high), y(high * bandwidth)
        plot.to.paint([_line(*ends, LINE)])
        middle = math.sqrt(low * high)
        at = x(middle) + 8, y(middle * bandwidth) + 12
        plot.to.text(*at, f"{bandwidth:.1f} TB/s", 11, ink=FAINT)


def _point(plot: Plot, record: Record, fill: str) -> None:
    x = plot.x(record["intensity"])
    ours, theirs = (plot.y(tflops(record, whose)) for whose in ("", "torch_"))
    said = (
        f"{record['row']}: {tflops(record):.1f} TFLOP/s, torch {tflops(record, 'torch_'):.1f},"
        f" ratio {record['ratio']:.3f}"
    )
    dash = _line(x - 7, theirs, x + 7, theirs, INK, 2)
    plot.to.paint([_line(x, ours, x, theirs, INK), dash, _dot(x, ours, fill, said)])


def _line(x1: float, y1: float, x2: float, y2: float, ink: str, width: float = 1) -> str:
    ends = zip(("x1", "y1", "x2", "y2"), (x1, y1, x2, y2), strict=True)
    place = " ".join(f'{name}="{number(value)}"' for name, value in ends)
    return f'<line {place} stroke="{ink}" stroke-width="{number(width)}"/>'


def _dot(x: float, y: float, fill: str, said: str) -> str:
    place = f'cx="{number(x)}" cy="{number(y)}" r="5"'
    title = f"<title>{escape(said)}</title>"
    return f'<circle {place} fill="{fill}" stroke="{INK}">{title}</circle>'
