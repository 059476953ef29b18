"""``cvt.rs``: stochastic rounding, up or down depending on random bits that are an operand.

A value is truncated toward zero. The random bits are added to the highest truncated bits, and a
carry moves the result away from zero. Published, not verified: no GPU here runs it. The manual does
not define how two values share a field of random bits. According to measurements on a B200
(mlc-ai/TIRx-harness), the first reads it in reverse order, and bits below the field are ignored.
"""

from __future__ import annotations

from ...dtypes import dtype
from .compose import int_min_max, magnitude, relu
from .narrow import element, pack, unpack
from .primitives import Primitives, Value
from .row import Form, Options, row

STOCHASTIC: Options = {"ptx": "8.7", "target": "sm_100a|sm_103a"}


@row(
    "cvt.{rnd}[.relu][.satfinite].{D}.{A}",
    "d:D = a:f32, b:f32, rbits:b32",
    rnd="rs",
    D="f16x2 bf16x2",
    A="f32",
    **STOCHASTIC,
)
def to_pair_random(m: Primitives, f: Form, a: Value, b: Value, rbits: Value) -> Value:
    """Two f32 to a pair of f16 or bf16. Each uses the 13 (f16) or 16 (bf16) lowest bits of its half
    of ``rbits``.
    """
    dest = element(f.D)
    count = 13 if dest == "f16" else 16
    fields = (m.and_(x, m.const(16, (1 << count) - 1)) for x in unpack(m, dest, rbits))
    codes = (_random(m, f, dest, x, r, count) for x, r in zip((a, b), fields, strict=True))
    return pack(m, dest, *codes)


@row(
    "cvt.{rnd}[.relu].satfinite.{D}.{A}",
    "d:D = a:f32*4, rbits:b32",
    rnd="rs",
    D="e4m3x4 e5m2x4 e2m3x4 e3m2x4 e2m1x4",
    A="f32",
    **STOCHASTIC,
)
def to_four_random(m: Primitives, f: Form, a: tuple[Value, ...], rbits: Value) -> Value:
    """Four f32 to fp8, fp6 or fp4. Two share 16 random bits; the first reads them in reverse order.

    The first two use the upper half of ``rbits``, or for e2m1 the upper byte of each half.
    """
    dest = element(f.D)
    first, second = unpack(m, "f16", rbits)
    if dest == "e2m1":
        low = m.split(rbits, 8)
        first, second = m.join(low[1], low[3]), m.join(low[0], low[2])
    fields = (m.brev(first), first, m.brev(second), second)
    return pack(m, dest, *(_random(m, f, dest, x, r, 16) for x, r in zip(a, fields, strict=True)))


def _random(m: Primitives, f: Form, dest: str, a: Value, random: Value, count: int) -> Value:
    """One f32 to ``dest``: truncated, or rounded away from zero if the sum of ``count`` random bits
    and the highest truncated bits carries.

    The code of a magnitude (exponent and mantissa fields) continues past the largest finite one.
    """
    t = dtype(dest)
    a = relu(m, "f32", a) if f.relu else a
    code = _random_code(m, dest, magnitude(m, "f32", a), random, count)
    beyond = m.const(32, t.max_finite + (not f.satfinite))
    code = int_min_max(m, "min", code, beyond, False)
    sign = m.lshr(m.and_(a, m.const(32, 1 << 31)), m.const(32, 32 - t.bits))
    nan = m.const(32, t.nan if t.has_nan else t.max_finite)
    code = m.select(m.fcmp("f32", "nan", a, a), nan, m.or_(code, sign))
    return m.trunc(code, max(8, t.bits))


def _random_code(m: Primitives, dest: str, size: Value, random: Value, count: int) -> Value:
    t = dtype(dest)
    field = m.lshr(size, m.const(32, 23))
    normal = m.cmp("ne", field, m.const(32, 0))
    exponent = m.select(normal, field, m.const(32, 1))
    hidden = m.select(normal, m.const(32, 1 << 23), m.const(32, 0))
    significand = m.or_(m.and_(size, m.const(32, (1 << 23) - 1)), hidden)
    smallest = m.const(32, 127 + t.least)
    shift = m.add(_excess(m, smallest, exponent), m.const(32, 23 - t.mantissa))
    shift = int_min_max(m, "min", shift, m.const(32, 40), False)  # beyond it there is no carry
    addend = m.shl(m.zext(random, 64), m.sub(shift, m.const(32, count)))
    rounded = m.trunc(m.lshr(m.add(m.zext(significand, 64), addend), shift), 32)
    return m.add(rounded, m.shl(_excess(m, exponent, smallest), m.const(32, t.mantissa)))


def _excess(m: Primitives, a: Value, b: Value) -> Value:
    """max(a − b, 0) for unsigned values."""
    return m.select(m.cmp("gt", a, b), m.sub(a, b), m.const(32, 0))
