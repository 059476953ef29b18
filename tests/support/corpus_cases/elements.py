"""The corpus's table: elements, sums, scans, orders."""

from __future__ import annotations

import struct

import numpy as np
from ml_dtypes import bfloat16

from corpus_cases.table import Gives, case, normal, whole, words

REDUCE = ("reduce", "reduce_sm_75")
F32 = np.float32

# --- elementwise ---


@case("elementwise", grid=2, block=96)
def grid_stride(rng):
    x, y = whole(rng, 2, 500, dtype=F32)
    return [500, 3.0, x, Gives(3 * x + y, y)]


@case("elementwise", grid=2, block=64)
def saxpy_half2(rng):
    x, y = whole(rng, 2, 220, dtype=np.float16)
    return [110, np.float16(0.5), x, Gives(x / np.float16(2) + y, y)]


@case("elementwise", grid=2, block=64)
def saxpy_bfloat162(rng):
    x, y = whole(rng, 2, 220, dtype=bfloat16)
    return [110, bfloat16(2).tobytes(), x, Gives(bfloat16(2) * x + y, y)]


@case("elementwise", grid=2, block=32)
def vectors(rng):
    x, k = whole(rng, 64, 4, dtype=F32), whole(rng, 64, 4)
    return [x, k, Gives((x[:, ::-1] * k).astype(F32))]


def clamped(x, low, high):
    return [len(x), x, Gives(np.clip(x, low, high)), low, high]


@case("elementwise", kernel="_Z7clampedIaEviPKT_PS0_S0_S0_", grid=1, block=128)
def clamped_s8(rng):
    return clamped(words(rng, 100, dtype=np.int8), -100, 7)


@case("elementwise", kernel="_Z7clampedIxEviPKT_PS0_S0_S0_", grid=1, block=128)
def clamped_s64(rng):
    return clamped(words(rng, 100, dtype=np.int64), -(2**60), 2**62)


@case("elementwise", kernel="_Z7clampedIdEviPKT_PS0_S0_S0_", grid=1, block=128)
def clamped_f64(rng):
    return clamped(normal(rng, 100, dtype=np.float64), -0.5, 1.25)


@case("elementwise", grid=1, block=40)
def structs(rng):
    x, scale = whole(rng, 40, dtype=F32), np.array([2, -3, 5], F32)
    block = struct.pack("<cxhfffd", b"a", -7, *scale.tolist(), 0.125)
    return [block, x, Gives(np.resize(scale, 40) * x.astype(float) - 7 + 0.125)]


@case("elementwise", grid=1, block=40)
def unions(rng):
    x = words(rng, 40)
    y, at = x.view(np.uint8).reshape(40, 4).copy(), np.arange(40)
    y[at, at % 4], y[at, 3 - at % 4] = y[at, 3 - at % 4], y[at, at % 4]
    return [x, Gives(y.view(np.uint32).reshape(40))]


@case("elementwise", grid=1, block=64)
def saturated(rng):
    x = words(rng, 64, dtype=np.int32) >> rng.integers(0, 32, 64).astype(np.int32)
    types = (np.int8, np.uint8, np.int16)
    ranges = [np.iinfo(t) for t in types]
    return [x, *(Gives(np.clip(x, r.min, r.max).astype(r.dtype)) for r in ranges)]


@case("elementwise", grid=2, block=64)
def half_to_float(rng):
    x, b = normal(rng, 100, dtype=np.float16), normal(rng, 100, dtype=bfloat16)
    s = x.astype(F32) - b.astype(F32)
    return [100, x, b, Gives(np.where(x < 0, -s, s))]


# --- reduce ---


@case(*REDUCE, grid=3, block=256)
def shared_tree(rng):
    x = words(rng, 700, dtype=np.int32)
    sums = np.add.reduceat(x, [0, 256, 512], dtype=np.int32)
    return [700, x, Gives(sums)]


def shuffles(x):
    return [x.size, x, Gives(x.sum(dtype=x.dtype, keepdims=True))]


@case(*REDUCE, kernel="_Z8shufflesIiEviPKT_PS0_", grid=3, block=96)
def shuffles_s32(rng):
    return shuffles(words(rng, 1000, dtype=np.int32))


@case(*REDUCE, kernel="_Z8shufflesIfEviPKT_PS0_", grid=3, block=96)
def shuffles_f32(rng):
    return shuffles(whole(rng, 1000, dtype=F32))


@case(*REDUCE, kernel="_Z8shufflesIdEviPKT_PS0_", grid=3, block=96)
def shuffles_f64(rng):
    return shuffles(whole(rng, 1000, dtype=np.float64))


@case(*REDUCE, grid=5, block=32)
def last_block(rng):
    x = whole(rng, 960, dtype=F32)
    return [960, x, Gives(x.reshape(6, 5, 32).sum((0, 2))), Gives(x.sum(keepdims=True))]


