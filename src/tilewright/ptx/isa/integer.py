"""Integer arithmetic and bit fields: ``add.s32`` to ``dp4a``, with the carry flag.

Sums and products wrap without ``.sat``. A packed pair (``u16x2``) is computed half by half.
"""

from __future__ import annotations

from .compose import elementwise, int_min_max, negative, relu_int, signed, width_of
from .primitives import Primitives, Value
from .row import Form, row

INTS = "u16 s16 u32 s32 u64 s64"
PAIRS = "u16x2 s16x2"
NEW_PAIRS = {"u16x2": ("8.0", "sm_90"), "s16x2": ("8.0", "sm_90"), "relu": ("8.0", "sm_90")}


# --- addition and multiplication ---------------------------------------------------------------


@row("add.{T}", "d:T = a:T, b:T", T=f"{INTS} {PAIRS}", needs=NEW_PAIRS)
def add(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """Sum, wrapping."""
    return elementwise(m, f.T, lambda _, x, y: m.add(x, y), a, b)


@row("sub.{T}", "d:T = a:T, b:T", T=INTS)
def sub(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """Difference, wrapping."""
    return m.sub(a, b)


@row("add.sat.s32", "d:s32 = a:s32, b:s32")
@row("sub.sat.s32", "d:s32 = a:s32, b:s32")
def add_sat(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """Signed sum or difference, clamped to the range of s32."""
    op = m.add if f.mnemonic == "add" else m.sub
    return _clamp(m, op(m.sext(a, 64), m.sext(b, 64)))


def _clamp(m: Primitives, wide: Value) -> Value:
    low, high = m.const(64, -(1 << 31)), m.const(64, (1 << 31) - 1)
    return m.trunc(int_min_max(m, "min", int_min_max(m, "max", wide, low, True), high, True), 32)


def _half(m: Primitives, f: Form, type_: str, a: Value, b: Value) -> Value:
    return m.mul_high(a, b, signed(type_)) if f.half == "hi" else m.mul(a, b)


def _wide(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    width = 2 * width_of(f.T)
    extend = m.sext if signed(f.T) else m.zext
    return m.mul(extend(a, width), extend(b, width))


@row("mul.{half}.{T}", "d:T = a:T, b:T", half="lo hi", T=INTS)
def mul(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """The low or high half of the product."""
    return _half(m, f, f.T, a, b)


@row("mul.wide.{T}", "d:2T = a:T, b:T", T="u16 s16 u32 s32")
def mul_wide(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """The full product, twice as wide."""
    return _wide(m, f, a, b)


@row("mad.{half}.{T}", "d:T = a:T, b:T, c:T", half="lo hi", T=INTS)
def mad(m: Primitives, f: Form, a: Value, b: Value, c: Value) -> Value:
    """Half of the product plus ``c``, wrapping."""
    return m.add(_half(m, f, f.T, a, b), c)


@row("mad.hi.sat.s32", "d:s32 = a:s32, b:s32, c:s32")
def mad_hi_sat(m: Primitives, f: Form, a: Value, b: Value, c: Value) -> Value:
    """The high half of the product plus ``c``, clamped to the range of s32."""
    return _clamp(m, m.add(m.sext(m.mul_high(a, b, True), 64), m.sext(c, 64)))


@row("mad.wide.{T}", "d:2T = a:T, b:T, c:2T", T="u16 s16 u32 s32")
def mad_wide(m: Primitives, f: Form, a: Value, b: Value, c: Value) -> Value:
    """The full product plus ``c``."""
    return m.add(_wide(m, f, a, b), c)


def _mul24(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    eight = m.const(32, 8)
    if f.T != "u32":
        a, b = (m.sext(m.ashr(m.shl(x, eight), eight), 64) for x in (a, b))
    else:
        a, b = (m.zext(m.lshr(m.shl(x, eight), eight), 64) for x in (a, b))
    product = m.mul(a, b)
    return m.trunc(product if f.half == "lo" else m.lshr(product, m.const(32, 16)), 32)


@row("mul24.{half}.{T}", "d:T = a:T, b:T", half="lo hi", T="u32 s32")
def mul24(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """Bits 31…0 (``lo``) or 47…16 (``hi``) of the product of the low 24 bits."""
    return _mul24(m, f, a, b)


@row("mad24.{half}.{T}", "d:T = a:T, b:T, c:T", half="lo hi", T="u32 s32")
def mad24(m: Primitives, f: Form, a: Value, b: Value, c: Value) -> Value:
    """``mul24`` plus ``c``, wrapping."""
    return m.add(_mul24(m, f, a, b), c)


@row("mad24.{half}.sat.s32", "d:s32 = a:s32, b:s32, c:s32", half="hi")
def mad24_sat(m: Primitives, f: Form, a: Value, b: Value, c: Value) -> Value:
    """``mul24.hi`` plus ``c``, clamped to the range of s32."""
    return _clamp(m, m.add(m.sext(_mul24(m, f, a, b), 64), m.sext(c, 64)))


@row("div.{T}", "d:T = a:T, b:T", T=INTS)
def div(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """Quotient, toward zero."""
    return m.div(a, b, signed(f.T))


@row("rem.{T}", "d:T = a:T, b:T", T=INTS)
def rem(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """Remainder, with the sign of ``a``; all ones for a zero divisor, like the quotient."""
    return m.rem(a, b, signed(f.T))


# --- the carry flag ---------------------------------------------------------------------------


def _add_carry(m: Primitives, f: Form, a: Value, b: Value, carry_in: bool) -> Value:
    total = m.add(a, b)
    out = m.cmp("lt", total, a)
    if carry_in:
        before = total
        total = m.add(before, m.zext(m.carry(), m.width(a)))
        out = m.or_(out, m.cmp("lt", total, before))
    if f.cc:
        m.set_carry(out)
    return total


CARRY_TYPES = "u32 s32 u64 s64"
CARRY_NEEDS = dict.fromkeys(("u64", "s64"), ("4.3", "sm_20"))


@row("add.cc.{T}", "d:T = a:T, b:T", T=CARRY_TYPES, ptx="1.2", needs=CARRY_NEEDS)
def add_cc(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """Sum; the carry flag gets the carry."""
    return _add_carry(m, f, a, b, False)


@row("addc[.cc].{T}", "d:T = a:T, b:T", T=CARRY_TYPES, ptx="1.2", needs=CARRY_NEEDS)
def addc(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """Sum with the carry flag added."""
    return _add_carry(m, f, a, b, True)


@row("sub.cc.{T}", "d:T = a:T, b:T", T=CARRY_TYPES, ptx="1.2", needs=CARRY_NEEDS)
def sub_cc(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """``a + ~b + 1``; the carry flag gets the carry, the complement of the borrow, as with ptxas:
    nvcc's 128-bit division adds it with ``addc``.
    """
    m.set_carry(m.cmp("ge", a, b))
    return m.sub(a, b)


@row("subc[.cc].{T}", "d:T = a:T, b:T", T=CARRY_TYPES, ptx="3.0", needs=CARRY_NEEDS)
def subc(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """``a + ~b`` with the carry flag added: the difference less the borrow."""
    return _add_carry(m, f, a, m.not_(b), True)


@row(
    "mad.{half}.cc.{T}",
    "d:T = a:T, b:T, c:T",
    half="lo hi",
    T="u32 s32 u64 s64",
    ptx="3.0",
    target="sm_20",
    needs=CARRY_NEEDS,
)
def mad_cc(m: Primitives, f: Form, a: Value, b: Value, c: Value) -> Value:
    """Half of the product plus ``c``; the carry flag gets the carry."""
    return _add_carry(m, f, _half(m, f, f.T, a, b), c, False)


@row(
    "madc.{half}[.cc].{T}",
    "d:T = a:T, b:T, c:T",
    half="lo hi",
    T="u32 s32 u64 s64",
    ptx="3.0",
    target="sm_20",
    needs=CARRY_NEEDS,
)
def madc(m: Primitives, f: Form, a: Value, b: Value, c: Value) -> Value:
    """Half of the product plus ``c`` plus the carry flag."""
    return _add_carry(m, f, _half(m, f, f.T, a, b), c, True)


# --- sign and order ---------------------------------------------------------------------------


@row("abs.{T}", "d:T = a:T", T="s16 s32 s64")
def abs_(m: Primitives, f: Form, a: Value) -> Value:
    """Absolute value; the most negative integer gives itself."""
    return m.select(negative(m, a), m.sub(m.const(m.width(a), 0), a), a)


@row("neg.{T}", "d:T = a:T", T="s16 s32 s64")
def neg(m: Primitives, f: Form, a: Value) -> Value:
    """Zero minus ``a``."""
    return m.sub(m.const(m.width(a), 0), a)


@row("min.{T}", "d:T = a:T, b:T", T=f"{INTS} {PAIRS}", needs=NEW_PAIRS)
@row("max.{T}", "d:T = a:T, b:T", T=f"{INTS} {PAIRS}", needs=NEW_PAIRS)
@row("min.relu.{T}", "d:T = a:T, b:T", T="s32 s16x2", needs=NEW_PAIRS)
@row("max.relu.{T}", "d:T = a:T, b:T", T="s32 s16x2", needs=NEW_PAIRS)
def min_max(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """The smaller or larger; ``.relu`` makes a negative result zero."""

    def one(type_: str, x: Value, y: Value) -> Value:
        result = int_min_max(m, f.mnemonic, x, y, signed(type_))
        return relu_int(m, result) if f.relu else result

    return elementwise(m, f.T, one, a, b)


@row("sad.{T}", "d:T = a:T, b:T, c:T", T=INTS)
def sad(m: Primitives, f: Form, a: Value, b: Value, c: Value) -> Value:
    """``c`` plus the absolute difference."""
    return m.add(c, _distance(m, a, b, signed(f.T)))


def _distance(m: Primitives, a: Value, b: Value, is_signed: bool) -> Value:
    return m.select(m.cmp("lt", a, b, is_signed), m.sub(b, a), m.sub(a, b))


# --- dot products and bytes -------------------------------------------------------------------


def _parts(m: Primitives, type_: str, a: Value, width: int) -> list[Value]:
    extend = m.sext if signed(type_) else m.zext
    return [extend(part, 32) for part in m.split(a, width)]


def _dot(m: Primitives, a: list[Value], b: list[Value], total: Value) -> Value:
    for x, y in zip(a, b, strict=True):
        total = m.add(total, m.mul(x, y))
    return total


@row(
    "dp4a.{A}.{B}",
    "d:b32 = a:b32, b:b32, c:b32",
    A="u32 s32",
    B="u32 s32",
    ptx="5.0",
    target="sm_61",
)
def dp4a(m: Primitives, f: Form, a: Value, b: Value, c: Value) -> Value:
    """``c`` plus the dot product of four bytes and four bytes, wrapping."""
    return _dot(m, _parts(m, f.A, a, 8), _parts(m, f.B, b, 8), c)


@row(
    "dp2a.{half}.{A}.{B}",
    "d:b32 = a:b32, b:b32, c:b32",
    half="lo hi",
    A="u32 s32",
    B="u32 s32",
    ptx="5.0",
    target="sm_61",
)
def dp2a(m: Primitives, f: Form, a: Value, b: Value, c: Value) -> Value:
    """``c`` plus the dot product of two 16-bit values and the two lower or upper bytes."""
    four = _parts(m, f.B, b, 8)
    return _dot(m, _parts(m, f.A, a, 16), four[:2] if f.half == "lo" else four[2:], c)
