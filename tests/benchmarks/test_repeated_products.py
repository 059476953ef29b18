"""``benchmarks/repeated_products.py``: what it repeats."""

from __future__ import annotations

from f32_products import Shape
from repeated_products import SHAPES, cases_of

from tilewright.gemm import kernels, parse
from tilewright.gemm.cp_async.simt_config import TABLE


def test_each_tile_is_tried_whole_and_in_parts() -> None:
    given = Shape(71, 646, 262, "nt"), ("simt:16x32x32:4x8x4:3/6*3",)
    assert list(cases_of([given])) == [(given[0], given[1][0])]
    configs = [parse(config) for _, config in cases_of([(given[0], ())])]
    assert configs[: len(TABLE)] == list(TABLE)
    assert [c.split for c in configs] == [1] * len(TABLE) + [3] * len(TABLE)
    assert {shape.layout for shape in SHAPES} == {"nt", "tt", "tn", "nn"}
    plan = SHAPES[0].plan
    for config in configs:
        assert len(list(kernels(plan.problem, config, plan.device.target))) == min(config.split, 2)
