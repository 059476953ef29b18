"""The corpus's table: bits, whole numbers, functions, neural networks."""

from __future__ import annotations

import math
import zlib

import numpy as np
from ml_dtypes import bfloat16, float8_e4m3fn, float8_e5m2

from corpus_cases.table import Gives, case, normal, whole, words

NETWORKS = ("networks", "networks_sm_90", "networks_fast")
F32, F16 = np.float32, np.float16
FULL = 0xFFFFFFFF

# --- numbers ---


@case("numbers", grid=2, block=64)
def bit_tricks(rng):
    x, y = words(rng, 2, 100) >> rng.integers(0, 32, (2, 100), np.uint32)
    out = [_bit_tricks(int(a), int(b)) for a, b in zip(x, y, strict=True)]
    return [100, x, y, Gives(np.array(out, np.uint32).T.copy())]


def _bit_tricks(a: int, b: int) -> list[int]:
    wide, both = a << 32 | b, b << 32 | a
    mask = ((1 << (b >> 27)) - 1) << (a & 31) & FULL
    bits, reverse = f"{a:032b}", int(f"{wide:064b}"[::-1], 2)
    first = (a & -a).bit_length() | (wide & -wide).bit_length() << 8
    halves = a.to_bytes(4, "little") + b.to_bytes(4, "little")
    return [
        a.bit_count() | wide.bit_count() << 8 | 32 - a.bit_length() << 16
        | 64 - wide.bit_length() << 24,
        int(bits[::-1], 2) ^ (reverse >> 7 & FULL),
        first,
        (both << (b & 31)) >> 32 & FULL,
        both >> min(a & 63, 32) & FULL,
        a >> (b & 31) & ((1 << (a & 31)) - 1),
        (b & ~mask) | (a << (a & 31) & mask),
        int.from_bytes([halves[b >> 3 + 4 * i & 7] for i in range(4)], "little"),
        (a & b) | ((~a & 0x0F0F0F0F) ^ b),
    ]  # fmt: skip


@case("numbers", grid=2, block=64)
def packed_bytes(rng):
    x, y = words(rng, 2, 100)
    a, b = (v.view(np.uint8) for v in (x, y))
    c, d = (v.view(np.int16) for v in (x, y))
    wide = np.abs(x.view(np.int32).astype(np.int64) - y.view(np.int32))
    saturated = np.clip(c.astype(np.int32) + d, -(2**15), 2**15 - 1).astype(np.int16)
    apart = np.abs(a.astype(np.int16) - b).astype(np.uint8)
    above = np.where(a > b, np.uint8(255), np.uint8(0))
    mean = ((x.astype(np.uint64) + y) >> np.uint64(1)).astype(np.uint32)
    rows = [a + b, apart, np.maximum(c, d), above, (wide + 5).astype(np.uint32), mean, saturated]
    return [100, x, y, Gives(np.array([r.view(np.uint32) for r in rows]))]


def divide(name: str, dtype: type) -> None:
    def make(rng):
        x, y = words(rng, 2, 128, dtype=dtype)
        y >>= rng.integers(0, y.itemsize * 8, 128).astype(dtype)
        out = [_divided(int(a), int(b) or 3) for a, b in zip(x, y, strict=True)]
        return [x, y, Gives(np.array(out, object).astype(dtype))]

    make.__name__ = f"divide_{name}"
    case("numbers", grid=2, block=64)(make)


