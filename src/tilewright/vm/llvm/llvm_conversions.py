"""Conversions between number formats, and to and from integers: integer code that rounds once.

LLVM's conversions of half and bfloat call routines that are missing here, round twice or flush
subnormals, and they round to nearest even only. So a conversion to a narrower format shifts the
significand out and rounds it, and a conversion to a wider one (to f32, then f64) moves the fields.
The formats' rows in ``dtypes`` give all parameters. A value is its bits: an integer with the row's
storage width.
"""

from __future__ import annotations

from ...dtypes import DType
from . import soft_f64 as soft64
from .expressions import Expr, shared
from .rounding import (
    F32,
    F64,
    canonical,
    check_rounding,
    float_format,
    infinity_of,
    is_native,
    overflowed,
    round_off,
    storage,
)

SIGN32, INF32 = 0x80000000, 0x7F800000

# --- between formats --------------------------------------------------------------------------


def convert(source: str, dest: str, a: Expr, rnd: str = "rn") -> Expr:
    """``fcvt``: bits to bits."""
    check_rounding(rnd)
    s, d = float_format(source), float_format(dest)
    if is_native(s) and s == d:
        return canonical(a.float)
    if d == F64:
        return canonical(widen(a, s).to_double())
    if s == F64 and d == F32 and rnd == "rn":
        return canonical(a.float.to_float())
    if s != F64:
        a, s = widen(a, s).bits, F32
        if d == F32:
            return a
        if not d.subnormal:  # ue8m0 reaches down into f32's subnormals
            a, s = a.float.to_double().bits, F64
    return narrow(a, s, d, rnd)


def widen(a: Expr, t: DType) -> Expr:
    """The same number as an f32 (an f32 is unchanged)."""
    if t == F32:
        return a.float
    return shared(f"tw.{t}.to.f32", lambda x: widened(x, t), a.ints(32), a).float


def widened(a: Expr, t: DType) -> Expr:
    """``widen`` without a function call: the bits of the f32."""
    wide = a.zext(32)
    sign = wide << (32 - t.bits) & SIGN32 if t.signed else wide.const(0)
    code = wide >> t.unused & ((1 << (t.exponent + t.mantissa)) - 1)
    fields = code << (23 - t.mantissa)
    bits = fields
    if not t.subnormal:  # ue8m0: 0 is 2^-127
        bits = fields.eq(0).pick(1 << 22, fields)
    elif t.bias != F32.bias:
        # a subnormal is read with the hidden bit of a normal number, which is then subtracted
        hidden = ((fields + ((F32.bias + 1 - t.bias) << 23)).float - 2.0 ** (1 - t.bias)).bits
        bits = (fields < 1 << 23).pick(hidden, fields + ((F32.bias - t.bias) << 23))
    if t.has_inf:
        bits = code.eq(t.max_finite + 1).pick(INF32, bits)
    bits = bits | sign
    return (code > t.max_finite + t.has_inf).pick(F32.nan, bits) if t.has_nan else bits


def narrow(a: Expr, s: DType, d: DType, rnd: str) -> Expr:
    """Convert from f32 or f64 to a narrower format."""
    name = f"tw.{s}.to.{d}.{rnd}"
    return shared(name, lambda x: _narrow(x, s, d, rnd), a.ints(storage(d)), a)


def _narrow(a: Expr, s: DType, d: DType, rnd: str) -> Expr:
    magnitude, negative = a & ((1 << (s.bits - 1)) - 1), a.negative
    infinite = infinity_of(s)
    if s.bias == d.bias and d.subnormal:
        code = round_off(magnitude, s.mantissa - d.mantissa, rnd, negative)
    else:
        code = overflowed(_round_fields(magnitude, s, d, rnd, negative), d, rnd, negative)
    code = magnitude.eq(infinite).pick(infinity_of(d), code)
    nan = magnitude > infinite
    if d.has_nan and not d.has_inf:  # its NaN also represents infinity, and has no sign
        nan = nan | (code > d.max_finite)
    code = code.trunc(storage(d)) << d.unused
    if d.signed:
        sign = (a >> (s.bits - 1)).resize(storage(d))
        code = code | sign << (d.bits - 1)
    return nan.pick(d.nan if d.has_nan else d.max_finite, code)


def _round_fields(magnitude: Expr, s: DType, d: DType, rnd: str, negative: Expr) -> Expr:
    """The code of a finite magnitude in ``d``, which may exceed the largest finite code.

    A subnormal of ``s`` is far below the smallest number of ``d``: only whether it is zero matters.
    All shifts by more than the length of the significand round in the same way.
    """
    least = s.bias + d.least  # s's exponent field of d's least normal number
    field = magnitude >> s.mantissa
    significand = magnitude & ((1 << s.mantissa) - 1) | (1 << s.mantissa)
    significand = magnitude.eq(0).pick(0, significand)
    shift = (field.const(least).less(field) + (s.mantissa - d.mantissa)).umin(s.mantissa + 2)
    code = round_off(significand, shift, rnd, negative) + (field.less(least) << d.mantissa)
    return code if d.subnormal else code.less(1 << d.mantissa)


