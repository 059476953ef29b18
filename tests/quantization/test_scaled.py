"""``Scaled`` and ``Packed``: validation, printing, values, arrays of NumPy and torch, saving."""

from __future__ import annotations

import io
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright
from rows import every_row
from tilewright.errors import DtypeError, ProblemError, TilewrightError
from tilewright.quantization import Packed, Scaled

RNG = np.random.default_rng(3)
S8 = RNG.integers(-128, 128, (6, 8)).astype(np.int8)
E4M3 = RNG.standard_normal((256, 384)).astype(ml_dtypes.float8_e4m3fn)


def f32(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.uniform(0.5, 2, shape).astype(np.float32)


def reference(data: Any, scales: Any, rows: int, columns: int) -> np.ndarray[Any, Any]:
    """Each element by itself."""
    result = np.empty(data.shape, np.float32)
    for i, j in np.ndindex(*data.shape):
        result[i, j] = np.float32(data[i, j]) * np.float32(scales[i // rows, j // columns])
    return result


@every_row(
    "block scales expected shown",
    [
        (None, (), (6, 8), "f32 scale per tensor"),
        ("tensor", (1, 1), (6, 8), "f32 scale per tensor"),
        ("row", (6,), (1, 8), "f32 scales per row"),
        ("token", (6, 1), (1, 8), "f32 scales per row"),
        (None, (6, 1), (1, 8), "f32 scales per row"),
        ("column", (8,), (6, 1), "f32 scales per column"),
        (None, (1, 8), (6, 1), "f32 scales per column"),
        (4, (6, 2), (1, 4), "f32 scales per 1×4"),
        (3, (6, 3), (1, 3), "f32 scales per 1×3"),
        ((2, 4), (3, 2), (2, 4), "f32 scales per 2×4"),
        ((4, 128), (2, 1), (4, 8), "f32 scales per 4×8"),
        (None, (3, 4), (2, 2), "f32 scales per 2×2"),
    ],
)
def test_granularities(block: Any, scales: Any, expected: Any, shown: str) -> None:
    values = f32(*scales)
    scaled = Scaled(S8, values, block)
    assert scaled.block == expected
    assert repr(scaled) == f"Scaled(s8 6×8, {shown})"
    full = np.broadcast_to(values, (1, 1)) if values.size == 1 else values
    full = full.reshape(-(-6 // expected[0]), -(-8 // expected[1]))
    assert np.array_equal(scaled.dequantize(), reference(S8, full, *expected))
    assert np.array_equal(scaled.T.dequantize(), scaled.dequantize().T)
    assert np.shares_memory(scaled.T.data, S8)


def test_scales_that_are_not_positive_follow_the_arithmetic() -> None:
    scales = np.array([0, -1, np.inf, np.nan, 3.4e38, 1e-45], np.float32)
    with np.errstate(all="ignore"):
        expected = S8.astype(np.float32) * scales[:, None]
    expected[np.isnan(expected)] = np.uint32(0x7FFFFFFF).view(np.float32)
    found = Scaled(S8, scales, "row").dequantize()
    assert np.array_equal(found.view(np.uint32), expected.view(np.uint32))


@every_row("type_", ["f32", "bf16", "ue8m0"])
def test_scale_types_are_exact(type_: str) -> None:
    kinds = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "ue8m0": ml_dtypes.float8_e8m0fnu}
    scales = (2.0 ** RNG.integers(-4, 5, (2, 3))).astype(kinds[type_])
    scaled = Scaled(E4M3, scales, (128, 128))
    expected = E4M3.astype(np.float32) * np.kron(scales.astype(np.float32), np.ones((128, 128)))
    assert np.array_equal(scaled.dequantize(), expected)


def test_rows_of_a_stack_are_a_matrix() -> None:
    x = RNG.standard_normal((2, 3, 256)).astype(np.float32)
    w = tilewright.quantize(RNG.standard_normal((16, 256)).astype(np.float32), "e4m3", (128, 128))
    for block, device in (("row", None), ((1, 128), None), ((1, 128), "vm")):
        stack = tilewright.quantize(x, "e4m3", block, device=device)
        flat = stack.reshape(-1, 256)
        assert np.array_equal(flat.dequantize(), stack.dequantize().reshape(6, 256))
    y = tilewright.linear(stack, w, out_dtype="f32", device="vm")
    exact = stack.dequantize().astype(float) @ w.dequantize().T
    np.testing.assert_allclose(y, exact, atol=0.01 * np.abs(exact).max())
    asymmetric = tilewright.quantize(x, "s8", "row", zeros=True)
    assert np.array_equal(
        asymmetric.reshape(6, 256).dequantize(), asymmetric.dequantize().reshape(6, 256)
    )
    for scaled in (tilewright.quantize(x), tilewright.quantize(x, "e4m3", (3, 128))):
        with pytest.raises(ProblemError, match="must keep its shape 2×3×256, got 6×256"):
            scaled.reshape(6, 256)


def test_numpy_reads_the_dequantized_matrix() -> None:
    scaled = Scaled(S8, f32(6), "row")
    assert np.array_equal(np.asarray(scaled), scaled.dequantize())
    assert np.asarray(scaled, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="copy=False"):
        np.asarray(scaled, copy=False)
    with pytest.raises(TypeError, match="does not support ufuncs"):
        np.add(scaled, 1)


def test_a_scaled_survives_a_file() -> None:
    scaled = Scaled(E4M3, f32(256, 3).astype(ml_dtypes.bfloat16), 128)
    file = io.BytesIO()
    np.savez(file, **scaled.to_arrays())
    file.seek(0)
    loaded = Scaled.from_arrays(np.load(file, allow_pickle=False))
    assert repr(loaded) == repr(scaled) == "Scaled(e4m3 256×384, bf16 scales per 1×128)"
    assert np.array_equal(loaded.dequantize(), scaled.dequantize())
    assert np.shares_memory(Scaled.from_arrays(scaled.to_arrays()).data, E4M3)


WRONG_SCALED: list[tuple[Any, type[TilewrightError], str]] = [
    (lambda: Scaled(S8, f32(5), "row"), ProblemError, "scales must have shape 6×1 for data of 6×8"),
    (lambda: Scaled(S8, f32(6), None), ProblemError, "block must be given: scales of 6"),
    (lambda: Scaled(S8, f32(4, 3)), ProblemError, "block must be given: scales of 4×3 do not div"),
    (lambda: Scaled(S8, f32(6, 2), 0), ProblemError, "block must be 'tensor', 'row', 'token'"),
    (lambda: Scaled(S8, f32(6), "rows"), ProblemError, "got 'rows'"),
    (lambda: Scaled(S8[0], f32(1)), ProblemError, "data must be 2-D, or 3-D"),
    (
        lambda: Scaled(f32(6, 8), f32(6), "row"),
        DtypeError,
        "data must be one of e4m3, e5m2, s8, u8",
    ),
    (lambda: Scaled(S8, S8[:, :1]), DtypeError, "scales must be one of f32, bf16, ue8m0, got s8"),
    (lambda: Scaled("x", f32(1)), ProblemError, "data must be an array, got str"),
    (lambda: Scaled(S8, 1.0), ProblemError, "scales must be an array, got float"),
    (lambda: Scaled(S8, f32(1)).reshape(48), ProblemError, "must keep its shape 6×8, got 48"),
    (lambda: Scaled.from_arrays({"data": S8}), ProblemError, "must include scales, got data"),
    (
        lambda: Scaled.from_arrays(dict.fromkeys(("data", "scales", "types", "block"), S8[0, :1])),
        ProblemError,
        "types must be those of",
    ),
    (
        lambda: Packed.from_arrays(
            dict.fromkeys(("data", "scales", "type", "group", "transposed"))
        ),
        ProblemError,
        "must include data_type",
    ),
]


@every_row("make error text", WRONG_SCALED)
def test_wrong_scaled(make: Any, error: type[TilewrightError], text: str) -> None:
    with pytest.raises(error) as raised:
        make()
    assert text in str(raised.value)


# --- Packed -------------------------------------------------------------------------------------

BITS = {"u4": 4, "s4": 4, "e2m1": 4, "nf4": 4, "e2m3": 6, "e3m2": 6, "u8": 8, "s8": 8, "e4m3": 8}


def element(type_: str, code: int) -> float:
    """A code's value from the definition of its format."""
    bits = BITS[type_]
    if type_[0] == "u":
        return code
    if type_[0] == "s":
        return code - (code >> (bits - 1) << bits)
    if type_ == "nf4":
        return NF4[code]
    exponent, mantissa = int(type_[1]), int(type_[3])
    sign, field = code >> (bits - 1), code >> mantissa & ((1 << exponent) - 1)
    fraction = (code & ((1 << mantissa) - 1)) / (1 << mantissa)
    bias = (1 << (exponent - 1)) - 1
    value = (fraction + (field > 0)) * 2.0 ** (max(field, 1) - bias)
    if type_ == "e4m3" and code & 0x7F == 0x7F:
        return float("nan")
    return -value if sign else value


NF4 = [
    -1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.09105004, 0.0,
    0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
]  # fmt: skip


@every_row("type_", sorted(BITS))
def test_elements_of_every_type(type_: str) -> None:
    """Bit k of a row's bytes is bit k mod ``bits`` of element k // ``bits``."""
    data = RNG.integers(0, 256, (2, 96), dtype=np.uint8)
    depth = 96 * 8 // BITS[type_]
    found = Packed(data, np.ones((2, 1), np.float32), type_).dequantize()
    for i in range(2):
        row = int.from_bytes(data[i].tobytes(), "little")
        codes = [row >> (k * BITS[type_]) & ((1 << BITS[type_]) - 1) for k in range(depth)]
        expected = np.array([element(type_, code) for code in codes], np.float32)
        tolerance = 1e-7 if type_ == "nf4" else 0  # the table here has eight digits
        assert np.allclose(found[i], expected, rtol=tolerance, atol=0, equal_nan=True)


def u4(**more: Any) -> Packed:
    scales = (f32(4, 3) * 0.1).astype(more.pop("scale_type", np.float32))
    fields = {"data": CODES[:, ::2] | CODES[:, 1::2] << 4, "scales": scales, "type": "u4"}
    return Packed(**fields | {"group": 32} | more)


CODES = RNG.integers(0, 16, (4, 96), dtype=np.uint8)


@every_row("scale_type", [np.float32, np.float16, ml_dtypes.bfloat16])
@every_row("kind", ["none", "number", "integer", "float"])
def test_zero_points(kind: str, scale_type: Any) -> None:
    zero: Any = {
        "none": None, "number": 8, "integer": RNG.integers(0, 16, (4, 3), dtype=np.uint8),
        "float": f32(4, 3).astype(scale_type),
    }[kind]  # fmt: skip
    packed = u4(zeros=zero, scale_type=scale_type)
    found = packed.dequantize()
    for i, k in np.ndindex(4, 96):
        q, s = np.float32(CODES[i, k]), np.float32(packed.scales[i, k // 32])
        z = zero if kind in ("none", "number") else np.float32(zero[i, k // 32])
        expected = q * s if z is None else q * s + z if kind == "float" else (q - np.float32(z)) * s
        assert found[i, k] == expected


def test_order_and_global_scale_are_applied() -> None:
    order = RNG.permutation(96).astype(np.int32)
    plain = u4()
    arrays = plain.data, plain.scales, "u4", 32
    expected = plain.dequantize()
    assert np.array_equal(Packed(*arrays, order=order).dequantize()[:, order], expected)
    factor = np.array([0.3], np.float32)
    assert np.array_equal(
        Packed(*arrays, global_scale=factor).dequantize(), expected * np.float32(0.3)
    )


@every_row(
    "type_ scale group length shown",
    [
        ("e4m3", "ue8m0", 32, 96, "mxfp8 2×96, ue8m0 scales per 32"),
        ("e2m3", "ue8m0", 32, 72, "mxfp6 2×96, ue8m0 scales per 32"),
        ("e2m1", "ue8m0", 32, 48, "mxfp4 2×96, ue8m0 scales per 32"),
        ("e2m1", "e4m3", 16, 48, "nvfp4 2×96, e4m3 scales per 16"),
        ("e2m1", "f32", 16, 48, "e2m1 2×96, f32 scales per 16"),
        ("s8", "f32", None, 96, "s8 2×96, f32 scales per row"),
    ],
)
def test_printing(type_: str, scale: str, group: Any, length: int, shown: str) -> None:
    kinds = {"f32": np.float32, "ue8m0": ml_dtypes.float8_e8m0fnu, "e4m3": ml_dtypes.float8_e4m3fn}
    data = np.zeros((2, length), np.uint8)
    packed = Packed(data, np.ones((2, 96 // (group or 96)), kinds[scale]), type_, group)
    assert repr(packed) == f"Packed({shown})"
    assert packed.T.shape == packed.shape[::-1] and packed.T.data is data


def test_a_packed_survives_a_file() -> None:
    order = RNG.permutation(96).astype(np.int32)
    for more in ({}, {"zeros": 8}, {"zeros": np.ones((4, 3), np.uint8), "order": order}):
        packed = u4(**more).T
        file = io.BytesIO()
        np.savez(file, **packed.to_arrays())
        file.seek(0)
        loaded = Packed.from_arrays(np.load(file, allow_pickle=False))
        assert repr(loaded) == repr(packed)
        assert np.array_equal(loaded.dequantize(), packed.dequantize())


BYTES = np.zeros((4, 48), np.uint8)
WRONG_PACKED: list[tuple[Any, type[TilewrightError], str]] = [
    (lambda: u4(group=40), ProblemError, "group must divide K = 96, got 40"),
    (lambda: u4(group=0), ProblemError, "group must be a positive number"),
    (lambda: u4(scales=f32(4, 2)), ProblemError, "scales must have shape 4×3, got 4×2"),
    (lambda: u4(scales=S8), DtypeError, "scales must be one of f32, f16, bf16, ue8m0, e4m3"),
    (lambda: u4(zeros=17), ProblemError, "zeros of u4 must be 0 … 16, got 17"),
    (lambda: u4(zeros=-1), ProblemError, "zeros of u4 must be 0 … 16, got -1"),
    (lambda: u4(zeros=np.full((4, 3), 200, np.uint8)), ProblemError, "0 … 16, got 200"),
    (lambda: u4(type="s4", zeros=8), ProblemError, "zeros of s4 must be -8 … 7, got 8"),
    (lambda: u4(type="e2m1", zeros=8), DtypeError, "zeros must be None for e2m1"),
    (lambda: u4(zeros=f32(4, 1)), ProblemError, "zeros must have shape 4×3, got 4×1"),
    (lambda: u4(order=np.zeros(96, np.int32)), ProblemError, "a permutation of 0 … 95"),
    (lambda: u4(global_scale=f32(2)), ProblemError, "global_scale must have one element"),
    (lambda: Packed(BYTES, f32(4, 1), "u5"), DtypeError, "type of weights must be one of u4"),
    (lambda: Packed(BYTES.view(np.int32), f32(4, 1), "u4"), DtypeError, "must be u8, got s32"),
    (lambda: Packed(BYTES[0], f32(4, 1), "u4"), ProblemError, "shape (N, K · 4 / 8) bytes"),
    (lambda: Packed(BYTES[:, :47], f32(4, 1), "e2m3"), ProblemError, "data of e2m3 must have sh"),
]  # fmt: skip


@every_row("make error text", WRONG_PACKED)
def test_wrong_packed(make: Any, error: type[TilewrightError], text: str) -> None:
    with pytest.raises(error) as raised:
        make()
    assert text in str(raised.value)


# --- torch --------------------------------------------------------------------------------------


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    data = torch.from_numpy(S8)
    scaled = Scaled(data, torch.ones(6, dtype=torch.bfloat16), "row")
    assert scaled.data is data and repr(scaled) == "Scaled(s8 6×8, bf16 scales per row)"
    assert torch.equal(scaled.T.dequantize(), data.float().T)
    again = Scaled.from_arrays(scaled.to_arrays(), like=data)
    assert again.scales.dtype is torch.bfloat16 and torch.equal(again.data, data)
    codes = torch.from_numpy(CODES[:, ::2] | CODES[:, 1::2] << 4)
    packed = Packed(codes, torch.ones(4, 3, dtype=torch.float16), "u4", 32, zeros=8)
    assert torch.equal(packed.dequantize(), torch.from_numpy(CODES).float() - 8)
    with pytest.raises(ProblemError, match="must not require a gradient here"):
        Scaled(data, torch.ones(6, requires_grad=True), "row")
