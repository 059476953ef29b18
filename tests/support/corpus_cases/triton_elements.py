"""The corpus's table: Triton's elements and numbers."""

from __future__ import annotations

import math

import numpy as np
from ml_dtypes import bfloat16, float8_e4m3fn, float8_e5m2

from corpus_cases.table import Gives, normal, whole, words
from corpus_cases.triton_table import triton_case

F32, F16 = np.float32, np.float16


@triton_case("add", grid=3)
def add(rng):
    x, y = normal(rng, 2, 1300)
    return [x, y, Gives(x + y), 1300]


@triton_case("add_sm_80", grid=3, kernel="add")
def add_halves(rng):
    x, y = normal(rng, 2, 1296, dtype=F16)
    return [x, y, Gives(x + y), 1296]


@triton_case(grid=2)
def dropout(rng):
    x, seed, p = normal(rng, 300), 0x123456789ABCDEF, F32(0.25)
    drawn = _philox(seed, np.arange(300, dtype=np.uint64))
    first = drawn[0].view(np.int32)
    uniform = np.where(first < 0, -first - 1, first).astype(F32) * F32(4.6566127342e-10)
    out = np.where(uniform >= p, x / (1 - p), 0).astype(F32)
    words = Gives(np.stack(drawn, 1).view(np.int32))
    return [x, Gives(out, near=1e-6), words, 300, np.int64(seed), p]


def _philox(seed: int, first: np.ndarray) -> list[np.ndarray]:
    """Philox-4x32-10 of the counters (first, 0, 0, 0)."""
    low, key = np.uint64(2**32 - 1), [seed % 2**32, seed >> 32]
    a, b, c, d = first, *(np.zeros_like(first) for _ in range(3))
    for _ in range(10):
        p, q = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b = (q >> np.uint64(32)) ^ b ^ np.uint64(key[0]), q & low
        c, d = (p >> np.uint64(32)) ^ d ^ np.uint64(key[1]), p & low
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return [v.astype(np.uint32) for v in (a, b, c, d)]


@triton_case(grid=2)
def functions(rng):
    x, y = 3 * normal(rng, 200), np.exp(normal(rng, 200))
    u, v = x.astype(float), y.astype(float)
    erf, lgamma = np.vectorize(math.erf), np.vectorize(math.lgamma)
    rows = [np.exp(u), np.sin(u), np.cos(u), erf(u), np.tanh(u)]
    rows += [v**u, np.log1p(v), np.arctan2(u, v), lgamma(v), np.fmod(u, v)]
    return [x, y, Gives(np.array(rows), np.zeros((10, 200), F32), near=1e-6), 200]


@triton_case()
def wide_functions(rng):
    x = normal(rng, 64, dtype=float)
    rows = np.array([np.exp(x), np.cbrt(x), 1 / np.sqrt(np.abs(x)), x / (x * x + 3)])
    return [x, Gives(rows, near=1e-15)]


@triton_case()
def quick_functions(rng):
    x = np.exp(normal(rng, 128))
    u = x.astype(float)
    rows = [np.exp(u), np.log2(u) + np.exp2(-u), 1 / (1 + np.exp(-u)), u**-0.5 + u**0.5]
    rows += [np.sqrt(u), 1 / u, u * u - 1, np.clip(u, 0.5, 2) - np.floor(u) + np.ceil(u / 3)]
    return [x, Gives(np.array(rows), np.zeros((8, 128), F32), near=1e-6)]


@triton_case(grid=2)
def integers(rng):
    x, y = words(rng, 2, 200, dtype=np.int32)
    y >>= rng.integers(0, 31, 200, np.int32)
    y[y == 0] = 7
    a, b, wide = *(v.astype(np.int64) for v in (x, y)), x.astype(np.int64) * y
    quotient = _towards_zero(a, b)
    mixed = (a >> (b & 31)).astype(np.int32) ^ (x << (y & 7))
    ends = np.minimum(x, y) - np.maximum(x.astype(np.int8), y.astype(np.int8))
    unsigned = (x.view(np.uint32) // y.view(np.uint32)).view(np.int32)
    clz = np.array([32 - int(v).bit_length() for v in y.view(np.uint32)])
    counts = np.bitwise_count(x.view(np.uint32)) + 100 * clz
    high = x.view(np.uint32).astype(np.uint64) * y.view(np.uint32) >> np.uint64(32)
    rows = [quotient, a - quotient * b, high, mixed, ends, unsigned, counts]
    long = [
        wide,
        _towards_zero(wide, 3 * b),
        (wide >> 5) + (wide.view(np.uint64) >> 60).view(np.int64),
    ]
    rows = np.array([row.astype(np.int32) for row in rows])
    return [x, y, Gives(rows), Gives(np.array(long)), 200]


def _towards_zero(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.abs(a) // np.abs(b) * np.sign(a) * np.sign(b)


@triton_case("conversions", "conversions_sm_80")
def conversions(rng):
    x = (normal(rng, 256) * np.exp(3 * normal(rng, 256))).astype(F32)
    through = [x.astype(t).astype(F32) for t in (F16, bfloat16, float8_e5m2)]
    nearest = x.astype(F16)
    beyond = np.abs(nearest.astype(F32)) > np.abs(x)
    cut = np.where(beyond, np.nextafter(nearest, F16(0)), nearest).astype(F32)
    rows = [*through, cut, np.trunc(x), np.minimum(np.trunc(np.abs(x)), 255)]
    return [x, Gives(np.array([*rows, x.astype(bfloat16).astype(F32).astype(float8_e5m2)], F32))]


@triton_case()
def e4m3(rng):
    x = (normal(rng, 256) * np.exp(2 * normal(rng, 256))).astype(F32)
    small = np.clip(x, -448, 448).astype(float8_e4m3fn)
    return [x, Gives(small.view(np.uint8)), Gives(2 * small.astype(F16))]


@triton_case(grid=2)
def packed_asm(rng):
    x, y = words(rng, 2, 700, dtype=np.uint8)
    apart = np.abs(x.astype(int) - y)
    return [x, y, Gives(np.array([apart, (x & 15) + (y & 15)], np.uint8)), 700]


@triton_case(grid=40)
def collatz():
    return [
        np.arange(1, 41, dtype=np.int64),
        Gives(np.array([_steps(n) for n in range(1, 41)], np.int32)),
    ]


def _steps(n: int) -> int:
    return 0 if n == 1 else 1 + _steps(3 * n + 1 if n % 2 else n // 2)


@triton_case(grid=16)
def mandelbrot():
    at = np.arange(2048)
    cx, cy = at % 64 * 0.03125 - 1.5, at // 64 * 0.0625 - 1
    u, v, n = cx, cy, np.zeros(2048, np.int8)
    for _ in range(30):
        inside = u * u + v * v <= 4
        n += inside
        u, v = np.where(inside, (u * u - v * v + cx, 2 * u * v + cy), (u, v))
    return [Gives(n), 64, 32, 30]


TOLD = "".join(f"pid (0, 0, 0) idx ({i:2}) value: {i}\n" for i in range(32))


@triton_case(says=TOLD)
def told():
    x = np.arange(32, dtype=np.int32)
    return [Gives(x + 1, x)]


@triton_case("told", kernel="told", fails="a value is too large")
def told_too_large(rng):
    return [whole(rng, 32, high=99)]
