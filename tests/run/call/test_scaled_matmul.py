"""``matmul`` of ``Scaled`` matrices on the virtual machine: the bits of the NumPy definition."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright
from rows import every_row
from tilewright.errors import DtypeError, EpilogueError, ProblemError, TilewrightError
from tilewright.quantization import Packed, Scaled, quantize, quantize_weight

pytestmark = pytest.mark.vm

RNG = np.random.default_rng(31)
M, N, K = 40, 48, 96
Array = np.ndarray[Any, Any]
NUMPY = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8}


def small(type_: str, *shape: int) -> Array:
    """Integers whose products are accumulated without rounding."""
    return RNG.integers(-4, 5, shape).astype(NUMPY[type_])


def scales(kind: str, type_: str, size: int, axis: int) -> Array:
    shape = () if kind == "tensor" else (size, 1) if axis == 0 else (1, size)
    values = RNG.uniform(0.01, 2, shape)
    if type_ == "ue8m0":
        return np.asarray(2.0 ** np.round(np.log2(values))).astype(ml_dtypes.float8_e8m0fnu)
    return np.asarray(values).astype(np.float32 if type_ == "f32" else ml_dtypes.bfloat16)


def reference(a: Scaled, b: Scaled, out: Any = ml_dtypes.bfloat16) -> Array:
    """(acc · scale of a) · scale of b, rounded once to the type of D."""
    accumulator = a.data.astype(np.float32) @ b.data.astype(np.float32)
    scaled = accumulator * a.scales.astype(np.float32) * b.scales.astype(np.float32)
    return np.asarray(scaled.astype(out))


@every_row(
    "type_ kinds scale_type",
    [
        ("e4m3", ("row", "column"), "f32"),
        ("e4m3", ("row", "column"), "ue8m0"),
        ("s8", ("row", "tensor"), "bf16"),
    ],
)
def test_the_bits_are_those_of_the_definition(
    type_: str, kinds: tuple[str, str], scale_type: str
) -> None:
    a = Scaled(small(type_, M, K), scales(kinds[0], scale_type, M, 0), kinds[0])
    b = Scaled(small(type_, N, K).T, scales(kinds[1], scale_type, N, 1), kinds[1])
    d = tilewright.matmul(a, b, device="vm")
    assert d.dtype == ml_dtypes.bfloat16
    assert np.array_equal(d.view(np.uint16), reference(a, b).view(np.uint16))


def test_odd_sizes() -> None:
    """s32 accumulators of s8, and D of another alignment than theirs."""
    a = Scaled(small("s8", 33, 50), scales("row", "f32", 33, 0))
    b = Scaled(small("s8", 7, 50).T, scales("column", "f32", 7, 1))
    d = tilewright.matmul(a, b, out_dtype="f16", device="vm")
    assert np.array_equal(d, reference(a, b, np.float16))


A = Scaled(small("e4m3", M, K), scales("row", "f32", M, 0))
B = Scaled(small("e4m3", N, K).T, scales("column", "f32", N, 1))


def test_alpha_beta_and_c() -> None:
    c = RNG.standard_normal((M, N)).astype(np.float32)
    expected = np.float32(0.5) * reference(A, B, np.float32) + np.float32(-2.0) * c
    found = tilewright.matmul(A, B, c=c, alpha=0.5, beta=-2.0, out_dtype="f32", device="vm")
    assert np.array_equal(found, expected)


def test_an_epilogue_sees_the_scaled_accumulator() -> None:
    """Of a Scaled matrix and a plain one."""
    bias = RNG.standard_normal(N).astype(np.float32)
    out = np.empty((M, N), np.float32)

    def biased(acc: Any, bias: Any, slope: Any = 2.0) -> Any:
        return {"d": acc + bias, "amax": tilewright.amax(acc * slope)}

    found = tilewright.matmul(A, B.data, epilogue=biased, bias=bias, out=out, device="vm")
    product = reference(A, Scaled(B.data, np.ones((1, N), np.float32)), np.float32)
    assert found["d"] is out and np.array_equal(out, product + bias)
    assert found["amax"] == np.abs(product * 2).max()


def test_linear_with_a_gate() -> None:
    x = quantize(RNG.standard_normal((M, K)).astype(np.float32), "e4m3", "row")
    w, gate = (
        quantize(RNG.standard_normal((N, K)).astype(np.float32), "e4m3", "row") for _ in "wg"
    )
    found = tilewright.linear(x, w, gate=gate, activation="relu", out_dtype="f32", device="vm")
    up = x.dequantize().astype(float) @ w.dequantize().T.astype(float)
    gated = np.maximum(x.dequantize().astype(float) @ gate.dequantize().T.astype(float), 0)
    assert np.allclose(found, up * gated, rtol=1e-3, atol=0.2)


def test_scales_that_are_not_numbers_follow_the_arithmetic() -> None:
    rows = scales("row", "f32", M, 0)
    rows[:4, 0] = 0, -1, np.inf, np.nan
    a = Scaled(A.data, rows)
    with np.errstate(all="ignore"):
        expected = reference(a, B).astype(np.float32)
    found = tilewright.matmul(a, B, device="vm").astype(np.float32)
    assert np.array_equal(found, expected, equal_nan=True)


X = RNG.standard_normal((256, 256)).astype(np.float32)
GROUPS = quantize(X, "e4m3", (1, 64))
WRONG: list[tuple[Any, type[TilewrightError], str]] = [
    (lambda: tilewright.matmul(GROUPS, GROUPS.T), ProblemError, "a must have one scale or one per"),
    (lambda: tilewright.matmul(X, quantize_weight(X, "u4").T), DtypeError, "packed weights"),
    (lambda: tilewright.linear(X, quantize_weight(X, "u4")), DtypeError, "packed weights"),
    (lambda: tilewright.matmul(A.T, B), ProblemError, "a must have one scale or one per row"),
    (lambda: tilewright.matmul(A, B, beta=1.0), ProblemError, "c must be given if beta is not 0"),
    (lambda: tilewright.matmul(A, X), DtypeError, "b must be e4m3 or e5m2 if a is e4m3, got f32"),
    (
        lambda: tilewright.matmul(A, B, epilogue=lambda acc, a_scales: acc * a_scales, a_scales=1),
        EpilogueError, "a_scales are the scales of a matrix",
    ),
]  # fmt: skip


@every_row("call error text", WRONG)
def test_wrong_calls(call: Any, error: type[TilewrightError], text: str) -> None:
    with pytest.raises(error) as raised:
        call()
    assert text in str(raised.value)


def test_a_packed_says_what_it_is() -> None:
    packed = quantize_weight(X, "u4")
    assert isinstance(packed, Packed)
    with pytest.raises(ProblemError, match=r"got Packed\(u4 256×256, f32 scales per 128, zeros 8"):
        tilewright.matmul(X, packed.T.T)


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.from_numpy(x.data.view(np.uint8)).view(torch.float8_e4m3fn) for x in (A, B.T))
    left, right = Scaled(a, torch.from_numpy(A.scales)), Scaled(b, torch.from_numpy(B.T.scales))
    d = tilewright.matmul(left, right.T, device="vm")
    assert d.dtype is torch.bfloat16
    assert np.array_equal(d.view(torch.uint16).numpy(), reference(A, B).view(np.uint16))
