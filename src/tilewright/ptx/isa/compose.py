"""Operations shared by several rows: flushing, saturation, signs, minima, packed types.

Each is a short composition of primitives on the bit patterns of a format. ``elementwise`` applies
an operation to each part of a packed type (``f16x2``, ``f32x2``, ``u16x2``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...dtypes import dtype
from .primitives import Primitives, Value
from .row import Form


@dataclass(frozen=True, slots=True)
class Format:
    """A floating-point format in bits: width, 1.0, canonical NaN, least normal, infinity."""

    width: int
    one: int
    nan: int
    normal: int
    infinity: int

    @property
    def sign(self) -> int:
        return 1 << (self.width - 1)

    @property
    def mantissa(self) -> int:
        """Bits of its mantissa field."""
        return self.normal.bit_length() - 1

    @property
    def quiet(self) -> int:
        """Infinity with the highest mantissa bit set, which makes it a quiet NaN."""
        return self.infinity | self.normal >> 1


FORMATS = {
    "f16": Format(16, 0x3C00, 0x7FFF, 0x0400, 0x7C00),
    "bf16": Format(16, 0x3F80, 0x7FFF, 0x0080, 0x7F80),
    "f32": Format(32, 0x3F800000, 0x7FFFFFFF, 0x00800000, 0x7F800000),
    "f64": Format(64, 0x3FF << 52, 0xFFF8 << 48, 1 << 52, 0x7FF << 52),
}

ALL_ONES = -1


def width_of(type_: str) -> int:
    """Bits of a type: ``s16`` → 16, ``bf16x2`` → 32, ``pred`` → 1."""
    return dtype(type_).bits


def signed(type_: str) -> bool:
    return type_[0] == "s"


def elementwise(m: Primitives, type_: str, fn: Callable[..., Value], *values: Value) -> Value:
    """``fn(base type, *parts)``, once for a scalar type or for each part of a packed type."""
    base, packed, _ = type_.partition("x")
    if not packed:
        return fn(type_, *values)
    width = width_of(base)
    parts = zip(*(m.split(v, width) for v in values), strict=True)
    return m.join(*(fn(base, *p) for p in parts))


# --- integers ---------------------------------------------------------------------------------


def low_bits_mask(m: Primitives, n: Value, width: int) -> Value:
    """The lowest ``n`` bits set, all where ``n`` ≥ width."""
    return m.not_(m.shl(m.const(width, ALL_ONES), n))


def int_min_max(m: Primitives, op: str, a: Value, b: Value, is_signed: bool) -> Value:
    """``min`` or ``max`` of integers."""
    return m.select(m.cmp("lt" if op == "min" else "gt", a, b, is_signed), a, b)


def negative(m: Primitives, a: Value) -> Value:
    """Predicate: the highest bit is set."""
    return m.cmp("lt", a, m.const(m.width(a), 0), True)


def relu_int(m: Primitives, a: Value) -> Value:
    """Replace a negative integer by zero."""
    return m.select(negative(m, a), m.const(m.width(a), 0), a)


# --- floating point ---------------------------------------------------------------------------


def flip_sign(m: Primitives, fmt: str, a: Value) -> Value:
    f = FORMATS[fmt]
    return m.xor(a, m.const(f.width, f.sign))


def magnitude(m: Primitives, fmt: str, a: Value) -> Value:
    f = FORMATS[fmt]
    return m.and_(a, m.const(f.width, f.sign - 1))


def canonical_nan(m: Primitives, fmt: str, a: Value) -> Value:
    """``a`` with every NaN replaced by the canonical one (as by hardware's ``a + −0``)."""
    f = FORMATS[fmt]
    return m.select(m.fcmp(fmt, "nan", a, a), m.const(f.width, f.nan), a)


def propagate_nan(m: Primitives, fmt: str, result: Value, *operands: Value) -> Value:
    """``result``; for f64, if an operand is a NaN, the first such operand, as the f64 unit
    propagates it: made quiet, with its sign and the rest of its payload.
    """
    if fmt != "f64":
        return result
    quiet = m.const(64, FORMATS[fmt].quiet)
    for a in reversed(operands):
        result = m.select(m.fcmp(fmt, "nan", a, a), m.or_(a, quiet), result)
    return result


def convert_nan(m: Primitives, source: str, dest: str, a: Value, result: Value) -> Value:
    """``result``, but where ``a`` is a NaN, that NaN as the f64 unit propagates it: its sign and
    the upper bits of its payload, made quiet.
    """
    s, d = FORMATS[source], FORMATS[dest]
    bits = m.shl(m.zext(a, 64), m.const(32, 64 - s.width))
    payload = m.shl(bits, m.const(32, s.width - s.mantissa))
    payload = m.lshr(payload, m.const(32, d.width - d.mantissa))
    truncated = m.or_(m.and_(bits, m.const(64, 1 << 63)), payload)
    truncated = m.trunc(m.lshr(truncated, m.const(32, 64 - d.width)), d.width)
    nan = m.or_(truncated, m.const(d.width, d.quiet))
    return m.select(m.fcmp(source, "nan", a, a), nan, result)


def flush_subnormal(m: Primitives, fmt: str, a: Value, small: Value | None = None) -> Value:
    """``.ftz``: replace a subnormal, or a value where ``small`` holds, by zero with its sign."""
    f = FORMATS[fmt]
    if small is None:
        small = m.cmp("lt", magnitude(m, fmt, a), m.const(f.width, f.normal))
    return m.select(small, m.and_(a, m.const(f.width, f.sign)), a)


def saturate(m: Primitives, fmt: str, a: Value) -> Value:
    """``.sat``: clamp to [+0, 1]; a NaN and −0 become +0."""
    f = FORMATS[fmt]
    zero, one = m.const(f.width, 0), m.const(f.width, f.one)
    return m.select(m.fcmp(fmt, "gt", a, zero), m.select(m.fcmp(fmt, "lt", a, one), a, one), zero)


def relu(m: Primitives, fmt: str, a: Value) -> Value:
    """``.relu``: a negative value (−0 too) becomes +0, a NaN the canonical NaN."""
    f = FORMATS[fmt]
    zero = m.const(f.width, 0)
    positive = m.select(m.fcmp(fmt, "gt", a, zero), a, zero)
    return m.select(m.fcmp(fmt, "nan", a, a), m.const(f.width, f.nan), positive)


def float_min_max(m: Primitives, fmt: str, op: str, a: Value, b: Value, nan: bool = False) -> Value:
    """Minimum or maximum with −0 < +0. If one operand is a NaN, the result is the other operand,
    or with ``nan`` the NaN. For two f64 NaNs it is ``b``.
    """
    f = FORMATS[fmt]
    wins = m.fcmp(fmt, "lt" if op == "min" else "gt", a, b)
    # Equal values differ in bits only as +0 and −0; "or" keeps the sign, "and" drops it.
    tie = m.or_(a, b) if op == "min" else m.and_(a, b)
    number = m.select(m.fcmp(fmt, "eq", a, b), tie, m.select(wins, a, b))
    bad = propagate_nan(m, fmt, m.const(f.width, f.nan), b)
    a_nan, b_nan = m.fcmp(fmt, "nan", a, a), m.fcmp(fmt, "nan", b, b)
    if nan:
        return m.select(m.or_(a_nan, b_nan), bad, number)
    return m.select(a_nan, m.select(b_nan, bad, b), m.select(b_nan, a, number))


def is_tiny(m: Primitives, fmt: str, fn: Callable[..., Value], parts: Sequence[Value]) -> Value:
    """Whether a product, a quotient or an fma is tiny: below the smallest normal number when it is
    rounded with an unbounded exponent range. Computed from a result that is twice as large.
    """
    first, other, *rest = parts
    twice = fn(fmt, m.fadd(fmt, first, first), other, *(m.fadd(fmt, z, z) for z in rest))
    least = m.const(FORMATS[fmt].width, 2 * FORMATS[fmt].normal)
    return m.cmp("lt", magnitude(m, fmt, twice), least)


def arithmetic(
    m: Primitives, f: Form, fn: Callable[..., Value], *values: Value, product: bool = False
) -> Value:
    """``fn(format, *parts)`` on ``f.T`` with the form's ``.ftz``, ``.sat``, ``.relu``. A
    ``product`` or quotient is flushed if it is tiny before denormalization (as on an H200).
    """

    def scalar(fmt: str, *parts: Value) -> Value:
        if f.ftz:
            parts = tuple(flush_subnormal(m, fmt, p) for p in parts)
        result = fn(fmt, *parts)
        if f.ftz:
            small = is_tiny(m, fmt, fn, parts) if product else None
            result = flush_subnormal(m, fmt, result, small)
        if f.sat:
            result = saturate(m, fmt, result)
        return relu(m, fmt, result) if f.relu else result

    return elementwise(m, f.T, scalar, *values)
