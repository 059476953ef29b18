"""``benchmarks/compare/simt_fit.py``: what sweeps tell of the cost model's errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compare import simt_fit
from f32_products import Shape

from tilewright.gemm import parse
from tilewright.gemm.cp_async import simt_cost
from tilewright.gemm.cp_async.simt_config import TABLE

SLOW = simt_cost.tile_and_threads(TABLE[-3])  # by half more than the model says


def row(shape: Shape) -> list[Any]:
    """A sweep's row whose times are the model's, but for one tile, and another clock."""
    plan = shape.plan
    configs = [str(config) for config in TABLE]
    costs = simt_cost.simt_costs(plan.problem, list(TABLE), plan.device.target)
    grid = simt_cost.launch_grid(plan.problem, costs, plan.device.target)
    seconds = simt_cost.uncorrected(plan.problem, costs, plan.device.target, grid)
    times = {
        name: 1.1e6 * float(x) * (1.5 if simt_cost.tile_and_threads(parse(name)) == SLOW else 1)
        for name, x in zip(configs, seconds, strict=True)
    }
    return [*shape[:3], {"torch": 2 * min(times.values()), **times}, shape.layout]


@pytest.fixture
def shapes() -> list[Shape]:
    sizes = [(n, 33 + 70 * i, 60 + 41 * i) for i in range(6) for n in (70, 500)]
    return [Shape(*x, layout) for x in sizes for layout in ("tt", "tn")]


def test_a_tile_that_is_slower_than_its_estimates_is_found(
    shapes: list[Shape], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    for file, part in zip(files, (shapes[::2], shapes[1::2]), strict=True):
        file.write_text(json.dumps([row(x) for x in part]), encoding="utf-8")
    data = [simt_fit.measured(x) for x in simt_fit.merged(files)]
    assert len(data) == len(shapes)
    found, _ = simt_fit.fitted(data)
    slow = simt_fit.TILES.index(SLOW)
    for x in data:
        errors = (x.features * found[x.tiles]).sum(axis=1)
        others = [i for i, tile in enumerate(x.tiles) if tile != slow]
        assert errors[x.tiles.index(slow)] - np.mean(errors[others]) > 0.2  # of 0.41
    choices = [(x, x.choice(found)) for x in data]
    assert max(x.times[i] / x.times.min() for x, i in choices) < 1.05
    monkeypatch.setattr(simt_fit, "FILE", tmp_path / "made.tsv")
    simt_fit.fit(files)
    assert len(simt_fit.FILE.read_text(encoding="utf-8").splitlines()) == len(TABLE) + 3


def test_times_of_a_shape_in_two_sweeps_are_brought_to_one_clock(tmp_path: Path) -> None:
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    for file, times in zip(
        files, ({"torch": 4, "x": 2}, {"torch": 8, "x": 9, "y": 6}), strict=True
    ):
        file.write_text(json.dumps([[1, 2, 3, times, "tt"]]), encoding="utf-8")
    assert simt_fit.merged(files) == [[1, 2, 3, {"torch": 4, "x": 2, "y": 3}, "tt"]]
