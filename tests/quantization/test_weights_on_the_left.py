"""``matmul`` with packed weights as A."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.resident import Resident, registered
from tilewright.errors import DtypeError, ProblemError
from tilewright.quantization import Packed, quantize, quantize_weight

pytestmark = pytest.mark.vm
RNG = np.random.default_rng(0)
W = quantize_weight(RNG.standard_normal((40, 128)).astype(np.float32), "u4", 64, "integer")
X = RNG.standard_normal((128, 9)).astype(np.float16)


def test_the_product_is_that_of_the_transposes() -> None:
    expected = tilewright.matmul(X.T, W.T, device="vm").T
    for y in (tilewright.matmul(W, X, device="vm"), W @ X):
        assert np.array_equal(y, expected)
    c = RNG.standard_normal((40, 9)).astype(np.float32)
    out = np.full((42, 12), 7, np.float32)
    part = out[1:41, 2:11]
    got = tilewright.matmul(W, X, c=c, alpha=2.0, beta=3.0, out=part, device="vm")
    exact = 2 * (W.dequantize().astype(float) @ X.astype(float)) + 3 * c
    assert got is part
    np.testing.assert_allclose(part, exact, atol=1e-4)
    part[:] = 7
    assert (out == 7).all()
    assert tilewright.matmul(W, X[:, 0].copy(), device="vm").shape == (40,)


def test_stacks_and_scaled_matrices() -> None:
    stack = quantize_weight(RNG.standard_normal((2, 24, 64)).astype(np.float32), "s4", 32)
    x = RNG.standard_normal((2, 64, 5)).astype(np.float16)
    y = tilewright.matmul(stack, x, out_dtype="f32", device="vm")
    np.testing.assert_allclose(y, stack.dequantize().astype(float) @ x.astype(float), atol=1e-3)
    tokens = quantize(X.T.astype(np.float32), "s8", "row").T
    y = tilewright.matmul(W, tokens, out_dtype="f32", device="vm")
    np.testing.assert_allclose(
        y, W.dequantize().astype(float) @ tokens.dequantize().astype(float), atol=1e-3
    )


def test_weights_on_a_device() -> None:
    with registered():
        names = ("data", "scales", "zeros")
        arrays = {name: Resident.of(getattr(W, name)) for name in names}
        w = Packed(**arrays, type="u4", group=64)
        d = Resident.of(np.zeros((9, 40), np.float16)).T
        tilewright.matmul(w, Resident.of(np.ascontiguousarray(X.T)).T, out=d)
        assert np.array_equal(d.numpy(), tilewright.matmul(W, X, device="vm"))


def test_errors() -> None:
    def relu(acc: Any) -> Any:
        return tilewright.relu(acc)

    for error, message, a, b, more in (
        (ProblemError, "packed a must be weights N×K, got Packed", W.T, X, {}),
        (ProblemError, "a must have K = 128 columns", W, X[:64], {}),
        (ProblemError, "a must be an array or Scaled, got Packed", W, W.T, {}),
        (ProblemError, "a must be an array or Scaled, got Packed", W, X, {"epilogue": relu}),
        (ProblemError, "alpha and beta must have one element", W, X, {"alpha": np.ones(9)}),
        (ProblemError, "static must be None where a is packed", W, X, {"static": "b"}),
        (DtypeError, "a must be f16, bf16, e4m3 or s8 for packed weights", W, np.float32(X), {}),
    ):
        with pytest.raises(error, match=message):
            tilewright.matmul(a, b, device="vm", **more)
