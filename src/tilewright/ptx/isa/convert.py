"""``cvt``: between integers, floats and the packed narrow formats; and ``cvt.pack``.

An integer result wraps, or with ``.sat`` clamps; a float always clamps into an integer. ``.ftz``
concerns f32 operands and results alone. Registers may be wider than the types say (``relaxed``).
"""

from __future__ import annotations

from .compose import (
    FORMATS,
    canonical,
    each,
    extreme,
    flush,
    magnitude,
    relu,
    saturate,
    signed,
    width_of,
)
from .primitives import Primitives, Value
from .row import Form, Options, row

WIDER = "u16 s16 u32 s32 u64 s64"
INTS = f"u8 s8 {WIDER}"
FLOATS = "f16 f32 f64"
RND, IRND = "rn rz rm rp", "rni rzi rmi rpi"
HOPPER: Options = {"ptx": "7.8", "target": "sm_90", "effects": "relaxed"}
AMPERE: Options = {"ptx": "7.0", "target": "sm_80", "effects": "relaxed"}
ANY: Options = {"effects": "relaxed", "needs": {"f64": ("1.0", "sm_13")}}
SATFINITE = {"satfinite": ("8.1", "sm_80")}


def _bounds(type_: str) -> tuple[int, int]:
    bits = int(type_[1:])
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed(type_) else (0, (1 << bits) - 1)


# --- integers ---------------------------------------------------------------------------------


def _sat_useful(f: Form) -> str:
    low, high = _bounds(f.A)
    least, most = _bounds(f.D)
    if f.sat and least <= low and high <= most:
        return f".sat has nothing to do: {f.D} holds every {f.A}"
    return ""


@row("cvt[.sat].{D}.{A}", "d:D = a:A", D=INTS, A=INTS, where=_sat_useful, effects="relaxed")
def int_to_int(m: Primitives, f: Form, a: Value) -> Value:
    """Truncated or extended (by the source's sign); ``.sat`` clamps to the destination's range."""
    if f.sat:
        a = _clamp(m, f, a)
    width = width_of(f.D)
    if width <= width_of(f.A):
        return m.trunc(a, width)
    return (m.sext if signed(f.A) else m.zext)(a, width)


def _clamp(m: Primitives, f: Form, a: Value) -> Value:
    (low, high), (least, most) = _bounds(f.A), _bounds(f.D)
    width, is_signed = width_of(f.A), signed(f.A)
    if least > low:
        a = extreme(m, "max", a, m.const(width, least), is_signed)
    if most < high:
        a = extreme(m, "min", a, m.const(width, most), is_signed)
    return a


PACK_WIDTHS = "u8 s8 u4 s4 u2 s2"
TURING = dict.fromkeys(("u4", "s4", "u2", "s2"), ("6.5", "sm_75"))


@row("cvt.pack.sat.{D}.s32", "d:u32 = a:s32, b:s32", D="u16 s16", ptx="6.5", target="sm_72")
@row(
    "cvt.pack.sat.{D}.s32.b32",
    "d:u32 = a:s32, b:s32, c:b32",
    D=PACK_WIDTHS,
    ptx="6.5",
    target="sm_72",
    needs=TURING,
)
def pack(m: Primitives, f: Form, a: Value, b: Value, c: Value | None = None) -> Value:
    """``a`` and ``b`` clamped and packed, ``b`` lowest; ``c`` moves up to make room."""
    bits = int(f.D[1:])
    low, high = (m.const(32, bound) for bound in _bounds(f.D))
    mask = m.const(32, (1 << bits) - 1)
    upper, lower = (
        m.and_(extreme(m, "min", extreme(m, "max", x, low, True), high, True), mask) for x in (a, b)
    )
    packed = m.or_(m.shl(upper, m.const(32, bits)), lower)
    return packed if c is None else m.or_(packed, m.shl(c, m.const(32, 2 * bits)))


# --- integers and floats ----------------------------------------------------------------------


def _ftz_is_f32(f: Form) -> str:
    if f.ftz and "f32" not in f.chosen.values():
        return ".ftz needs an f32 operand or result"
    return ""


@row(
    "cvt.{rnd}[.ftz][.sat].{D}.{A}",
    "d:D = a:A",
    rnd=RND,
    D=FLOATS,
    A=INTS,
    where=_ftz_is_f32,
    **ANY,
)
@row("cvt.{rnd}.{D}.{A}", "d:D = a:A", rnd=RND, D="bf16", A=WIDER, **HOPPER)
def int_to_float(m: Primitives, f: Form, a: Value) -> Value:
    """Rounded as written; ``.sat`` clamps to [0, 1]."""
    result = m.i2f(a, signed(f.A), f.D, f.rnd)
    return saturate(m, f.D, result) if f.sat else result


