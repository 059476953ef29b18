"""The corpus's table: Triton's tensor copies, clusters and specialised warps."""

from __future__ import annotations

import numpy as np
from ml_dtypes import bfloat16, float8_e4m3fn

from corpus_cases.table import Gives, normal, whole, words
from corpus_cases.triton_table import Described, triton_case

F32, F16 = np.float32, np.float16


def described(name: str, type_: str, dtype, m: int, n: int, k: int, grid: tuple[int, int]) -> None:
    def make(rng):
        a, b = whole(rng, m, k, dtype=dtype), whole(rng, n, k, dtype=dtype)
        out = Gives((a.astype(F32) @ b.astype(F32).T).astype(dtype))
        return [*(Described(x, type_) for x in (a, b, out)), k]

    make.__name__ = name
    triton_case(name, kernel="described", grid=grid)(make)


described("described", "f16", F16, 100, 72, 136, (2, 2))
described("described_cluster", "bf16", bfloat16, 200, 128, 128, (2, 1))


@triton_case(grid=2)
def persistent(rng):
    a, b = whole(rng, 100, 192, dtype=float8_e4m3fn), whole(rng, 132, 192, dtype=float8_e4m3fn)
    return [a, b, Gives(a.astype(F32) @ b.astype(F32).T), 100, 132, 192]


@triton_case(grid=(2, 1))
def specialised(rng):
    a, b = whole(rng, 128, 320, dtype=F16), whole(rng, 320, 64, dtype=F16)
    maps = [Described(x, "f16") for x in (a, b)]
    return [*maps, Gives(a.astype(F32) @ b.astype(F32)), 64, 320]


@triton_case(grid=3)
def tensor_reductions(rng):
    x, y = whole(rng, 24, 32, dtype=F32), whole(rng, 24, 32)
    total, most = np.zeros((6, 36), F32), whole(rng, 14, 28, low=-3, high=3)
    total[:, 4:] = sum(x[i : i + 6] for i in (0, 8, 16))
    after = most.copy()
    for i in range(3):
        rows = slice(8 * i % 16, min(8 * i % 16 + 8, 14))
        shifted = np.pad(y[8 * i : 8 * i + 8], ((0, 0), (4, 0)))[: rows.stop - rows.start, :28]
        after[rows] = np.maximum(after[rows], shifted)
    maps = [Described(x, "f32"), Described(y, "s32")]
    return [*maps, Described(Gives(total), "f32"), Described(Gives(after, most), "s32")]


@triton_case(grid=(2, 2, 2))
def cubes(rng):
    x = words(rng, 2, 6, 12, 32, dtype=np.int8)
    return [x, Gives(x.transpose(0, 2, 1, 3).copy()), 6, 12, 32]


@triton_case(grid=2)
def flash(rng):
    q, k, v = (normal(rng, 80, 64).astype(bfloat16) for _ in range(3))
    score = q.astype(float) @ k.astype(float).T * 0.25
    power = np.exp2(score - score.max(1, keepdims=True))
    out = power @ v.astype(float) / power.sum(1, keepdims=True)
    gives = Gives(out, np.zeros((80, 64), bfloat16), near=2e-2)
    return [*(Described(x, "bf16") for x in (q, k, v, gives)), 80, F32(0.25)]
