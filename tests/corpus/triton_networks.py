"""Triton kernels of the corpus: what neural networks are made of."""

from __future__ import annotations

import triton
import triton.language as tl
from triton_made import made


@made(x="*fp32", out="*fp32", columns="i32", BLOCK=256)
@made("softmax_sm_80", sm=80, warps=8, x="*bf16", out="*bf16", columns="i32:16", BLOCK=1024)
@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * columns + at, inside, other=-float("inf")).to(tl.float32)
    power = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * columns + at, (power / tl.sum(power, 0)).to(x.dtype.element_ty), inside)


@made(x="*fp16", weight="*fp32", bias="*fp32", out="*fp16", mean="*fp32", scale="*fp32",
      columns="i32", BLOCK=128)  # fmt: skip
@triton.jit
def layer_norm(x, weight, bias, out, mean, scale, columns, BLOCK: tl.constexpr):
    """In three passes over blocks of a row that is longer than one."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x, out = x + row * columns, out + row * columns
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        total += tl.load(x + start + at, start + at < columns, other=0.0)
    middle = tl.sum(total, 0) / columns
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        value = tl.load(x + start + at, start + at < columns, other=0.0).to(tl.float32)
        apart = tl.where(start + at < columns, value - middle, 0.0)
        total += apart * apart
    factor = 1 / tl.sqrt(tl.sum(total, 0) / columns + 1e-5)
    tl.store(mean + row, middle)
    tl.store(scale + row, factor)
    for start in range(0, columns, BLOCK):
        inside = start + at < columns
        value = (tl.load(x + start + at, inside).to(tl.float32) - middle) * factor
        value = value * tl.load(weight + start + at, inside) + tl.load(bias + start + at, inside)
        tl.store(out + start + at, value, inside)


@made(x="*fp32", dy="*fp32", weight="*fp32", mean="*fp32", scale="*fp32", dx="*fp32",
      dweight="*fp32", columns="i32:16", BLOCK=128)  # fmt: skip
@triton.jit
def layer_norm_backward(x, dy, weight, mean, scale, dx, dweight, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    factor = tl.load(scale + row)
    value = (tl.load(x + row * columns + at, inside, other=0.0) - tl.load(mean + row)) * factor
    slope = tl.load(dy + row * columns + at, inside, other=0.0)
    weighted = tl.load(weight + at, inside, other=0.0) * slope
    along = tl.sum(value * weighted, 0) / columns
    even = tl.sum(weighted, 0) / columns
    value = tl.where(inside, value, 0.0)
    tl.store(dx + row * columns + at, (weighted - value * along - even) * factor, inside)
    tl.atomic_add(dweight + at, slope * value, inside)


@made(logits="*fp16", labels="*i64", loss="*fp32", slope="*fp16", columns="i32", BLOCK=512)
@triton.jit
def cross_entropy(logits, labels, loss, slope, columns, BLOCK: tl.constexpr):
    """And the gradient of the logits."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside, label = at < columns, tl.load(labels + row)
    value = tl.load(logits + row * columns + at, inside, other=-float("inf")).to(tl.float32)
    most = tl.max(value, 0)
    total = tl.sum(tl.exp(value - most), 0)
    right = tl.load(logits + row * columns + label).to(tl.float32)
    tl.store(loss + row, tl.log(total) + most - right)
    chance = tl.exp(value - most) / total
    tl.store(slope + row * columns + at, chance - tl.where(at == label, 1.0, 0.0), inside)


@made(x="*bf16", cos="*fp32", sin="*fp32", out="*bf16", HEADS=4, HALF=32, warps=2)
@triton.jit
def rotary(x, cos, sin, out, HEADS: tl.constexpr, HALF: tl.constexpr):
    """Pairs of a head's two halves are turned by the position's angles."""
    position, column = tl.program_id(0), tl.arange(0, HALF)
    at = position * HEADS * 2 * HALF + tl.arange(0, HEADS)[:, None] * 2 * HALF + column
    c, s = tl.load(cos + position * HALF + column), tl.load(sin + position * HALF + column)
    a, b = tl.load(x + at).to(tl.float32), tl.load(x + at + HALF).to(tl.float32)
    tl.store(out + at, (a * c - b * s).to(tl.bfloat16))
    tl.store(out + at + HALF, (a * s + b * c).to(tl.bfloat16))


