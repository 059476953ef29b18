"""Products of s8 and u8 matrices with zero points: exact in s32 before the scales."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.resident import FAST_KIND, Resident, registered, seen
from rows import every_row
from tilewright.errors import DtypeError, ProblemError
from tilewright.quantization import Scaled, quantize

pytestmark = pytest.mark.vm

RNG = np.random.default_rng(7)
M, N, K = 24, 40, 208
X, W = (RNG.standard_normal(shape).astype(np.float32) + 0.5 for shape in ((M, K), (N, K)))
Array = np.ndarray[Any, Any]


def reference(a: Scaled, b: Scaled) -> Array:
    """(Σ (a − za) (b − zb) · scale of a) · scale of b: the sum in s32, the products in f32."""
    left, right = (
        x.data.astype(np.int32) - (0 if x.zeros is None else x.zeros.astype(np.int32))
        for x in (a, b)
    )
    return np.asarray((left @ right).astype(np.float32) * a.scales * b.scales)


@every_row("a b", [(("u8", True), ("s8", False)), (("s8", True), ("s8", True)),
                   (("s8", False), ("u8", True))])  # fmt: skip
def test_products(a: tuple[str, bool], b: tuple[str, bool]) -> None:
    x, w = (quantize(v, t, "row", zeros=z) for v, (t, z) in ((X, a), (W, b)))
    expected = reference(x, w.T)
    assert np.abs(expected - X @ W.T).max() < 0.04 * np.abs(X @ W.T).max()
    product = partial(tilewright.matmul, x, w.T, out_dtype="f32", device="vm")
    assert np.array_equal(product(), expected)
    assert not w.sums
    for _ in range(2):  # the second one with the kept sums of B
        assert np.array_equal(product(static="b"), expected)
    assert bool(w.sums) == a[1]
    bias = RNG.standard_normal(N).astype(np.float32)
    layer = partial(tilewright.linear, x, w, bias, device="vm")
    assert np.array_equal(layer(out_dtype="f32"), expected + bias)
    narrow = np.clip(np.rint(expected + bias), -128, 127)
    assert np.array_equal(layer(out_dtype="s8"), narrow)


def test_writes_in_place_count() -> None:
    """Sums of B are kept under the promise that B is not written, and no other call reads them."""
    x, w = quantize(X, "u8", "row", zeros=True), quantize(W, "s8", "row")
    product = partial(tilewright.linear, x, w, out_dtype="f32", device="vm")
    kept = product(static="b")
    w.data[...] = np.roll(w.data, 1, axis=0)
    assert np.array_equal(product(), reference(x, w.T))
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(product(static="b"), reference(x, w.T))
    assert np.array_equal(kept, reference(x, quantize(W, "s8", "row").T))


def test_operands_may_have_the_names_of_scales_that_no_matrix_has() -> None:
    x, w = (quantize(v, "s8", "row") for v in (X, W))
    names = "b_zeros", "a_sums", "b2_scales"
    found = tilewright.matmul(
        x, w.T, out_dtype="f32", device="vm", **dict.fromkeys(names, 2.0),
        epilogue=lambda acc, b_zeros, a_sums, b2_scales: acc + b_zeros * a_sums * b2_scales,
    )  # fmt: skip
    assert np.array_equal(found, reference(x, w.T) + np.float32(8))


def test_zero_points_of_a_tensor_and_of_a_stack() -> None:
    data = RNG.integers(0, 256, (2, M, K)).astype(np.uint8)
    a = Scaled(data, RNG.uniform(0.5, 2, (2, M, 1)).astype(np.float32), (1, K),
               RNG.integers(-(2**20), 2**20, (2, M, 1)).astype(np.int32))  # fmt: skip
    w = RNG.integers(-128, 128, (N, K)).astype(np.int8)
    b = Scaled(w, np.ones(1, np.float32), zeros=np.full(1, -9, np.int8)).T
    left, right = a.data - a.zeros.astype(np.int64), b.data.astype(np.int64) + 9
    exact = (left @ right + 2**31) % 2**32 - 2**31  # the differences wrap as s32 does
    found = tilewright.matmul(a, b, out_dtype="f32", device="vm")
    assert np.array_equal(found, exact.astype(np.float32) * a.scales)


def test_repeated_calls() -> None:
    """The fast path reads the zero points and the sums of the matrices of each call."""
    layers = [quantize(W * factor, "s8", "row") for factor in (1, -2)]
    with registered(FAST_KIND):
        for i, w in enumerate(layers):
            x = quantize(X * (i + 1), "u8", "row", zeros=True)
            expected = reference(x, w.T)
            parts = [Resident.of(part) for part in (x.data, x.scales, x.zeros)]
            a = Scaled(*parts[:2], x.block, parts[2])
            weights = Scaled(Resident.of(w.data).T, Resident.of(w.scales).T, w.block[::-1])
            options: dict[str, Any] = {"out_dtype": "f32", "config": "tma:64x48x128:1:4"}
            for static in (None, "b"):
                for repeated in range(2):
                    seen.clear()
                    found = tilewright.matmul(a, weights, static=static, **options)
                    assert np.array_equal(found.numpy(), expected)
                    looked_at = 1 if static is None else 0  # where are the ones for the sums?
                    assert not repeated or len(seen) == looked_at


def test_kept_as_arrays_and_wrong_ones() -> None:
    x = quantize(X, "u8", "row", zeros=True)
    again = Scaled.from_arrays(x.to_arrays())
    assert str(again) == "Scaled(u8 24×208, f32 scales per row, zero points)"
    assert np.array_equal(again.dequantize(), x.dequantize())
    assert np.array_equal(again.T.T.dequantize(), x.dequantize())
    with pytest.raises(ProblemError, match="zeros must have shape 24×1 for data of 24×208"):
        Scaled(x.data, x.scales, "row", np.zeros((5, 1), np.int8))
    with pytest.raises(DtypeError, match="zeros must be one of s8, u8, s32, got f32"):
        Scaled(x.data, x.scales, "row", np.zeros((M, 1), np.float32))
    with pytest.raises(DtypeError, match="data with zeros must be one of s8, u8, got e4m3"):
        Scaled(quantize(X).data, x.scales, "row", x.zeros)
    with pytest.raises(ProblemError, match="a kernel computes zero points by rows"):
        quantize(X, "s8", (1, 16), zeros=True, device="vm")
