"""``quantize`` and ``quantize_weight``: each element by its definition, laws, hostile input."""

from __future__ import annotations

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright
from rows import every_row
from tilewright.dtypes import dtype
from tilewright.errors import DtypeError, ProblemError, TilewrightError
from tilewright.number_conversion import decode, encode
from tilewright.quantization import Packed, Scaled, quantize, quantize_weight, smoothing_factors
from tilewright.quantization.array_access import codes
from tilewright.quantization.quantization_reference import saturated
from tilewright.quantization.weight_types import weight_type

RNG = np.random.default_rng(11)
X = (RNG.standard_normal((150, 300)) * 2.0 ** RNG.integers(-6, 7, (150, 1))).astype(np.float32)
LARGEST = {"e4m3": 448, "e5m2": 57344, "s8": 127}
NUMPY = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
BLOCKS: list[Any] = [None, "row", "column", (1, 128), (128, 128)]


def blocks(x: np.ndarray[Any, Any], rows: int, columns: int) -> Any:
    for i in range(0, x.shape[0], rows):
        for j in range(0, x.shape[1], columns):
            yield i // rows, j // columns, x[i : i + rows, j : j + columns]


def rounded(x: np.ndarray[Any, Any], type_: str) -> np.ndarray[Any, Any]:
    """By ml_dtypes' casts, which round to nearest even and do not saturate."""
    if type_ == "s8":
        return np.clip(np.rint(x), -128, 127).astype(np.int8)
    return np.clip(x, -LARGEST[type_], LARGEST[type_]).astype(NUMPY[type_])


@every_row("block", BLOCKS, ids=str)
@every_row("type_", ["e4m3", "e5m2", "s8"])
@every_row("scale_type", ["f32", "bf16", "ue8m0"])
def test_quantize_is_its_definition(type_: str, block: Any, scale_type: str) -> None:
    found = quantize(X, type_, block, scale_dtype=scale_type)
    values = found.data.view(np.uint8)
    for i, j, part in blocks(X, *found.block):
        scale = np.float32(np.abs(part).max() / np.float32(LARGEST[type_]))
        if scale_type == "bf16":
            scale = np.float32(scale.astype(ml_dtypes.bfloat16))
        if scale_type == "ue8m0":
            scale = np.float32(2.0 ** np.ceil(np.log2(float(scale))))
        grid = np.atleast_2d(found.scales)
        assert np.float32(grid[i, j]) == scale
        expected = rounded(part * (np.float32(1) / scale), type_)
        at = slice(i * found.block[0], i * found.block[0] + part.shape[0])
        columns = slice(j * found.block[1], j * found.block[1] + part.shape[1])
        assert np.array_equal(values[at, columns], expected.view(np.uint8))


@every_row("type_ steps", [("e4m3", 2.0**-4), ("e5m2", 2.0**-3), ("s8", None)])
def test_the_error_is_half_a_unit(type_: str, steps: Any) -> None:
    found = quantize(X, type_, "row")
    error = np.abs(found.dequantize() - X)
    amax = np.abs(X).max(axis=1, keepdims=True)
    unit = amax / 254 if steps is None else np.maximum(np.abs(X) * steps, amax * 2.0**-14)
    assert np.all(error <= unit * 1.001)


def test_zeros_nans_and_infinities() -> None:
    x = np.zeros((4, 128), np.float32)
    x[1, :3] = 1, np.nan, -2
    x[2, :3] = 1, np.inf, -np.inf
    x[3, :2] = 1e-45, -0.0
    found = quantize(x, "e4m3", "row")
    tiny, huge = np.float32(2.0**-126), np.finfo(np.float32).max / np.float32(448)
    assert found.scales[:, 0].tolist() == [tiny, np.float32(2) / np.float32(448), huge, tiny]
    codes = found.data.view(np.uint8)
    assert not codes[0].any()
    assert codes[1, :4].tolist() == [0x76, 0x7F, 0xFE, 0]  # 224, NaN, −448
    assert codes[2, :4].tolist() == [0, 0x7E, 0xFE, 0]
    assert codes[3, :3].tolist() == [0, 0x80, 0]
    integers = quantize(x, "s8", "row").data
    assert integers[1, :3].tolist() == [64, 0, -127] and integers[2, :3].tolist() == [0, 127, -128]


