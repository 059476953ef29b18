"""Triton kernels of the corpus: sm_90a's tensor copies, clusters, specialised warps."""

from __future__ import annotations

import triton
import triton.language as tl
from triton_made import made


@made("described", a="tensordesc<fp16[64, 64]>", b="tensordesc<fp16[64, 64]>",
      out="tensordesc<fp16[64, 64]>", k="i32", S=64)  # fmt: skip
@made("described_cluster", ctas=2, a="tensordesc<bf16[128, 64]>", b="tensordesc<bf16[128, 64]>",
      out="tensordesc<bf16[128, 128]>", k="i32", S=128)  # fmt: skip
@triton.jit
def described(a, b, out, k, S: tl.constexpr):
    """a · bᵀ through descriptors that the host made; what lies outside is zeros."""
    row, column = tl.program_id(0) * S, tl.program_id(1) * S
    total = tl.zeros([S, S], tl.float32)
    for at in range(0, k, 64):
        total = tl.dot(a.load([row, at]), b.load([column, at]).T, total)
    out.store([row, column], total.to(out.dtype))


@made(a="*fp8e4nv", b="*fp8e4nv", out="*fp32", m="i32", n="i32", k="i32:16", S=64, K=128)
@triton.jit
def persistent(a, b, out, m, n, k, S: tl.constexpr, K: tl.constexpr):
    """Descriptors built in the kernel; each program takes tile after tile in one flat loop."""
    left = tl.make_tensor_descriptor(a, [m, k], [k, 1], [S, K])
    right = tl.make_tensor_descriptor(b, [n, k], [k, 1], [S, K])
    to = tl.make_tensor_descriptor(out, [m, n], [n, 1], [S, S // 2])
    across = tl.cdiv(n, S)
    for tile in tl.range(
        tl.program_id(0), tl.cdiv(m, S) * across, tl.num_programs(0), flatten=True
    ):
        row, column = tile // across * S, tile % across * S
        total = tl.zeros([S, S], tl.float32)
        for at in range(0, k, K):
            total = tl.dot(left.load([row, at]), right.load([column, at]).T, total)
        halves = tl.permute(tl.reshape(total, (S, 2, S // 2)), (0, 2, 1))
        first, second = tl.split(halves)
        to.store([row, column], first)
        to.store([row, column + S // 2], second)


@made(a="tensordesc<fp16[64, 64]>", b="tensordesc<fp16[64, 64]>", out="*fp32", n="i32:16", k="i32",
      S=64)  # fmt: skip
@triton.jit
def specialised(a, b, out, n, k, S: tl.constexpr):
    """Warps of their own load; others multiply."""
    row, column = tl.program_id(0) * S, tl.program_id(1) * S
    total = tl.zeros([S, S], tl.float32)
    for at in tl.range(0, k, 64, warp_specialize=True):
        total = tl.dot(a.load([row, at]), b.load([at, column]), total)
    at = (row + tl.arange(0, S))[:, None] * n + column + tl.arange(0, S)
    tl.store(out + at, total)


@made(x="tensordesc<fp32[8, 32]>", total="tensordesc<fp32[8, 32]>",
      most="tensordesc<i32[8, 32]>", y="tensordesc<i32[8, 32]>")  # fmt: skip
@triton.jit
def tensor_reductions(x, y, total, most):
    """Boxes are added to a tensor, and their largest kept, by the copies."""
    row = tl.program_id(0) * 8
    total.atomic_add([0, 4], x.load([row, 0]))
    most.atomic_max([row % 16, 0], y.load([row, -4]))


@made(x="*i8", out="*i8", d="i32", h="i32", w="i32")
@triton.jit
def cubes(x, out, d, h, w):
    """Boxes of four dimensions, turned."""
    there = tl.make_tensor_descriptor(x, [2, d, h, w], [d * h * w, h * w, w, 1], [1, 4, 8, 16])
    back = tl.make_tensor_descriptor(out, [2, h, d, w], [d * h * w, d * w, w, 1], [1, 8, 4, 16])
    z, y, column = tl.program_id(0) * 4, tl.program_id(1) * 8, tl.program_id(2) * 16
    for n in range(2):
        box = there.load([n, z, y, column])
        back.store([n, y, z, column], tl.permute(box, (0, 2, 1, 3)))


@made(q="tensordesc<bf16[64, 64]>", k="tensordesc<bf16[32, 64]>", v="tensordesc<bf16[32, 64]>",
      out="tensordesc<bf16[64, 64]>", length="i32", scale="fp32")  # fmt: skip
@triton.jit
def flash(q, k, v, out, length, scale):
    """Attention of one head through descriptors; keys beyond the end are not seen."""
    start = tl.program_id(0) * 64
    query = q.load([start, 0])
    most, total = tl.full([64], -float("inf"), tl.float32), tl.zeros([64], tl.float32)
    mixed = tl.zeros([64, 64], tl.float32)
    for first in tl.range(0, length, 32):
        score = tl.dot(query, k.load([first, 0]).T) * scale
        score = tl.where(first + tl.arange(0, 32) < length, score, -float("inf"))
        higher = tl.maximum(most, tl.max(score, 1))
        power, shrink = tl.exp2(score - higher[:, None]), tl.exp2(most - higher)
        mixed = mixed * shrink[:, None]
        mixed = tl.dot(power.to(tl.bfloat16), v.load([first, 0]), mixed)
        total, most = total * shrink + tl.sum(power, 1), higher
    out.store([start, 0], (mixed / total[:, None]).to(tl.bfloat16))
