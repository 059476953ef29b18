"""``benchmarks/gemm.py``: its options."""

from __future__ import annotations

from pathlib import Path

import gemm
import pytest
from compare.model_layers import LAYERS
from compare.report import JsonLog, make_record
from compare.rows import GROUPS, Row, random_shapes
from compare.stats import QUICK, Sampling

from tilewright.gemm import TABLE


def test_without_options_the_table_is_measured() -> None:
    options = gemm.parse_options([])
    assert options.groups == list(GROUPS)
    assert len(options.row_list) == 104
    assert options.configs == [None]
    assert options.sampling == Sampling(40, 40)


def test_hosts_and_shapes_with_and_without_groups() -> None:
    assert gemm.parse_options(["--hosts"]).row_list == []
    assert {r.group for r in gemm.parse_options(["--hosts", "--rows", "s8,tf32"]).row_list} == {
        "s8",
        "tf32",
    }
    own = gemm.parse_options(["--shapes", "300x200x100", "--types", "bf16,f16", "--layouts", "nt"])
    shape = "shapes", 300, 200, 100
    assert own.row_list == [Row(*shape, "bf16", "nt"), Row(*shape, "f16", "nt")]


def test_random_rows_are_the_seeds() -> None:
    row_list = gemm.parse_options(["--rows", "random", "--random", "7", "--seed", "3"]).row_list
    assert [(r.m, r.n, r.k) for r in row_list] == random_shapes(7, 3)


def test_layers_with_given_tokens() -> None:
    options = gemm.parse_options(["--rows", "layers", "--tokens", "1,4096", "--quick"])
    assert [r.m for r in options.row_list] == [1, 4096] * len(LAYERS)
    assert options.sampling == QUICK
    assert gemm.parse_options(["--quick", "--pairs", "7"]).sampling == QUICK._replace(pairs=7)


def test_a_part_of_the_groups() -> None:
    words = ["--rows", "layers,multiples-of-64", "--match", "2112x7168,16×28672×5120"]
    rows = gemm.parse_options([*words, "--sample", "30"]).row_list
    matching = gemm.parse_options(words).row_list
    assert {(r.n, r.k) for r in matching} == {(2112, 7168), (28672, 5120)}
    assert rows[: len(matching)] == matching and len(set(rows)) == len(matching) + 30
    assert {r.group for r in rows[len(matching) :]} == {"layers", "multiples-of-64"}


def test_a_baseline_is_the_log_of_an_earlier_run(tmp_path: Path) -> None:
    file = tmp_path / "before.jsonl"
    row = Row("s8", 64, 64, 64, "s8")
    figures = {"us": 1.0, "ratio": 1.5, "low": 1.4, "high": 1.6, "config": "x"}
    JsonLog(file, "run").add(
        "row", make_record(row, None, figures | {"error": 0, "torch_error": 0})
    )
    (key,) = gemm.parse_options(["--baseline", str(file)]).baseline
    assert key == (64, 64, 64, "s8", "tn", False, "chosen")


def test_configurations() -> None:
    configs = gemm.parse_options(["--configs", "chosen,tma:128x128x64:2p:5/1x1@8,table"]).configs
    assert configs[:2] == [None, "tma:128x128x64:2p:5/1x1@8"]
    assert configs[2:] == [str(config) for config in TABLE]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rows", "headlines"], "groups must be of headline, skinny"),
        (["--shapes", "128x128"], "a shape must be MxNxK, got '128x128'"),
        (["--pairs", "5"], "pairs must be at least 6, got 5"),
        (["--tokens", "1,x"], "tokens must be positive integers, got '1,x'"),
        (["--baseline", "missing.json"], "No such file"),
    ],
)
def test_wrong_options(words: list[str], message: str, capsys) -> None:
    with pytest.raises(SystemExit):
        gemm.parse_options(words)
    assert message in capsys.readouterr().err
