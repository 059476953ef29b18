"""f32 products on a GPU: the virtual machine's bits, which a chain of FMAs is tested against."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import tilewright
from gemm_cases.kernels import MAJORS
from gemm_cases.same_bits import laid, same_bits
from gemm_cases.same_bits import numbers as any_numbers
from tilewright.gemm import SimtConfig
from tilewright.gemm.cp_async.simt_config import TABLE as SIMT

pytestmark = pytest.mark.gpu

numbers = partial(any_numbers, "f32")


@pytest.mark.parametrize("config", SIMT, ids=str)
@pytest.mark.parametrize("layout", MAJORS)
def test_every_configuration_and_layout(layout: str, config: SimtConfig) -> None:
    a, b = laid(numbers(256, 96), numbers(96, 256), layout)
    assert same_bits(a, b, config=config)


@pytest.mark.parametrize("hostile", [0.0, 0.01, 1.0])
@pytest.mark.parametrize("config", [None, SIMT[0], SIMT[-1]], ids=str)
def test_edges_views_and_c(config: Any, hostile: float) -> None:
    a, b = numbers(300, 130, hostile=hostile), numbers(130, 290, hostile=hostile)
    c = numbers(299, 287)
    assert same_bits(a[1:, 1:-1], b[1:-1, 3:], c=c, alpha=0.3, beta=-0.7, config=config)
    assert same_bits(a.T[:128, 2:].T, b.T[5:, :128].T, config=config)


def test_a_stack() -> None:
    a, b = numbers(5, 70, 33), numbers(5, 33, 41)
    assert same_bits(a, b, c=numbers(5, 70, 41), beta=1.0)


def test_large_products_are_near_torch_s() -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.randn(2048, 2048, device="cuda") for _ in range(2))
    d = tilewright.matmul(a, b.T)
    want = a.double() @ b.T.double()
    assert (d - want).abs().max() < 2e-3
    assert torch.equal(d, tilewright.matmul(a, b.T, config=SIMT[3]))
