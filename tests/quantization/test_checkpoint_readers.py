"""Readers of others' layouts, on small weights that are packed here element by element, as the
layouts are published.
"""

from __future__ import annotations

from contextlib import suppress
from inspect import signature
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rows import every_row
from tilewright.errors import DtypeError, ProblemError, TilewrightError
from tilewright.quantization import (
    Packed,
    Scaled,
    quantize,
    read_awq,
    read_bitsandbytes_nf4,
    read_compressed_tensors,
    read_gptq,
    read_marlin,
    read_torchao_int4,
    read_torchao_tile_packed,
)

RNG = np.random.default_rng(23)
N, K, GROUP = 64, 128, 32
Array = np.ndarray[Any, Any]


class Weights:
    """Random elements (K, N), zero points and scales (K / group, N), and what they stand for."""

    def __init__(self, bits: int, group: int = GROUP, n: int = N, k: int = K) -> None:
        self.bits, self.group = bits, group
        self.q = RNG.integers(0, 1 << bits, (k, n))
        self.zeros = RNG.integers(1, 1 << bits, (k // group, n))
        self.scales = RNG.uniform(0.01, 0.1, (k // group, n)).astype(np.float16)

    def values(self, zeros: Any = None, groups: Any = None) -> Array:
        """(q − z) · s in f32, N×K."""
        groups = np.arange(len(self.q)) // self.group if groups is None else groups
        zeros = self.zeros[groups] if zeros is None else zeros
        scaled = (self.q - zeros).astype(np.float32) * self.scales[groups].astype(np.float32)
        return scaled.T


def words(elements: Array, bits: int, axis: int, order: Any = None) -> Array:
    """Fields packed into s32, the lowest first; ``order``: the element of each field."""
    per_word = 32 // bits
    order = range(per_word) if order is None else order
    moved = np.moveaxis(elements, axis, -1)
    result = np.zeros((*moved.shape[:-1], moved.shape[-1] // per_word), np.uint32)
    for index in np.ndindex(*result.shape):
        for field, element in enumerate(order):
            value = int(moved[(*index[:-1], index[-1] * per_word + element)])
            result[index] |= np.uint32(value << field * bits)
    return np.moveaxis(result, -1, axis).view(np.int32)


@every_row("bits", [4, 8])
@every_row("version", [1, 2])
def test_gptq(bits: int, version: int) -> None:
    w = Weights(bits)
    stored = words(w.zeros - (version == 1), bits, 1)
    packed = read_gptq(words(w.q, bits, 0), stored, w.scales, None, bits, 2 - version)
    assert repr(packed) == f"Packed(u{bits} 64×128, f16 scales per 32, integer zeros)"
    assert np.array_equal(packed.dequantize(), w.values())
    assert np.shares_memory(packed.scales, w.scales)


def test_gptq_with_act_order() -> None:
    w = Weights(4)
    groups = RNG.permutation(np.arange(K) // GROUP).astype(np.int32)
    arrays = words(w.q, 4, 0), words(w.zeros - 1, 4, 1), w.scales
    packed = read_gptq(*arrays, groups)
    assert np.array_equal(packed.dequantize(), w.values(groups=groups))
    assert np.all(np.diff(groups[packed.order]) >= 0)
    assert read_gptq(*arrays, np.sort(groups)).order is None
    with pytest.raises(ProblemError, match="g_idx must assign 32 of 128 rows to each group"):
        read_gptq(*arrays, np.zeros(K, np.int32))


def test_symmetric_gptq_has_one_zero_point() -> None:
    w = Weights(4)
    w.zeros[:] = 8
    packed = read_gptq(words(w.q, 4, 0), words(w.zeros - 1, 4, 1), w.scales)
    assert packed.zeros == 8 and np.array_equal(packed.dequantize(), w.values())


def test_awq() -> None:
    w = Weights(4)
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    packed = read_awq(words(w.q, 4, 1, order), words(w.zeros, 4, 1, order), w.scales)
    assert np.array_equal(packed.dequantize(), w.values())
    assert np.shares_memory(packed.scales, w.scales)


@every_row("nested", [False, True])
def test_bitsandbytes_nf4(nested: bool) -> None:
    codes = RNG.integers(0, 16, (N, K))
    data = np.array([int(a) << 4 | int(b) for a, b in codes.reshape(-1, 2)], np.uint8)[:, None]
    absmax: Array = RNG.uniform(0.5, 3, N * K // 64).astype(np.float32)
    extra: Any = None
    if nested:
        code = np.sort(RNG.uniform(-1, 1, 256)).astype(np.float32)
        indices = RNG.integers(0, 256, N * K // 64).astype(np.uint8)
        factors = np.array([0.7], np.float32)  # 128 blocks: one second-level block
        absmax = code[indices] * factors[0] + np.float32(0.25)
        extra = (code, factors, 0.25)
    given = indices if nested else absmax
    packed = read_bitsandbytes_nf4(data, given, (N, K), 64, extra)
    table = Packed(np.arange(16, dtype=np.uint8)[:, None] * 17, np.ones((16, 1), np.float32), "nf4")
    values = table.dequantize()[:, 0]
    expected = values[codes] * np.repeat(absmax, 64).reshape(N, K)
    assert np.array_equal(packed.dequantize(), expected)
    assert values[0] == -1 and values[7] == 0 and values[15] == 1


@every_row("bits", [4, 8])
@every_row("kind", ["symmetric", "asymmetric", "act-order"])
def test_compressed_tensors(bits: int, kind: str) -> None:
    """Elements and zero points are signed, and stored with 2^(bits − 1) added."""
    w = Weights(bits)
    groups = np.arange(K) // GROUP
    arrays = {
        "weight_packed": words(w.q.T, bits, 1),
        "weight_scale": np.ascontiguousarray(w.scales.T),
        "weight_shape": np.array([N, K]),
    }
    zeros: Any = np.array(1 << bits - 1)
    if kind == "asymmetric":
        arrays["weight_zero_point"], zeros = words(w.zeros.T, bits, 0), None
    if kind == "act-order":
        groups = RNG.permutation(groups)
        arrays["weight_g_idx"] = groups.astype(np.int32)
    packed = read_compressed_tensors(arrays, bits)
    assert isinstance(packed, Packed) and packed.scales is arrays["weight_scale"]
    assert np.array_equal(packed.dequantize(), w.values(zeros, groups))


def test_compressed_tensors_of_8_bits_and_nvfp4() -> None:
    x = RNG.standard_normal((N, K)).astype(np.float32)
    for type_ in ("e4m3", "s8"):
        scaled = quantize(x, type_, "row")
        read = read_compressed_tensors({"weight": scaled.data, "weight_scale": scaled.scales})
        assert isinstance(read, Scaled) and np.array_equal(read.dequantize(), scaled.dequantize())
    codes = RNG.integers(0, 16, (N, K))
    scales = RNG.uniform(1, 400, (N, K // 16)).astype(ml_dtypes.float8_e4m3fn)
    factor = np.array([2688.0], np.float32)
    packed = read_compressed_tensors({
        "weight_packed": (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8),
        "weight_scale": scales,
        "weight_global_scale": factor,
    })  # fmt: skip
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)[codes & 7]
    values = np.where(codes & 8, -values, values) * np.repeat(scales.astype(np.float32), 16, 1)
    assert isinstance(packed, Packed) and packed.format == "nvfp4"
    assert np.array_equal(packed.dequantize(), values * (1 / factor))


@every_row("type_", [np.uint8, np.int8])
def test_torchao_int4(type_: Any) -> None:
    q = RNG.integers(-8, 8, (N, K))
    data = ((q[:, ::2] & 15) | (q[:, 1::2] & 15) << 4).astype(np.uint8).view(type_)
    scale, zero = (RNG.uniform(-1, 1, (K // GROUP, N)).astype(ml_dtypes.bfloat16) for _ in "sz")
    packed = read_torchao_int4(data, scale, zero)
    s, z = (np.repeat(x.astype(np.float32), GROUP, 0).T for x in (scale, zero))
    assert np.array_equal(packed.dequantize(), q.astype(np.float32) * s + z)


@every_row("inner", [2, 4, 8])
def test_torchao_tile_packed(inner: int) -> None:
    """As PyTorch's CUDA kernel packs, lane by lane."""
    n, k = 24, 256
    q = RNG.integers(0, 16, (n, k))
    data = np.zeros((n // 8, k // (16 * inner), 32, inner // 2), np.uint32)
    for tile, outer, lane, half in np.ndindex(*data.shape):
        base = (outer * inner + half * 2) * 16 + lane % 4 * 2
        v = [int(q[tile * 8 + lane // 4, base + step]) for step in (0, 1, 8, 9, 16, 17, 24, 25)]
        for field, element in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
            data[tile, outer, lane, half] |= np.uint32(v[element] << 4 * field)
    both = RNG.uniform(-1, 1, (k // GROUP, n, 2)).astype(ml_dtypes.bfloat16)
    packed = read_torchao_tile_packed(data.view(np.int32), both)
    s, z = (np.repeat(both[..., i].astype(np.float32), GROUP, 0).T for i in (0, 1))
    assert np.array_equal(packed.dequantize(), (q - 8).astype(np.float32) * s + z)


def marlin(q: Array, bits: int) -> Array:
    """Each lane's words, from the fragments of ``mma.m16n8k16``: a lane has, for each of four
    n-tiles of 16 columns and both halves of a tile, rows 2t, 2t + 1, 2t + 8, 2t + 9 of a column.
    """
    k, n = q.shape
    order = {4: (0, 2, 4, 6, 1, 3, 5, 7), 8: (0, 2, 1, 3)}[bits]
    result = []
    for row in range(0, k, 16):
        for chunk in range(0, n, 64):
            for lane in range(32):
                for tile in range(4):
                    column = chunk + 16 * tile + lane // 4
                    rows = [row + 2 * (lane % 4) + i for i in (0, 1, 8, 9)]
                    found = [int(q[r, column + 8 * half]) for half in (0, 1) for r in rows]
                    for first in range(0, 8, 32 // bits):
                        part = found[first : first + 32 // bits]
                        result.append(sum(part[e] << bits * f for f, e in enumerate(order)))
    return np.array(result, np.uint32).reshape(k // 16, -1).view(np.int32)


@every_row("bits", [4, 8])
@every_row("group", [GROUP, K])
@every_row("asymmetric", [False, True])
def test_marlin(bits: int, group: int, asymmetric: bool) -> None:
    w = Weights(bits, group, n=128)
    n = w.q.shape[1]
    grouped = [c + i + 8 * j for c in range(0, n, 64) for i in range(8) for j in range(8)]
    single = [
        c + 2 * i + j
        for c in range(0, n, 32)
        for i in range(4)
        for j in (0, 1, 8, 9, 16, 17, 24, 25)
    ]
    scales = w.scales[:, grouped if group < K else single]
    zeros = None
    if asymmetric:
        order = {4: (0, 2, 4, 6, 1, 3, 5, 7), 8: (0, 2, 1, 3)}[bits]
        zeros = words(w.zeros[:, grouped], bits, 1, order)
    packed = read_marlin(marlin(w.q, bits), scales, zeros, bits)
    assert np.array_equal(packed.dequantize(), w.values(None if asymmetric else 1 << bits - 1))


WRONG: list[tuple[Any, type[TilewrightError], str]] = [
    (lambda: read_gptq(A8, A8, H), DtypeError, "must be a matrix of s32 with elements, got u8"),
    (lambda: read_gptq(A32, A32, H, bits=3), DtypeError, "bits must be 4 or 8, got 3"),
    (lambda: read_gptq(A32, A32, H3), ProblemError, "scales must divide K = 64, got 3 groups"),
    (lambda: read_gptq(A32, A32, H), ProblemError, "qzeros must hold 8×2 zero points, got 64×8"),
    (lambda: read_awq(A32, A32[:, :4], H), ProblemError, "qzeros must hold 64×2 zero points"),
    (lambda: read_bitsandbytes_nf4(A8, H, (8, 8)), ProblemError, "weight must have 32 bytes"),
    (lambda: read_bitsandbytes_nf4(A8, H, (2, 64), 48), ProblemError, "blocksize must divide K"),
    (lambda: read_compressed_tensors({"x": A8}), ProblemError, "must include weight_scale and"),
    (lambda: read_torchao_tile_packed(A32, H), DtypeError, "qdata must be s32 (N / 8"),
    (lambda: read_marlin(A32, H), ProblemError, "scales must have N = 4 columns, a multiple of 64"),
    (lambda: read_gptq(A32, A32, H, zero_offset=A8), ProblemError, "zero_offset must be 1 or 0"),
    (lambda: read_bitsandbytes_nf4(A8, H, A8), ProblemError, "shape must be N and K, got"),
    (lambda: read_bitsandbytes_nf4(A8, H, (8, 16), 4), ProblemError, "absmax must have 32 numbers"),
    (
        lambda: read_bitsandbytes_nf4(A8, A8, (8, 16), nested=A8),
        ProblemError,
        "nested must be (code",
    ),
    (lambda: read_compressed_tensors(A8), ProblemError, "arrays must be a dict of arrays by name"),
    (lambda: read_torchao_int4(A8, H, A8[0]), ProblemError, "zero_point must be matrices"),
]
A8, A32 = np.zeros((8, 8), np.uint8), np.zeros((8, 8), np.int32)
H, H3 = np.ones((2, 64), np.float16), np.ones((3, 64), np.float16)


@every_row("call error text", WRONG)
def test_wrong_arrays(call: Any, error: type[TilewrightError], text: str) -> None:
    with pytest.raises(error) as raised:
        call()
    assert text in str(raised.value)


ANY: list[Any] = [None, 3, "x", [[1, 2]], (8, 16), *(
    np.zeros(shape, dtype) for shape in ((8, 16), (7, 5), (8,), (0, 16), (2, 3, 4), (16, 64))
    for dtype in (np.int32, np.uint8, np.float16, np.float64, bool)
)]  # fmt: skip


@every_row("read", [
    read_gptq, read_awq, read_bitsandbytes_nf4, read_compressed_tensors, read_torchao_int4,
    read_torchao_tile_packed, read_marlin,
])  # fmt: skip
def test_no_other_errors(read: Any) -> None:
    """Arguments of any kind are read, or raise an error of the library."""
    for _ in range(200):
        given = {
            name: ANY[RNG.integers(len(ANY))]
            for name, x in signature(read).parameters.items()
            if x.default is x.empty or RNG.random() < 0.4
        }
        with suppress(TilewrightError):
            read(**given)


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    w = Weights(4)
    arrays = words(w.q, 4, 0), words(w.zeros - 1, 4, 1), w.scales
    packed = read_gptq(*map(torch.from_numpy, map(np.ascontiguousarray, arrays)))
    assert packed.data.dtype is torch.uint8
    assert np.array_equal(packed.dequantize().numpy(), w.values())
