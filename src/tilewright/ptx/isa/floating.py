"""f32 and f64 arithmetic, rounded as written; the approximations are in ``approximate.py``.

Without a rounding mode, rounding is to nearest even (the contraction that ptxas may then do is not
modelled).

A NaN result is the canonical NaN. For f64 it is an operand that is a NaN, made quiet: the second
before the third before the first; for ``div`` the first. ptxas may exchange the operands of a sum
or product (to the order of their loads), and so return the other of two NaNs.
"""

from __future__ import annotations

from functools import reduce

from .compose import (
    FORMATS,
    arithmetic,
    canonical_nan,
    flip_sign,
    float_min_max,
    flush_subnormal,
    magnitude,
    propagate_nan,
)
from .primitives import Primitives, Value
from .row import Form, Options, row

RND = "rn rz rm rp"
DIRECTED = {"rm": ("1.4", "sm_20"), "rp": ("1.4", "sm_20")}


def mode(f: Form) -> str:
    return f.rnd or "rn"


# --- addition and multiplication ---------------------------------------------------------------


@row("add[.{rnd}][.ftz][.sat].{T}", "d:T = a:T, b:T", rnd=RND, T="f32", needs=DIRECTED)
@row("add[.{rnd}].{T}", "d:T = a:T, b:T", rnd=RND, T="f64", target="sm_13")
@row("add[.{rnd}][.ftz].{T}", "d:T = a:T, b:T", rnd=RND, T="f32x2", ptx="8.6", target="sm_100")
def add(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """Sum, rounded once."""

    def one(fmt: str, x: Value, y: Value) -> Value:
        return propagate_nan(m, fmt, m.fadd(fmt, x, y, mode(f)), y, x)

    return arithmetic(m, f, one, a, b)


@row("sub[.{rnd}][.ftz][.sat].{T}", "d:T = a:T, b:T", rnd=RND, T="f32", needs=DIRECTED)
@row("sub[.{rnd}].{T}", "d:T = a:T, b:T", rnd=RND, T="f64", target="sm_13")
@row("sub[.{rnd}][.ftz].{T}", "d:T = a:T, b:T", rnd=RND, T="f32x2", ptx="8.6", target="sm_100")
def sub(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """Difference, rounded once."""

    def one(fmt: str, x: Value, y: Value) -> Value:
        return propagate_nan(m, fmt, m.fadd(fmt, x, flip_sign(m, fmt, y), mode(f)), y, x)

    return arithmetic(m, f, one, a, b)


@row("mul[.{rnd}][.ftz][.sat].{T}", "d:T = a:T, b:T", rnd=RND, T="f32", needs=DIRECTED)
@row("mul[.{rnd}].{T}", "d:T = a:T, b:T", rnd=RND, T="f64", target="sm_13")
@row("mul[.{rnd}][.ftz].{T}", "d:T = a:T, b:T", rnd=RND, T="f32x2", ptx="8.6", target="sm_100")
def mul(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """Product, rounded once."""

    def one(fmt: str, x: Value, y: Value) -> Value:
        return propagate_nan(m, fmt, m.fmul(fmt, x, y, mode(f)), y, x)

    return arithmetic(m, f, one, a, b, product=True)


@row(
    "fma.{rnd}[.ftz][.sat].{T}", "d:T = a:T, b:T, c:T", rnd=RND, T="f32", ptx="2.0", target="sm_20"
)
@row("fma.{rnd}.{T}", "d:T = a:T, b:T, c:T", rnd=RND, T="f64", ptx="1.4", target="sm_13")
@row("fma.{rnd}[.ftz].{T}", "d:T = a:T, b:T, c:T", rnd=RND, T="f32x2", ptx="8.6", target="sm_100")
@row(
    "mad.{rnd}[.ftz][.sat].{T}", "d:T = a:T, b:T, c:T", rnd=RND, T="f32", ptx="2.0", target="sm_20"
)
@row("mad.{rnd}.{T}", "d:T = a:T, b:T, c:T", rnd=RND, T="f64", ptx="1.4", target="sm_13")
def fma(m: Primitives, f: Form, a: Value, b: Value, c: Value) -> Value:
    """Product plus ``c``, rounded once."""

    def one(fmt: str, x: Value, y: Value, z: Value) -> Value:
        return propagate_nan(m, fmt, m.fma(fmt, x, y, z, f.rnd), y, z, x)

    return arithmetic(m, f, one, a, b, c, product=True)


# --- sign and order ---------------------------------------------------------------------------


@row("neg[.ftz].f32", "d:f32 = a:f32")
@row("neg.f64", "d:f64 = a:f64", target="sm_13")
@row("abs[.ftz].f32", "d:f32 = a:f32")
@row("abs.f64", "d:f64 = a:f64", target="sm_13")
def sign(m: Primitives, f: Form, a: Value) -> Value:
    """The sign flipped or cleared, except for a NaN: ptxas lowers it to an addition."""
    fmt = "f32" if f.f32 else "f64"
    a = flush_subnormal(m, fmt, a) if f.ftz else a
    changed = flip_sign(m, fmt, a) if f.mnemonic == "neg" else magnitude(m, fmt, a)
    return propagate_nan(m, fmt, canonical_nan(m, fmt, changed), a)


MIN_MAX = {"NaN": ("7.0", "sm_80")}
XORSIGN: Options = {"ptx": "7.2", "target": "sm_86"}


MIN_MAX_F32 = "d:T = a:T, b:T / d:T = a:T, b:T, c:T@8.8/sm_100"
THREE: Options = {"T": "f32", "ptx": "8.8", "target": "sm_100"}


@row("min[.ftz][.NaN].{T}", MIN_MAX_F32, T="f32", needs=MIN_MAX)
@row("max[.ftz][.NaN].{T}", MIN_MAX_F32, T="f32", needs=MIN_MAX)
@row("min[.ftz][.NaN].abs.{T}", "d:T = a:T, b:T, c:T", **THREE)
@row("max[.ftz][.NaN].abs.{T}", "d:T = a:T, b:T, c:T", **THREE)
def min_max_f32(m: Primitives, f: Form, *values: Value) -> Value:
    """The smallest or largest of two or three, with −0 < +0. A NaN is ignored, or with ``.NaN``
    returned. ``.abs`` compares and returns magnitudes.
    """

    def one(fmt: str, *parts: Value) -> Value:
        first, *others = (magnitude(m, fmt, p) for p in parts) if f.abs else parts
        return reduce(
            lambda x, y: float_min_max(m, fmt, f.mnemonic, x, y, bool(f.NaN)), others, first
        )

    return arithmetic(m, f, one, *values)


@row("min.{T}", "d:T = a:T, b:T", T="f64", target="sm_13")
@row("max.{T}", "d:T = a:T, b:T", T="f64", target="sm_13")
@row("min[.ftz][.NaN].xorsign.abs.{T}", "d:T = a:T, b:T", T="f32", **XORSIGN)
@row("max[.ftz][.NaN].xorsign.abs.{T}", "d:T = a:T, b:T", T="f32", **XORSIGN)
def min_max(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """The smaller or larger, with −0 < +0. A NaN is ignored, or with ``.NaN`` returned.

    ``.xorsign.abs`` compares magnitudes and gives the result the sign of the product.
    """
    return arithmetic(m, f, lambda fmt, x, y: float_min_max_form(m, f, fmt, x, y), a, b)


def float_min_max_form(m: Primitives, f: Form, fmt: str, x: Value, y: Value) -> Value:
    """``min`` or ``max`` with the form's modifiers."""
    if not f.xorsign:
        return float_min_max(m, fmt, f.mnemonic, x, y, bool(f.NaN))
    sign_of_both = m.and_(m.xor(x, y), m.const(FORMATS[fmt].width, FORMATS[fmt].sign))
    plain = float_min_max(
        m, fmt, f.mnemonic, magnitude(m, fmt, x), magnitude(m, fmt, y), bool(f.NaN)
    )
    return m.select(m.fcmp(fmt, "nan", plain, plain), plain, m.or_(plain, sign_of_both))


@row("copysign.{T}", "d:T = a:T, b:T", T="f32 f64", ptx="2.0", target="sm_20")
def copysign(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """``b`` with the sign of ``a``."""
    sign = m.and_(a, m.const(FORMATS[f.T].width, FORMATS[f.T].sign))
    return m.or_(magnitude(m, f.T, b), sign)


@row(
    "testp.{kind}.{T}",
    "p:pred = a:T",
    T="f32 f64",
    ptx="2.0",
    target="sm_20",
    kind="finite infinite number notanumber normal subnormal",
)
def testp(m: Primitives, f: Form, a: Value) -> Value:
    """Whether ``a`` is in that class. Zeros count as normal, infinities as numbers."""
    form, size = FORMATS[f.T], magnitude(m, f.T, a)
    infinity, least = m.const(form.width, form.infinity), m.const(form.width, form.normal)
    zero = m.cmp("eq", size, m.const(form.width, 0))
    finite, small = m.cmp("lt", size, infinity), m.cmp("lt", size, least)
    kinds = {
        "finite": lambda: finite,
        "infinite": lambda: m.cmp("eq", size, infinity),
        "number": lambda: m.cmp("le", size, infinity),
        "notanumber": lambda: m.cmp("gt", size, infinity),
        "normal": lambda: m.or_(zero, m.and_(finite, m.not_(small))),
        "subnormal": lambda: m.and_(small, m.not_(zero)),
    }
    return kinds[f.kind]()


# --- exact quotients and roots ----------------------------------------------------------------


@row("div.{rnd}[.ftz].{T}", "d:T = a:T, b:T", rnd=RND, T="f32", ptx="1.4", target="sm_20")
@row("div.{rnd}.{T}", "d:T = a:T, b:T", rnd=RND, T="f64", ptx="1.4", target="sm_13", needs=DIRECTED)
def div(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """Quotient, rounded once."""

    def one(fmt: str, x: Value, y: Value) -> Value:
        return propagate_nan(m, fmt, m.fdiv(fmt, x, y, f.rnd), x, y)

    return arithmetic(m, f, one, a, b, product=True)


@row("rcp.{rnd}[.ftz].{T}", "d:T = a:T", rnd=RND, T="f32", ptx="1.4", target="sm_20")
@row("rcp.{rnd}.{T}", "d:T = a:T", rnd=RND, T="f64", ptx="1.4", target="sm_13", needs=DIRECTED)
def rcp(m: Primitives, f: Form, a: Value) -> Value:
    """1/a, rounded once."""

    def quotient(fmt: str, one: Value, x: Value) -> Value:
        return propagate_nan(m, fmt, m.fdiv(fmt, one, x, f.rnd), x)

    one = m.const(FORMATS[f.T].width, FORMATS[f.T].one)
    return arithmetic(m, f, quotient, one, a, product=True)


@row("sqrt.{rnd}[.ftz].{T}", "d:T = a:T", rnd=RND, T="f32", ptx="1.4", target="sm_20")
@row("sqrt.{rnd}.{T}", "d:T = a:T", rnd=RND, T="f64", ptx="1.4", target="sm_13", needs=DIRECTED)
def sqrt(m: Primitives, f: Form, a: Value) -> Value:
    """Square root, rounded once."""
    return arithmetic(m, f, lambda fmt, x: propagate_nan(m, fmt, m.fsqrt(fmt, x, f.rnd), x), a)
