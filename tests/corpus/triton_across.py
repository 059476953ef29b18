"""Triton kernels of the corpus: what goes across lanes, warps and programs."""

from __future__ import annotations

import triton
import triton.language as tl
from triton_made import made


@triton.jit
def _welford(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
    n = n_a + n_b
    part = tl.where(n > 0, n_b / n, 0.0)
    delta = mean_b - mean_a
    return mean_a + delta * part, m2_a + m2_b + delta * delta * n_a * part, n


@made(x="*fp32", mean="*fp32", m2="*fp32", columns="i32", BLOCK=512)
@made(
    "moments_sm_80", sm=80, warps=8, x="*fp32", mean="*fp32", m2="*fp32", columns="i32", BLOCK=256
)
@triton.jit
def moments(x, mean, m2, columns, BLOCK: tl.constexpr):
    """Mean and squared deviations of a row, by Welford's merge."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * columns + at, inside, other=0.0)
    one = tl.where(inside, 1.0, 0.0)
    a, b, _ = tl.reduce((value, tl.zeros_like(value), one), 0, _welford)
    tl.store(mean + row, a)
    tl.store(m2 + row, b)


@triton.jit
def _reduced(value, to, axis: tl.constexpr, SIZE: tl.constexpr):
    most, place = tl.max(value, axis, return_indices=True)
    tl.store(to, tl.sum(value, axis))
    tl.store(to + SIZE, most)
    tl.store(to + 2 * SIZE, place)
    tl.store(to + 3 * SIZE, tl.min(value, axis))
    tl.store(to + 4 * SIZE, tl.argmin(value, axis))
    tl.store(to + 5 * SIZE, tl.xor_sum(value, axis))


@made(x="*i32", rows="*i32", columns="*i32", ROWS=16, COLUMNS=32)
@triton.jit
def reductions(x, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Along both axes: sum, largest and its place, smallest and its place, xor."""
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    value = tl.load(x + row[:, None] * COLUMNS + column)
    _reduced(value, columns + column, 0, COLUMNS)
    _reduced(value, rows + row, 1, ROWS)


@triton.jit
def _linear(decay_a, value_a, decay_b, value_b):
    return decay_a * decay_b, value_a * decay_b + value_b


@made(decay="*fp32", x="*fp32", out="*fp32", ROWS=4, COLUMNS=128)
@triton.jit
def recurrence(decay, x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """h[i] = decay[i] * h[i - 1] + x[i], as an associative scan; and backwards."""
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)
    a, b = tl.load(decay + at), tl.load(x + at)
    _, there = tl.associative_scan((a, b), 1, _linear)
    _, back = tl.associative_scan((a, b), 1, _linear, reverse=True)
    tl.store(out + at, there)
    tl.store(out + ROWS * COLUMNS + at, back)


@made(x="*i32", out="*i64", n="i32", BLOCK=256)
@made("scans_sm_80", sm=80, warps=1, x="*i32", out="*i64", n="i32", BLOCK=64)
@triton.jit
def scans(x, out, n, BLOCK: tl.constexpr):
    """One program scans all of it, block after block."""
    carry = tl.zeros([], tl.int64)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + at, at < n, other=0).to(tl.int64)
        tl.store(out + at, tl.cumsum(value, 0) + carry, at < n)
        carry += tl.sum(value, 0)


@made(x="*i32", out="*i32", n="i32", BLOCK=256, BINS=64)
@triton.jit
def histogram(x, out, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    counts = tl.histogram(tl.load(x + at, at < n, other=0), BINS, mask=at < n)
    tl.atomic_add(out + tl.arange(0, BINS), counts)


@made(x="*i32", out="*i32", best="*fp32", scores="*fp32", ROWS=2, COLUMNS=128, K=8)
@triton.jit
def sorts(x, out, scores, best, ROWS: tl.constexpr, COLUMNS: tl.constexpr, K: tl.constexpr):
    """Rows in order, forwards and backwards; the largest K of others."""
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)
    at = row * COLUMNS + column
    value = tl.load(x + at)
    tl.store(out + at, tl.sort(value))
    tl.store(out + ROWS * COLUMNS + at, tl.sort(value, descending=True))
    tl.store(out + 2 * ROWS * COLUMNS + at, tl.flip(value, 1))
    tl.store(best + row * K + tl.arange(0, K), tl.topk(tl.load(scores + at), K))


