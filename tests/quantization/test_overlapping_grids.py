"""Packed weights where the CTAs of two grids share an SM, and the next is launched early."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright
from ptxas import assemble, ptxas
from rows import every_row
from tilewright import gemm, target
from tilewright.errors import ConfigError
from tilewright.gemm.problem import Problem
from tilewright.gemm.tma.mainloop.role_registers import launched_registers
from tilewright.gemm.tma.tma_config import TmaConfig
from tilewright.quantization.weight_format import WeightFormat
from tilewright.run import VmDevice

FEW_SMS = replace(target.DEFAULT_DEVICE, sms=4)
# (M, N, K), configuration
CASES = (
    ((16, 300, 1024), "tma:64x16x128:4:8o~"),  # several tiles of a CTA
    ((16, 200, 640), "tma:64x16x128:4:8o*2c~"),
    ((9, 300, 384), "tma:128x16x128:2:4o~"),
    ((20, 120, 512), "tma:64x32x128:3:6o~"),
    ((9, 120, 128), "tma:64x16x128:1:4o~"),
)
SHIPPED = "tma:64x16x128:4:12o~"
EXCLUDED = (
    ("tma:64x16x128:2p:4o~", "exclude pingpong"),
    ("tma:64x16x128:1:4o/2x1~", "exclude pingpong, multicast"),
    ("tma:64x16x128:1:4o*2~", "split-K but in clusters"),
    ("tma:64x16x128:4:16o~", "bytes of shared memory"),
    ("tma:64x24x128:4:8o~", "registers per thread"),
)


def problem(m: int = 16, n: int = 8192, k: int = 8192, **more: Any) -> Problem:
    form = WeightFormat("u4", "bf16", 128, "f16")
    return Problem(m, n, k, "bf16", "bf16", d="bf16", b_major="k", weights=form, **more)


@every_row("size, config", CASES, ids=str)
def test_products_are_right_on_the_checked_machine(size: tuple[int, ...], config: str) -> None:
    m, n, k = size
    rng = np.random.default_rng(sum(size))
    w = rng.standard_normal((n, k)).astype(np.float32)
    packed = tilewright.quantize_weight(w, "u4", 128, "integer")
    x = rng.standard_normal((m, k)).astype(ml_dtypes.bfloat16)
    exact = x.astype(np.float64) @ packed.dequantize().T.astype(np.float64)
    for seed in range(2):
        on = VmDevice(FEW_SMS, checked=True, seed=seed)
        d = tilewright.matmul(x, packed.T, out_dtype="f32", device=on, config=config)
        assert np.abs(d - exact).max() < 1e-6 * np.abs(exact).max() + 1e-5


def test_the_next_grid_is_launched_after_the_loads() -> None:
    text = gemm.build(problem(), TmaConfig.parse(SHIPPED)).ptx
    loads = text.rindex("shared::cluster.global")
    assert text.count("launch_dependents") == 1 and text.index("launch_dependents") > loads
    assert ".minnctapersm 2" in text and ".maxntid 544" in text


def test_a_grid_has_a_cta_for_each_sm_at_most() -> None:
    for n in (4096, 8192, 16384):
        shape = gemm.launch_shape(problem(n=n), TmaConfig.parse(SHIPPED), target.DEFAULT_DEVICE)
        assert shape.programmatic and shape.grid[0] == min(n // 64, target.DEFAULT_DEVICE.sms)


@pytest.mark.skipif(ptxas() is None, reason="no ptxas")
@pytest.mark.tools
@every_row("config", [SHIPPED, "tma:64x16x128:4:12o*2c~", "tma:64x32x128:3:6o~"])
def test_registers_suffice_for_two_ctas(config: str) -> None:
    parsed = TmaConfig.parse(config)
    cubin = assemble(gemm.build(problem(), parsed).ptx, "sm_90a")
    assert cubin.registers <= launched_registers(parsed)
    assert not cubin.spills and not cubin.warnings


@every_row("config, message", EXCLUDED)
def test_what_overlap_excludes_is_an_error(config: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        gemm.check(problem(), TmaConfig.parse(config), target.DEFAULT_DEVICE)


def test_unpacked_weights_do_not_overlap() -> None:
    plain = Problem(64, 512, 512)
    with pytest.raises(ConfigError, match="require prepared weights"):
        gemm.check(plain, TmaConfig.parse("tma:64x64x64:1:3o"), target.DEFAULT_DEVICE)


def test_the_notation_is_parsed() -> None:
    config = TmaConfig.parse(SHIPPED)
    assert config.overlapped and TmaConfig.parse(str(config)) == config
    assert gemm.complete("tma:64x16x128:4:12o~", problem(), target.DEFAULT_DEVICE) == config
    with pytest.raises(ConfigError):
        TmaConfig.parse("tma:64x16x128:4:12od~")
    with pytest.raises(ConfigError, match="other tile schedulers"):
        replace(config, dynamic=True)
