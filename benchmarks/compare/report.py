"""Results as lines of text and as a log of JSON lines.

A record is a row with the figures of ``peers.measure``, or with the reason why it has none. The log
is written record by record, so that an interrupted run keeps those that it has.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .rows import ALL_GROUPS, LAYOUTS, SPREAD, Row
from .stats import SLACK, Ratio, geomean
from .worker import CallFailure

Record = dict[str, Any]

ERROR_FACTOR = 8  # at most, of our error over torch's
CHOSEN = "chosen"  # a record's requested configuration, if the heuristic chose it


def make_record(row: Row, requested: str | None, figures: Record | CallFailure) -> Record:
    """A row with its figures. ``state``: measured, wrong, unsupported or failed."""
    record = {"row": str(row), **asdict(row), "result": row.result}
    record["requested"] = requested or CHOSEN
    if isinstance(figures, CallFailure):
        state = "unsupported" if figures.kind == "DtypeError" else "failed"
        return record | {"state": state, "why": str(figures), "trace": figures.trace}
    return record | {"state": "wrong" if is_wrong(figures) else "measured"} | figures


def is_wrong(figures: Record) -> bool:
    """Whether our error is more than rounding: infinite, or many times torch's."""
    return math.isinf(figures["error"]) or figures["error"] > ERROR_FACTOR * figures["torch_error"]


def row_line(record: Record) -> str:
    """A line of the table."""
    head = f"{record['group']:8s} {record['row']:{60 if record['name'] else 30}s}"
    if "us" not in record:
        return f"{head} {record['requested']}: {record['state']}: {record['why'].splitlines()[0]}"
    warnings = "".join(f"\n{'':8s} {line}" for line in record["warnings"])
    in_bursts = f"  bursts {_bounds(record['bursts'])}" if "bursts" in record else ""
    return (
        f"{head} {record['config']:32s} {_speed(record, '')}   torch {_speed(record, 'torch_')}"
        f"   {_bounds(record)} {_verdict(record):11s}{in_bursts}"
        f"   regs {record['registers']:3d} spills {record['spills']}   error {record['error']:.1e}"
        f" (torch {record['torch_error']:.1e}){warnings}"
    )


def _bounds(figures: Record) -> str:
    return f"{figures['ratio']:5.3f} [{figures['low']:5.3f}, {figures['high']:5.3f}]"


def _speed(record: Record, prefix: str) -> str:
    return f"{record[f'{prefix}us']:9.1f} µs {tflops(record, prefix):6.1f} TFLOP/s"


def tflops(record: Record, prefix: str = "") -> float:
    """Our TFLOP/s; with ``torch_`` those of torch."""
    return 2e-6 * record["m"] * record["n"] * record["k"] / record[f"{prefix}us"]


def _verdict(record: Record) -> str:
    if record["state"] == "wrong":
        return "WRONG"
    if record["figure"] is None:
        return ""
    return f"{'≥' if _holds(record, record['figure']) else 'UNDER'} {record['figure']:.2f}"


def _holds(figures: Record, figure: float) -> bool:
    return Ratio(figures["ratio"], figures["low"], figures["high"]).holds(figure)


# --- summary ------------------------------------------------------------------------------------


def summary(records: Sequence[Record]) -> str:
    """For each group and requested configuration: geometric mean, least ratio, rows below their
    figures.
    """
    keys = dict.fromkeys((r["group"], r["requested"]) for r in records)
    return "\n".join(
        _group(*key, [r for r in records if (r["group"], r["requested"]) == key]) for key in keys
    )


def _group(name: str, requested: str, records: list[Record]) -> str:
    head = name if requested == CHOSEN else f"{name}, {requested}"
    measured = [r for r in records if r["state"] == "measured"]
    lines = [f"{head}: {len(measured)} of {len(records)} rows measured"]
    for state in ("wrong", "failed", "unsupported"):
        lines += [f"  {state}: {r['row']}" for r in records if r["state"] == state]
    if measured:
        goal = ALL_GROUPS[name].mean if name in ALL_GROUPS else None
        lines += _ratios([(r, r) for r in measured], goal)
        in_bursts = [(r, r["bursts"]) for r in measured if "bursts" in r]
        if in_bursts:
            lines += [f"  bursts:{line}" for line in _ratios(in_bursts, goal)]
    return "\n".join(lines)


def _ratios(rows: Sequence[tuple[Record, Record]], goal: float | None) -> list[str]:
    """Geometric mean, least ratio and rows below their figures, of (record, figures)."""
    mean = geomean([figures["ratio"] for _, figures in rows])
    row, least = min(rows, key=lambda pair: pair[1]["ratio"])
    verdict = f", {'≥' if mean >= goal else 'UNDER'} {goal:.2f}" if goal else ""
    lines = [f"  geometric mean {mean:.3f}{verdict}; least {least['ratio']:.3f}, {row['row']}"]
    with_figure = [(r, figures) for r, figures in rows if r["figure"] is not None]
    below = [(r, figures) for r, figures in with_figure if not _holds(figures, r["figure"])]
    lines += [
        f"  lower bound {figures['low']:.3f} < {r['figure'] - SLACK:.2f}: {r['row']}"
        for r, figures in below
    ]
    return lines + ["  every row reaches its figure"] * bool(with_figure and not below)


def layouts_line(figures: Record | CallFailure) -> str:
    """Our times in the four layouts."""
    if isinstance(figures, CallFailure):
        return f"layouts: {figures}"
    shares = ", ".join(
        f"{name.upper()} {share:.3f}"
        for name, share in zip(LAYOUTS, figures["shares"], strict=True)
    )
    within = "within" if figures["spread"] <= SPREAD else "MORE than"
    return (
        f"layouts of {figures['size']}³ {figures['type']}, shares of their mean time: {shares};"
        f" the slowest {figures['spread']:.1%} above the fastest, {within} {SPREAD:.0%}"
    )


def hosts_lines(
    costs: Record | CallFailure, starts: Record | CallFailure, names: Record
) -> Iterable[str]:
    """Host time per call, and the time of a process's first calls."""
    if isinstance(costs, CallFailure):
        yield f"host costs: {costs}"
    else:
        yield from (f"{name:36s} {us:8.2f} µs" for name, us in costs.items())
    if isinstance(starts, CallFailure):
        yield f"starts: {starts}"
        return
    for cache, times in starts.items():
        yield from (f"{text:34s} {times[step]:8.1f} ms, {cache}" for step, text in names.items())


class JsonLog:
    """Appends records to a file, a line of JSON each, with the name of the run; None: no file."""

    def __init__(self, path: Path | None, run: str) -> None:
        self._path, self._run = path, run

    def add(self, kind: str, record: Any) -> None:
        """Append a record, in one write."""
        if self._path is None:
            return
        line = json.dumps({"run": self._run, "kind": kind} | record, ensure_ascii=False) + "\n"
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)
