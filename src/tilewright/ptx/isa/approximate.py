"""The approximate instructions: ``ex2.approx.ftz.f32``, ``div.full.f32``, ``rcp.approx.ftz.f64``.

``m.approx(name, a)`` is the ``.ftz`` form of f32. Where ``.ftz`` is absent the meaning scales by
powers of two around it, as ptxas does, so that subnormal operands and results come right. f16 and
bf16 go through f32. The f64 forms are 1/a and 1/√a cut to hardware's upper word; hardware's own may
differ in its last bit, and in what it keeps of a NaN.
"""

from __future__ import annotations

from .compose import FORMATS, each, flush, magnitude
from .primitives import Primitives, Value
from .row import Form, Options, row

TINY, HUGE = 0x00800000, 0x7E800000  # 2**-126, 2**126
UP24, DOWN2, UP12 = 0x4B800000, 0x3E800000, 0x45800000  # 2**24, 2**-2, 2**12
HALF, MINUS_24 = 0x3F000000, 0xC1C00000


def _scale(m: Primitives, a: Value, when: Value, factor: int) -> Value:
    """``a`` times a power of two where ``when`` holds."""
    return m.select(when, m.fmul("f32", a, m.const(32, factor)), a)


def _subnormal(m: Primitives, a: Value) -> Value:
    return m.cmp("lt", magnitude(m, "f32", a), m.const(32, TINY))


def _huge(m: Primitives, a: Value) -> Value:
    return m.fcmp("f32", "gt", magnitude(m, "f32", a), m.const(32, HUGE))


@row("rcp.approx[.ftz].f32", "d:f32 = a:f32", ptx="1.4")
def rcp(m: Primitives, f: Form, a: Value) -> Value:
    """About 1/a."""
    return _rcp(m, f, a)


def _rcp(m: Primitives, f: Form, a: Value) -> Value:
    if f.ftz:
        return m.approx("rcp", a)
    small, large = _subnormal(m, a), _huge(m, a)
    near = m.approx("rcp", _scale(m, _scale(m, a, small, UP24), large, DOWN2))
    return _scale(m, _scale(m, near, small, UP24), large, DOWN2)


@row("div.approx[.ftz].f32", "d:f32 = a:f32, b:f32", ptx="1.4")
@row("div.full[.ftz].f32", "d:f32 = a:f32, b:f32", ptx="1.4")
def div(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """About a/b: a times about 1/b; ``full`` also keeps a divisor above 2**126 in range."""
    if f.ftz:
        a, b = flush(m, "f32", a), flush(m, "f32", b)
    else:
        small = _subnormal(m, b)
        a, b = _scale(m, a, small, UP24), _scale(m, b, small, UP24)
    if f.full:
        large = _huge(m, b)
        a, b = _scale(m, a, large, DOWN2), _scale(m, b, large, DOWN2)
    quotient = m.fmul("f32", a, m.approx("rcp", b))
    return flush(m, "f32", quotient) if f.ftz else quotient


@row("sqrt.approx[.ftz].f32", "d:f32 = a:f32", ptx="1.4")
def sqrt(m: Primitives, f: Form, a: Value) -> Value:
    """About √a."""
    if f.ftz:
        return m.approx("sqrt", a)
    small = _subnormal(m, a)
    return _scale(m, m.approx("sqrt", _scale(m, a, small, UP24)), small, 0x39800000)  # 2**-12


@row("rsqrt.approx[.ftz].f32", "d:f32 = a:f32", ptx="1.4")
def rsqrt(m: Primitives, f: Form, a: Value) -> Value:
    """About 1/√a."""
    if f.ftz:
        return m.approx("rsqrt", a)
    small = _subnormal(m, a)
    return _scale(m, m.approx("rsqrt", _scale(m, a, small, UP24)), small, UP12)


@row("ex2.approx[.ftz].f32", "d:f32 = a:f32", ptx="1.4")
def ex2(m: Primitives, f: Form, a: Value) -> Value:
    """About 2 to the power of a."""
    if f.ftz:
        return m.approx("ex2", a)
    low = m.fcmp("f32", "lt", a, m.const(32, 0xC2FC0000))  # −126: the result is subnormal
    root = m.approx("ex2", _scale(m, a, low, HALF))
    return m.select(low, m.fmul("f32", root, root), root)


@row("lg2.approx[.ftz].f32", "d:f32 = a:f32", ptx="1.4")
def lg2(m: Primitives, f: Form, a: Value) -> Value:
    """About the logarithm to base 2."""
    if f.ftz:
        return m.approx("lg2", a)
    small = _subnormal(m, a)
    near = m.approx("lg2", _scale(m, a, small, UP24))
    return m.select(small, m.fadd("f32", near, m.const(32, MINUS_24)), near)


@row("sin.approx[.ftz].f32", "d:f32 = a:f32", ptx="1.4")
@row("cos.approx[.ftz].f32", "d:f32 = a:f32", ptx="1.4")
@row("tanh.approx.f32", "d:f32 = a:f32", ptx="7.0", target="sm_75")
def direct(m: Primitives, f: Form, a: Value) -> Value:
    """Sine and cosine (radians) and hyperbolic tangent as hardware has them."""
    return m.approx(f.mnemonic, flush(m, "f32", a) if f.ftz else a)


HOPPER: Options = {"ptx": "7.8", "target": "sm_90"}


@row("ex2.approx.{T}", "d:T = a:T", T="f16 f16x2", ptx="7.0", target="sm_75")
@row("ex2.approx.ftz.{T}", "d:T = a:T", T="bf16 bf16x2", **HOPPER)
@row("tanh.approx.{T}", "d:T = a:T", T="f16 f16x2", ptx="7.0", target="sm_75")
@row("tanh.approx.{T}", "d:T = a:T", T="bf16 bf16x2", **HOPPER)
def narrow(m: Primitives, f: Form, a: Value) -> Value:
    """The f32 approximation, rounded to the narrower format."""

    def one(fmt: str, x: Value) -> Value:
        x = flush(m, fmt, x) if f.ftz else x
        result = m.fcvt("f32", fmt, m.approx(f.mnemonic, m.fcvt(fmt, "f32", x)))
        return flush(m, fmt, result) if f.ftz else result

    return each(m, f.T, one, a)


@row("rcp.approx.ftz.f64", "d:f64 = a:f64", ptx="2.1", target="sm_20")
@row("rsqrt.approx.ftz.f64", "d:f64 = a:f64", ptx="4.0", target="sm_20")
def upper(m: Primitives, f: Form, a: Value) -> Value:
    """1/a or 1/√a of the upper word of ``a``, the lower word taken as 0 and given as 0."""
    cut = m.const(64, -(1 << 32))
    result = flush(m, "f64", _reciprocal(m, f, flush(m, "f64", m.and_(a, cut))))
    nan = m.fcmp("f64", "nan", result, result)
    return m.select(nan, m.const(64, FORMATS["f64"].nan), m.and_(result, cut))


@row("rsqrt.approx.f64", "d:f64 = a:f64", ptx="1.4", target="sm_13")
def rsqrt_f64(m: Primitives, f: Form, a: Value) -> Value:
    """About 1/√a."""
    return _reciprocal(m, f, a)


def _reciprocal(m: Primitives, f: Form, a: Value) -> Value:
    divisor = m.fsqrt("f64", a) if f.mnemonic == "rsqrt" else a
    return m.fdiv("f64", m.const(64, FORMATS["f64"].one), divisor)
