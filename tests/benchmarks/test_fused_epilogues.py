"""``benchmarks/fused_epilogues.py``: its options, its plans without a GPU, and its table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import fused_epilogues
import pytest
from compare.epilogue_report import COLUMNS, HEAD, make_record, row_line
from compare.epilogue_rows import (
    KINDS,
    LARGE,
    SHAPES,
    EpilogueRow,
    candidates,
    fused_plan,
    numpy_values,
    rows,
)
from compare.worker import CallFailure

from tilewright.gemm import parse

ROOT = Path(__file__).parents[2]
SMALL = "512x256x256"


def test_without_options_all_epilogues_are_measured() -> None:
    options = fused_epilogues.parse_options([])
    row_list = rows(options.epilogues, options.shapes)
    assert len(row_list) == len(KINDS) * len(SHAPES)
    assert EpilogueRow("silu_residual", *LARGE).figure == 1.03
    assert EpilogueRow("gelu", *LARGE).figure is EpilogueRow("swiglu", 8, 8, 8).figure is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epilogues", "silu"], "must be of silu_residual, swiglu"),
        (["--modes", "lazy"], "must be of eager, compile, max-autotune, got 'lazy'"),
        (["--shapes", "4096"], "a shape must be MxNxK"),
    ],
)
def test_wrong_options(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        fused_epilogues.parse_options(words)
    assert message in capsys.readouterr().err


def test_a_dry_run_needs_no_torch() -> None:
    words = ["--dry-run", "--epilogues", "gelu_e4m3,swiglu", "--shapes", SMALL]
    program = (
        f"import sys; sys.modules['torch'] = None\nimport fused_epilogues as f\nf.main({words})"
    )
    path = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'benchmarks'}"}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=path)
    assert not ran.stderr
    assert "swiglu 512×256×256: tma:" in ran.stdout and "amax = max over b, m, n" in ran.stdout
    assert ran.stdout.count(" estimated ") == 6


@pytest.mark.parametrize("kind", KINDS)
def test_each_epilogue_has_a_plan_also_for_its_small_shape(kind: str) -> None:
    for shape in SHAPES:
        row = EpilogueRow(kind, *shape)
        config = fused_plan(row, "vm").config
        small = row.small(config)
        assert fused_plan(small, "vm", str(config)).config == config
        assert candidates(row, "vm", 2)[0][1] == str(config)
    (a, b, operands), weights = small.inputs(numpy_values(0))
    assert a.shape[1] == weights.shape[0] == small.k
    assert set(operands) == set(row.spec.operands) and isinstance(b, tuple) == row.spec.pair


def test_small_rows_cover_tiles_of_a_swapped_configuration() -> None:
    row = EpilogueRow("gelu", 4096, 4096, 4096)
    assert row.small(parse("tma:64x128x64:1:3*2~")) == EpilogueRow("gelu", 168, 112, 512)


def figures() -> dict[str, Any]:
    ratio = {"median": 1.02, "low": 1.01, "high": 1.035}
    times = {
        "us": {"fused": 690.0, "plain": 677.0, "mm": 676.0, "eager": 857.0, "compile": 717.0},
        "to_plain": ratio, "peers": {"eager": ratio | {"median": 1.25}, "compile": ratio},
    }  # fmt: skip
    return {
        "config": "tma:128x192x64:2p:4", "registers": 168, "spills": 0, "warnings": [],
        "error": 1e-3, "torch_error": 2e-3, "amax_error": 0.0, "differs_from_vm": 0,
        "sustained": times, "bursts": times, "failed": {"max-autotune": "RuntimeError: no"},
    }  # fmt: skip


def cells(record: dict[str, Any]) -> dict[str, str]:
    line = row_line(record)
    assert line.count("|") == HEAD[0].count("|")
    return dict(zip(COLUMNS, [x.strip() for x in line.split("|")[1:]], strict=False))


def test_a_line_of_the_table() -> None:
    row = EpilogueRow("silu_residual", *LARGE)
    line = cells(make_record(row, None, figures()))
    assert line["fused / plain"] == "1.020 [1.010, 1.035]" and line["figure"] == "1.03 reached"
    assert line["torch with epilogue, µs"] == "eager 857.0, compile 717.0, max-autotune"
    assert line["best of torch / fused"] == "1.020 [1.010, 1.035] compile"
    assert line["bits"] == "equal" and line["registers, spills"] == "168, 0"


def test_wrong_and_failed_rows() -> None:
    row = EpilogueRow("silu_residual", *LARGE)
    wrong: list[dict[str, Any]] = [
        {"error": 0.1}, {"error": float("inf")}, {"amax_error": 0.1}, {"differs_from_vm": 3},
    ]  # fmt: skip
    for change in wrong:
        record = make_record(row, None, figures() | change)
        assert record["state"] == "wrong" and "WRONG" in cells(record)["epilogue"]
    failed = make_record(row, None, CallFailure("CudaError", "lost\nmore"))
    assert failed["state"] == "failed" and cells(failed)["configuration"] == "CudaError: lost"
