"""The tuning database: lookups match the problem exactly, and results survive disk errors."""

from __future__ import annotations

import hashlib
import json
import re
import resource
import sqlite3
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright
from tilewright import gemm
from tilewright.errors import ResultError
from tilewright.run.tuning.tuning_database import (
    ABSENT,
    SHIPPED,
    TuningDatabase,
    TuningWarning,
    tuning_database,
)
from tilewright.run.tuning.tuning_result import TuningKey, TuningResult, digest, from_json, to_json
from tilewright.target import DEFAULT_DEVICE, DEVICES, device_spec

TUNING_PAGE = Path(__file__).parents[3] / "docs" / "gemm.md"
SOURCE = str(Path(tilewright.__file__).parents[1])
PROBLEM = gemm.Problem(256, 256, 256)
CONFIG = "tma:64x64x64:1:3/1x1@8"


def result(problem: gemm.Problem = PROBLEM, config: str = CONFIG, **other: object) -> TuningResult:
    kernel = digest(problem, gemm.parse(config), DEFAULT_DEVICE)
    numbers = {"us": 5.0, "margin": 0.1, "heuristic": "64x64x64:2x2:4", "heuristic_us": 6.0}
    texts = {"kernel": kernel, "config": config, "date": "2025-01-01T00:00:00", "driver": "13.0"}
    return TuningResult(
        **TuningKey.of(problem, DEFAULT_DEVICE)._asdict(), **numbers | texts | other
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "tuned.sqlite"


def test_stored_results_are_found_by_another_process(path: Path) -> None:
    TuningDatabase(path, None).put(result())
    assert TuningDatabase(path, None).find(PROBLEM, DEFAULT_DEVICE) == result()


@pytest.mark.parametrize(
    "other",
    [{"m": 257}, {"align_a": 8}, {"with_c": True}, {"b_major": "n"}, {"batch": 2}, {"d": "f32"}],
)
def test_another_problem_has_no_result(path: Path, other: dict[str, object]) -> None:
    results = TuningDatabase(path, None)
    results.put(result())
    assert results.find(replace(PROBLEM, **other), DEFAULT_DEVICE) is None


def test_another_device_has_no_result(path: Path) -> None:
    results = TuningDatabase(path, None)
    results.put(result())
    assert results.find(PROBLEM, replace(DEFAULT_DEVICE, sms=114)) is None
    assert results.find(PROBLEM, DEVICES["H100"]) is None


@pytest.mark.parametrize(
    "other",
    [{"kernel": "0" * 16}, {"config": "tma:64x64x64:1:30/1x1@8"}, {"config": "nonsense"}],
    ids=["another kernel", "does not fit", "is none"],
)
def test_results_out_of_date_are_ignored(path: Path, other: dict[str, str]) -> None:
    results = TuningDatabase(path, None)
    results.put(result(), replace(result(), date="2026-01-01T00:00:00", **{"kernel": "1"} | other))
    assert results.find(PROBLEM, DEFAULT_DEVICE) == result()


@pytest.mark.parametrize(("device", "other"), [("A100", "H200"), ("H200", "A100")])
def test_the_digest_is_of_the_kernel_that_the_device_launches(device: str, other: str) -> None:
    """Of a configuration that has two kernels, also where both are in the cache."""
    problem = gemm.Problem(64, 64, 64, "f32", "f32", "f32")
    config, on = gemm.parse("simt:16x32x16:4x8:4"), device_spec(device)
    text = gemm.kernels(problem, config, on)[0].trace().ptx
    found = [digest(problem, config, on) for _ in range(2)]
    assert found == [hashlib.sha256(text.encode()).hexdigest()[:16]] * 2
    made = result(problem, str(config), kernel=found[0])
    assert made.holds(problem, on) and not made.holds(problem, device_spec(other))


def test_the_newest_result_is_kept(path: Path) -> None:
    new, old = result(us=4.0, date="2025-01-02T00:00:00"), result()
    TuningDatabase(path, None).put(new)
    TuningDatabase(path, None).put(old)
    assert list(TuningDatabase(path, None)) == [new]


def test_shipped_results_have_the_lowest_priority(path: Path, tmp_path: Path) -> None:
    shipped = tmp_path / "shipped.json"
    other = gemm.Problem(512, 512, 512)
    shipped.write_text(to_json([result(us=1.0), result(other)]))
    results = TuningDatabase(path, shipped)
    assert results.find(PROBLEM, DEFAULT_DEVICE) == result(us=1.0)
    TuningDatabase(path, None).put(result())
    results = TuningDatabase(path, shipped)
    assert results.find(PROBLEM, DEFAULT_DEVICE) == result()
    assert results.find(other, DEFAULT_DEVICE) == result(other)


def test_shipped_results_are_valid_for_the_current_kernels() -> None:
    """A result out of date has no effect: measure again (``tilewright tune``), or remove it."""
    for r in from_json(SHIPPED.read_text(encoding="utf-8"), SHIPPED.name):
        problem = gemm.Problem(**json.loads(r.problem))
        assert TuningKey.of(problem, DEFAULT_DEVICE) == r.key and r.holds(
            problem, DEFAULT_DEVICE
        ), r


# --- the disk -----------------------------------------------------------------------------------


def test_a_lookup_creates_no_file(path: Path) -> None:
    assert TuningDatabase(path, None).find(PROBLEM, DEFAULT_DEVICE) is None
    assert not path.parent.exists()


@pytest.mark.parametrize("damage", ["garbage", "truncated", "flipped"])
def test_a_damaged_file_is_renamed(path: Path, damage: str) -> None:
    TuningDatabase(path, None).put(*(result(kernel=f"{i:016}") for i in range(200)))
    whole = path.read_bytes()
    damaged = {
        "garbage": b"garbage" * 1000, "truncated": whole[: len(whole) // 2],
        "flipped": whole[:4096] + bytes(255 - x for x in whole[4096:]),
    }[damage]  # fmt: skip
    path.write_bytes(damaged)
    with pytest.warns(TuningWarning, match="can't be read") as warned:
        assert TuningDatabase(path, None).find(PROBLEM, DEFAULT_DEVICE) is None
    assert warned[0].filename == __file__  # the caller, not the package
    with pytest.warns(TuningWarning, match="was damaged"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the tuning results", TuningWarning)
        TuningDatabase(path, None).put(result())
    assert list(TuningDatabase(path, None)) == [result()]
    (renamed,) = path.parent.glob("*.damaged-*")
    assert renamed.read_bytes() == damaged


def test_a_survey_counts_own_and_shipped_results(path: Path, tmp_path: Path) -> None:
    shipped = tmp_path / "shipped.json"
    shipped.write_text(to_json([result(), result(config="tma:64x64x64:1:4/1x1@8")]))
    results = TuningDatabase(path, shipped)
    assert results.survey() == (0, ABSENT, 2, "") and not path.parent.exists()
    results.put(result())
    assert results.survey() == (1, "", 2, "") and TuningDatabase(None, None).survey() == (
        0,
        ABSENT,
        0,
        "",
    )
    path.write_bytes(b"garbage" * 1000)
    assert results.survey() == (0, "file is not a database", 2, "")
    shipped.write_text("{")
    assert (
        results.survey()[2] == 0 and "must contain tuning results" in results.survey().shipped_error
    )
    assert "open" in TuningDatabase(tmp_path, None).survey().own_error  # a folder


def test_the_docs_have_the_number_of_shipped_results() -> None:
    match = re.search(r"\((\d+) with (\d+) to (\d+) rows\)", TUNING_PAGE.read_text())
    assert match is not None
    count, least, most = match.groups()
    rows = [json.loads(r.problem)["m"] for r in from_json(SHIPPED.read_text(), "shipped")]
    assert (len(rows), min(rows), max(rows)) == (int(count), int(least), int(most))


@pytest.mark.parametrize("pragma", ["user_version = 2", "application_id = 7"])
def test_a_foreign_database_is_not_changed(path: Path, pragma: str) -> None:
    TuningDatabase(path, None).put(result())
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA {pragma}")
    database.close()
    before, results = path.read_bytes(), TuningDatabase(path, None)
    with pytest.warns(TuningWarning, match="can't be read"):
        assert results.find(PROBLEM, DEFAULT_DEVICE) is None
    with pytest.warns(TuningWarning, match="can't be stored"):
        results.put(result())
    assert path.read_bytes() == before
    assert results.find(PROBLEM, DEFAULT_DEVICE) == result()  # in this process


def test_a_full_disk_keeps_the_previous_results(path: Path) -> None:
    TuningDatabase(path, None).put(result())
    many = [result(kernel=f"{i:016}") for i in range(1000)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.warns(TuningWarning, match="can't be stored"):
            TuningDatabase(path, None).put(*many)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(TuningDatabase(path, None)) == [result()]


def test_an_invalid_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    results = TuningDatabase(tmp_path / "file" / "tuned.sqlite", None)
    assert results.find(PROBLEM, DEFAULT_DEVICE) is None
    with pytest.warns(TuningWarning, match="can't be stored"):
        assert not results.put(result())


WRITER = """
import sys
from dataclasses import replace
from tilewright.run.tuning.tuning_result import from_json
from tilewright.run.tuning.tuning_database import TuningDatabase
(one,) = from_json(sys.stdin.read(), "stdin")
for i in range(40):
    TuningDatabase(sys.argv[1], None).put(replace(one, kernel=f"{sys.argv[2]}{i}"))
"""


@pytest.mark.parametrize("before", [b"", b"garbage" * 1000], ids=["fresh", "damaged"])
def test_several_processes_write(path: Path, before: bytes) -> None:
    if before:
        path.parent.mkdir()
        path.write_bytes(before)
    command = [sys.executable, "-W", "ignore", "-c", WRITER, str(path)]
    env = {"PYTHONPATH": SOURCE}
    running = [
        subprocess.Popen([*command, x], stdin=subprocess.PIPE, env=env, text=True) for x in "abc"
    ]
    for process in running:
        assert process.stdin is not None
        process.stdin.write(to_json([result()]))
        process.stdin.close()
    assert not any(process.wait(60) for process in running)
    assert {r.kernel for r in TuningDatabase(path, None)} == {
        f"{x}{i}" for x in "abc" for i in range(40)
    }
    assert len(list(path.parent.glob("*.damaged-*"))) == bool(before)


# --- text ---------------------------------------------------------------------------------------


TEXT = st.text().filter(str.isprintable)


@given(st.floats(0, 1e9), TEXT, TEXT)
def test_json_round_trip(us: float, driver: str, problem: str) -> None:
    written = replace(result(), us=us, driver=driver, problem=problem)
    assert from_json(to_json([written]), "x") == (written,)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"format": "x", "version": 1, "results": []}',
     to_json([result()]).replace('"us": 5.0', '"us": "5"'),
     to_json([result()]).replace('"us": 5.0', '"us": NaN'),
     to_json([result()]).replace('"us": 5.0', f'"us": 1{"0" * 400}'),
     to_json([result()]).replace('"sms": 132', f'"sms": {2**70}'),
     to_json([result()]).replace('"sms"', '"cores"'),
     to_json([replace(result(), date="tomorrow")]),
     to_json([replace(result(), driver="\ud800")]),
     to_json([replace(result(), driver="\x1b[31m")]),
     '{"format": "tilewright tuning results", "version": 1, "results": 5}',
     "[" * 100_000,
     to_json([result()]).replace('"version": 1', '"version": 2')],
)  # fmt: skip
def test_invalid_json(text: str) -> None:
    with pytest.raises(ResultError, match=r"of a tuning result|a tuning result must|x.json must"):
        from_json(text, "x.json")


def test_the_path_of_the_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_TUNED", str(tmp_path / "t"))
    assert tuning_database().path == tmp_path / "t" and tuning_database() is tuning_database()
    monkeypatch.setenv("TILEWRIGHT_TUNED", "off")
    assert tuning_database().path is None and not list(tuning_database())
    monkeypatch.delenv("TILEWRIGHT_TUNED")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert str(tuning_database().path).endswith("tilewright/tuned.sqlite")