@made(x="*fp32", places="*i32", out="*fp32", ROWS=32, COLUMNS=16)
@triton.jit
def gathers(x, places, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Along each axis, from registers."""
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)
    value, place = tl.load(x + at), tl.load(places + at)
    tl.store(out + at, tl.gather(value, place, 0))
    tl.store(out + ROWS * COLUMNS + at, tl.gather(value, place % COLUMNS, 1))


@made(x="*i16", out="*i16", N=32)
@triton.jit
def shapes(x, out, N: tl.constexpr):
    """Transposed, permuted, split and joined, interleaved, reshaped, broadcast."""
    row, column = tl.arange(0, N)[:, None], tl.arange(0, N)
    at = row * N + column
    value = tl.load(x + at)
    tl.store(out + at, tl.trans(value))
    cube = tl.permute(tl.reshape(value, (4, N // 4, N)), (2, 0, 1))
    tl.store(out + N * N + at, tl.reshape(cube, (N, N)))
    even, odd = tl.split(tl.reshape(value, (N, N // 2, 2)))
    mixed = tl.interleave(odd, even)
    tl.store(out + 2 * N * N + at, mixed)
    pairs = tl.reshape(tl.join(even, odd + 1), (N, N))
    tl.store(out + 3 * N * N + at, pairs + tl.sum(value, 1)[:, None].to(tl.int16))


@made(x="*i32", to="*i32", old="*i32", n="i32", BLOCK=64, warps=2)
@triton.jit
def atomics(x, to, old, n, BLOCK: tl.constexpr):
    """Every kind on a word of its own; what was there before a word is taken."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, inside)
    tl.atomic_add(to + at % 7, value, inside)
    tl.atomic_max(to + 8 + at % 7, value, inside, sem="relaxed")
    tl.atomic_min(to + 16 + at % 7, value, inside, scope="cta")
    tl.atomic_and(to + 24 + at % 7, value, inside)
    tl.atomic_or(to + 32 + at % 7, value, inside)
    tl.atomic_xor(to + 40 + at % 7, value, inside)
    tl.store(old + at, tl.atomic_xchg(to + 48 + at, value, inside), inside)
    seen = tl.atomic_cas(old + 128 + at, tl.zeros_like(value), value)
    tl.store(old + 256 + at, seen, inside)


@made(x="*fp32", wide="*fp32", half="*fp16", brain="*bf16", most="*fp32", n="i32", BLOCK=128)
@triton.jit
def float_atomics(x, wide, half, brain, most, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, inside)
    tl.atomic_add(wide + at % 32, value, inside)
    tl.atomic_add(half + at % 32, value.to(tl.float16), inside)
    tl.atomic_add(brain + at % 32, value.to(tl.bfloat16), inside)
    tl.atomic_max(most + at % 3, value, inside)
    tl.atomic_min(most + 4 + at % 3, value, inside)


@made(x="*fp32", sums="*fp32", lock="*i32", count="*i32", n="i32", BLOCK=64, warps=2)
@triton.jit
def locked_sums(x, sums, lock, count, n, BLOCK: tl.constexpr):
    """Programs add their rows to one row, one after another under a lock; the last doubles it."""
    at = tl.arange(0, BLOCK)
    value = tl.load(x + tl.program_id(0) * BLOCK + at)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    total, turn = tl.load(sums + at) + value, tl.load(count)
    tl.debug_barrier()  # another warp's load of count comes before this one's store
    tl.store(sums + at, tl.where(turn == tl.num_programs(0) - 1, 2 * total, total))
    tl.store(count, turn + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)
