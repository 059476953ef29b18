"""What was tuned is what runs: looked up for the device that a configuration is chosen for, also
where the virtual machine stands in for it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright import gemm
from tilewright.run import device, plan
from tilewright.run.tuning.tuning_database import TuningDatabase
from tilewright.run.tuning.tuning_result import TuningKey, TuningResult, digest

pytestmark = pytest.mark.vm

CONFIG = "tma:64x64x64:1:3/1x1@8"


@pytest.fixture
def result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> TuningResult:
    """A result for sizes that no other test has."""
    monkeypatch.setenv("TILEWRIGHT_TUNED", str(tmp_path / "tuned"))
    on, problem = device("vm").target, gemm.Problem(72, 104, 136)
    key, kernel = TuningKey.of(problem, on), digest(problem, gemm.parse(CONFIG), on)
    chosen = str(gemm.choose(problem, on))
    assert chosen != CONFIG
    made = TuningResult(*key, kernel, CONFIG, 5.0, 0.25, chosen, 6.0, "2025-01-01T00:00:00", "13.0")
    TuningDatabase(tmp_path / "tuned", None).put(made)
    return made


def test_a_plan_uses_and_reports_the_result(result: TuningResult) -> None:
    found = plan(72, 104, 136, layout="tn", device="vm")
    assert str(found.config) == CONFIG and found.tuning_result == result
    assert f"tuned: 5 ± 0.25 µs; the heuristic's choice, {result.heuristic}, took 6 µs" in (
        " ".join(found.explain().split())
    )


def test_other_problems_devices_and_options_do_not(result: TuningResult) -> None:
    for other in (
        plan(72, 104, 144, layout="tn", device="vm"),
        plan(72, 104, 136, layout="tn", device="vm:H100"),
        plan(72, 104, 136, layout="tn", device="vm", config=result.heuristic),
    ):
        assert other.tuning_result is None and str(other.config) != CONFIG


def test_a_call_uses_the_result(result: TuningResult) -> None:
    """K is added up in another order by it than by the cut one that is asked for."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s, np.float32).astype(np.float16) for s in ((72, 136), (104, 136)))
    bits = [
        tilewright.matmul(a, b.T, device="vm", config=config, out_dtype="f16").tobytes()
        for config in (None, CONFIG)
    ]
    assert bits[0] == bits[1]
