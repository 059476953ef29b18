"""Triton kernels of the corpus: matrix products."""

from __future__ import annotations

import triton
import triton.language as tl
from triton_made import made


def gemm_types(a: str, out: str, acc=tl.float32, **more) -> dict:
    """Tiles of 64×64, in steps of 32 elements."""
    tile = {"M": 64, "N": 64, "K": 32, "ACC": acc, "PRECISION": tl.constexpr("tf32")}
    return {"a": a, "b": a, "out": out, "n": "i32:16", "k": "i32:16", **tile, **more}


@made("gemm_f16_sm_80", sm=80, **gemm_types("*fp16", "*fp16"))
@made("gemm_f16", **gemm_types("*fp16", "*fp16", N=128))
@made("gemm_f16_halves", stages=2, **gemm_types("*fp16", "*fp16", tl.float16))
@made("gemm_bf16_sm_80", sm=80, warps=8, **gemm_types("*bf16", "*fp32"))
@made("gemm_bf16", stages=4, **gemm_types("*bf16", "*fp32"))
@made("gemm_tf32_sm_80", sm=80, warps=2, **gemm_types("*fp32", "*fp32", M=32, N=32))
@made("gemm_tf32", **gemm_types("*fp32", "*fp32"))
@made(
    "gemm_tf32x3",
    sm=80,
    **gemm_types("*fp32", "*fp32", M=32, N=32, PRECISION=tl.constexpr("tf32x3")),
)
@made(
    "gemm_f32",
    sm=80,
    **gemm_types("*fp32", "*fp32", M=32, N=32, K=16, PRECISION=tl.constexpr("ieee")),
)
@made("gemm_f64", sm=80, warps=2, **gemm_types("*fp64", "*fp64", tl.float64, M=16, N=32, K=16))
@made("gemm_e4m3", **gemm_types("*fp8e4nv", "*fp32", K=64))
@made("gemm_e5m2_sm_80", sm=80, **gemm_types("*fp8e5", "*fp32", N=32))
@made("gemm_s8_sm_80", sm=80, **gemm_types("*i8", "*i32", tl.int32))
@made("gemm_s8", **gemm_types("*i8", "*i32", tl.int32, K=64))
@triton.jit
def gemm(
    a, b, out, n, k,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """out = a · bᵀ, a by rows of k and b by rows of k: whole tiles, k at most a step too long."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    step = tl.arange(0, K)
    at_a, at_b = a + rows[:, None] * k + step, b + columns * k + step[:, None]
    total = tl.zeros([M, N], ACC)
    for start in range(0, k, K):
        inside = start + step < k
        x = tl.load(at_a, inside[None, :], other=0.0)
        y = tl.load(at_b, inside[:, None], other=0.0)
        total = tl.dot(x, y, total, input_precision=PRECISION, out_dtype=ACC)
        at_a += K
        at_b += K
    tl.store(out + rows[:, None] * n + columns, total.to(out.dtype.element_ty))


@made(a="*fp16", b="*fp16", out="*fp32", k="i32:16", S=32, K=16)
@triton.jit
def batched(a, b, out, k, S: tl.constexpr, K: tl.constexpr):
    """Four products at once, with a dot of three dimensions."""
    z, row = tl.arange(0, 4)[:, None, None], tl.arange(0, S)
    step = tl.arange(0, K)
    at_a = a + (z * S + row[None, :, None]) * k + step[None, None, :]
    at_b = b + (z * k + step[None, :, None]) * S + row[None, None, :]
    total = tl.zeros([4, S, S], tl.float32)
    for _ in range(0, k, K):
        total += tl.dot(tl.load(at_a), tl.load(at_b))
        at_a += K
        at_b += K * S
    tl.store(out + (z * S + row[None, :, None]) * S + row[None, None, :], total)


@made(a="*fp16", b="*fp16", bias="*fp32", out="*fp32", m="i32", n="i32", k="i32", S=32, K=64)
@triton.jit
def split_k(a, b, bias, out, m, n, k, S: tl.constexpr, K: tl.constexpr):
    """Odd sizes; programs along k add what they have to one sum; a's tiles in order of groups."""
    group, across = 2, tl.cdiv(n, S)
    at = tl.program_id(0)
    first = at // (group * across) * group
    wide = min(tl.cdiv(m, S) - first, group)
    rows = (first + at % (group * across) % wide) * S + tl.arange(0, S)
    columns = at % (group * across) // wide * S + tl.arange(0, S)
    step = tl.program_id(1) * K + tl.arange(0, K)
    x = tl.load(a + rows[:, None] * k + step, (rows < m)[:, None] & (step < k), other=0.0)
    y = tl.load(b + step[:, None] * n + columns, (step < k)[:, None] & (columns < n), other=0.0)
    total = tl.dot(x, y)
    if tl.program_id(1) == 0:
        total = tl.maximum(total, 0.0) + tl.load(bias + columns, columns < n)
    inside = (rows < m)[:, None] & (columns < n)
    tl.atomic_add(out + rows[:, None] * n + columns, total, inside, sem="relaxed")


@made("w4", x="*fp16", w="*i8", scales="*fp16", out="*fp16", k="i32:16", M=16, N=32, K=64)
@made(
    "w4_sm_80", sm=80, x="*fp16", w="*i8", scales="*fp16", out="*fp16", k="i32:16", M=32, N=32, K=64
)
@triton.jit
def w4(x, w, scales, out, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """x by rows of k, w two to a byte by columns of k, a scale for each 64 of a column."""
    rows, columns = tl.arange(0, M), tl.program_id(0) * N + tl.arange(0, N)
    half = tl.arange(0, K // 2)
    total = tl.zeros([M, N], tl.float32)
    for start in range(0, k, K):
        packed = tl.load(w + columns[:, None] * (k // 2) + start // 2 + half)
        low, high = (packed << 4) >> 4, packed >> 4
        scale = tl.load(scales + columns * (k // K) + start // K)[:, None]
        weights = tl.interleave(low.to(tl.float16), high.to(tl.float16)) * scale
        value = tl.load(x + rows[:, None] * k + start + tl.arange(0, K))
        total = tl.dot(value, weights.T, total)
    n = tl.num_programs(0) * N
    tl.store(out + rows[:, None] * n + columns, total.to(tl.float16))


@made("w8", x="*bf16", w="*i8", scales="*fp32", out="*fp32", k="i32:16", M=64, N=64, K=64)
@triton.jit
def w8(x, w, scales, out, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """A scale for each column of w; the weights go through registers."""
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    step = tl.arange(0, K)
    total = tl.zeros([M, N], tl.float32)
    for start in range(0, k, K):
        weights = tl.load(w + columns * k + start + step[:, None]).to(tl.bfloat16)
        value = tl.load(x + rows[:, None] * k + start + step)
        total = tl.dot(value, weights, total)
    tl.store(out + rows[:, None] * N + columns, total * tl.load(scales + columns))


@made(
    "scaled_e4m3",
    sa="*u8",
    sb="*u8",
    out="*fp32",
    a="*fp8e4nv",
    b="*fp8e4nv",
    A=tl.constexpr("e4m3"),
    PACKED=1,
)
@made(
    "scaled_e2m1",
    sa="*u8",
    sb="*u8",
    out="*fp32",
    a="*u8",
    b="*fp8e4nv",
    A=tl.constexpr("e2m1"),
    PACKED=2,
)
@triton.jit
def scaled(a, sa, b, sb, out, A: tl.constexpr, PACKED: tl.constexpr):
    """64×64×128 with a power of two for each 32 of k."""
    row, step, block = tl.arange(0, 64), tl.arange(0, 128), tl.arange(0, 4)
    x = tl.load(a + row[:, None] * (128 // PACKED) + tl.arange(0, 128 // PACKED))
    y = tl.load(b + step[:, None] * 64 + row)
    at = row[:, None] * 4 + block
    total = tl.dot_scaled(x, tl.load(sa + at), A, y, tl.load(sb + at), "e4m3")
    tl.store(out + row[:, None] * 64 + row, total)


@made(a="*fp16", b="*fp16", out="*fp32", sizes="*i32", n="i32:16", k="i32:16", M=32, N=32, K=32)
@triton.jit
def grouped(a, b, out, sizes, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Groups of rows, each times its own matrix; the programs take the tiles of all in turn."""
    at, tile, start, group = tl.program_id(0), 0, 0, 0
    columns, step = tl.arange(0, N), tl.arange(0, K)
    while group < 3:
        size = tl.load(sizes + group)
        end = tile + tl.cdiv(size, M) * (n // N)
        while at < end:
            rows = (at - tile) // (n // N) * M + tl.arange(0, M)
            column = (at - tile) % (n // N) * N + columns
            inside = (rows < size)[:, None]
            total = tl.zeros([M, N], tl.float32)
            for i in range(0, k, K):
                x = tl.load(a + (start + rows)[:, None] * k + i + step, inside, other=0.0)
                y = tl.load(b + (group * k + i + step)[:, None] * n + column)
                total = tl.dot(x, y, total)
            tl.store(out + (start + rows)[:, None] * n + column, total, inside)
            at += tl.num_programs(0)
        tile, start, group = end, start + size, group + 1
