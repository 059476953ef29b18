"""What was measured of epilogues, as lines of a Markdown table and as records to be kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .epilogue_rows import EpilogueRow
from .report import Record, is_wrong
from .stats import SLACK
from .worker import Failure

AMAX_ERROR = 1e-4  # relative, of products that are accumulated in another order
COLUMNS = (
    "epilogue", "configuration", "fused µs", "plain µs", "fused / plain", "to reach", "in bursts",
    "torch.mm µs", "whole by torch, µs", "best of torch / fused", "registers, spills",
    "error (torch)", "bits",
)  # fmt: skip
HEAD = (f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|")
CANDIDATE_COLUMNS = ("configuration", "estimated µs", "fused µs", "plain µs", "fused / plain",
                     "registers, spills")  # fmt: skip
CANDIDATE_HEAD = (f"| {' | '.join(CANDIDATE_COLUMNS)} |", "|---" * len(CANDIDATE_COLUMNS) + "|")


def record_of(
    row: EpilogueRow, asked: str | None, found: Record | Failure, estimated: float | None = None
) -> Record:
    """A row with its result. ``state``: measured, wrong, or failed; ``estimated``: µs."""
    record = {
        "row": str(row), "epilogue": row.kind, "m": row.m, "n": row.n, "k": row.k,
        "asked": asked or "chosen", "figure": row.figure, "estimated_us": estimated,
    }  # fmt: skip
    if isinstance(found, Failure):
        return record | {"state": "failed", "why": str(found), "trace": found.trace}
    wrong = is_wrong(found) or found["amax_error"] > AMAX_ERROR or found.get("differs_from_vm")
    return record | {"state": "wrong" if wrong else "measured"} | found


def line_of(record: Record) -> str:
    """A line of the table."""
    if record["state"] == "failed":
        return _line([record["row"], record["why"].splitlines()[0]], len(COLUMNS))
    found, figure = record["sustained"], record["figure"]
    us = found["us"]
    whole = [f"{name} {us[name]:.1f}" for name in found["peers"]] + list(record["failed"])
    best = min(found["peers"].items(), key=lambda x: x[1]["median"], default=None)
    bits = record.get("differs_from_vm")
    cells = [
        record["row"] + " WRONG" * (record["state"] == "wrong"), record["config"],
        f"{us['fused']:.1f}", f"{us['plain']:.1f}", _bounds(found["to_plain"]),
        "" if figure is None else f"{figure} {_verdict(found['to_plain'], figure)}",
        _bounds(record["bursts"]["to_plain"]), f"{us['mm']:.1f}" if "mm" in us else "",
        ", ".join(whole), f"{_bounds(best[1])} {best[0]}" if best else "", _registers(record),
        f"{record['error']:.1e} ({record['torch_error']:.1e})",
        "" if bits is None else f"{bits} bytes differ" if bits else "equal",
    ]  # fmt: skip
    return _line(cells, len(COLUMNS))


def candidate_line(record: Record) -> str:
    """A line of the table of one epilogue's candidates."""
    estimated = f"{record['estimated_us']:.1f}"
    if record["state"] == "failed":
        return _line([record["asked"], estimated, record["why"].splitlines()[0]], 6)
    found = record["sustained"]
    fused, plain = (f"{found['us'][name]:.1f}" for name in ("fused", "plain"))
    cells = [record["config"], estimated, fused, plain, _bounds(found["to_plain"]),
             _registers(record)]  # fmt: skip
    return _line(cells, len(CANDIDATE_COLUMNS))


def _line(cells: Iterable[str], count: int) -> str:
    cells = [cell.replace("|", "/") for cell in cells]
    return f"| {' | '.join([*cells, *[''] * (count - len(cells))])} |"


def _bounds(ratio: dict[str, float]) -> str:
    return f"{ratio['median']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"


def _verdict(ratio: dict[str, float], figure: float) -> str:
    """Whether a time's upper bound is no more than ``SLACK`` above its figure."""
    return "reached" if ratio["high"] <= figure + SLACK else "missed"


def _registers(record: Record) -> str:
    warnings = "".join(f"; {line}" for line in record["warnings"])
    return f"{record['registers']}, {record['spills']}{warnings}"


def plan_lines(
    row: EpilogueRow, plan: Any, plain: Any, ranking: list[tuple[float, str]],
    assembled: Mapping[str, Any],
) -> str:  # fmt: skip
    """What ``--dry-run`` says of a row: the candidates with their estimates, and the plan's
    epilogue. ``assembled``: the machine code of candidates.
    """
    lines = plan.explain().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("epilogue"))
    last = next(i for i, line in enumerate(lines) if line.startswith("kernel"))
    found = [f"{row}: {plan.config}; the plain product: {plain.config}"]
    for us, config in ranking:
        code = assembled.get(config)
        registers = f", {code.registers} registers, {code.spills} bytes of spills" if code else ""
        found.append(f"  {config:32s} estimated {us:.1f} µs{registers}")
    return "\n".join([*found, *(f"  {line}" for line in lines[first : last + 1])])
