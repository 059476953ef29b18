"""The picture of where an SM's cycles go: what took the issue slots of each scheduler over time,
and how often each register bank was read.

A column is some cycles. From below it shows the slots in which an instruction was issued, by pipe,
and above them those that were lost, by what the next warp waited for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...errors import LayoutError
from ...sass.machine.sm_timing import SlotSpan, TimingReport
from ..palette import LANES
from ..svg import FAINT, LINE, PAPER, SHADE, Picture, number, text_width

_WIDTH, _HEIGHT, _GAP, _LEFT = 640, 72, 26, 84  # of a scheduler's columns, in pixels
_HEAD, _SMALL = 40, 10
COLORS = {
    "fma": LANES[3], "alu": LANES[16], "fma_heavy": LANES[19], "memory": LANES[11],
    "other": LANES[15], "bank": LANES[23], "pipe": LANES[6], "barrier": LANES[31],
    "cta-barrier": LANES[21], "stall": LANES[25], "no warp": PAPER,
}  # fmt: skip
_MEANINGS = {
    "fma": "FFMA, FADD, FMUL issued", "alu": "integer, logic, compare issued",
    "fma_heavy": "IMAD issued", "memory": "memory, shuffle issued", "other": "others issued",
    "bank": "lost: a register bank is read twice", "pipe": "lost: the pipe is busy",
    "barrier": "lost: waiting for a result", "cta-barrier": "lost: waiting at a CTA barrier",
    "stall": "lost: stall of the control code", "no warp": "lost: no warp is left",
}  # fmt: skip


def draw_issue_slots(report: TimingReport, title: str = "", *, columns: int = 160) -> str:
    """The SVG of a report of the timing model, in ``columns`` columns.

    Raises LayoutError for another object, a report without cycles, or columns below 1.
    """
    if not isinstance(report, TimingReport) or not report.cycles:
        raise LayoutError(f"expected a report of the timing model with cycles, got {report!r:.60}")
    if columns < 1:
        raise LayoutError(f"columns must be at least 1, got {columns}")
    columns = min(columns, report.cycles)
    to = Picture(title or "issue slots")
    to.text(0, 12, title or "issue slots", 14, bold=True)
    busy = sum(report.issued.values()) / (len(report.slots) * report.cycles)
    to.text(0, 27, f"{report.cycles} cycles, {busy:.1%} of the slots issued", _SMALL, ink=FAINT)
    y = float(_HEAD)
    for scheduler, spans in enumerate(report.slots):
        _paint_scheduler(to, f"scheduler {scheduler}", spans, report.cycles, columns, y)
        y += _HEIGHT + _GAP
    y = _paint_banks(to, report, columns, y)
    _paint_legend(to, report, y)
    return to.render()


def _shares(spans: Sequence[SlotSpan], cycles: int, columns: int) -> list[Counter[str]]:
    """For each column the cycles of each kind."""
    found: list[Counter[str]] = [Counter() for _ in range(columns)]
    for start, end, kind in spans:
        at = start * columns // cycles
        while start < end:
            following = min(end, -(-(at + 1) * cycles // columns))
            found[at][kind] += following - start
            start, at = following, at + 1
    return found


def _paint_scheduler(
    to: Picture, name: str, spans: Sequence[SlotSpan], cycles: int, columns: int, y: float
) -> None:
    to.text(0, y + _HEIGHT / 2, name, _SMALL)
    to.rect(_LEFT, y, _WIDTH, _HEIGHT, PAPER)
    width = _WIDTH / columns
    for column, shares in enumerate(_shares(spans, cycles, columns)):
        total = shares.total()
        bottom = y + _HEIGHT
        for kind, fill in COLORS.items():
            if not shares[kind] or fill == PAPER:
                continue
            height = _HEIGHT * shares[kind] / total
            bottom -= height
            _paint_bar(to, _LEFT + column * width, bottom, width, height, fill)
    to.text(_LEFT, y + _HEIGHT + 12, "0", _SMALL, ink=FAINT)
    end = f"{cycles} cycles"
    to.text(_LEFT + _WIDTH - text_width(end, _SMALL), y + _HEIGHT + 12, end, _SMALL, ink=FAINT)


def _paint_bar(to: Picture, x: float, y: float, width: float, height: float, fill: str) -> None:
    """A rectangle without an outline."""
    size = f'width="{number(width)}" height="{number(height)}"'
    to.paint([f'<rect x="{number(x)}" y="{number(y)}" {size} fill="{fill}"/>'])


def _paint_banks(to: Picture, report: TimingReport, columns: int, y: float) -> float:
    """A row for each register bank of scheduler 0: its height is a read a cycle."""
    height = _HEIGHT / 2
    for bank in range(len(report.bank_reads[0][1]) if report.bank_reads else 0):
        reads = [0.0] * columns
        for cycle, counts in report.bank_reads:
            reads[cycle * columns // report.cycles] += counts[bank]
        to.text(0, y + height / 2 + 4, f"bank {bank}", _SMALL)
        to.rect(_LEFT, y, _WIDTH, height, SHADE)
        width = _WIDTH / columns
        for column, count in enumerate(reads):
            first, last = (-(-(column + i) * report.cycles // columns) for i in range(2))
            share = min(1.0, count / max(1, last - first))
            tall = height * share
            _paint_bar(to, _LEFT + column * width, y + height - tall, width, tall, LANES[3])
        y += height + 8
    if report.bank_reads:
        to.text(_LEFT, y + 6, "register reads of scheduler 0; full height: one a cycle", _SMALL,
                ink=FAINT)  # fmt: skip
        y += 22
    return y


def _paint_legend(to: Picture, report: TimingReport, y: float) -> None:
    """A line for each kind that occurs, with its share of all slots."""
    total: Counter[str] = Counter()
    for spans in report.slots:
        for start, end, kind in spans:
            total[kind] += end - start
    slots = len(report.slots) * report.cycles
    for kind in COLORS:
        if total[kind]:
            to.rect(_LEFT, y, 22, 12, COLORS[kind], LINE)
            text = f"{_MEANINGS[kind]}: {total[kind] / slots:.1%}"
            to.text(_LEFT + 30, y + 10, text, _SMALL, ink=FAINT)
            y += 18
