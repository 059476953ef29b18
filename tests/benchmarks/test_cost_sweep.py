"""``benchmarks/cost_sweep.py``: its problems and candidates."""

from __future__ import annotations

import io
import json
from pathlib import Path

import cost_sweep
import pytest
from compare.rows import Row, random_shapes, rows_of
from compare.sweep import Numbers, candidates, problem_of
from compare.sweep_problems import SETS, general, is_held_out, name_of, read_problems, row_of
from cost_sweep import distinct_kernels

from tilewright import gemm
from tilewright.target import DEFAULT_DEVICE

SMALL = Row("layers", 256, 768, 3072)


def test_the_heuristics_best_come_first_then_other_structures_that_fit() -> None:
    problem, found = problem_of(SMALL), candidates(SMALL, Numbers(5, 12))
    best = [config for _, config in gemm.ranked(problem, DEFAULT_DEVICE)[:5]]
    assert found[:5] == best
    assert len(found) == len(set(found)) == 17
    for config in found:
        gemm.check(problem, config, DEFAULT_DEVICE)
    structures = {(c.tile[0], c.tile[2], c.pingpong, c.cluster, c.split > 1) for c in found[5:]}
    assert len(structures) > 8
    assert len({c.cluster for c in found}) > 4


def test_rivals_are_ranked_by_other_coefficients() -> None:
    row = row_of("e4m3+", "4096x2112x7168")
    found, plain = candidates(row, Numbers(4, 3, 3)), candidates(row, Numbers(4, 3))
    assert found[:4] == plain[:4] and found[4:7] != plain[4:7]
    assert len(found) == len(set(found)) == 10


def test_extra_tiles_are_those_of_no_search_space() -> None:
    found = candidates(row_of("e4m3+", "4096x2112x7168"), Numbers(2, 0, 0, 2))
    assert [config.tile[0] for config in found[2:]] == [192, 256]
    assert found[2].consumers == 3 and found[3].tile[1] != 128


def test_problems_are_others_for_each_seed() -> None:
    first, second = (list(general(seed, 6)) for seed in (7, 8))
    assert {row.m for row in first} >= {16, 64, 128, 256, 512, 1024, 4096}
    assert not {(r.m, r.n, r.k) for r in first[-9:]} & {(r.m, r.n, r.k) for r in second[-9:]}
    assert [(r.m, r.n, r.k) for r in first[-9:-3]] == random_shapes(6, 7, 8)
    held_out = sum(is_held_out(r.m, r.n, r.k) for r in first + second)
    assert 0.2 < held_out / len(first + second) < 0.5


@pytest.mark.parametrize("name", SETS)
def test_a_set_is_the_same_for_a_seed(name: str) -> None:
    first, again, second = (list(SETS[name](seed, 5)) for seed in (7, 7, 8))
    assert first == again != second
    for row in first:
        assert row_of(*name_of(row).split()).type == row.type


def test_problems_of_a_file_come_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "problems.txt"
    file.write_text("# one\ne4m3+ 64x128x256 tma:64x64x128:1:8@16  # two\n")
    words = ["cost_sweep.py", "--file", str(file), "--sets", "narrow", "--random", "1"]
    monkeypatch.setattr("sys.argv", [*words, "--best", "2", "--others", "1"])
    sweep = cost_sweep.problems(cost_sweep.parse_options())
    assert name_of(sweep[0][0]) == "e4m3+ 64x128x256"
    assert sweep[0][1][-1] == "tma:64x64x128:1:8/1x1@16" and len(sweep[0][1]) == 2
    assert len(sweep) > 20 and all(len(configs) == 3 for _, configs in sweep[1:])


def test_surveys_are_those_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--sets", "layers,multiples-of-64", "--seed", "0", "--random", "50", "--best", "1"]
    monkeypatch.setattr("sys.argv", ["cost_sweep.py", *words, "--others", "0"])
    sweep = cost_sweep.problems(cost_sweep.parse_options())
    rows = rows_of("layers") + rows_of("multiples-of-64")
    assert {name_of(row) for row, _ in sweep} == set(map(name_of, rows))
    for row, configs in sweep[::20]:
        assert configs == [str(gemm.choose(problem_of(row), DEFAULT_DEVICE))]


def test_the_configurations_of_open_problems_fit() -> None:
    listed = read_problems(Path(cost_sweep.__file__).parent / "cost_candidates.txt")
    assert len(listed) >= 4
    for row, configs in listed:
        for config in configs:
            gemm.check(problem_of(row), gemm.parse(config), DEFAULT_DEVICE)
            assert gemm.parse(config).resident_clusters(DEFAULT_DEVICE)


def test_a_log_is_read_as_it_was_written(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    log, us = io.StringIO(), {"a": 4.0, "b": 2.0, "c": "ConfigError: no"}
    assert cost_sweep.report(SMALL, us, 3.0, log) == (0.75, 1.5)
    assert "ConfigError" in capsys.readouterr().out
    path = tmp_path / "log"
    path.write_text(log.getvalue() + json.dumps({"row": "x", "kernels": ["y"]}) + "\n")
    assert list(cost_sweep.read_log(path)) == [("bf16 256x768x3072", 3.0, {"a": 4.0, "b": 2.0})]


def test_a_kernel_is_compiled_once() -> None:
    other = Row("layers", 128, 1536, 3072)
    sweep = [(SMALL, ["tma:64x64x64:1:8/1x1@8"]), (other, ["tma:64x64x64:1:8/1x1@8"])]
    assert len(distinct_kernels(sweep)) == 1
    assert len(distinct_kernels([*sweep, (Row("x", 128, 1000, 1001), sweep[0][1])])) == 1
    assert len(distinct_kernels([*sweep, (Row("x", 128, 1001, 1000), sweep[0][1])])) == 2


def test_earlier_choices_that_are_faster_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.jsonl"
    rows = [row_of("e4m3+", f"{m}x128x256") for m in (64, 128, 192, 256)]
    listed = [(rows[0], ["b", "a"]), (rows[1], ["b", "c"]), (rows[2], ["a", "b"]), (rows[3], ["b"])]
    records = [{"row": name_of(r), "torch": 9.0, "us": {"a": 2.0, "b": 1.9, "c": 4}} for r in rows]
    log.write_text("".join(json.dumps(record) + "\n" for record in records))
    cost_sweep.print_earlier(listed, log)
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("the first listed / chosen, where they differ: 2 problems, 0.950")
    assert first.endswith("2 under 0.995: 128x128x256 0.950 64x128x256 0.950")
    assert second.endswith("1 under 0.995: 192x128x256 0.950")
