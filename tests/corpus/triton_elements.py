"""Triton kernels of the corpus: elements, numbers, control."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton_made import made


@made(x="*fp32", y="*fp32", out="*fp32", n="i32", BLOCK=512)
@made("add_sm_80", sm=80, warps=2, x="*fp16", y="*fp16", out="*fp16", n="i32:16", BLOCK=512)
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, inside) + tl.load(y + at, inside), inside)


@made(x="*fp32", out="*fp32", words="*i32", n="i32", seed="i64", p="fp32", BLOCK=256)
@triton.jit
def dropout(x, out, words, n, seed, p, BLOCK: tl.constexpr):
    """Philox's four words of each place are kept too."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    kept = tl.rand(seed, at) >= p
    tl.store(out + at, tl.where(kept, tl.load(x + at, inside) / (1 - p), 0.0), inside)
    a, b, c, d = tl.randint4x(seed, at)
    tl.store(words + 4 * at, a, inside)
    tl.store(words + 4 * at + 1, b, inside)
    tl.store(words + 4 * at + 2, c, inside)
    tl.store(words + 4 * at + 3, d, inside)


@made(x="*fp32", y="*fp32", out="*fp32", n="i32", BLOCK=128)
@triton.jit
def functions(x, y, out, n, BLOCK: tl.constexpr):
    """One row of ``out`` for each of libdevice's functions; y is above 0."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    u, v = tl.load(x + at, inside), tl.load(y + at, inside)
    tl.store(out + at, libdevice.exp(u), inside)
    tl.store(out + n + at, libdevice.sin(u), inside)
    tl.store(out + 2 * n + at, libdevice.cos(u), inside)
    tl.store(out + 3 * n + at, libdevice.erf(u), inside)
    tl.store(out + 4 * n + at, libdevice.tanh(u), inside)
    tl.store(out + 5 * n + at, libdevice.pow(v, u), inside)
    tl.store(out + 6 * n + at, libdevice.log1p(v), inside)
    tl.store(out + 7 * n + at, libdevice.atan2(u, v), inside)
    tl.store(out + 8 * n + at, libdevice.lgamma(v), inside)
    tl.store(out + 9 * n + at, libdevice.fmod(u, v), inside)


@made(x="*fp64", out="*fp64", BLOCK=64)
@triton.jit
def wide_functions(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    u = tl.load(x + at)
    tl.store(out + at, libdevice.exp(u))
    tl.store(out + BLOCK + at, libdevice.cbrt(u))
    tl.store(out + 2 * BLOCK + at, libdevice.rsqrt(tl.abs(u)))
    tl.store(out + 3 * BLOCK + at, u / (u * u + 3))


@made(x="*fp32", out="*fp32", BLOCK=128)
@triton.jit
def quick_functions(x, out, BLOCK: tl.constexpr):
    """Triton's own: approximate instructions, and those rounded to nearest. x is above 0."""
    at = tl.arange(0, BLOCK)
    u = tl.load(x + at)
    tl.store(out + at, tl.exp(u))
    tl.store(out + BLOCK + at, tl.log2(u) + tl.exp2(-u))
    tl.store(out + 2 * BLOCK + at, tl.sigmoid(u))
    tl.store(out + 3 * BLOCK + at, tl.rsqrt(u) + tl.sqrt(u))
    tl.store(out + 4 * BLOCK + at, tl.sqrt_rn(u))
    tl.store(out + 5 * BLOCK + at, tl.div_rn(1.0, u))
    tl.store(out + 6 * BLOCK + at, tl.fma(u, u, -1.0))
    tl.store(out + 7 * BLOCK + at, tl.clamp(u, 0.5, 2.0) - tl.floor(u) + tl.ceil(u / 3))


