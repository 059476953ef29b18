"""What was measured, as lines to be read and as lines of JSON to be kept.

A record is a row with what ``peers.measure`` found, or with what failed. It is written the moment
it is there, in one piece, so that a run that is cut short keeps what it has.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .rows import GROUPS, LAYOUTS, SPREAD, Row
from .stats import SLACK, Ratio, geomean
from .worker import Failure

Record = dict[str, Any]

CARE = 8  # times torch's own error that ours may be


def record_of(row: Row, asked: str | None, found: Record | Failure) -> Record:
    """A row with its result, which may be that there is none."""
    record = {"row": str(row), **asdict(row), "result": row.result, "asked": asked or "chosen"}
    if isinstance(found, Failure):
        # a type that tilewright does not have is no failure
        kind = "not yet" if found.kind == "DtypeError" else "failed"
        return record | {"state": kind, "why": str(found), "trace": found.trace}
    return record | {"state": "wrong" if is_wrong(found) else "measured"} | found


def is_wrong(found: Record) -> bool:
    """Whether our error is no rounding: infinite, or far above torch's."""
    return math.isinf(found["error"]) or found["error"] > CARE * found["torch_error"]


def line_of(record: Record) -> str:
    """A row of the table."""
    head = f"{record['group']:8s} {record['row']:30s}"
    if "us" not in record:
        return f"{head} {record['asked']}: {record['state']}: {record['why'].splitlines()[0]}"
    complaints = "".join(f"\n{'':8s} {line}" for line in record["warnings"])
    return (
        f"{head} {record['config']:32s} {_speed(record, '')}   torch {_speed(record, 'torch_')}"
        f"   {_bounds(record)} {_verdict(record):11s}  bursts {_bounds(record['bursts'])}"
        f"   regs {record['registers']:3d} spills {record['spills']}   error {record['error']:.1e}"
        f" (torch {record['torch_error']:.1e}){complaints}"
    )


def _bounds(found: Record) -> str:
    return f"{found['ratio']:5.3f} [{found['low']:5.3f}, {found['high']:5.3f}]"


def _speed(record: Record, whose: str) -> str:
    return f"{record[f'{whose}us']:9.1f} µs {tflops(record, whose):6.1f} TFLOP/s"


def tflops(record: Record, whose: str = "") -> float:
    """TFLOP/s, ours or ``torch_``'s."""
    return 2e-6 * record["m"] * record["n"] * record["k"] / record[f"{whose}us"]


def _verdict(record: Record) -> str:
    if record["state"] == "wrong":
        return "WRONG"
    if record["figure"] is None:
        return ""
    return f"{'≥' if _holds(record, record['figure']) else 'UNDER'} {record['figure']:.2f}"


def _holds(found: Record, figure: float) -> bool:
    return Ratio(found["ratio"], found["low"], found["high"]).holds(figure)


# --- the end of it ------------------------------------------------------------------------------


def summary(records: Sequence[Record]) -> str:
    """Of each group, with each configuration that was asked for: mean, least, what falls short."""
    keys = dict.fromkeys((r["group"], r["asked"]) for r in records)
    return "\n".join(
        _group(*key, [r for r in records if (r["group"], r["asked"]) == key]) for key in keys
    )


def _group(name: str, asked: str, records: list[Record]) -> str:
    head = name if asked == "chosen" else f"{name}, {asked}"
    measured = [r for r in records if r["state"] == "measured"]
    lines = [f"{head}: {len(measured)} of {len(records)} rows measured"]
    for state in ("wrong", "failed", "not yet"):
        lines += [f"  {state}: {r['row']}" for r in records if r["state"] == state]
    if measured:
        goal = GROUPS[name].mean if name in GROUPS else None
        lines += _ratios([(r, r) for r in measured], goal)
        rested = _ratios([(r, r["bursts"]) for r in measured], goal)
        lines += [f"  bursts:{line}" for line in rested]
    return "\n".join(lines)


def _ratios(rows: Sequence[tuple[Record, Record]], goal: float | None) -> list[str]:
    """Of rows and what was found of each: mean, least, what falls short."""
    mean = geomean([found["ratio"] for _, found in rows])
    row, least = min(rows, key=lambda both: both[1]["ratio"])
    said = f", {'≥' if mean >= goal else 'UNDER'} {goal:.2f}" if goal else ""
    lines = [f"  geometric mean {mean:.3f}{said}; least {least['ratio']:.3f}, {row['row']}"]
    asked = [(r, found) for r, found in rows if r["figure"] is not None]
    short = [(r, found) for r, found in asked if not _holds(found, r["figure"])]
    lines += [
        f"  lower bound {found['low']:.3f} < {r['figure'] - SLACK:.2f}: {r['row']}"
        for r, found in short
    ]
    return lines + ["  every row holds"] * bool(asked and not short)


def layouts_line(found: Record | Failure) -> str:
    """Our times in the four layouts."""
    if isinstance(found, Failure):
        return f"layouts: {found}"
    shares = ", ".join(
        f"{name.upper()} {share:.3f}" for name, share in zip(LAYOUTS, found["shares"], strict=True)
    )
    within = "within" if found["spread"] <= SPREAD else "MORE than"
    return (
        f"layouts of {found['size']}³ {found['type']}, shares of their mean time: {shares};"
        f" the slowest {found['spread']:.1%} above the fastest, {within} {SPREAD:.0%}"
    )


def hosts_lines(costs: Record | Failure, starts: Record | Failure, names: Record) -> Iterable[str]:
    """The host's costs."""
    if isinstance(costs, Failure):
        yield f"host costs: {costs}"
    else:
        yield from (f"{name:34s} {us:8.2f} µs" for name, us in costs.items())
    if isinstance(starts, Failure):
        yield f"starts: {starts}"
        return
    for where, times in starts.items():
        yield from (f"{text:34s} {times[step]:8.1f} ms, {where}" for step, text in names.items())


class Kept:
    """Appends records to a file, a line of JSON each, marked with its run; no file, no lines."""

    def __init__(self, path: Path | None, run: str) -> None:
        self._path, self._run = path, run

    def add(self, kind: str, found: Any) -> None:
        if self._path is None:
            return
        line = json.dumps({"run": self._run, "kind": kind} | found, ensure_ascii=False) + "\n"
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)
