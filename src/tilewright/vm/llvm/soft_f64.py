"""f64 arithmetic with other roundings than to nearest even: integers, one lane at a time.

There is no wider format to compute in, and the processor's rounding mode is not changed. So each
operation computes its exact result as an integer of 62 bits, or enough of it with a sticky last
bit, and ``_pack`` rounds it. This is slow, but rare in kernels. Addition is fma(a, 1, b);
multiplication is fma(a, b, ±0).
"""

from __future__ import annotations

from .expressions import Expr, lanewise
from .rounding import F64, canonical, overflowed, round_off

SIGN, ONE, HIDDEN = 1 << 63, F64.bias << 52, 1 << 52
ZERO_EXPONENT = 1 << 14  # −ZERO_EXPONENT is an exponent below all others: that of zero


def fma(a: Expr, b: Expr, c: Expr, rnd: str) -> Expr:
    """a · b + c of lanes of f64 bits."""
    return lanewise(f"tw.f64.fma.{rnd}", lambda x, y, z: _fma(x, y, z, rnd), 64, a, b, c)


def add(a: Expr, b: Expr, rnd: str) -> Expr:
    return fma(a, a.const(ONE), b, rnd)


def mul(a: Expr, b: Expr, rnd: str) -> Expr:
    return fma(a, b, (a ^ b) & SIGN, rnd)


def div(a: Expr, b: Expr, rnd: str) -> Expr:
    return lanewise(f"tw.f64.div.{rnd}", lambda x, y: _div(x, y, rnd), 64, a, b)


def sqrt(a: Expr, rnd: str) -> Expr:
    return lanewise(f"tw.f64.sqrt.{rnd}", lambda x: _sqrt(x, rnd), 64, a)


# --- the parts ------------------------------------------------------------------------------


def _unpack(a: Expr) -> tuple[Expr, Expr]:
    """(exponent, significand): the number is significand · 2^(exponent − 52).

    2^52 ≤ significand < 2^53; the significand of zero is 0.
    """
    field, fraction = a >> 52 & 0x7FF, a & (HIDDEN - 1)
    lead = fraction.clz() - 11
    subnormal = field.eq(0)
    significand = subnormal.pick(fraction << (lead & 63), fraction | HIDDEN)
    return subnormal.pick(1 - F64.bias - lead, field - F64.bias), significand


def _is_special(a: Expr) -> Expr:
    """Infinity or NaN."""
    return (a & ~SIGN) >= 0x7FF << 52


def _is_zero(a: Expr) -> Expr:
    return (a & ~SIGN).eq(0)


def _shift_jam(a: Expr, count: Expr) -> Expr:
    """``a >> count`` with a sticky last bit: set if ones are shifted out."""
    count = count.umin(127).zext(128)
    shifted = a >> count
    return shifted | (shifted << count).ne(a).zext(128)


def _pack(negative: Expr, exponent: Expr, sig: Expr, rnd: str) -> Expr:
    """sig · 2^(exponent − 61) rounded to an f64; 0 < sig < 2^62."""
    lead = sig.clz() - 2
    sig, field = sig << lead, exponent - lead + F64.bias
    field = field.intrinsic("smin", 2047)
    above, lack = (field - 1).intrinsic("smax", 0), (1 - field).intrinsic("smax", 0).umin(54)
    code = round_off(sig, lack + 9, rnd, negative) + (above << 52)
    return overflowed(code, F64, rnd, negative) | negative.zext(64) << 63


# --- the operations -------------------------------------------------------------------------


def _fma(a: Expr, b: Expr, c: Expr, rnd: str) -> Expr:
    """Align product and addend, each with its leading one near bit 125, to the larger and add.

    Bits that alignment shifts out leave a sticky bit. This happens only if the other term is at
    least 2^124 and the rest of this one is less than 2^106, so the sum has far more than 53 bits
    above the sticky bit.
    """
    (ea, ma), (eb, mb), (ec, mc) = _unpack(a), _unpack(b), _unpack(c)
    product, addend = ma.zext(128) * mb.zext(128) << 20, mc.zext(128) << 73
    ep = (ma.eq(0) | mb.eq(0)).pick(-ZERO_EXPONENT, ea + eb)  # product · 2^(ep − 124)
    ec = mc.eq(0).pick(-ZERO_EXPONENT, ec - 1)  # addend · 2^(ec − 124)
    top = ep.slt(ec).pick(ec, ep)
    product, addend = _shift_jam(product, top - ep), _shift_jam(addend, top - ec)
    minus, minus_c = (a ^ b).negative, c.negative
    opposed = minus ^ minus_c
    swapped = product < addend
    difference = swapped.pick(addend - product, product - addend)
    total = opposed.pick(difference, product + addend)
    negative = (opposed & swapped).pick(minus_c, minus)
    zero = total.eq(0)
    lead = (total | 1).clz()
    total = total << lead
    sig = (total >> 66).trunc(64) | (total << 62).ne(0).zext(64)
    result = _pack(negative, top + 3 - lead.trunc(64), sig | zero.zext(64), rnd)
    signed_zero = opposed.pick(SIGN if rnd == "rm" else 0, c & SIGN)
    special = _is_special(a) | _is_special(b) | _is_special(c)
    native = canonical(a.float.intrinsic("fma", b.float, c.float))
    return special.pick(native, zero.pick(signed_zero, result))


def _div(a: Expr, b: Expr, rnd: str) -> Expr:
    """The quotient of the significands has an error of at most half a unit in its last place; the
    exact remainder gives the direction of the error.
    """
    (ea, ma), (eb, mb) = _unpack(a), _unpack(b)
    quotient = (_unit(ma) / _unit(mb)).bits
    below = (quotient < ONE).zext(64)  # q in [1/2, 1)
    q = quotient & (HIDDEN - 1) | HIDDEN
    rest = (ma.zext(128) << (below + 52).zext(128)) - q.zext(128) * mb.zext(128)
    result = _pack((a ^ b).negative, ea - eb - below, _sticky(q, rest), rnd)
    special = _is_special(a) | _is_special(b) | _is_zero(a) | _is_zero(b)
    return special.pick(canonical(a.float / b.float), result)


def _sqrt(a: Expr, rnd: str) -> Expr:
    """As ``_div``, with a significand in [1, 4), so that the exponent is even."""
    exponent, significand = _unpack(a)
    odd = exponent & 1
    root = (_unit(significand).bits + (odd << 52)).float.sqrt().bits & (HIDDEN - 1) | HIDDEN
    rest = (significand.zext(128) << (odd + 52).zext(128)) - root.zext(128) * root.zext(128)
    result = _pack(a.negative, (exponent - odd).sar(1), _sticky(root, rest), rnd)
    special = _is_special(a) | _is_zero(a) | a.negative
    return special.pick(canonical(a.float.sqrt()), result)


def _unit(significand: Expr) -> Expr:
    """A significand as an f64 in [1, 2)."""
    return (significand & (HIDDEN - 1) | ONE).float


def _sticky(sig: Expr, rest: Expr) -> Expr:
    """A result of 53 bits shifted left by nine, moved by one to the side of the exact result."""
    return (sig << 9) + rest.ne(0).zext(64) - (rest.negative.zext(64) << 1)
