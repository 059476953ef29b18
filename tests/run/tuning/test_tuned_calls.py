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
from tilewright.run.call.batching.prepared_products import prepare
from tilewright.run.call.request import MatmulArguments, MatmulOptions
from tilewright.run.tuning.tuning_database import TuningDatabase
from tilewright.run.tuning.tuning_result import TuningKey, TuningResult, digest

pytestmark = pytest.mark.vm

CONFIG = "tma:64x64x64:1:3/1x1@8"


def stored(path: Path, problem: gemm.Problem, config: str) -> TuningResult:
    """A result for sizes that no other test has, in the database."""
    on = device("vm").target
    key, kernel = TuningKey.of(problem, on), digest(problem, gemm.parse(config), on)
    chosen = str(gemm.choose(problem, on))
    assert chosen != config
    made = TuningResult(*key, kernel, config, 5.0, 0.25, chosen, 6.0, "2025-01-01T00:00:00", "13.0")
    TuningDatabase(path, None).put(made)
    return made


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The path of the database that calls look results up in."""
    monkeypatch.setenv("TILEWRIGHT_TUNED", str(tmp_path / "tuned"))
    return tmp_path / "tuned"


@pytest.fixture
def result(path: Path) -> TuningResult:
    return stored(path, gemm.Problem(72, 104, 136), CONFIG)


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


@pytest.mark.parametrize(("k", "config"), [(200, CONFIG), (208, "64x64x32:2x2:3/1@8")])
def test_a_product_is_added_to_d_by_a_kernel_that_can(path: Path, k: int, config: str) -> None:
    """A result of ``multistage`` is one of reading another C."""
    stored(path, gemm.Problem(72, 104, k, d="f32", with_c=True), config)
    a, b = (np.zeros(shape, np.float16) for shape in ((72, k), (104, k)))
    c, d = (np.zeros((72, 104), np.float32) for _ in range(2))
    found = []
    for array in (c, d):
        arguments = MatmulArguments(a, b.T, array, d, 1.0, 1.0)
        products = prepare(arguments, MatmulOptions(device="vm"), accumulate=True).products
        found.append(products[0][0])
    other, joined = found
    assert str(other.config) == config and isinstance(joined.config, gemm.TmaConfig)
    assert joined.problem.accumulates and (str(joined.config) == config) is (config == CONFIG)