ATTENTION = {"q": "*fp16", "k": "*fp16", "v": "*fp16", "out": "*fp16", "log": "*fp32", "D": 32}


@made("attention_sm_80", sm=80, warps=2, length="i32:16", scale="fp32", M=32, N=32, CAUSAL=True,
      **ATTENTION)  # fmt: skip
@made("attention", length="i32", scale="fp32", M=64, N=64, CAUSAL=False, **ATTENTION)
@triton.jit
def attention(
    q, k, v, out, log, length, scale,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """One head a program of y; the logarithm of each row's sum is kept for the way back."""
    start, head = tl.program_id(0) * M, tl.program_id(1) * length
    row, column, d = start + tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    query = tl.load(q + (head + row[:, None]) * D + d, (row < length)[:, None], other=0.0)
    most, total = tl.full([M], -float("inf"), tl.float32), tl.zeros([M], tl.float32)
    mixed = tl.zeros([M, D], tl.float32)
    end = tl.minimum(start + M, length) if CAUSAL else length
    for first in range(0, end, N):
        here = first + column
        inside = (here < length)[:, None]
        key = tl.load(k + (head + here[:, None]) * D + d, inside, other=0.0)
        score = tl.dot(query, key.T) * (scale * 1.4426950408889634)
        seen = here < length
        if CAUSAL:
            seen = seen & (row[:, None] >= here)
        score = tl.where(seen, score, -float("inf"))
        higher = tl.maximum(most, tl.max(score, 1))
        power, shrink = tl.exp2(score - higher[:, None]), tl.exp2(most - higher)
        value = tl.load(v + (head + here[:, None]) * D + d, inside, other=0.0)
        mixed = tl.dot(power.to(tl.float16), value, mixed * shrink[:, None])
        total, most = total * shrink + tl.sum(power, 1), higher
    inside = row < length
    tl.store(log + head + row, most + tl.log2(total), inside)
    mixed = (mixed / total[:, None]).to(tl.float16)
    tl.store(out + (head + row[:, None]) * D + d, mixed, inside[:, None])


@made(q="*fp16", k="*fp16", v="*fp16", do="*fp16", log="*fp32", delta="*fp32", dq="*fp32",
      dk="*fp16", dv="*fp16", length="i32:16", scale="fp32", N=32, D=32)  # fmt: skip
@triton.jit
def attention_backward(
    q, k, v, do, log, delta, dq, dk, dv, length, scale, N: tl.constexpr, D: tl.constexpr
):
    """A program holds a block of keys and goes over the queries; their slopes are added up."""
    column, d = tl.program_id(0) * N + tl.arange(0, N), tl.arange(0, D)
    held = column[:, None] * D + d
    key, value = tl.load(k + held), tl.load(v + held)
    key_slope, value_slope = tl.zeros([N, D], tl.float32), tl.zeros([N, D], tl.float32)
    for first in range(0, length, N):
        row = first + tl.arange(0, N)
        at = row[:, None] * D + d
        query, slope = tl.load(q + at), tl.load(do + at)
        score = tl.dot(query, key.T) * (scale * 1.4426950408889634)
        chance = tl.exp2(score - tl.load(log + row)[:, None])
        value_slope = tl.dot(chance.T.to(tl.float16), slope, value_slope)
        from_value = tl.dot(slope, value.T) - tl.load(delta + row)[:, None]
        moved = (chance * from_value).to(tl.float16)
        key_slope = tl.dot(moved.T, query, key_slope)
        tl.atomic_add(dq + at, tl.dot(moved, key) * scale)
    tl.store(dk + held, (key_slope * scale).to(tl.float16))
    tl.store(dv + held, value_slope.to(tl.float16))
