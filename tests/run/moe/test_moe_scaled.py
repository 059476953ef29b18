"""``moe`` with ``Scaled`` weights: rows are quantized as the weights are."""

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
RNG = np.random.default_rng(0)


@every_row("type_ block of_rows tokens", [
    ("e4m3", (128, 128), (1, 128), 9), ("s8", "row", "row", 9), ("e4m3", None, "row", 300),
], parts=3)  # fmt: skip
def test_the_layer_is_that_of_quantized_rows(
    type_: str, block: Any, of_rows: Any, tokens: int
) -> None:
    experts, hidden, intermediate = 2, 128, 256
    shapes = (intermediate, hidden), (intermediate, hidden), (hidden, intermediate)
    up, gate, down = (
        quantize(RNG.standard_normal((experts, *s)).astype(np.float32) / 8, type_, block)
        for s in shapes
    )
    x = (RNG.standard_normal((tokens, hidden)) / 4).astype(ml_dtypes.bfloat16)
    chosen = RNG.integers(0, experts, (tokens, 2))
    weights = RNG.random((tokens, 2)).astype(np.float32)
    on = VmDevice(checked=True)
    y = tilewright.moe(x, up, gate, down, chosen, weights, device=on)
    assert (y.dtype, y.shape) == (x.dtype, x.shape)

    def rows(values: Any) -> Any:
        return quantize(values, type_, of_rows).dequantize().astype(float)

    up, gate, down = (w.dequantize().astype(float) for w in (up, gate, down))
    of_tokens, exact = rows(x), np.zeros(x.shape)
    for t in range(min(tokens, 20)):
        for expert, weight in zip(chosen[t], weights[t], strict=True):
            z, u = gate[expert] @ of_tokens[t], up[expert] @ of_tokens[t]
            inner = (z / (1 + np.exp(-z)) * u).astype(x.dtype)[None]
            exact[t] += weight * (down[expert] @ rows(inner)[0])
    error = np.abs(y.astype(float) - exact)[:20].max()
    assert error < 0.02 * np.abs(exact).max()


def test_scales_of_each_matrix_of_a_stack() -> None:
    x = quantize(RNG.standard_normal((6, 64)).astype(np.float32), "s8", "row")
    factors = np.float32([[[1]], [[9]]])
    w = quantize(RNG.standard_normal((2, 16, 64)).astype(np.float32) * factors, "s8")
    y = tilewright.grouped_matmul(x, w.T, offsets=[2, 6], out_dtype="f32", device="vm")
    a, b = x.dequantize().astype(float), w.dequantize().astype(float)
    np.testing.assert_allclose(y[:2], a[:2] @ b[0].T, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(y[2:], a[2:] @ b[1].T, rtol=1e-5, atol=1e-4)


def test_rows_that_cannot_be_multiplied() -> None:
    rng = np.random.default_rng(1)
    up = quantize(rng.standard_normal((2, 32, 64)).astype(np.float32), "e4m3", (1, 16))
    down = quantize(rng.standard_normal((2, 64, 32)).astype(np.float32), "e4m3", "row")
    x = np.ones((3, 64), np.float16)
    chosen, weights = np.zeros((3, 1), np.int32), np.ones((3, 1), np.float32)
    with pytest.raises(ProblemError, match="both matrices must have blocks of 128 along K"):
        tilewright.moe(x, up, up, down, chosen, weights, device="vm")
