"""Split-K by 2 of packed weights: the parts of a tile are added in a cluster of two CTAs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright
from rows import every_row
from tilewright import gemm, target
from tilewright.errors import ConfigError
from tilewright.gemm.grouping import Grouping
from tilewright.gemm.problem import Problem
from tilewright.gemm.tma.tma_config import TmaConfig
from tilewright.quantization.weight_format import WeightFormat
from tilewright.run import VmDevice

FORM = WeightFormat("u4", "bf16", 128, "f16")
FEW_SMS = replace(target.DEFAULT_DEVICE, sms=4)  # two clusters, which have several tiles each
CASES = (
    ((16, 300, 512), "tma:64x16x128:2:4*2c~"),  # and sliced-K
    ((40, 300, 640), "tma:128x48x128:2:2*2c~"),
    ((9, 200, 128), "tma:64x16x128:1:2*2c~"),  # one k-block: a CTA has none
    ((20, 190, 640), "tma:64x32x128:2p:2*2c~"),  # pingpong; a warpgroup may have no tile
)


def operands(m: int, n: int, k: int, **options: Any) -> tuple[Any, Any, Any]:
    """Activations, packed weights, and their product."""
    rng = np.random.default_rng(m + n + k)
    w = rng.standard_normal((n, k)).astype(np.float32)
    packed = tilewright.quantize_weight(w, "u4", 128, "integer")
    x = rng.standard_normal((m, k)).astype(ml_dtypes.bfloat16)
    return x, packed, x.astype(np.float64) @ packed.dequantize().T.astype(np.float64)


def close(d: Any, exact: Any) -> bool:
    return bool(np.abs(d - exact).max() < 1e-6 * np.abs(exact).max() + 1e-5)


@every_row("size, config", CASES, ids=str)
def test_products_are_right_on_the_checked_machine(size: tuple[int, ...], config: str) -> None:
    x, packed, exact = operands(*size)
    on = VmDevice(FEW_SMS, checked=True, seed=sum(size))
    d = tilewright.matmul(x, packed.T, out_dtype="f32", device=on, config=config)
    assert close(d, exact)


def test_c_is_added_once() -> None:
    x, packed, exact = operands(9, 200, 256)
    c = np.arange(9 * 200, dtype=np.float32).reshape(9, 200)
    more: dict[str, Any] = {"alpha": 0.5, "beta": 2.0, "c": c, "out_dtype": "f32"}
    d = tilewright.matmul(x, packed.T, device="vm", config="tma:64x16x128:1:2*2c~", **more)
    assert np.abs(d - (0.5 * exact + 2.0 * c)).max() < 1e-3


@pytest.mark.parametrize("config", ["tma:64x16x128:1:2*2c~", "tma:64x16x128:1:2~", None])
def test_an_alpha_of_zero_reads_neither_matrix(config: str | None) -> None:
    """Not even NaNs, which scales have; a tile without k-blocks copies weights all the same."""
    x, packed, _ = operands(9, 200, 512)
    packed = replace(packed, scales=np.full_like(packed.scales, np.nan))
    x[:] = np.nan
    c = np.arange(9 * 200, dtype=np.float32).reshape(9, 200)
    more: dict[str, Any] = {"out_dtype": "f32", "device": "vm", "config": config}
    assert not tilewright.matmul(x, packed.T, alpha=0.0, **more).any()
    d = tilewright.matmul(x, packed.T, alpha=0.0, beta=2.0, c=c, **more)
    assert np.array_equal(d, 2 * c)


def test_no_kernel_follows() -> None:
    x, packed, _ = operands(16, 300, 512)
    plan = tilewright.plan(x, packed.T, device="vm", config="tma:64x16x128:2:4*2c~")
    assert "summed in clusters of 2 CTAs" in plan.explain()
    assert len(list(gemm.kernels(plan.problem, plan.config, target.DEFAULT_DEVICE))) == 1


@pytest.mark.parametrize("config", ["tma:64x16x128:1:2*4~", "tma:64x16x128:1:2*2~"])
def test_other_splits_have_a_reduction_kernel(config: str) -> None:
    x, packed, exact = operands(8, 100, 512)
    plan = tilewright.plan(x, packed.T, out_dtype="f32", device="vm", config=config)
    assert len(list(gemm.kernels(plan.problem, plan.config, target.DEFAULT_DEVICE))) == 2
    assert close(plan.run(x, packed.T), exact)


@pytest.mark.slow
def test_epilogue_functions_have_the_reduction_kernel() -> None:
    x, packed, exact = operands(8, 100, 512)
    config = "tma:64x16x128:1:2*2~"
    y = tilewright.linear(x, packed, activation="relu", out_dtype="f32", device="vm", config=config)
    assert close(y, np.maximum(exact, 0))
    with pytest.raises(ConfigError, match="without an epilogue function"):
        tilewright.linear(x, packed, activation="relu", device="vm", config=f"{config[:-1]}c~")


def test_groups_have_no_split() -> None:
    config = TmaConfig.parse("tma:64x16x128:1:2*2c~")
    problem = Problem(16, 512, 512, "bf16", "bf16", d="bf16", b_major="k", batch=2, weights=FORM)
    gemm.check(problem, config, target.DEFAULT_DEVICE)
    grouped = replace(problem, groups=Grouping("s32", "ends"))
    for split in (config, replace(config, in_cluster=False)):
        with pytest.raises(ConfigError, match="groups exclude split-K"):
            gemm.check(grouped, split, target.DEFAULT_DEVICE)


def test_unpacked_weights_have_the_reduction_kernel() -> None:
    x = np.ones((64, 512), np.float16)
    with pytest.raises(ConfigError, match="requires prepared weights"):
        tilewright.matmul(x, x.T, device="vm", config="tma:64x64x64:1:3*2c")


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("tma:64x16x128:2:4*3c~", "cluster must be by 2, got 3"),
        ("tma:64x16x128:2:4+2c~", "is of all tiles, not of the tail wave"),
        ("tma:64x16x128:2:4/2x1*2c~", "excludes other clusters"),
        ("tma:64x8x128:2:4*2c~", "tile_n must be a multiple of 16, got 8"),
        ("tma:64x16x128:2:4c~", "expected a configuration such as"),
    ],
)
def test_a_cluster_has_two_ctas(config: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        TmaConfig.parse(config)


def test_the_notation_is_parsed() -> None:
    config = TmaConfig.parse("tma:64x16x128:2:4*2c~")
    assert config.in_cluster and TmaConfig.parse(str(config)) == config
    assert not TmaConfig.parse("tma:64x16x128:2:4*2~").in_cluster


@every_row("m, joined", [(16, False), (128, True)])
def test_it_is_chosen_where_the_reduction_kernel_is_slower(m: int, joined: bool) -> None:
    problem = Problem(m, 8192, 8192, "bf16", "bf16", d="bf16", b_major="k", weights=FORM)
    config = gemm.choose(problem, target.DEFAULT_DEVICE)
    assert isinstance(config, TmaConfig) and config.in_cluster == joined == (config.split == 2)