# --- integral values --------------------------------------------------------------------------


def integral(fmt: str, a: Expr, rnd: str) -> Expr:
    """``frint``: round to an integral value in the same format."""
    check_rounding(rnd)
    t = float_format(fmt)
    if storage(t) < 16 or t.unused:
        return convert("f32", fmt, integral("f32", convert(fmt, "f32", a), rnd))
    return shared(f"tw.{t}.rint.{rnd}", lambda x: _integral(x, t, rnd), a.type, a)


def _integral(a: Expr, t: DType, rnd: str) -> Expr:
    """Round the code at the binary point: a carry out of the mantissa correctly increments the
    exponent.

    For a number in [1, 2), the lowest integer bit is the exponent's lowest bit, which is 1 (biases
    are odd).
    """
    low = (1 << (t.bits - 1)) - 1
    magnitude, negative = a & low, a.negative
    whole, one = (t.bias + t.mantissa) << t.mantissa, t.bias << t.mantissa
    shift = magnitude.const(t.bias + t.mantissa).less(magnitude >> t.mantissa)
    shift = shift.umax(1).umin(t.mantissa)
    rounded = round_off(magnitude, shift, rnd, negative) << shift
    half = one - (1 << t.mantissa)
    up = {
        "rn": lambda: magnitude > half,
        "rna": lambda: magnitude >= half,
        "rz": lambda: magnitude > one,  # never
        "rm": lambda: negative,
        "rp": lambda: negative.eq(0),
    }[rnd]()
    tiny = magnitude.eq(0).pick(0, up.pick(one, magnitude.const(0)))
    result = (magnitude < one).pick(tiny, (magnitude < whole).pick(rounded, magnitude))
    result = result | a & (low + 1)
    return (magnitude > infinity_of(t)).pick(t.nan, result)


def to_integer(fmt: str, a: Expr, width: int, signed: bool, rnd: str = "rz") -> Expr:
    """``f2i``: saturates; a NaN gives 0."""
    check_rounding(rnd)
    t = float_format(fmt)
    if not is_native(t):
        a, t = widen(a, t).bits, F32
    if rnd != "rz":
        a = integral(t.name, a, rnd)
    if width == 64 and t == F32:
        a, t = a.float.to_double().bits, F64
    name = f"tw.{t}.to.{'us'[signed]}{width}"
    return shared(name, lambda x: _to_integer(x.float, width, signed), a.ints(width), a)


def _to_integer(x: Expr, width: int, signed: bool) -> Expr:
    """Convert with saturation. LLVM's conversion is undefined for numbers that do not fit, so these
    are replaced before it.
    """
    low, high = (-(1 << (width - 1)), 1 << (width - 1)) if signed else (0, 1 << width)
    fits = (x >= float(low)) & (x < float(high))
    converted = fits.pick(x, 0.0).to_int(signed, max(width, 32)).trunc(width)
    below = (x < float(low)).pick(low, converted.const(0))
    return fits.pick(converted, (x >= float(high)).pick(high - 1, below))


def from_integer(a: Expr, signed: bool, fmt: str, rnd: str = "rn") -> Expr:
    """``i2f``: the value of an integer."""
    check_rounding(rnd)
    t = float_format(fmt)
    if a.width == 64:
        return _from_64(a, signed, t, rnd)
    exact = F32 if a.width < 32 else F64
    if t == F32 and a.width == 32 and rnd == "rn":
        exact = F32
    return convert(exact.name, fmt, a.resize(32, signed).from_int(signed, exact.bits).bits, rnd)


def _from_64(a: Expr, signed: bool, t: DType, rnd: str) -> Expr:
    if t == F64:
        return a.from_int(signed, 64).bits if rnd == "rn" else _halves(a, signed, rnd)

    def body(x: Expr) -> Expr:
        return convert("f64", t.name, _jam(x, signed).from_int(signed, 64).bits, rnd)

    return shared(f"tw.{'us'[signed]}64.to.{t}.{rnd}", body, a.ints(storage(t)), a)


def _jam(a: Expr, signed: bool) -> Expr:
    """A 64-bit integer rounded to odd to the precision of f64.

    Rounding the result to 41 bits or fewer, in any mode, equals a single rounding.
    """
    size = a ^ a.sar(63) if signed else a
    exact = (size >> 53).eq(0) | (a & 0x7FF).eq(0)
    return exact.pick(a, a & -0x800 | 0x800)


def _halves(a: Expr, signed: bool, rnd: str) -> Expr:
    """high · 2^32 + low: one exact multiplication, one rounding."""
    high, low = (a.sar(32) if signed else a >> 32), a & 0xFFFFFFFF
    scale = a.const(0x41F0000000000000)  # 2^32
    return soft64.fma(high.from_int(signed, 64).bits, scale, low.from_int(False, 64).bits, rnd)
