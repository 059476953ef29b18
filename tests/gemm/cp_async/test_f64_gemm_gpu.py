"""f64 products on a GPU: the virtual machine's bits, which a chain of FMAs is tested against."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import tilewright
from gemm_cases.kernels import MAJORS
from gemm_cases.same_bits import laid, same_bits
from gemm_cases.same_bits import numbers as any_numbers
from tilewright.gemm import Config
from tilewright.gemm.cp_async.multistage_config import F64_TABLE, MMA_SHAPES

pytestmark = pytest.mark.gpu

numbers = partial(any_numbers, "f64")


@pytest.mark.parametrize("config", F64_TABLE, ids=str)
@pytest.mark.parametrize("layout", MAJORS)
def test_every_configuration_and_layout(layout: str, config: Config) -> None:
    a, b = laid(numbers(256, 96), numbers(96, 256), layout)
    assert same_bits(a, b, config=config)


@pytest.mark.parametrize("shape", MMA_SHAPES["f64"], ids=str)
@pytest.mark.parametrize("layout", MAJORS)
def test_every_instruction(layout: str, shape: Any) -> None:
    a, b = laid(numbers(70, 50, hostile=0.01), numbers(50, 130), layout)
    config = replace(Config.parse("64x64x32:2x2:3:m8n8k4"), mma=shape)
    assert same_bits(a, b, c=numbers(70, 130), alpha=0.1, beta=-0.7, config=config)


@pytest.mark.parametrize("hostile", [0.0, 0.01, 1.0])
@pytest.mark.parametrize("config", [None, F64_TABLE[0], F64_TABLE[-1]], ids=str)
def test_edges_views_and_c(config: Any, hostile: float) -> None:
    a, b = numbers(300, 130, hostile=hostile), numbers(130, 290, hostile=hostile)
    c = numbers(299, 287)
    assert same_bits(a[1:, 1:-1], b[1:-1, 3:], c=c, alpha=0.3, beta=-0.7, config=config)
    assert same_bits(a.T[:128, 2:].T, b.T[5:, :128].T, config=config)


def test_a_stack() -> None:
    a, b = numbers(5, 70, 33), numbers(5, 33, 41)
    assert same_bits(a, b, c=numbers(5, 70, 41), beta=1.0)


def test_ctas_that_take_tiles_in_turn() -> None:
    assert same_bits(numbers(1024, 40), numbers(40, 1024), config="32x32x16:2x1:3p:m8n8k4")


def test_large_products_and_factors_on_the_gpu_are_torch_s() -> None:
    torch = pytest.importorskip("torch")
    a, b, c = (torch.randn(2048, 2048, device="cuda", dtype=torch.float64) for _ in range(3))
    alpha, beta = (torch.tensor(x, device="cuda", dtype=torch.float64) for x in (0.1, 1 / 3))
    d = tilewright.matmul(a, b.T, c=c, alpha=alpha, beta=beta)
    want = torch.addmm(c, a, b.T, alpha=0.1, beta=1 / 3)
    assert (d - want).abs().max() < 1e-11
    config = replace(F64_TABLE[3], mma=(8, 8, 4))
    assert torch.equal(d, tilewright.matmul(a, b.T, c=c, alpha=0.1, beta=1 / 3, config=config))
