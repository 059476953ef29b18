"""Counting, finding, extracting and inserting bits: ``popc`` to ``bmsk``.

Positions and lengths that exceed the width are legal: fields are cut at the top bit.
"""

from __future__ import annotations

from .compose import ALL_ONES, int_min_max, low_bits_mask, negative, signed, width_of
from .primitives import Primitives, Value
from .row import Form, row


@row("popc.{T}", "d:u32 = a:T", T="b32 b64", ptx="2.0", target="sm_20")
def popc(m: Primitives, f: Form, a: Value) -> Value:
    """Number of set bits."""
    return m.popc(a)


@row("clz.{T}", "d:u32 = a:T", T="b32 b64", ptx="2.0", target="sm_20")
def clz(m: Primitives, f: Form, a: Value) -> Value:
    """Number of leading zeros; the width for 0."""
    return m.clz(a)


@row("brev.{T}", "d:T = a:T", T="b32 b64", ptx="2.0", target="sm_20")
def brev(m: Primitives, f: Form, a: Value) -> Value:
    """The bits in reverse order."""
    return m.brev(a)


@row("bfind[.shiftamt].{T}", "d:u32 = a:T", T="u32 s32 u64 s64", ptx="2.0", target="sm_20")
def bfind(m: Primitives, f: Form, a: Value) -> Value:
    """Position of the highest bit that differs from the sign; all ones if none does."""
    if signed(f.T):
        a = m.select(negative(m, a), m.not_(a), a)
    zeros, width = m.clz(a), width_of(f.T)
    position = zeros if f.shiftamt else m.sub(m.const(32, width - 1), zeros)
    return m.select(m.cmp("eq", zeros, m.const(32, width)), m.const(32, ALL_ONES), position)


@row("fns.b32", "d:b32 = mask:b32, base:b32, offset:s32", ptx="6.0", target="sm_30")
def fns(m: Primitives, f: Form, mask: Value, base: Value, offset: Value) -> Value:
    """Position of the n-th set bit from ``base`` on (``offset`` < 0: downward); all ones if there
    is none. The most negative ``offset``, which has no magnitude, gives 0.
    """
    down, only_base = negative(m, offset), m.cmp("eq", offset, m.const(32, 0))
    start = m.select(down, m.sub(m.const(32, 31), base), base)
    bits = m.shl(m.lshr(m.select(down, m.brev(mask), mask), start), start)
    bits = m.select(only_base, m.and_(bits, m.shl(m.const(32, 1), base)), bits)
    size = m.select(down, m.sub(m.const(32, 0), offset), offset)
    count = m.select(only_base, m.const(32, 1), size)
    one = m.const(32, 1)
    result = m.const(32, ALL_ONES)
    for position in range(32):
        at = m.const(32, position)
        is_set = m.cmp("ne", m.and_(bits, m.const(32, 1 << position)), m.const(32, 0))
        hit = m.and_(is_set, m.cmp("eq", count, one))
        result = m.select(hit, m.select(down, m.sub(m.const(32, 31), at), at), result)
        count = m.select(is_set, m.sub(count, one), count)
    most_negative = m.const(32, 1 << 31)
    return m.select(m.cmp("eq", offset, most_negative), m.const(32, 0), result)


def _field(m: Primitives, f: Form, *counts: Value) -> list[Value]:
    """Position and length: 8 bits for 32-bit data, all 32 for 64-bit data, extracted by shifts."""
    return [m.and_(n, m.const(32, 0xFF)) if width_of(f.T) == 32 else n for n in counts]


BYTES = "pos:u32(0..255), len:u32(0..255)"


@row("bfe.{T}", f"d:T = a:T, {BYTES}", T="u32 s32 u64 s64", ptx="2.0", target="sm_20")
def bfe(m: Primitives, f: Form, a: Value, pos: Value, length: Value) -> Value:
    """The field of ``len`` bits from bit ``pos`` up, zero- or sign-extended."""
    (pos, length), width = _field(m, f, pos, length), width_of(f.T)
    if not signed(f.T):
        return m.and_(m.lshr(a, pos), low_bits_mask(m, length, width))
    return _low_signed(m, m.ashr(a, pos), length, width)


def _low_signed(m: Primitives, a: Value, n: Value, width: int) -> Value:
    """The lowest ``n`` bits of ``a``, sign-extended: ``a`` if ``n`` ≥ width, 0 if ``n`` is 0."""
    full = m.const(32, width)
    up = m.sub(full, int_min_max(m, "min", n, full, False))
    return m.select(m.cmp("eq", n, m.const(32, 0)), m.const(width, 0), m.ashr(m.shl(a, up), up))


@row("bfi.{T}", f"d:T = a:T, b:T, {BYTES}", T="b32 b64", ptx="2.0", target="sm_20")
def bfi(m: Primitives, f: Form, a: Value, b: Value, pos: Value, length: Value) -> Value:
    """``b`` with ``len`` bits from bit ``pos`` up replaced by the lowest bits of ``a``."""
    pos, length = _field(m, f, pos, length)
    mask = m.shl(low_bits_mask(m, length, width_of(f.T)), pos)
    return m.or_(m.and_(b, m.not_(mask)), m.and_(m.shl(a, pos), mask))


def _count(m: Primitives, f: Form, n: Value) -> Value:
    return m.and_(n, m.const(32, 31)) if f.mode == "wrap" else n


@row(
    "szext.{mode}.{T}",
    "d:T = a:T, n:u32",
    mode="clamp wrap",
    T="u32 s32",
    ptx="7.6",
    target="sm_70",
)
def szext(m: Primitives, f: Form, a: Value, n: Value) -> Value:
    """The lowest ``n`` bits, zero- or sign-extended."""
    n = _count(m, f, n)
    return _low_signed(m, a, n, 32) if signed(f.T) else m.and_(a, low_bits_mask(m, n, 32))


@row("bmsk.{mode}.b32", "d:b32 = a:b32, b:b32", mode="clamp wrap", ptx="7.6", target="sm_70")
def bmsk(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """A mask of ``b`` ones from bit ``a`` up."""
    return m.shl(low_bits_mask(m, _count(m, f, b), 32), _count(m, f, a))
