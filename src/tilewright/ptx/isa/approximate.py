"""The approximate instructions: ``ex2.approx.ftz.f32``, ``div.full.f32``, ``rcp.approx.ftz.f64``.

``m.approx(name, a)`` is the ``.ftz`` form of f32. Without ``.ftz`` the meaning scales operand and
result by powers of two, as ptxas does, so that subnormal numbers are correct. f16 and bf16 are
computed in f32; the upper word of f64 has the same mantissa digits. The results are those of an
H200.
"""

from __future__ import annotations

from functools import partial

from .compose import FORMATS, elementwise, flush_subnormal, is_tiny, magnitude
from .primitives import Primitives, Value
from .row import Form, Options, row

TINY, HUGE = 0x00800000, 0x7E800000  # 2**-126, 2**126
UP24, DOWN2, UP12 = 0x4B800000, 0x3E800000, 0x45800000  # 2**24, 2**-2, 2**12
HALF, MINUS_24 = 0x3F000000, 0xC1C00000
F16_END = 0x47800000  # 2**16


def _scale(m: Primitives, a: Value, when: Value, factor: int) -> Value:
    """``a`` times a power of two where ``when`` holds."""
    return m.select(when, m.fmul("f32", a, m.const(32, factor)), a)


def _subnormal(m: Primitives, a: Value) -> Value:
    return m.cmp("lt", magnitude(m, "f32", a), m.const(32, TINY))


def _huge(m: Primitives, a: Value) -> Value:
    return m.fcmp("f32", "gt", magnitude(m, "f32", a), m.const(32, HUGE))


@row("rcp.approx[.ftz].f32", "d:f32 = a:f32", ptx="1.4")
def rcp(m: Primitives, f: Form, a: Value) -> Value:
    """Approximate 1/a."""
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
    """Approximate a/b: a times approximate 1/b; ``full`` also scales a divisor above 2**126."""
    if f.ftz:
        a, b = flush_subnormal(m, "f32", a), flush_subnormal(m, "f32", b)
    else:
        small = _subnormal(m, b)
        a, b = _scale(m, a, small, UP24), _scale(m, b, small, UP24)
    if f.full:
        large = _huge(m, b)
        a, b = _scale(m, a, large, DOWN2), _scale(m, b, large, DOWN2)
    parts = a, m.approx("rcp", b)
    quotient = m.fmul("f32", *parts)
    return (
        flush_subnormal(m, "f32", quotient, is_tiny(m, "f32", m.fmul, parts)) if f.ftz else quotient
    )


@row("sqrt.approx[.ftz].f32", "d:f32 = a:f32", ptx="1.4")
def sqrt(m: Primitives, f: Form, a: Value) -> Value:
    """Approximate √a."""
    if f.ftz:
        return m.approx("sqrt", a)
    small = _subnormal(m, a)
    return _scale(m, m.approx("sqrt", _scale(m, a, small, UP24)), small, 0x39800000)  # 2**-12


@row("rsqrt.approx[.ftz].f32", "d:f32 = a:f32", ptx="1.4")
def rsqrt(m: Primitives, f: Form, a: Value) -> Value:
    """Approximate 1/√a."""
    if f.ftz:
        return m.approx("rsqrt", a)
    small = _subnormal(m, a)
    return _scale(m, m.approx("rsqrt", _scale(m, a, small, UP24)), small, UP12)


@row("ex2.approx[.ftz].f32", "d:f32 = a:f32", ptx="1.4")
def ex2(m: Primitives, f: Form, a: Value) -> Value:
    """Approximate 2 to the power of a."""
    if f.ftz:
        return m.approx("ex2", a)
    low = m.fcmp("f32", "lt", a, m.const(32, 0xC2FC0000))  # −126: the result is subnormal
    root = m.approx("ex2", _scale(m, a, low, HALF))
    return m.select(low, m.fmul("f32", root, root), root)


@row("lg2.approx[.ftz].f32", "d:f32 = a:f32", ptx="1.4")
def lg2(m: Primitives, f: Form, a: Value) -> Value:
    """Approximate logarithm to base 2."""
    if f.ftz:
        return m.approx("lg2", a)
    small = _subnormal(m, a)
    near = m.approx("lg2", _scale(m, a, small, UP24))
    return m.select(small, m.fadd("f32", near, m.const(32, MINUS_24)), near)


@row("sin.approx[.ftz].f32", "d:f32 = a:f32", ptx="1.4")
@row("cos.approx[.ftz].f32", "d:f32 = a:f32", ptx="1.4")
@row("tanh.approx.f32", "d:f32 = a:f32", ptx="7.0", target="sm_75")
def direct(m: Primitives, f: Form, a: Value) -> Value:
    """Sine and cosine (radians) and hyperbolic tangent."""
    return m.approx(f.mnemonic, a)


HOPPER: Options = {"ptx": "7.8", "target": "sm_90"}


