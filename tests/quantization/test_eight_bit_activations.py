"""``matmul`` of Scaled e4m3 and s8 matrices by 4-bit weights, against f64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright
from rows import every_row
from tilewright.errors import DtypeError, ProblemError

SMALL = "tma:64x16x128:1:3~"
BOUNDS = {"e4m3": 1e-3, "s8": 1e-6}  # of the largest element
FAST = (
    ("s8", ("u4", 128, "integer")),
    ("e4m3", ("s4", 64, None)),
)
ROWS = (
    ("s8", ("s4", 128, None)),
    ("s8", ("u4", 32, "float")),
    ("e4m3", ("u4", 128, None)),
    ("e4m3", ("u4", 64, "integer")),
    ("e4m3", ("u4", None, "float")),
    ("e4m3", ("mxfp4", 32, None)),
)


def quantized(type_: str, form: tuple[Any, ...], n: int = 96, k: int = 256) -> tuple[Any, Any]:
    """Activations 9×K of a type and weights N×K."""
    rng = np.random.default_rng(n + k)
    w = tilewright.quantize_weight(rng.standard_normal((n, k)).astype(np.float32), *form)
    return tilewright.quantize(rng.standard_normal((9, k)).astype(np.float32), type_, "row"), w


def check(type_: str, form: tuple[Any, ...], **out: str) -> None:
    x, w = quantized(type_, form)
    y = tilewright.matmul(x, w.T, device="vm", config=SMALL, **out)
    exact = x.dequantize().astype(float) @ w.dequantize().T.astype(float)
    bound = BOUNDS[type_] + (0 if out else 2.0**-8)
    assert y.dtype == (np.float32 if out else ml_dtypes.bfloat16)
    assert np.abs(y.astype(float) - exact).max() < bound * np.abs(exact).max()


@every_row("type_, form", FAST, ids=str)
def test_products_are_right(type_: str, form: tuple[Any, ...]) -> None:
    check(type_, form)


@pytest.mark.slow
@every_row("type_, form", ROWS, ids=str)
def test_all_types_are_right(type_: str, form: tuple[Any, ...]) -> None:
    check(type_, form, out_dtype="f32")


@pytest.mark.slow
def test_plain_arrays_give_bf16() -> None:
    x, w = quantized("s8", ("s4", 128, None))
    exact = x.data.astype(float) @ w.dequantize().T.astype(float)
    for y in (
        tilewright.matmul(x.data, w.T, device="vm", config=SMALL),
        tilewright.linear(x.data, w, device="vm", config=SMALL),
    ):
        assert y.dtype == ml_dtypes.bfloat16
        assert np.abs(y.astype(float) - exact).max() < 2.0**-8 * np.abs(exact).max()


def test_what_has_no_kernel_is_an_error() -> None:
    x, w = quantized("s8", ("s4", 128, None))
    rng = np.random.default_rng(0)
    shifted = tilewright.quantize(rng.random((9, 256), np.float32), "u8", "row", zeros=True)
    with pytest.raises(ProblemError, match="a must have no zero points for packed weights"):
        tilewright.linear(shifted, w, device="vm")
    with pytest.raises(DtypeError, match="s8 inputs must be bf16 or f16 or f32, got s32"):
        tilewright.matmul(x.data, w.T, out_dtype="s32", device="vm")
    with pytest.raises(DtypeError, match="must be u4, s4 for an a of s8, got u8"):
        tilewright.linear(x, quantized("s8", ("u8", 128, None))[1], device="vm")
    with pytest.raises(ProblemError, match="a multiple of 32 or K for a product, got 16"):
        tilewright.linear(*quantized("e4m3", ("nvfp4", 16, None)), device="vm")
