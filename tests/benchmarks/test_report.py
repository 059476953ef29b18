"""Lines, logs and plots of rows with known figures."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from compare.page import page, roofline
from compare.report import JsonLog, make_record, row_line, summary, tflops
from compare.rows import Row, rows_of
from compare.worker import CallFailure

SVG = "{http://www.w3.org/2000/svg}"
ROW = Row("headline", 4096, 4096, 4096, figure=1.0)
FIGURES = {
    "config": "tma:128x256x64:2:4/2x1@8", "registers": 168, "spills": 0, "warnings": [],
    "intensity": 4096 / 3, "ceiling": 989.0, "bandwidth": 4.8, "us": 170.0, "torch_us": 173.4,
    "ratio": 1.02, "low": 1.01, "high": 1.03, "error": 1.2e-5, "torch_error": 1.1e-5,
    "bursts": {"us": 160.0, "torch_us": 158.0, "ratio": 0.99, "low": 0.98, "high": 1.0},
}  # fmt: skip
UNSUPPORTED = CallFailure("DtypeError", "A of f64 is not supported\n  hint: none")


def measured(row: Row = ROW, requested: str | None = None, **other: Any) -> dict[str, Any]:
    return make_record(row, requested, FIGURES | other)


def test_a_line_of_the_table() -> None:
    assert row_line(measured()) == (
        "headline 4096×4096×4096 bf16 TN         tma:128x256x64:2:4/2x1@8             170.0 µs"
        "  808.5 TFLOP/s   torch     173.4 µs  792.6 TFLOP/s   1.020 [1.010, 1.030] ≥ 1.00     "
        "  bursts 0.990 [0.980, 1.000]   regs 168 spills 0   error 1.2e-05 (torch 1.1e-05)"
    )


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"low": 0.989}, "] UNDER 1.00"),
        ({"low": 0.99}, "] ≥ 1.00"),
        ({"error": 1e-4}, "] WRONG"),
        ({"error": math.inf, "torch_error": math.inf}, "] WRONG"),
        ({"warnings": ["wgmma is serialized"]}, "\n         wgmma is serialized"),
    ],
)
def test_verdicts_in_a_line(other: dict[str, Any], expected: str) -> None:
    assert expected in row_line(measured(**other))


def test_integers_must_be_exact() -> None:
    row = Row("s8", 4096, 4096, 4096, "s8")
    assert measured(row, error=0.0, torch_error=0.0)["state"] == "measured"
    assert measured(row, error=1e-9, torch_error=0.0)["state"] == "wrong"


def test_an_unsupported_type_is_no_failure() -> None:
    line = row_line(make_record(ROW, None, UNSUPPORTED))
    assert line.endswith("chosen: unsupported: DtypeError: A of f64 is not supported")
    failed = make_record(ROW, "64x64", CallFailure("ConfigError", "bad"))
    assert row_line(failed).endswith("64x64: failed: ConfigError: bad")


def test_summary() -> None:
    first, second, third = rows_of("headline")[:3]
    records = [
        measured(first, ratio=1.1, bursts={"ratio": 1.06, "low": 1.05, "high": 1.07}),
        measured(
            second, ratio=0.9, low=0.8, high=1.0, bursts={"ratio": 1.02, "low": 1.0, "high": 1.1}
        ),
        make_record(third, None, UNSUPPORTED), measured(ROW, "64x64", ratio=1.21),
    ]  # fmt: skip
    assert summary(records).splitlines() == [
        "headline: 2 of 3 rows measured",
        "  unsupported: 8192×8192×8192 bf16 TN",
        "  geometric mean 0.995, UNDER 1.05; least 0.900, 4096×4096×4096 bf16 TN",
        "  lower bound 0.800 < 0.99: 4096×4096×4096 bf16 TN",
        "  bursts:  geometric mean 1.040, UNDER 1.05; least 1.020, 4096×4096×4096 bf16 TN",
        "  bursts:  every row reaches its figure",
        "headline, 64x64: 1 of 1 rows measured",
        "  geometric mean 1.210, ≥ 1.05; least 1.210, 4096×4096×4096 bf16 TN",
        "  every row reaches its figure",
        "  bursts:  geometric mean 0.990, UNDER 1.05; least 0.990, 4096×4096×4096 bf16 TN",
        "  bursts:  lower bound 0.980 < 0.99: 4096×4096×4096 bf16 TN",
    ]


def test_records_are_appended(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    for run in ("first", "second"):
        JsonLog(file, run).add("row", measured())
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [line["run"] for line in lines] == ["first", "second"]
    assert lines[0] == {"run": "first", "kind": "row"} | measured()


def attributes(element: Any, *names: str) -> list[float]:
    return [float(element.get(name)) for name in names]


def test_the_plot_has_a_point_under_the_ceilings_for_each_row() -> None:
    at_both = FIGURES["ceiling"] / FIGURES["bandwidth"]
    us = 2e-6 * 4096**3 / FIGURES["ceiling"]
    records = [measured(us=us, intensity=at_both), measured(rows_of("tf32")[0], ceiling=495.0)]
    assert tflops(records[0]) == pytest.approx(FIGURES["ceiling"])
    drawn = ElementTree.fromstring(roofline(records).render())
    dots = [dot for dot in drawn.iter(f"{SVG}circle") if "ratio" in dot[0].text]
    assert len(dots) == 2
    (x, y), lines = attributes(dots[0], "cx", "cy"), drawn.iter(f"{SVG}line")
    ends = {tuple(attributes(e, "x1", "y1")) for e in lines} | {
        tuple(attributes(e, "x2", "y2")) for e in drawn.iter(f"{SVG}line")
    }
    assert any(math.dist((x, y), end) < 0.1 for end in ends)  # where the ceilings meet
    assert {dot[0].text for dot in drawn.iter(f"{SVG}circle")} >= {"bf16", "tf32"}


def test_the_page_has_no_external_resources() -> None:
    records = [measured(), make_record(ROW, None, CallFailure("X<Y", "&"))]
    made_page = page(records, {"device": "NVIDIA <H200>", "torch": "2.11"})
    assert not re.search(r"<script|(src|href)=|url\(", made_page)
    assert "https://" not in made_page
    assert "default-src &#x27;none&#x27;" in made_page
    assert "NVIDIA &lt;H200&gt;" in made_page and "X&lt;Y: &amp;" in made_page
    assert "no row was measured" in page([], {"device": "none"})