@row(
    "cvt.{rnd}[.ftz][.sat].{D}.{A}",
    "d:D = a:A",
    rnd=IRND,
    D=INTS,
    A=FLOATS,
    where=_ftz_is_f32,
    **ANY,
)
@row("cvt.{rnd}.{D}.{A}", "d:D = a:A", rnd=IRND, D=WIDER, A="bf16", **HOPPER)
def float_to_int(m: Primitives, f: Form, a: Value) -> Value:
    """Rounded as written and clamped. A NaN gives 0, or 1 << (width − 1) from f64 or to 64 bits."""
    a = flush(m, f.A, a) if f.ftz else a
    width = width_of(f.D)
    result = m.f2i(f.A, a, width, signed(f.D), f.rnd[:2])
    if f.A != "f64" and width != 64:
        return result
    return m.select(m.fcmp(f.A, "nan", a, a), m.const(width, 1 << width - 1), result)


# --- floats -----------------------------------------------------------------------------------


@row(
    "cvt[.{rnd}][.ftz][.sat].{D}.{A}",
    "d:D = a:A",
    rnd=IRND,
    D=FLOATS,
    A=FLOATS,
    **ANY,
    where=lambda f: _ftz_is_f32(f) or ("" if f.D == f.A else "the types differ"),
)
@row("cvt[.{rnd}].{D}.{A}", "d:D = a:A", rnd=IRND, D="bf16", A="bf16", **HOPPER)
def to_same(m: Primitives, f: Form, a: Value) -> Value:
    """The same format, rounded to an integral value where a mode is written."""
    a = flush(m, f.A, a) if f.ftz else a
    a = m.frint(f.A, a, f.rnd[:2]) if f.rnd else a
    return saturate(m, f.A, a) if f.sat else a


def _narrows(f: Form) -> str:
    if width_of(f.D) >= width_of(f.A):
        return f"{f.D} is not narrower than {f.A}"
    return _ftz_is_f32(f)


def _widens(f: Form) -> str:
    if width_of(f.D) <= width_of(f.A):
        return f"{f.A} to {f.D} needs a rounding mode"
    return _ftz_is_f32(f)


@row(
    "cvt.{rnd}[.ftz][.sat].{D}.{A}",
    "d:D = a:A",
    rnd=RND,
    D="f16 f32",
    A="f32 f64",
    where=_narrows,
    **ANY,
)
@row("cvt[.ftz][.sat].{D}.{A}", "d:D = a:A", D="f32 f64", A=FLOATS, where=_widens, **ANY)
@row(
    "cvt[.ftz].{D}.{A}",
    "d:D = a:A",
    D="f32",
    A="bf16",
    ptx="7.1",
    target="sm_80",
    effects="relaxed",
    needs={"ftz": ("7.8", "sm_90")},
)
@row("cvt.{D}.{A}", "d:D = a:A", D="f64", A="bf16", **HOPPER)
@row("cvt.{rnd}.{D}.{A}", "d:D = a:A", rnd=RND, D="bf16", A="f16 f64", **HOPPER)
@row("cvt.{rnd}.{D}.{A}", "d:D = a:A", rnd=RND, D="f16", A="bf16", **HOPPER)
@row(
    "cvt.{rnd}.{D}.{A}",
    "d:D = a:A",
    rnd="rm rp",
    D="bf16",
    A="f32",
    ptx="7.8",
    target="sm_80",
    effects="relaxed",
)
def float_to_float(m: Primitives, f: Form, a: Value) -> Value:
    """To a wider format exactly, to another rounded as written."""
    if f.ftz and f.A == "f32":
        a = flush(m, "f32", a)
    result = m.fcvt(f.A, f.D, a, f.rnd or "rn")
    if f.ftz and f.D == "f32":
        result = flush(m, "f32", result)
    return saturate(m, f.D, result) if f.sat else result


# Largest finite values, in the formats that they are converted from.
LARGEST = {
    ("f32", "f16"): 0x477FE000,
    ("f32", "bf16"): 0x7F7F0000,
    ("f32", "tf32"): 0x7F7FE000,
    ("f32", "e4m3"): 0x43E00000,
    ("f32", "e5m2"): 0x47600000,
    ("f16", "e4m3"): 0x5F00,
    ("f16", "e5m2"): 0x7B00,
}


def _finite(m: Primitives, source: str, dest: str, a: Value) -> Value:
    """``.satfinite``: what exceeds the destination's largest value becomes that, a NaN stays."""
    f = FORMATS[source]
    largest = m.const(f.width, LARGEST[source, dest])
    clamped = m.or_(largest, m.and_(a, m.const(f.width, f.sign)))
    return m.select(m.fcmp(source, "gt", magnitude(m, source, a), largest), clamped, a)