@made(x="*i32", y="*i32", out="*i32", long="*i64", n="i32", BLOCK=128)
@triton.jit
def integers(x, y, out, long, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a, b = tl.load(x + at, inside), tl.load(y + at, inside, other=1)
    tl.store(out + at, a // b, inside)
    tl.store(out + n + at, a % b, inside)
    tl.store(out + 2 * n + at, tl.umulhi(a, b), inside)
    tl.store(out + 3 * n + at, (a >> (b & 31)) ^ (a << (b & 7)), inside)
    tl.store(out + 4 * n + at, tl.minimum(a, b) - tl.maximum(a.to(tl.int8), b.to(tl.int8)), inside)
    unsigned = a.to(tl.uint32, bitcast=True) // b.to(tl.uint32, bitcast=True)
    tl.store(out + 5 * n + at, unsigned, inside)
    tl.store(out + 6 * n + at, libdevice.popc(a) + 100 * libdevice.clz(b), inside)
    both = a.to(tl.int64) * b
    tl.store(long + at, both, inside)
    tl.store(long + n + at, both // (b.to(tl.int64) * 3), inside)
    tl.store(long + 2 * n + at, (both >> 5) + (both.to(tl.uint64, bitcast=True) >> 60), inside)


@triton.jit
def _to_and_back(x, out, at, type: tl.constexpr):
    tl.store(out + at, tl.load(x + at).to(type).to(tl.float32))


@made(x="*fp32", out="*fp32", n=256)
@made("conversions_sm_80", sm=80, x="*fp32", out="*fp32", n=256)
@triton.jit
def conversions(x, out, n: tl.constexpr):
    """Through each small type and back; sm_80 converts fp8 with integers."""
    at = tl.arange(0, n)
    _to_and_back(x, out, at, tl.float16)
    _to_and_back(x, out + n, at, tl.bfloat16)
    _to_and_back(x, out + 2 * n, at, tl.float8e5)
    value = tl.load(x + at).to(tl.float16, fp_downcast_rounding="rtz")
    tl.store(out + 3 * n + at, value.to(tl.float32))
    _to_and_back(x, out + 4 * n, at, tl.int16)
    byte = tl.minimum(tl.abs(tl.load(x + at)), 255.0).to(tl.uint8)
    tl.store(out + 5 * n + at, byte.to(tl.float32))
    small = tl.load(x + at).to(tl.bfloat16).to(tl.float8e5)
    tl.store(out + 6 * n + at, small.to(tl.float16).to(tl.float32))


@made(x="*fp32", bytes="*fp8e4nv", out="*fp16", BLOCK=256)
@triton.jit
def e4m3(x, bytes, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    small = tl.load(x + at).to(tl.float8e4nv)
    tl.store(bytes + at, small)
    tl.store(out + at, small.to(tl.float16) + small.to(tl.bfloat16).to(tl.float16))


@made(x="*i8", y="*i8", out="*i8", n="i32", BLOCK=512)
@triton.jit
def packed_asm(x, y, out, n, BLOCK: tl.constexpr):
    """Four bytes a register: differences, and sums of the low halves."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a, b = tl.load(x + at, inside), tl.load(y + at, inside)
    apart, low = tl.inline_asm_elementwise(
        asm="""{
        .reg .b32 t, u;
        mov.b32 t, 0;
        vabsdiff4.u32.u32.u32 $0, $2, $3, t;
        and.b32 t, $2, 0x0f0f0f0f;
        and.b32 u, $3, 0x0f0f0f0f;
        add.u32 $1, t, u;
        }""",
        constraints="=r,=r,r,r",
        args=[a, b],
        dtype=(tl.int8, tl.int8),
        is_pure=True,
        pack=4,
    )
    tl.store(out + at, apart, inside)
    tl.store(out + n + at, low, inside)


@triton.jit(noinline=True)
def _step(value):
    if value % 2 == 1:
        return 3 * value + 1
    else:
        return value // 2


@made(x="*i64", out="*i32", warps=1)
@triton.jit
def collatz(x, out):
    """Steps to 1, around a call that is not inlined."""
    value, steps = tl.load(x + tl.program_id(0)), 0
    while value > 1:
        value = _step(value)
        steps += 1
    tl.store(out + tl.program_id(0), steps)


@made(out="*i8", width="i32", height="i32", most="i32", BLOCK=128)
@triton.jit
def mandelbrot(out, width, height, most, BLOCK: tl.constexpr):
    """A loop until all of a tile's places are done."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cx, cy = (at % width) * 0.03125 - 1.5, (at // width) * 0.0625 - 1.0
    u, v = cx, cy
    steps, i = tl.zeros([BLOCK], tl.int32), 0
    inside = u * u + v * v <= 4
    while (i < most) & (tl.max(inside.to(tl.int32), 0) > 0):
        u, v = tl.where(inside, u * u - v * v + cx, u), tl.where(inside, 2 * u * v + cy, v)
        steps += inside
        inside = u * u + v * v <= 4
        i += 1
    tl.store(out + at, steps, at < width * height)


@made(x="*i32", warps=1, BLOCK=32, options={"debug": True})
@triton.jit
def told(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    tl.device_print("value", value)
    tl.device_assert(value < 40, "a value is too large")
    tl.store(x + at, value + 1)