@row("ex2.approx.{T}", "d:T = a:T", T="f16 f16x2", ptx="7.0", target="sm_75")
@row("ex2.approx.ftz.{T}", "d:T = a:T", T="bf16 bf16x2", **HOPPER)
@row("tanh.approx.{T}", "d:T = a:T", T="f16 f16x2", ptx="7.0", target="sm_75")
@row("tanh.approx.{T}", "d:T = a:T", T="bf16 bf16x2", **HOPPER)
def narrow(m: Primitives, f: Form, a: Value) -> Value:
    """The f32 approximation, rounded to the narrower format (infinity on overflow)."""

    def one(fmt: str, x: Value) -> Value:
        near = m.approx(f.mnemonic, m.fcvt(fmt, "f32", x))
        cut = m.fcvt("f32", fmt, near, "rz")
        if fmt == "bf16":
            return cut
        beyond = m.fcmp("f32", "ge", near, m.const(32, F16_END))  # neither function is below −1
        return m.select(beyond, m.const(16, FORMATS["f16"].infinity), cut)

    return elementwise(m, f.T, one, a)


@row("rcp.approx.ftz.f64", "d:f64 = a:f64", ptx="2.1", target="sm_20")
@row("rsqrt.approx.ftz.f64", "d:f64 = a:f64", ptx="4.0", target="sm_20")
def upper(m: Primitives, f: Form, a: Value) -> Value:
    """1/a or 1/√a of the upper word of ``a``; the lower word is ignored, and 0 in the result."""
    return _upper(m, f.mnemonic, a)


def _upper(m: Primitives, name: str, a: Value) -> Value:
    """The upper word as an f32 with the same mantissa and exponent 127 or 128, or 0 or infinity."""
    number, word = partial(m.const, 32), m.split(a, 32)[1]
    exponent = m.and_(m.lshr(word, number(20)), number(0x7FF))
    last, first = m.cmp("eq", exponent, number(0x7FF)), m.cmp("eq", exponent, number(0))
    even = m.and_(m.not_(exponent), number(1)) if name == "rsqrt" else number(0)
    middle = m.select(last, number(255), m.select(first, number(0), m.add(even, number(127))))
    digits = m.shl(m.and_(word, number(0xFFFFF)), number(3))
    sign = m.and_(word, number(1 << 31))
    near = m.approx(name, m.or_(m.or_(sign, m.shl(middle, number(23))), digits))
    return m.join(number(0), _rescaled(m, name, near, m.sub(exponent, even)))


def _rescaled(m: Primitives, name: str, near: Value, exponent: Value) -> Value:
    """The upper word of the result: ``near``, scaled for the operand's ``exponent``."""
    number = partial(m.const, 32)
    size = m.and_(near, number(0x7FFFFFFF))
    scale = m.sub(number(3071), exponent)  # plus 2048, so that it is positive
    scale, more = (m.lshr(scale, number(1)), 1024) if name == "rsqrt" else (scale, 2048)
    power = m.sub(m.add(m.lshr(size, number(23)), scale), number(more - 896))
    digits = m.and_(m.lshr(size, number(3)), number(0xFFFFF))
    result = m.or_(m.shl(power, number(20)), digits)
    result = m.select(m.cmp("lt", power, number(1), signed=True), number(0), result)
    result = m.select(m.cmp("lt", size, number(1 << 23)), number(0), result)
    beyond = m.cmp("ge", size, number(0x7F800000))
    result = m.select(beyond, m.or_(size, number(0x7FF00000)), result)
    return m.or_(result, m.and_(near, number(1 << 31)))


@row("rsqrt.approx.f64", "d:f64 = a:f64", ptx="1.4", target="sm_13")
def rsqrt_f64(m: Primitives, f: Form, a: Value) -> Value:
    """Approximate 1/√a: that of the upper word, then one third-order iteration, as ptxas does."""
    number = partial(m.const, 64)
    small = m.cmp("lt", magnitude(m, "f64", a), number(1 << 52))
    x = m.select(small, m.fmul("f64", a, number(0x4350000000000000)), a)  # 2**54
    near = _upper(m, "rsqrt", x)
    square = m.xor(m.fmul("f64", near, near), number(1 << 63))
    rest = m.fma("f64", x, square, number(FORMATS["f64"].one))
    slope = m.fma("f64", rest, number(0x3FD8000000000000), number(0x3FE0000000000000))  # 3/8, 1/2
    result = m.fma("f64", slope, m.fmul("f64", rest, near), near)
    result = m.select(small, m.fmul("f64", result, number(0x41A0000000000000)), result)  # 2**27
    infinity = number(0x7FF0000000000000)
    result = m.select(m.cmp("eq", a, infinity), number(0), result)
    result = m.select(m.fcmp("f64", "lt", a, number(0)), number(FORMATS["f64"].nan), result)
    zero = m.fcmp("f64", "eq", a, number(0))
    result = m.select(zero, m.or_(infinity, m.and_(a, number(1 << 63))), result)
    return m.select(m.fcmp("f64", "nan", a, a), m.or_(a, number(1 << 51)), result)