def narrow(m: Primitives, f: Form, source: str, dest: str, a: Value) -> Value:
    """To ``dest`` with the form's rounding, ``.relu`` and ``.satfinite``."""
    if f.satfinite:
        a = _finite(m, source, dest, a)
    if f.relu:
        a = relu(m, source, a)
    return m.fcvt(source, dest, a, f.rnd)


@row(
    "cvt.{rnd}[.relu][.satfinite].{D}.f32",
    "d:D = a:f32",
    rnd="rn rz",
    D="bf16",
    needs=SATFINITE,
    **AMPERE,
)
@row(
    "cvt.{rnd}.relu[.satfinite].{D}.f32",
    "d:D = a:f32",
    rnd="rn rz",
    D="f16",
    needs=SATFINITE,
    **AMPERE,
)
@row("cvt.{rnd}.satfinite.{D}.f32", "d:D = a:f32", rnd="rn rz", D="f16", needs=SATFINITE, **AMPERE)
def to_half(m: Primitives, f: Form, a: Value) -> Value:
    """f32 to f16 or bf16; ``.relu`` makes the negative +0, ``.satfinite`` clamps to the finite."""
    return narrow(m, f, "f32", f.D, a)


@row(
    "cvt.{rnd}[.relu][.satfinite].{D}.f32",
    "d:D = a:f32, b:f32",
    rnd="rn rz",
    D="f16x2 bf16x2",
    needs=SATFINITE,
    **AMPERE,
)
def to_pair(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """Two f32 to a pair: ``a`` becomes the upper half, ``b`` the lower."""
    dest = f.D.removesuffix("x2")
    return m.join(narrow(m, f, "f32", dest, b), narrow(m, f, "f32", dest, a))


@row(
    "cvt.{rnd}[.satfinite].{D}.f32", "d:b32 = a:f32", rnd="rna", D="tf32", needs=SATFINITE, **AMPERE
)
@row(
    "cvt.{rnd}[.satfinite][.relu].{D}.f32",
    "d:b32 = a:f32",
    rnd="rn rz",
    D="tf32",
    ptx="7.8",
    target="sm_90",
    effects="relaxed",
    needs={"satfinite": ("8.6", "sm_100")},
)
def to_tf32(m: Primitives, f: Form, a: Value) -> Value:
    """f32 rounded to ten fraction bits; the lower thirteen are zero, but all are one in a NaN."""
    if f.satfinite:
        a = _finite(m, "f32", "tf32", a)
    if f.relu:
        a = relu(m, "f32", a)
    up = {"rna": m.const(32, 0x1000), "rz": m.const(32, 0)}.get(f.rnd)
    if up is None:
        odd = m.and_(m.lshr(a, m.const(32, 13)), m.const(32, 1))
        up = m.add(m.const(32, 0xFFF), odd)
    rounded = m.and_(m.add(a, up), m.const(32, -(1 << 13)))
    return m.select(m.fcmp("f32", "nan", a, a), m.const(32, FORMATS["f32"].nan), rounded)


# --- fp8 pairs --------------------------------------------------------------------------------

FP8 = "e4m3x2 e5m2x2"
ADA: Options = {"ptx": "8.1", "target": "sm_89", "effects": "relaxed"}


@row("cvt.{rnd}.satfinite[.relu].{D}.f32", "d:b16 = a:f32, b:f32", rnd="rn", D=FP8, **ADA)
def to_fp8(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """Two f32 to a pair of fp8: ``a`` becomes the upper byte, ``b`` the lower."""
    dest = f.D.removesuffix("x2")
    return m.join(narrow(m, f, "f32", dest, b), narrow(m, f, "f32", dest, a))


@row("cvt.{rnd}.satfinite[.relu].{D}.f16x2", "d:b16 = a:f16x2", rnd="rn", D=FP8, **ADA)
def half_to_fp8(m: Primitives, f: Form, a: Value) -> Value:
    """A pair of f16 to a pair of fp8."""
    dest = f.D.removesuffix("x2")
    return each(m, "f16x2", lambda fmt, x: narrow(m, f, fmt, dest, x), a)


@row("cvt.{rnd}[.relu].f16x2.{A}", "d:f16x2 = a:b16", rnd="rn", A=FP8, **ADA)
def from_fp8(m: Primitives, f: Form, a: Value) -> Value:
    """A pair of fp8 to a pair of f16, exactly."""
    source = f.A.removesuffix("x2")
    wide = [canonical(m, "f16", m.fcvt(source, "f16", x)) for x in m.split(a, 8)]
    return m.join(*(relu(m, "f16", x) if f.relu else x for x in wide))
