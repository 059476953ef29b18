"""Results of products with an epilogue: records and lines of a Markdown table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .epilogue_rows import EpilogueRow
from .report import CHOSEN, Record, is_wrong
from .stats import SLACK
from .worker import CallFailure

AMAX_ERROR = 1e-4  # relative; torch accumulates products in another order
COLUMNS = (
    "epilogue", "configuration", "fused µs", "plain µs", "fused / plain", "figure", "in bursts",
    "torch.mm µs", "torch with epilogue, µs", "best of torch / fused", "registers, spills",
    "error (torch)", "bits",
)  # fmt: skip
HEAD = (f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|")
CANDIDATE_COLUMNS = ("configuration", "estimated µs", "fused µs", "plain µs", "fused / plain",
                     "registers, spills")  # fmt: skip
CANDIDATE_HEAD = (f"| {' | '.join(CANDIDATE_COLUMNS)} |", "|---" * len(CANDIDATE_COLUMNS) + "|")


def make_record(
    row: EpilogueRow, requested: str | None, figures: Record | CallFailure,
    estimated: float | None = None,
) -> Record:  # fmt: skip
    """A row with its figures. ``state``: measured, wrong, or failed; ``estimated``: µs."""
    record = {
        "row": str(row), "epilogue": row.kind, "m": row.m, "n": row.n, "k": row.k,
        "requested": requested or CHOSEN, "figure": row.figure, "estimated_us": estimated,
    }  # fmt: skip
    if isinstance(figures, CallFailure):
        return record | {"state": "failed", "why": str(figures), "trace": figures.trace}
    wrong = is_wrong(figures) or figures["amax_error"] > AMAX_ERROR
    wrong = wrong or bool(figures.get("differs_from_vm"))
    return record | {"state": "wrong" if wrong else "measured"} | figures


def row_line(record: Record) -> str:
    """A line of the table."""
    if record["state"] == "failed":
        return _line([record["row"], record["why"].splitlines()[0]], len(COLUMNS))
    times, figure = record["sustained"], record["figure"]
    us = times["us"]
    by_torch = [f"{name} {us[name]:.1f}" for name in times["peers"]] + list(record["failed"])
    best = min(times["peers"].items(), key=lambda x: x[1]["median"], default=None)
    bits = record.get("differs_from_vm")
    cells = [
        record["row"] + " WRONG" * (record["state"] == "wrong"), record["config"],
        f"{us['fused']:.1f}", f"{us['plain']:.1f}", _bounds(times["to_plain"]),
        "" if figure is None else f"{figure} {_verdict(times['to_plain'], figure)}",
        _bounds(record["bursts"]["to_plain"]), f"{us['mm']:.1f}" if "mm" in us else "",
        ", ".join(by_torch), f"{_bounds(best[1])} {best[0]}" if best else "", _registers(record),
        f"{record['error']:.1e} ({record['torch_error']:.1e})",
        "" if bits is None else f"{bits} bytes differ" if bits else "equal",
    ]  # fmt: skip
    return _line(cells, len(COLUMNS))


def candidate_line(record: Record) -> str:
    """A line of the table of one epilogue's candidates."""
    estimated = f"{record['estimated_us']:.1f}"
    if record["state"] == "failed":
        return _line([record["requested"], estimated, record["why"].splitlines()[0]], 6)
    times = record["sustained"]
    fused, plain = (f"{times['us'][name]:.1f}" for name in ("fused", "plain"))
    cells = [record["config"], estimated, fused, plain, _bounds(times["to_plain"]),
             _registers(record)]  # fmt: skip
    return _line(cells, len(CANDIDATE_COLUMNS))


def _line(cells: Iterable[str], count: int) -> str:
    cells = [cell.replace("|", "/") for cell in cells]
    return f"| {' | '.join([*cells, *[''] * (count - len(cells))])} |"


def _bounds(ratio: dict[str, float]) -> str:
    return f"{ratio['median']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"


def _verdict(ratio: dict[str, float], figure: float) -> str:
    """Whether the upper bound of a time is at most ``SLACK`` above its figure."""
    return "reached" if ratio["high"] <= figure + SLACK else "missed"


def _registers(record: Record) -> str:
    warnings = "".join(f"; {line}" for line in record["warnings"])
    return f"{record['registers']}, {record['spills']}{warnings}"


def plan_lines(
    row: EpilogueRow, plan: Any, plain: Any, ranking: list[tuple[float, str]],
    assembled: Mapping[str, Any],
) -> str:  # fmt: skip
    """The output of ``--dry-run`` for a row: candidates with their estimates, and the plan's
    epilogue. ``assembled``: machine code by configuration.
    """
    lines = plan.explain().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("epilogue"))
    last = next(i for i, line in enumerate(lines) if line.startswith("kernel"))
    text = [f"{row}: {plan.config}; the plain product: {plain.config}"]
    for us, config in ranking:
        code = assembled.get(config)
        registers = f", {code.registers} registers, {code.spills} bytes of spills" if code else ""
        text.append(f"  {config:32s} estimated {us:.1f} µs{registers}")
    return "\n".join([*text, *(f"  {line}" for line in lines[first : last + 1])])
