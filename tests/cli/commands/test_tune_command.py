"""``tilewright tune``: its options, output and stored results, with a simulated timer."""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tilewright.cli import main, parser
from tilewright.cli.commands.tune import measure, tuning_problems
from tilewright.run import plan
from tilewright.run.tuning.config_benchmark import ConfigBenchmark
from tilewright.run.tuning.tuning_database import TuningDatabase

pytestmark = pytest.mark.vm

FAST = "tma:64x64x64:1:4/1x1@8"
ARGUMENTS = ["tune", "64", "72", "80", "--device", "vm", "--configs", FAST]


class FixedTimer:
    """A timer by which the first of two configurations takes twice as long."""

    def record(self, work: Any) -> Any:
        return self

    def close(self) -> None:
        pass

    def time_interleaved(self, recorded: Sequence[Any], rounds: int) -> list[list[float]]:
        return [[us] * rounds for us in (4000.0, 2000.0)[: len(recorded)]]


def given(*words: str) -> argparse.Namespace:
    return parser().parse_args(words)


def test_a_problem_is_measured_stored_and_reported(capsys: Any, tmp_path: Path) -> None:
    found = plan(64, 72, 80, layout="tn", device="vm")
    results = TuningDatabase(tmp_path / "tuned", None)
    assert found.request is not None
    bench = ConfigBenchmark(found.request, found.device, FixedTimer())
    assert measure(bench, given(*ARGUMENTS), results) == "one candidate left"
    out = capsys.readouterr().out
    assert f"chosen    {FAST}" in out
    assert f"2.000 times (2.000 to 2.000) as fast as the heuristic's choice, {found.config}" in out
    again = TuningDatabase(tmp_path / "tuned", None)
    kept = again.find(found.original_problem, found.device.target)
    assert kept is not None and (kept.config, kept.heuristic) == (FAST, str(found.config))
    assert (
        measure(
            ConfigBenchmark(found.request, found.device, FixedTimer()), given(*ARGUMENTS), again
        )
        == "known"
    )
    assert f"known     {FAST}, " in capsys.readouterr().out


def test_results_are_exported_and_imported(capsys: Any, tmp_path: Path) -> None:
    test_a_problem_is_measured_stored_and_reported(capsys, tmp_path)
    first, second, file = (str(tmp_path / name) for name in ("tuned", "second", "file.json"))
    assert main(["tune", "--results", first, "--export", file]) == 0
    (one,) = json.loads(Path(file).read_text())["results"]
    assert one["config"] == FAST
    assert main(["tune", "--results", second, "--import", file]) == 0
    assert "1 results" in capsys.readouterr().out
    assert list(TuningDatabase(second, None)) == list(TuningDatabase(first, None))


def test_a_file_of_shapes_inherits_options(tmp_path: Path) -> None:
    file = tmp_path / "shapes"
    file.write_text("1 2 3\n\n# none\n4 5 6 --a e4m3 --layout nn --batch 2 # four\n")
    one, other = tuning_problems(
        given("tune", "--shapes", str(file), "--a", "bf16", "--budget", "5")
    )
    assert (one.sizes, one.a, one.layout, one.batch) == ([1, 2, 3], "bf16", "tn", None)
    assert (other.sizes, other.a, other.layout, other.batch) == ([4, 5, 6], "e4m3", "nn", 2)
    assert one.budget == other.budget == 5.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["64", "64"], "M, N and K, or --shapes"),
        (["64", "64", "64", "--device", "vm"], "tuning needs a GPU"),
        (["--import", "{}/none"], "No such file"),
        (["--import", __file__], "must contain tuning results"),
    ],
)
def test_misuse_is_one_message(capsys: Any, tmp_path: Path, words: list[str], message: str) -> None:
    words = [word.format(tmp_path) for word in words]
    assert main(["tune", "--results", str(tmp_path / "tuned"), *words]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and message in err and not list(tmp_path.iterdir())


def test_results_need_a_path(capsys: Any) -> None:
    assert main(["tune", "64", "64", "64"]) == 2
    assert "TILEWRIGHT_TUNED is off" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "data", "message"),
    [
        ("--shapes", b'8 8 8 "abc', ":1: No closing quotation"),
        ("--shapes", b"\xff\xfe", "must be UTF-8 text"),
        ("--import", b"\xff\xfe", "must be UTF-8 text"),
        ("--import", b"[" * 100_000, "must contain tuning results"),
    ],
)
def test_invalid_files(option: str, data: bytes, message: str, capsys: Any, tmp_path: Path) -> None:
    file = tmp_path / "given"
    file.write_bytes(data)
    assert main(["tune", "--results", str(tmp_path / "tuned"), option, str(file)]) == 2
    assert message in capsys.readouterr().err


def test_results_that_cannot_be_stored(capsys: Any, tmp_path: Path) -> None:
    test_a_problem_is_measured_stored_and_reported(capsys, tmp_path)
    file = str(tmp_path / "file.json")
    assert main(["tune", "--results", str(tmp_path / "tuned"), "--export", file]) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(["tune", "--results", "/dev/null", "--import", file]) == 2
    captured = capsys.readouterr()
    assert "can't be stored" in captured.err and "stored in" not in captured.out
