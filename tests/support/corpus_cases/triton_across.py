"""The corpus's table: Triton's reductions, scans, sorts and atomics."""

from __future__ import annotations

import numpy as np
from ml_dtypes import bfloat16

from corpus_cases.table import Gives, normal, whole, words
from corpus_cases.triton_table import triton_case

F32 = np.float32


@triton_case("moments", "moments_sm_80", grid=3)
def moments(rng):
    x = normal(rng, 3, 200)
    mean, m2 = x.mean(1, dtype=float), x.var(1, dtype=float) * 200
    return [x, *(Gives(v, np.zeros(3, F32), near=1e-6) for v in (mean, m2)), 200]


@triton_case()
def reductions(rng):
    x = whole(rng, 16, 32, low=-50, high=50)
    return [x, *(Gives(_reduced(x, axis).astype(np.int32)) for axis in (1, 0))]


def _reduced(x, axis):
    ways = (np.sum, np.max, np.argmax, np.min, np.argmin, np.bitwise_xor.reduce)
    return np.array([way(x, axis=axis) for way in ways])


@triton_case()
def recurrence(rng):
    decay, x = rng.choice([-1, 0, 1, 0.5], (4, 128)).astype(F32), whole(rng, 4, 128, dtype=F32)
    there, back = np.zeros((2, 4, 128), F32)
    for i in range(128):
        there[:, i] = decay[:, i] * (there[:, i - 1] if i else 0) + x[:, i]
        j = 127 - i
        back[:, j] = decay[:, j] * (back[:, j + 1] if i else 0) + x[:, j]
    return [decay, x, Gives(np.array([there, back]), near=1e-6)]


@triton_case("scans", "scans_sm_80")
def scans(rng):
    x = words(rng, 300, dtype=np.int32)
    return [x, Gives(np.cumsum(x, dtype=np.int64)), 300]


@triton_case(grid=3)
def histogram(rng):
    x = whole(rng, 700, low=0, high=64)
    return [x, Gives(np.bincount(x, minlength=64).astype(np.int32)), 700]


@triton_case()
def sorts(rng):
    x, scores = words(rng, 2, 128, dtype=np.int32), normal(rng, 2, 128)
    ordered = np.sort(x)
    best = np.sort(scores)[:, :-9:-1]
    return [x, Gives(np.array([ordered, ordered[:, ::-1], x[:, ::-1]])), scores, Gives(best.copy())]


@triton_case()
def gathers(rng):
    x, places = normal(rng, 32, 16), whole(rng, 32, 16, low=0, high=32)
    along = [np.take_along_axis(x, places, 0), np.take_along_axis(x, places % 16, 1)]
    return [x, places, Gives(np.array(along))]


@triton_case()
def shapes(rng):
    x = words(rng, 32, 32, dtype=np.int16)
    cube = x.reshape(4, 8, 32).transpose(2, 0, 1).reshape(32, 32)
    pairs = np.stack([x[:, ::2], x[:, 1::2] + np.int16(1)], 2).reshape(32, 32)
    mixed = np.stack([x[:, 1::2], x[:, ::2]], 2).reshape(32, 32)
    return [x, Gives(np.array([x.T, cube, mixed, pairs + x.sum(1, dtype=np.int16)[:, None]]))]


@triton_case(grid=2)
def atomics(rng):
    x, begins = words(rng, 100, dtype=np.int32), words(rng, 160, dtype=np.int32)
    x[x == 0] = 1
    to, old = begins.copy(), np.zeros((3, 128), np.int32)
    ways = (np.add, np.maximum, np.minimum, np.bitwise_and, np.bitwise_or, np.bitwise_xor)
    for i, way in enumerate(ways):
        way.at(to[8 * i :], np.arange(100) % 7, x)
    to[48:148], old[0, :100], old[1, :100] = x, begins[48:148], x
    return [x, Gives(to, begins), Gives(old), 100]


@triton_case(grid=3)
def float_atomics(rng):
    x = whole(rng, 300, dtype=F32)
    sums = np.zeros(32)
    np.add.at(sums, np.arange(300) % 32, x)
    ends = np.array([x.max(), x.max(), x.max(), 0, x.min(), x.min(), x.min()], F32)
    outs = [Gives(sums.astype(t)) for t in (F32, np.float16, bfloat16)]
    return [x, *outs, Gives(ends), 300]


@triton_case(grid=5)
def locked_sums(rng):
    x = whole(rng, 5, 64, dtype=F32)
    one = np.zeros(1, np.int32)
    return [x, Gives(2 * x.sum(0)), Gives(one), Gives(one + 5), 320]