def test_power_of_two_scales_never_saturate() -> None:
    for amax in (447.9, 448.0, 448.1, 1e-38, 3e38):
        found = quantize(np.array([[amax, -amax]], np.float32), scale_dtype="ue8m0")
        assert abs(found.dequantize()[0, 0] - amax) <= amax / 15


@every_row("type_", [np.float16, ml_dtypes.bfloat16])
def test_16_bit_inputs_are_exact(type_: Any) -> None:
    x = X[:8].astype(type_)
    one, other = quantize(x, "e4m3", "row"), quantize(x.astype(np.float32), "e4m3", "row")
    assert np.array_equal(one.data.view(np.uint8), other.data.view(np.uint8))
    assert np.array_equal(one.scales, other.scales)


HOSTILE = (X * 2.0 ** RNG.integers(-20, 20, X.shape)).astype(np.float32)[:20, :264]
HOSTILE[3] = 0
HOSTILE[4, 7], HOSTILE[5, 9], HOSTILE[6, 8], HOSTILE[7] = np.nan, np.inf, -np.inf, np.nan
HOSTILE[8], HOSTILE[9, 1] = 1e-45, -0.0


@pytest.mark.vm
@every_row(
    "source type_ block scale_type",
    [
        (np.float32, "e4m3", (1, 128), "f32"),
        (ml_dtypes.bfloat16, "e4m3", (1, 128), "ue8m0"),
        (np.float32, "e5m2", "row", "bf16"),
        (np.float32, "s8", (128, 128), "f32"),
        (ml_dtypes.bfloat16, "e4m3", (128, 128), "ue8m0"),
        (ml_dtypes.bfloat16, "s8", "row", "f32"),
        (np.float16, "e4m3", None, "f32"),
    ],
)
def test_a_kernel_has_the_same_bits(source: Any, type_: str, block: Any, scale_type: str) -> None:
    with np.errstate(all="ignore"):
        x = HOSTILE.astype(source)
    how = {"scale_dtype": scale_type}
    found, expected = (
        quantize(x, type_, block, device="vm", **how),
        quantize(x, type_, block, **how),
    )
    assert repr(found) == repr(expected)
    assert np.array_equal(found.data.view(np.uint8), expected.data.view(np.uint8))
    assert np.array_equal(found.to_arrays()["scales"], expected.to_arrays()["scales"])


@every_row("type_ block scale_type dest", [
    ("e4m3", (1, 128), "f32", "bf16"), ("e5m2", (128, 128), "ue8m0", "f32"),
    ("s8", "column", "bf16", "f16"), ("e4m3", (8, 12), "f32", "f32"), ("e4m3", None, "f32", "f16"),
])  # fmt: skip
def test_dequantize_by_a_kernel(type_: str, block: Any, scale_type: str, dest: str) -> None:
    scaled = quantize(HOSTILE, type_, block, scale_dtype=scale_type)
    if scale_type == "f32":
        scaled.scales.reshape(-1)[[0, -1]] = np.inf, np.nan
    stack = Scaled(*(np.stack([x, x[::-1]]) for x in (scaled.data, scaled.scales)), scaled.block)
    for matrix in (scaled, stack):
        found, expected = matrix.dequantize(dest, device="vm"), matrix.dequantize(dest)
        assert found.dtype == expected.dtype
        assert np.array_equal(found.astype(float), expected.astype(float), equal_nan=True)


@every_row("type_", ["s8", "u8"])
def test_dequantize_with_zero_points_by_a_kernel(type_: str) -> None:
    scaled = quantize(np.nan_to_num(HOSTILE), type_, "row", zeros=True)
    wide = Scaled(scaled.data, scaled.scales, "row", scaled.zeros.astype(np.int32) << 20)
    for matrix in (scaled, wide):
        assert np.array_equal(matrix.dequantize(device="vm"), matrix.dequantize())


def random_bits(shape: tuple[int, ...], type_: str) -> Any:
    t = dtype(type_)
    bits = RNG.integers(0, 1 << t.bits, shape).astype(f"u{t.bits // 8}")
    return bits.view(t.numpy)