def _divided(a: int, b: int) -> list[int]:
    quotients = [abs(a) // abs(d) * (1 if a * d >= 0 else -1) for d in (b, 7, 10)]
    rests = [a - q * d for q, d in zip(quotients, (b, 7, 10), strict=True)]
    return [quotients[0], rests[0], quotients[1], rests[2]]


for _type in (np.uint16, np.int32, np.uint32, np.int64, np.uint64):
    divide(np.dtype(_type).kind.replace("i", "s") + str(np.dtype(_type).itemsize * 8), _type)


@case("numbers", grid=1, block=64)
def divide_s8(rng):
    x, y = words(rng, 2, 64, dtype=np.int8)
    out = [_divided(int(a), int(b) or 3) for a, b in zip(x, y, strict=True)]
    return [x, y, Gives(np.array(out).astype(np.int8))]  # -128 / -1 wraps


@case("numbers", grid=1, block=64)
def wide_products(rng):
    x, y = words(rng, 2, 64, dtype=np.int64)
    out = [_wide_products(int(a), int(b)) for a, b in zip(x, y, strict=True)]
    return [x, y, Gives(np.array(out, np.uint64).view(np.int64))]


def _signed(v: int, width: int) -> int:
    v &= (1 << width) - 1
    return v - (v >> width - 1 << width)


def _wide_products(a: int, b: int) -> list[int]:
    c, d = _signed(a, 32), _signed(b, 32)
    last = c * d + (c * d >> 32) + _signed(_signed(a, 24) * _signed(b, 24), 32)
    high = (a % 2**64) * (b % 2**64) >> 64
    return [v % 2**64 for v in (a * b, a * b >> 64, high, last)]


@case("numbers", grid=1, block=64)
def int128(rng):
    x, shift = words(rng, 64, 4), rng.integers(0, 128, 64, np.uint8)
    values = [int.from_bytes(row.tobytes(), "little", signed=True) for row in x]
    out = [_int128(v, int(s)) for v, s in zip(values, shift, strict=True)]
    made = np.frombuffer(b"".join(v.to_bytes(16, "little") for v in out), np.uint32)
    return [x, shift, Gives(made.reshape(64, 4))]


def _int128(v: int, shift: int) -> int:
    total = 1
    for k in range(5):
        total = total * v + (v >> shift) - (v % 2**128 >> k)
    return (total if v < 0 else ~total << shift) % 2**128


@case("numbers", grid=1, block=32)
def mod_power(rng):
    x, e = words(rng, 2, 32)
    out = [pow(int(a), int(b), 2**31 - 1) for a, b in zip(x, e, strict=True)]
    return [x, e, Gives(np.array(out, np.uint32))]


@case("numbers", grid=1, block=32)
def random_walk(rng):
    begins = words(rng, 32)
    ends, means = zip(*(_random_walk(int(s)) for s in begins), strict=True)
    return [20, Gives(np.array(ends, np.uint32), begins), Gives(np.array(means))]


def _random_walk(state: int) -> tuple[int, float]:
    s, v, total = (state * 2654435769 + 1) % 2**64, state | 1, 0.0
    for _ in range(20):
        s = (s * 6364136223846793005 + 1442695040888963407) % 2**64
        x, r = ((s >> 18 ^ s) >> 27) & FULL, s >> 59
        v ^= v << 13 & FULL
        v ^= v >> 17
        v ^= v << 5 & FULL
        total += (x >> r | x << (-r & 31) & FULL) / 2**32 + _signed(v, 32) / 2**31
    return v, total


@case("numbers", grid=1, block=40)
def crc32(rng):
    text = words(rng, 40, 11, dtype=np.uint8)
    return [11, text, Gives(np.array([zlib.crc32(row.tobytes()) for row in text], np.uint32))]


# --- functions ---


def functions(x, rows, near):
    rows = [np.vectorize(f, otypes=[float])(x.astype(float)) for f in rows]
    return [x.size, x, Gives(np.array(rows).astype(x.dtype), near=near)]


def points(rng, dtype=F32):
    return rng.uniform(-8, 8, 100).astype(dtype)


@case("functions", "functions_fast", grid=2, block=64)
def exponentials(rng):
    rows = (
        math.exp, math.exp2,
        lambda v: 10 ** (v / 4), math.expm1, lambda v: math.log(abs(v) + 1),
        lambda v: math.log2(abs(v) + 1), lambda v: math.log10(abs(v) + 1),
        lambda v: math.log1p(abs(v)), lambda v: abs(v) ** 1.7, np.cbrt,
    )  # fmt: skip
    return functions(points(rng), rows, 1e-5)


@case("functions", "functions_fast", grid=2, block=64)
def circular(rng):
    rows = (
        math.sin, math.cos, lambda v: math.tan(v / 8), lambda v: math.asin(v / 9),
        lambda v: math.acos(v / 9), math.atan, lambda v: math.atan2(v, 1.5), math.sinh, math.cosh,
        math.tanh, lambda v: math.sin(v * math.pi), lambda v: math.hypot(v, 3),
    )  # fmt: skip
    return functions(points(rng), rows, 2e-5)


@case("functions", grid=2, block=64)
def far_circular(rng):
    x = points(rng)
    near, far = (x * F32(1e6)).astype(float), (x * F32(1e20)).astype(float)
    return [x.size, x, Gives(np.array([np.sin(near), np.cos(far)], F32), near=1e-5)]


@case("functions", "functions_fast", grid=2, block=64)
def special(rng):
    rows = (
        math.erf, lambda v: math.erfc(v / 4), lambda v: math.gamma(abs(v) + 1),
        lambda v: math.lgamma(abs(v) + 1), lambda v: math.erfc(-v / math.sqrt(2)) / 2,
        lambda v: v / 9,
    )  # fmt: skip
    return functions(points(rng), rows, 3e-5)


@case("functions", grid=2, block=64)
def doubles(rng):
    rows = (
        math.exp, lambda v: math.log(abs(v) + 1), math.atan, lambda v: math.sqrt(abs(v)),
        lambda v: 1 / math.sqrt(abs(v) + 1), math.tanh, math.erf, np.cbrt,
        lambda v: math.fmod(v, 0.7), lambda v: 1 / v,
    )  # fmt: skip
    return functions(points(rng, float), rows, 1e-14)


@case("functions", grid=2, block=64)
def doubles_called(rng):
    rows = (math.sin, lambda v: math.cos(v * 1e12), lambda v: abs(v) ** 1.7)
    return functions(points(rng, float), rows, 1e-14)


@case("functions", grid=2, block=64)
def rounded(rng):
    x = (2 * whole(rng, 100, low=-600, high=600) + 1).astype(F32) / F32(128)
    lower = x.astype(float) * float(F32(0.1))
    down = lower.astype(F32)
    down = np.where(down > lower, np.nextafter(down, F32(-np.inf)), down)
    rest = [math.remainder(v, float(F32(0.7))) for v in x.tolist()]
    rows = [
        np.rint(x), np.floor(x), np.ceil(x), np.trunc(x), np.trunc(x + np.copysign(F32(0.5), x)),
        np.fmod(x, F32(0.7)), np.array(rest, F32), np.copysign(F32(2), x), np.ldexp(x, -140),
        x / F32(3), np.sqrt(np.abs(x)), F32(1) / x, x * x + x, np.nextafter(x, F32(np.inf)), down,
        np.nextafter(x, F32(9)), np.maximum(x - 1, F32(0)), x,
    ]  # fmt: skip
    return [100, x, Gives(np.array(rows, F32))]


# --- networks ---


@case(*NETWORKS, grid=3, block=64)
def softmax(rng):
    x = normal(rng, 3, 100) * 4
    e = np.exp(x.astype(float) - x.max(1, keepdims=True))
    return [100, x, Gives((e / e.sum(1, keepdims=True)).astype(F32), near=1e-6)]


@case(*NETWORKS, grid=3, block=64)
def layernorm(rng):
    x, (gain, bias) = normal(rng, 3, 100, dtype=bfloat16), normal(rng, 2, 100)
    wide = x.astype(float)
    y = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    return [100, x, gain, bias, Gives((y * gain + bias).astype(F32), near=1e-5)]


@case(*NETWORKS, grid=2, block=64)
def activations(rng):
    x = points(rng)
    v = x.astype(float)
    gelu = v * (1 + np.tanh(0.7978845608 * (v + 0.044715 * v**3))) / 2
    erf = np.array([math.erf(w * 0.70710678) for w in v])
    rows = [gelu, v / (1 + np.exp(-v)), v * (1 + erf) / 2, np.log1p(np.exp(v))]
    return [100, x, Gives(np.array(rows, F32), near=1e-3)]  # tanh.approx where it is fast


def attention(rng, causal: bool):
    q, k, v = normal(rng, 3, 64, 16)
    scores = q.astype(float) @ k.T.astype(float) / 4
    p = np.exp(np.where(causal & ~np.tri(64, dtype=bool), -np.inf, scores))
    return [
        64,
        int(causal),
        q,
        k,
        v,
        Gives((p / p.sum(1, keepdims=True) @ v).astype(F32), near=1e-5),
    ]


@case(*NETWORKS, kernel="attention", grid=2, block=32)
def attention_full(rng):
    return attention(rng, causal=False)


@case(*NETWORKS, kernel="attention", grid=2, block=32)
def attention_causal(rng):
    return attention(rng, causal=True)


@case(*NETWORKS, grid=2, block=32)
def dequantise_w4(rng):
    w, scales = words(rng, 64), (whole(rng, 8, low=1) / 8).astype(F16)
    nibbles = w[:, None] >> (4 * np.array([0, 4, 1, 5, 2, 6, 3, 7], np.uint32)) & 15
    y = (nibbles.astype(F16) - F16(8)) * np.repeat(scales, 8)[:, None]
    return [w, scales, Gives(y)]


@case(*NETWORKS, grid=1, block=32)
def dequantise_s8(rng):
    w = words(rng, 128, dtype=np.int8)
    return [w, Gives(w.astype(F32))]


@case(*NETWORKS, grid=4, block=64)
def to_fp8(rng):
    x = normal(rng, 250) * np.exp2(rng.uniform(-20, 18, 250)).astype(F32)
    x[:6] = 0, -0.0, np.inf, -np.inf, np.nan, 448
    types = ((float8_e4m3fn, 448), (float8_e5m2, 57344))
    made = [np.clip(x, -top, top).astype(t) for t, top in types]
    codes = [m.view(np.uint8).copy() for m in made]
    for code in codes:
        code[np.isnan(x)] = 0x7F
    return [250, x, *map(Gives, codes), Gives(np.array(made, dtype=object).astype(F32))]


@case(*NETWORKS, grid=3, block=64)
def absmax_quantise(rng):
    x = whole(rng, 3, 90, low=-255, high=256).astype(F32) / F32(4)
    x[:, 7] = -64
    return [90, x, Gives(np.rint(x).astype(np.int8)), Gives(np.full(3, 64, F32))]


@case(*NETWORKS, grid=(6, 2), block=32)
def rope(rng):
    x = normal(rng, 6, 2, 32, 2, dtype=F16)
    angle = np.arange(6)[:, None, None] * 10000.0 ** (-np.arange(32) / 32)
    turned = (x[..., 0] + 1j * x[..., 1].astype(float)) * np.exp(1j * angle)
    y = np.stack([turned.real, turned.imag], -1).astype(F16)
    return [2, x, Gives(y, near=1e-3), 10000.0]


@case(*NETWORKS, grid=20, block=32)
def embedding_gradient(rng):
    tokens, g = whole(rng, 20, low=0, high=5), whole(rng, 20, 64, dtype=F16)
    sums, brain = np.zeros((5, 64), F16), np.zeros((5, 32), bfloat16)
    np.add.at(sums, tokens, g)
    brain += np.bincount(tokens, minlength=5).astype(bfloat16)[:, None]
    return [32, tokens, g, Gives(sums), Gives(brain)]
