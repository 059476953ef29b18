"""``--baseline``: changes of ratios, from records with known figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from compare.baseline import LEAST, baseline_lines, changes, key_of, read_baseline
from compare.report import JsonLog, make_record
from compare.rows import Row
from compare.worker import CallFailure

ROWS = [Row("headline", size, size, size) for size in (2048, 4096, 8192)]


def record(row: Row, ratio: float, config: str = "a", requested: str | None = None) -> Any:
    figures = {
        "us": 10.0, "ratio": ratio, "low": ratio * 0.999, "high": ratio * 1.001, "config": config,
        "error": 0.0, "torch_error": 0.0,
    }  # fmt: skip
    return make_record(row, requested, figures)


def written(path: Path, *records: Any) -> Path:
    log = JsonLog(path, "before")
    log.add("machine", {"device": "H200"})
    for one in records:
        log.add("row", one)
    return path


def test_rows_below_the_least_quotient_are_listed(tmp_path: Path) -> None:
    first, second, third = ROWS
    failed = make_record(third, None, CallFailure("CudaError", "lost"))
    before = [record(first, 1.0), record(second, 1.1), failed, record(first, 2.0, requested="b")]
    baseline = read_baseline(written(tmp_path / "log", *before))
    assert len(baseline) == 3
    now = [record(first, 1.02, "c"), record(second, 1.09), record(third, 1.0), failed]
    quotients = [change.quotient for change in changes(now, baseline)]
    assert quotients == pytest.approx([1.02, 1.09 / 1.1])
    lines = baseline_lines(now, baseline)
    assert lines == [
        "new / old ratio to torch:",
        "  1.020 [1.018, 1.022]  1.000 → 1.020  2048×2048×2048 bf16 TN  a → c",
        "  0.991 [0.989, 0.993]  1.100 → 1.090  4096×4096×4096 bf16 TN  a",
        "new / old: geometric mean 1.005 of 2 rows; 1 below 0.995, 1 of them by their 95 % bounds",
        "  BELOW 0.991 [0.989, 0.993]  1.100 → 1.090  4096×4096×4096 bf16 TN  a",
    ]


def test_a_quotient_within_its_bounds_is_counted_apart() -> None:
    old = record(ROWS[0], 1.0)
    new = record(ROWS[0], LEAST - 0.001)
    assert baseline_lines([new], {key_of(old): old})[-2].endswith(
        "1 below 0.995, 0 of them by their 95 % bounds"
    )
    assert baseline_lines([new], {}) == ["new / old: no row is in the baseline"]


def test_the_last_record_of_a_row_counts(tmp_path: Path) -> None:
    path = written(tmp_path / "log", record(ROWS[0], 1.0), record(ROWS[0], 1.25))
    (old,) = read_baseline(path).values()
    assert old["ratio"] == 1.25


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not JSON\n", "log:1 must be a record of --json, got not JSON"),
        ("[1]\n", "must be a record of --json"),
        (json.dumps({"kind": "machine"}) + "\n", "must have at least one measured row"),
        ("", "must have at least one measured row"),
    ],
)
def test_files_that_are_no_log(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_baseline(path)