@every_row("type_ group scale_type zeros dest", [
    ("u4", 12, "f16", "integer", "f32"), ("s4", 128, "bf16", -3, "f16"),
    ("u8", 8, "f32", "bf16", "f32"), ("s8", None, "f32", None, "bf16"),
    ("e2m1", 32, "ue8m0", None, "bf16"), ("nf4", 24, "f32", None, "f32"),
    ("e2m3", 32, "ue8m0", None, "f32"), ("e3m2", 16, "e4m3", None, "f16"),
    ("e4m3", 33, "f16", None, "f32"), ("e5m2", 264, "bf16", None, "f32"),
], parts=3)  # fmt: skip
def test_packed_weights_by_a_kernel(
    type_: str, group: int | None, scale_type: str, zeros: Any, dest: str
) -> None:
    """Random bits, of scales too; a stack; transposed; with an order and a global scale."""
    depth, lowest = 264 + 120 * (group in (32, 128, 16)), -8 if type_[0] == "s" else 0
    bits = RNG.integers(0, 256, (2, 35, depth * weight_type(type_).bits // 8), np.uint8)
    grid = (2, 35, depth // (group or depth))
    scales = random_bits(grid, scale_type)
    if zeros == "integer":
        zeros = RNG.integers(lowest, lowest + 16, grid).astype(np.uint8)
    elif zeros is not None and not isinstance(zeros, int):
        zeros = random_bits(grid, zeros)
    stack = Packed(bits, scales, type_, group, zeros)
    one = zeros if zeros is None or isinstance(zeros, int) else zeros[0]
    order = RNG.permutation(depth).astype(np.int32)
    matrix = Packed(bits[0], scales[0], type_, group, one, order, np.array([0.3], np.float32))
    for weights in (stack, stack.T, matrix):
        found, expected = weights.dequantize(dest, device="vm"), weights.dequantize(dest)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert np.array_equal(found.astype(float), expected.astype(float), equal_nan=True)


def test_a_kernel_reads_what_a_kernel_wrote() -> None:
    rng = np.random.default_rng(0)
    for shape, block in (
        ((5, 128), (1, 128)), ((2, 136), (128, 128)), ((2, 3, 128), (128, 128)), ((0, 16), "row"),
        ((5, 128), "row"), ((3, 5, 64), None), ((2, 0, 64), None), ((0, 5, 64), None),
    ):  # fmt: skip
        values = rng.standard_normal(shape).astype(np.float32) * np.float32(4) ** len(shape)
        scaled, on_cpu = (quantize(values, "e4m3", block, device=where) for where in ("vm", None))
        assert np.array_equal(scaled.data.view(np.uint8), on_cpu.data.view(np.uint8))
        assert np.array_equal(scaled.scales, on_cpu.scales)
        for x in (scaled, scaled.T):
            got, expected = x.dequantize("bf16", device="vm"), x.dequantize("bf16")
            assert got.shape == expected.shape and np.array_equal(
                codes("d", got), codes("d", expected)
            )


def test_nan_is_canonical() -> None:
    data = np.arange(256, dtype=np.uint8).reshape(2, 128)
    scales = np.array([[-1], [np.nan]], np.float32)
    e4m3 = data.view(ml_dtypes.float8_e4m3fn)
    for matrix in (Scaled(e4m3, scales), Packed(data, scales, "e4m3")):
        found = [matrix.dequantize(device=device) for device in (None, "vm")]
        assert np.isnan(found[0]).any() and np.array_equal(*(codes("d", x) for x in found))


def test_packed_weights_that_no_kernel_reads() -> None:
    weights = Packed(np.zeros((4, 6), np.uint8), np.ones((4, 1), np.float32), "u4")
    with pytest.raises(ProblemError, match="rows of a multiple of 8 elements"):
        weights.dequantize(device="vm")
    assert weights.dequantize().shape == (4, 12)
    for dest in ("f64", "e4m3", None):
        with pytest.raises(DtypeError, match="dtype must be one of f32, f16, bf16"):
            weights.dequantize(dest)
        with pytest.raises(DtypeError, match="dtype must be one of f32, f16, bf16"):
            weights.dequantize(dest, device="vm")


@every_row("type_", ["e4m3", "e5m2", "e2m1", "e2m3", "e3m2", "s8", "u8", "s4", "u4"])
def test_saturated_is_encode(type_: str) -> None:
    """Numbers of the format, their midpoints and neighbours, random bits, special values."""
    values = decode(type_, np.arange(1 << dtype(type_).bits)).astype(np.float32)
    values = np.sort(values[np.isfinite(values)])
    middles = (values[1:] + values[:-1]) / 2
    x = np.concatenate([values, middles, RNG.integers(0, 2**32, 4000).astype(np.uint32).view("f4")])
    with np.errstate(all="ignore"):
        x = np.concatenate([x, *(np.nextafter(x, end) for end in (1e38, -1e38)), [np.inf, -np.inf]])
        x = x.astype(np.float32)
        assert np.array_equal(saturated(x, type_), encode(type_, x, satfinite=True))


@every_row("shape", [(0, 256), (4, 0), (2, 0, 256), (2, 4, 0)])
@every_row("block scales", [(None, (1, 1)), ("row", (None, 1)), ((1, 128), (None, None))])
def test_no_rows_or_no_columns(shape: tuple[int, ...], block: Any, scales: Any) -> None:
    """An expert without tokens; a product without depth. A whole axis has one scale."""
    x = np.zeros(shape, np.float32)
    scaled = quantize(x, "e4m3", block)
    rows, columns = shape[-2], -(-shape[-1] // 128)
    both = zip(scales, (rows, columns), strict=True)
    assert scaled.scales.shape[-2:] == tuple(each or natural for each, natural in both)
    again = Scaled.from_arrays(scaled.to_arrays())
    assert (str(again.T.T), again.dequantize().shape) == (str(scaled), shape)
    if len(shape) == 2 or block is not None:
        on_vm = quantize(x, "e4m3", block, device="vm")
        assert np.array_equal(on_vm.scales, scaled.scales) and on_vm.block == scaled.block


def test_products_without_rows_or_depth() -> None:
    for (m, k), blocks in product(((0, 256), (4, 0)), (("row", "row"), ((1, 128), (128, 128)))):
        x, w = np.zeros((m, k), np.float32), np.zeros((8, k), np.float32)
        a, b = (quantize(v, "e4m3", block) for v, block in zip((x, w), blocks, strict=True))
        assert np.array_equal(tilewright.matmul(a, b.T, out_dtype="f32", device="vm"), x @ w.T)


WRONG: list[tuple[Any, type[TilewrightError], str]] = [
    (lambda: quantize(X, "u8"), DtypeError, "dtype must be one of e4m3, e5m2, s8, got 'u8'"),
    (lambda: quantize(X.astype(float)), DtypeError, "x must be one of f32, f16, bf16, got f64"),
    (lambda: quantize(X[0]), ProblemError, "x must be a matrix or a stack of matrices, got shape"),
    (lambda: quantize(X, np.array(["s8"] * 2)), DtypeError, "dtype must be one of e4m3, e5m2, s8"),
    (lambda: quantize(X, "s8", zeros=X), ProblemError, "zeros must be True or False, got"),
    (lambda: quantize(X, scale="a"), ProblemError, "scale must be a number or an array of numbers"),
    (
        lambda: quantize_weight(X[:0]),
        ProblemError,
        "w must be a matrix or a stack of matrices with",
    ),
    (lambda: quantize_weight(X, "u4", 100, X), ProblemError, "zeros must be None, or"),
    (lambda: quantize_weight(X, X), DtypeError, "the type of weights must be one of u4, s4"),
    (lambda: quantize(X, block=(0, 1)), ProblemError, "block must be"),
    (lambda: quantize(X, block="row", scale=X[0, :7]), ProblemError, "or have shape 150×1, got 7"),
    (lambda: quantize(X, scale_dtype="f16"), DtypeError, "scale_dtype must be one of f32, bf16"),
    (lambda: quantize(X, block="column", device="vm"), ProblemError, "got blocks per column"),
    (lambda: quantize(X[:, :17], scale=2.0, device="vm"), ProblemError, "x must be contiguous"),
    (lambda: quantize(X[:, 1:5], device="vm"), ProblemError, "x must be contiguous, with rows of"),
    (lambda: quantize_weight(X, "u4", 128), ProblemError, "group must divide K = 300, got 128"),
    (lambda: quantize_weight(X * np.nan, "u4", 100), ProblemError, "no NaN, which u4 has not"),
    (lambda: quantize_weight(W * np.nan, "mxfp4"), ProblemError, "no NaN, which e2m1 has not"),
    (lambda: quantize_weight(X, "u4", True), ProblemError, "group must divide K = 300, got True"),
    (lambda: quantize_weight(X, "u4", 100, "none"), ProblemError, "zeros must be None, or"),
    (lambda: quantize_weight(X, "s4", 100, "integer"), ProblemError, "for u4 and u8"),
    (lambda: quantize_weight(X, "nf4"), DtypeError, "nf4 can be read"),
    (lambda: quantize_weight(X, "u3"), DtypeError, "the type of weights must be one of u4, s4"),
    (lambda: quantize_weight(X[:, :9], "u4", 9), ProblemError, "K must be a multiple of 2 for u4"),
    (lambda: smoothing_factors(X[0, :4], X), ProblemError, "one element for each column of w"),
]


@every_row("call error text", WRONG)
def test_wrong_calls(call: Any, error: type[TilewrightError], text: str) -> None:
    with pytest.raises(error) as raised:
        call()
    assert text in str(raised.value)


# --- weights ------------------------------------------------------------------------------------

W = RNG.standard_normal((24, 256)).astype(np.float32)


@every_row("group", [32, 64, 128, None])
@every_row("type_ zeros", [
    ("u4", None), ("s4", None), ("u4", "integer"), ("u4", "float"),
    ("u8", None), ("s8", None), ("u8", "integer"), ("u8", "float"),
])  # fmt: skip
def test_integer_weights_are_within_half_a_step(type_: str, zeros: Any, group: Any) -> None:
    packed = quantize_weight(W, type_, group, zeros)
    assert packed.group == (group or 256) and packed.shape == W.shape
    error = np.abs(packed.dequantize() - W)
    step = np.repeat(packed.scales, packed.group, -1)
    assert np.all(error <= step * (1.0 if zeros == "integer" else 0.501))


@every_row("name error", [
    ("e2m1", 0.26), ("e4m3", 0.0626), ("e5m2", 0.126), ("mxfp8", 0.0626), ("mxfp6", 0.0626),
    ("mxfp6_e3m2", 0.126), ("mxfp4", 0.26), ("nvfp4", 0.29),
])  # fmt: skip
def test_float_weights_are_within_half_a_unit(name: str, error: float) -> None:
    """Relative to the element, or to the step of the smallest numbers."""
    packed = quantize_weight(W, name, 32)
    found = packed.dequantize()
    scale = np.repeat(packed.scales.astype(np.float32), packed.group, -1)
    if packed.global_scale is not None:
        scale = scale * packed.global_scale
    assert np.all(np.abs(found - W) <= np.maximum(np.abs(W) * error, scale * 0.251))
    assert (packed.format or packed.type) == name


def test_exact_weights_come_back() -> None:
    """A group of −7 … 7 times a power of two is represented exactly, whatever the type."""
    q = RNG.integers(-7, 8, (16, 64))
    q[:, 0], q[:, 32] = 7, -7
    w = (q * 0.25).astype(np.float32)
    for type_ in ("s4", "u4"):
        assert np.array_equal(quantize_weight(w, type_, 32).dequantize(), w)


def test_smoothing_keeps_the_product() -> None:
    x = (RNG.standard_normal((32, 64)) * np.where(np.arange(64) % 16, 1, 60)).astype(np.float32)
    w = RNG.standard_normal((48, 64)).astype(np.float32)
    w[:, 5] = 0
    factors = smoothing_factors(np.abs(x).max(axis=0), w)
    assert factors[5] == 1 and factors.dtype == np.float32
    product = x.astype(float) @ w.T

    def error(x: Any, w: Any) -> float:
        a, b = quantize(x, "s8", "row"), quantize(w, "s8", "row")
        found = a.dequantize().astype(float) @ b.dequantize().T
        return float(np.abs(found - product).max())

    assert error(x / factors, w * factors) < error(x, w) / 2


def test_public_names() -> None:
    assert tilewright.quantize is quantize and tilewright.quantize_weight is quantize_weight
    assert tilewright.Scaled is Scaled and tilewright.Packed is Packed
