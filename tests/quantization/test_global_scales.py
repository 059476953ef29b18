"""A stack of packed weights with a global scale for each matrix (experts in NVFP4)."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.errors import DtypeError, ProblemError
from tilewright.quantization import Packed, quantize_weight
from tilewright.run.devices.vm_device import VmDevice

pytestmark = pytest.mark.vm
RNG = np.random.default_rng(0)
EXPERTS = [quantize_weight(RNG.standard_normal((24, 64)).astype(np.float32) * 4.0**i, "nvfp4")
           for i in range(3)]  # fmt: skip


def _stack(shape: tuple[int, ...] = (3,)) -> Packed:
    data, scales, factors = (
        np.stack([getattr(w, name) for w in EXPERTS]) for name in ("data", "scales", "global_scale")
    )
    return Packed(data, scales, "e2m1", 16, global_scale=factors.reshape(shape))


def test_elements_are_those_of_the_matrices() -> None:
    expected = np.stack([w.dequantize() for w in EXPERTS])
    for shape in ((3,), (3, 1, 1)):
        stack = _stack(shape)
        assert np.array_equal(stack.dequantize(), expected)
        for weights in (stack, stack.T, Packed.from_arrays(stack.to_arrays())):
            found = weights.dequantize(device=VmDevice(checked=True))
            assert np.array_equal(found, weights.dequantize())


def test_grouped_and_stacked_products() -> None:
    x = RNG.standard_normal((9, 64)).astype(np.float16)
    stack, ends = _stack(), (2, 2, 9)
    y = tilewright.grouped_matmul(x, stack.T, offsets=ends, out_dtype="f32", device="vm")
    dense = stack.dequantize().astype(float)
    for rows, expert in ((slice(0, 2), 0), (slice(2, 9), 2)):
        np.testing.assert_allclose(y[rows], x[rows].astype(float) @ dense[expert].T, rtol=1e-4,
                                   atol=1e-4)  # fmt: skip
    every = np.stack([x, x + 1, x - 1])
    y = tilewright.matmul(every, stack.T, out_dtype="f32", device="vm")
    exact = every.astype(float) @ dense.swapaxes(1, 2)
    np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-4 * np.abs(exact).max())


def test_quantize_weight_scales_each_matrix() -> None:
    w = np.stack([x.dequantize() for x in EXPERTS])
    stack = quantize_weight(w, "nvfp4")
    for i, matrix in enumerate(w):
        assert np.array_equal(stack.dequantize()[i], quantize_weight(matrix, "nvfp4").dequantize())


@pytest.mark.slow
def test_a_layer_of_experts() -> None:
    factors, shapes = np.float32([[[1]], [[4]], [[16]]]) / 8, ((3, 32, 64), (3, 64, 32))
    up, down = (
        quantize_weight(RNG.standard_normal(s).astype(np.float32) * factors, "nvfp4")
        for s in shapes
    )
    x = (RNG.standard_normal((6, 64)) / 8).astype(np.float16)
    chosen = RNG.integers(0, 3, (6, 2))
    weights = RNG.random((6, 2)).astype(np.float32)
    y = tilewright.moe(x, up, up, down, chosen, weights, device="vm")
    exact = np.zeros((6, 64))
    for token, expert, weight in zip(
        np.repeat(range(6), 2), chosen.ravel(), weights.ravel(), strict=True
    ):
        h = up.dequantize()[expert].astype(float) @ x[token].astype(float)
        exact[token] += weight * (down.dequantize()[expert] @ (h * h / (1 + np.exp(-h))))
    np.testing.assert_allclose(y.astype(float), exact, atol=0.01 * np.abs(exact).max())


def test_wrong_ones() -> None:
    w = EXPERTS[0]
    for error, factors in (
        (ProblemError, np.ones(2, np.float32)), (ProblemError, np.ones((1, 3), np.float32)),
        (DtypeError, np.ones(3)),
    ):  # fmt: skip
        with pytest.raises(error, match="global_scale must"):
            Packed(np.stack([w.data] * 3), np.stack([w.scales] * 3), "e2m1", 16,
                   global_scale=factors)  # fmt: skip
    with pytest.raises(ProblemError, match="global_scale must have one element"):
        Packed(w.data, w.scales, "e2m1", 16, global_scale=np.ones(24, np.float32))
