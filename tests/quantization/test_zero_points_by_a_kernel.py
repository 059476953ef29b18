"""``quantize`` with zero points by a kernel: the bits of NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright
from rows import every_row
from tilewright.errors import ProblemError
from tilewright.quantization import quantize
from tilewright.run.devices.vm_device import VmDevice

pytestmark = pytest.mark.vm
RNG = np.random.default_rng(5)
X = (RNG.standard_normal((23, 272)) * 2.0 ** RNG.integers(-9, 9, (23, 1))).astype(np.float32)
X[1], X[2], X[3], X[4] = 0, -np.abs(X[2]), np.abs(X[3]), np.nan
X[5, 3], X[6, 4], X[7, 5], X[8, 6] = np.nan, np.inf, -np.inf, 3e38
X[8, 7], X[9] = -3e38, 1e-42


@every_row("source type_ scale_type", [
    (np.float32, "s8", "f32"), (np.float16, "u8", "bf16"), (ml_dtypes.bfloat16, "s8", "ue8m0"),
    (np.float32, "u8", "f32"),
])  # fmt: skip
def test_the_bits_are_those_of_numpy(source: Any, type_: str, scale_type: str) -> None:
    with np.errstate(all="ignore"):
        x = X.astype(source)
    for given in (x, np.stack([x, -x]), x[:0], x[:1, :8].copy()):
        found, expected = (
            quantize(given, type_, "row", zeros=True, scale_dtype=scale_type, device=device)
            for device in (VmDevice(checked=True), None)
        )
        for name in ("data", "scales", "zeros"):
            one, other = getattr(found, name), getattr(expected, name)
            assert one.shape == other.shape
            assert np.array_equal(one.view(np.uint8), other.view(np.uint8)), name


def test_products_of_what_the_kernel_wrote() -> None:
    x = np.abs(RNG.standard_normal((5, 64))).astype(np.float32)
    w = quantize(RNG.standard_normal((24, 64)).astype(np.float32), "s8", "row")
    tokens = quantize(x, "u8", "row", zeros=True, device="vm")
    y = tilewright.linear(tokens, quantize(w.dequantize(), "u8", "row", zeros=True),
                          out_dtype="f32", device="vm")  # fmt: skip
    np.testing.assert_allclose(y, x.astype(float) @ w.dequantize().T, atol=0.2)


def test_what_no_kernel_computes() -> None:
    for message, more in (
        ("zero points by rows, got blocks per 1×128", {"block": (1, 128)}),
        ("zero points by rows, got blocks per tensor", {"block": None}),
        ("scale must be None with zeros", {"block": "row", "scale": 1.0}),
    ):
        with pytest.raises(ProblemError, match=message):
            quantize(X, "s8", zeros=True, device="vm", **more)
    with pytest.raises(ProblemError, match="x must be contiguous"):
        quantize(X[:, :17], "s8", "row", zeros=True, device="vm")