@case(*REDUCE, grid=1, block=96)
def votes(rng):
    x = whole(rng, 96, low=-96, high=97)
    warps = x.reshape(3, 32)
    odd = ((warps & 1).astype(np.uint64) << np.arange(32, dtype=np.uint64)).sum(1)
    odd ^= (warps > -50).all(1).astype(np.uint64) << (warps > 90).any(1).astype(np.uint64)
    counts = [(x > 0).sum(), (x > 95).any(), (x > -96).all()]
    ones = np.ones(96, np.int32)
    ballots = np.repeat(odd.astype(np.uint32), 32)
    return [x, *(Gives(int(c) * ones) for c in counts), Gives(ballots)]


@case(*REDUCE, grid=1, block=64)
def arg_max(rng):
    x = whole(rng, 300, low=-50, dtype=F32)
    bits = int(np.array(x.max(), F32).view(np.uint32)) ^ 1 << 31
    best = bits << 32 | (~int(x.argmax()) & 0xFFFFFFFF)
    return [300, x, Gives(np.array([best], np.uint64))]


@case(*REDUCE, grid=2, block=64)
def atomics(rng):
    x = words(rng, 128, dtype=np.int32)
    ways = (np.add, np.minimum, np.maximum, np.bitwise_and, np.bitwise_or, np.bitwise_xor)
    out = [int(w.reduce(x, dtype=np.int32)) for w in ways]
    total = -x.sum(dtype=np.int32)
    out = np.array([*out, total], np.int32)
    begins = np.array([0, 0, 0, -1, 0, 0, 0], np.int32)
    wrap = np.array([128 % 7, -128 % 7], np.uint32)
    return [x, Gives(out, begins), Gives(wrap), Gives(x.max(keepdims=True).astype(F32))]


@case("reduce", grid=1, block=32)
def redux(rng):
    x = whole(rng, 32, low=-1000, high=1000)
    same = x[:, None] & 3 == x & 3
    before = np.tril(same, -1).sum(1)
    ways = (np.sum, np.max, np.bitwise_xor.reduce)
    out = [[way(x[s]) for s in same] for way in ways]
    last = 2 * before + len(set(x >> 31)) % 2
    return [x, Gives(np.array([*out, last], np.int32).reshape(-1))]


# --- scan ---


@case("scan", grid=1, block=100, shared=800)
def hillis_steele(rng):
    x = words(rng, 100, dtype=np.int32)
    return [x, Gives(np.cumsum(x, dtype=np.int32))]


@case("scan", grid=1, block=256)
def blelloch(rng):
    x = words(rng, 512, dtype=np.int32)
    return [x, Gives(np.cumsum(x, dtype=np.int32) - x)]


@case("scan", grid=9, block=64)
def look_back(rng):
    x = whole(rng, 576)
    state = Gives(None, np.zeros(9, np.uint64))
    return [x, Gives(np.cumsum(x, dtype=np.int32)), np.zeros(1, np.uint32), state]


@case("scan", grid=1, block=32)
def compact(rng):
    x = whole(rng, 200)
    kept = np.flatnonzero(x >= 0)
    y = np.zeros_like(x)
    y[: kept.size] = x[kept]
    return [200, x, Gives(y), Gives(np.array([kept.size], np.int32))]


# --- sort ---


@case("sort", grid=2, block=64)
def histogram_global(rng):
    x = words(rng, 500, dtype=np.uint8)
    return [500, x, Gives(np.bincount(x >> 2, minlength=64).astype(np.uint32))]


@case("sort", grid=2, block=64)
def histogram_shared(rng):
    x = words(rng, 800, dtype=np.uint8)
    return [200, x, Gives(np.bincount(x, minlength=256).astype(np.uint32))]


@case("sort", grid=1, block=256)
def bitonic(rng):
    x = normal(rng, 256)
    return [Gives(np.sort(x), x)]


@case("sort", grid=1, block=32)
def odd_even(rng):
    x = whole(rng, 75, low=-99, high=99, dtype=np.int16)
    return [75, Gives(np.sort(x), x)]


@case("sort", grid=1, block=256)
def radix(rng):
    x = whole(rng, 256, low=0, high=4096, dtype=np.uint32)
    order = np.argsort(x, kind="stable")
    return [Gives(x[order], x), Gives(order.astype(np.uint32))]


@case("sort", grid=3, block=64)
def locked():
    total = 0
    for _ in range(64):
        total = (3 * total % 1009) + 1
    lock = Gives(np.zeros(1, np.int32))
    return [lock, Gives(np.array([total], np.int32)), Gives(np.array([3], np.int32))]


@case("sort", grid=2, block=64)
def queue(rng):
    x = whole(rng, 300, low=1, high=200)
    return [300, x, Gives(np.array([_collatz(int(v)) for v in x], np.int32)), np.zeros(1, np.int32)]


def _collatz(v: int) -> int:
    steps = 0
    while v != 1:
        v, steps = 3 * v + 1 if v & 1 else v // 2, steps + 1
    return steps
