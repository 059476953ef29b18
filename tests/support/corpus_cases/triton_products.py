"""The corpus's table: Triton's matrix products."""

from __future__ import annotations

import numpy as np
from ml_dtypes import bfloat16, float4_e2m1fn, float8_e4m3fn, float8_e5m2

from corpus_cases.table import Gives, normal, whole, words
from corpus_cases.triton_table import triton_case

F32, F16 = np.float32, np.float16


def gemm(*names: str, a, out, m=64, n=64, k=96, near=0.0, tiles=(64, 64)) -> None:
    """Small whole numbers: one right result in any order; ``near``: normal ones."""

    def make(rng):
        draw = normal if near else whole
        x, y = (draw(rng, rows, k, dtype=a) for rows in (m, n))
        exact = (x.astype(float) @ y.astype(float).T).astype(out)
        return [x, y, Gives(exact, near=near), n, k]

    for name in names:
        make.__name__ = name
        triton_case(name, kernel="gemm", grid=(m // tiles[0], n // tiles[1]))(make)


gemm("gemm_f16_sm_80", "gemm_f16_halves", a=F16, out=F16, m=128)
gemm("gemm_f16", a=F16, out=F16, n=256, k=80, tiles=(64, 128))
gemm("gemm_bf16_sm_80", "gemm_bf16", a=bfloat16, out=F32, n=128, k=112)
gemm("gemm_tf32_sm_80", a=F32, out=F32, m=32, tiles=(32, 32))
gemm("gemm_tf32", a=F32, out=F32, m=128)
gemm("gemm_tf32x3", "gemm_f32", a=F32, out=F32, m=32, k=80, near=3e-6, tiles=(32, 32))
gemm("gemm_f64", a=float, out=float, m=48, near=1e-14, tiles=(16, 32))
gemm("gemm_e4m3", a=float8_e4m3fn, out=F32, n=128, k=192)
gemm("gemm_e5m2_sm_80", a=float8_e5m2, out=F32, tiles=(64, 32))
gemm("gemm_s8_sm_80", a=np.int8, out=np.int32, m=128)
gemm("gemm_s8", a=np.int8, out=np.int32, n=128, k=160)


@triton_case()
def batched(rng):
    a, b = whole(rng, 4, 32, 48, dtype=F16), whole(rng, 4, 48, 32, dtype=F16)
    return [a, b, Gives(a.astype(F32) @ b.astype(F32)), 48]


@triton_case(grid=(9, 3))
def split_k(rng):
    m, n, k = 70, 90, 150
    a, b = whole(rng, m, k, dtype=F16), whole(rng, k, n, dtype=F16)
    bias, x, y = whole(rng, n, dtype=F32), a.astype(F32), b.astype(F32)
    total = np.maximum(x[:, :64] @ y[:64], 0) + bias + x[:, 64:] @ y[64:]
    return [a, b, bias, Gives(total), m, n, k]


def of_w4(name: str, m: int) -> None:
    def make(rng):
        x, w = whole(rng, m, 192, low=-3, high=4, dtype=F16), whole(rng, 64, 192, low=-8, high=8)
        packed = (w[:, ::2] & 15 | w[:, 1::2] << 4).astype(np.int8)
        scales = 2.0 ** whole(rng, 64, 3, low=-2, high=2)
        weights = w * np.repeat(scales, 64, 1)
        return [x, packed, scales.astype(F16), Gives((x @ weights.T).astype(F16)), 192]

    make.__name__ = name
    triton_case(name, kernel="w4", grid=2)(make)


of_w4("w4", 16)
of_w4("w4_sm_80", 32)


@triton_case()
def w8(rng):
    x, w = whole(rng, 64, 128, dtype=bfloat16), words(rng, 64, 128, dtype=np.int8)
    scales = 2.0 ** whole(rng, 64, low=-3, high=3)
    return [x, w, scales.astype(F32), Gives((x.astype(float) @ w.T * scales).astype(F32)), 128]


def of_scaled(name: str, type_, pack) -> None:
    def make(rng):
        a, b = whole(rng, 64, 128, low=-4, high=5).astype(type_), whole(rng, 128, 64)
        sa, sb = (whole(rng, 64, 4, low=-4, high=5) for _ in range(2))
        x = a.astype(float) * np.repeat(2.0**sa, 32, 1)
        y = b * np.repeat(2.0**sb, 32, 1).T
        exponents = [(s + 127).astype(np.uint8) for s in (sa, sb)]
        small = b.astype(float8_e4m3fn)
        return [pack(a), exponents[0], small, exponents[1], Gives((x @ y).astype(F32))]

    make.__name__ = name
    triton_case(name, kernel="scaled")(make)


def _pairs(a):
    return a.view(np.uint8)[:, ::2] | a.view(np.uint8)[:, 1::2] << 4


of_scaled("scaled_e4m3", float8_e4m3fn, lambda a: a)
of_scaled("scaled_e2m1", float4_e2m1fn, _pairs)


@triton_case(grid=3)
def grouped(rng):
    sizes, n, k = np.array([40, 0, 33], np.int32), 64, 64
    a, b = whole(rng, 73, k, dtype=F16), whole(rng, 3, k, n, dtype=F16)
    out = np.concatenate([a[:40].astype(F32) @ b[0], a[40:].astype(F32) @ b[2]])
    return [a, b, Gives(out.astype(F32)), sizes, n, k]
