"""A roofline plot as an HTML page: TFLOP/s of tilewright and torch over arithmetic intensity, below
the peak rates of the device.

A dot is tilewright's rate, a dash torch's for the same product, and a line joins them; a tooltip
names the row. The page is SVG in HTML, without scripts or external resources.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

from tilewright.view.palette import EIGHT
from tilewright.view.svg import FAINT, INK, LINE, SHADE, Picture, number

from .report import Record, row_line, tflops

WIDTH, HEIGHT, LEFT, TOP = 900, 520, 60, 30
POLICY = "default-src 'none'"
STEPS = (1, 2, 5)  # marked in a decade of TFLOP/s


class Axis(NamedTuple):
    """A logarithmic axis from ``low`` at pixel ``start`` to ``high`` at pixel ``end``."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)


class Plot(NamedTuple):
    """A picture with its axes."""

    picture: Picture
    x: Axis
    y: Axis


def page(records: Sequence[Record], machine: dict[str, Any]) -> str:
    """The page of all records; those that were measured are in the plot."""
    measured = [r for r in records if r["state"] == "measured"]
    title = f"tilewright and torch on {machine['device']}"
    versions = ", ".join(f"{name} {value}" for name, value in machine.items() if name != "device")
    picture = roofline(measured).render() if measured else "<p>no row was measured</p>"
    table = "\n".join(row_line(record) for record in records)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">
<title>{escape(title)}</title>
</head>
<body>
<h1>{escape(title)}</h1>
<p>{escape(versions)}. A dot is tilewright, a dash torch, for the same product.</p>
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
        plot.picture.paint([_dot(LEFT + 20, y - 4, EIGHT[i % len(EIGHT)], name)])
        plot.picture.text(LEFT + 32, y, name)
    return plot.picture


def _axes(records: Sequence[Record]) -> Plot:
    """The grid: intensity by powers of four, rates by 1, 2, 5 of each decade."""
    intensities = [r["intensity"] for r in records]
    rates = [tflops(r, prefix) for r in records for prefix in ("", "torch_")]
    rates += [r["ceiling"] for r in records if "ceiling" in r]
    first, last = _outer(intensities, 4)
    low, high = _outer(rates, 10)
    x = Axis(4.0**first, 4.0**last, LEFT, LEFT + WIDTH)
    y = Axis(10.0**low, 10.0**high, TOP + HEIGHT, TOP)
    picture = Picture("attained TFLOP/s over operations per byte")
    picture.rect(LEFT, TOP, WIDTH, HEIGHT)
    for power in range(first, last + 1):
        at = 4.0**power
        picture.paint([_line(x(at), TOP, x(at), TOP + HEIGHT, SHADE)])
        picture.text(x(at), TOP + HEIGHT + 16, number(at), 11, ink=FAINT, anchor="middle")
    for at in (step * 10.0**power for power in range(low, high) for step in STEPS):
        picture.paint([_line(LEFT, y(at), LEFT + WIDTH, y(at), SHADE)])
        picture.text(LEFT - 6, y(at) + 4, number(at), 11, ink=FAINT, anchor="end")
    picture.text(LEFT + WIDTH / 2, TOP + HEIGHT + 36, "operations per byte", anchor="middle")
    picture.text(LEFT, TOP - 10, "TFLOP/s")
    return Plot(picture, x, y)


def _outer(values: Sequence[float], base: int) -> tuple[int, int]:
    """The exponents of the powers of ``base`` that enclose all values."""
    low = math.floor(math.log(min(values), base))
    return low, max(math.ceil(math.log(max(values), base)), low + 1)


def _ceilings(plot: Plot, records: Sequence[Record]) -> None:
    """Peak rates: horizontal lines that begin at the line of the memory bandwidth."""
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
        plot.picture.paint([_line(x(start), y(ceiling), x.end, y(ceiling), LINE)])
        label = f"{', '.join(names)}: {ceiling:.0f} TFLOP/s"
        plot.picture.text(x.end - 6, y(ceiling) - 5, label, 11, ink=FAINT, anchor="end")
    low, high = max(x.low, y.low / bandwidth), min(x.high, max(types) / bandwidth)
    if low < high:
        ends = x(low), y(low * bandwidth), x(high), y(high * bandwidth)
        plot.picture.paint([_line(*ends, LINE)])
        middle = math.sqrt(low * high)
        at = x(middle) + 8, y(middle * bandwidth) + 12
        plot.picture.text(*at, f"{bandwidth:.1f} TB/s", 11, ink=FAINT)


def _point(plot: Plot, record: Record, fill: str) -> None:
    x = plot.x(record["intensity"])
    ours, torch = (plot.y(tflops(record, prefix)) for prefix in ("", "torch_"))
    tooltip = (
        f"{record['row']}: {tflops(record):.1f} TFLOP/s, torch {tflops(record, 'torch_'):.1f},"
        f" ratio {record['ratio']:.3f}"
    )
    dash = _line(x - 7, torch, x + 7, torch, INK, 2)
    plot.picture.paint([_line(x, ours, x, torch, INK), dash, _dot(x, ours, fill, tooltip)])


def _line(x1: float, y1: float, x2: float, y2: float, ink: str, width: float = 1) -> str:
    ends = zip(("x1", "y1", "x2", "y2"), (x1, y1, x2, y2), strict=True)
    coordinates = " ".join(f'{name}="{number(value)}"' for name, value in ends)
    return f'<line {coordinates} stroke="{ink}" stroke-width="{number(width)}"/>'


def _dot(x: float, y: float, fill: str, tooltip: str) -> str:
    center = f'cx="{number(x)}" cy="{number(y)}" r="5"'
    title = f"<title>{escape(tooltip)}</title>"
    return f'<circle {center} fill="{fill}" stroke="{INK}">{title}</circle>'
