"""``cvt`` between integers and floats, one value at a time, and ``cvt.pack``.

An integer result wraps, or with ``.sat`` clamps; a conversion of a float to an integer always
clamps. ``.ftz`` affects only f32 operands and results. Registers may be wider than the types
(``relaxed``), unless one of the types is bf16. Packed and narrow formats are in ``narrow``.

Where ptxas lowers a form to other instructions, they define the meaning: a NaN keeps its bits
through ``cvt.f32.bf16``, which is a shift. Otherwise a NaN becomes canonical, except to, from and
in f64, where it keeps its sign and the upper bits of its payload.
"""

from __future__ import annotations

from .compose import (
    FORMATS,
    canonical_nan,
    convert_nan,
    flush_subnormal,
    int_min_max,
    magnitude,
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
HOPPER: Options = {"ptx": "7.8", "target": "sm_90"}
AMPERE: Options = {"ptx": "7.0", "target": "sm_80"}
ANY: Options = {"effects": "relaxed", "needs": {"f64": ("1.0", "sm_13")}}


def _bounds(type_: str) -> tuple[int, int]:
    bits = int(type_[1:])
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed(type_) else (0, (1 << bits) - 1)


# --- integers ---------------------------------------------------------------------------------


def _sat_useful(f: Form) -> str:
    low, high = _bounds(f.A)
    least, most = _bounds(f.D)
    if f.sat and least <= low and high <= most:
        return f".sat is not allowed: {f.D} can represent every {f.A}"
    return ""


@row("cvt[.sat].{D}.{A}", "d:D = a:A", D=INTS, A=INTS, constraint=_sat_useful, effects="relaxed")
def int_to_int(m: Primitives, f: Form, a: Value) -> Value:
    """Truncate or extend (by the source's sign); ``.sat`` clamps to the destination's range."""
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
        a = int_min_max(m, "max", a, m.const(width, least), is_signed)
    if most < high:
        a = int_min_max(m, "min", a, m.const(width, most), is_signed)
    return a


PACK_WIDTHS = "u8 s8 u4 s4 u2 s2"
TURING = dict.fromkeys(("u4", "s4", "u2", "s2"), ("6.5", "sm_75"))


@row(
    "cvt.pack.sat.{D}.{A}",
    "d:u32 = a:s32, b:s32",
    D="u16 s16",
    A="s32",
    ptx="6.5",
    target="sm_72",
)
@row(
    "cvt.pack.sat.{D}.{A}.{C}",
    "d:u32 = a:s32, b:s32, c:b32",
    D=PACK_WIDTHS,
    A="s32",
    C="b32",
    ptx="6.5",
    target="sm_72",
    needs=TURING,
)
def pack(m: Primitives, f: Form, a: Value, b: Value, c: Value | None = None) -> Value:
    """Clamp and pack ``a`` and ``b`` into the lowest bits, ``b`` lowest; above them the low bits of
    ``c``.
    """
    bits = int(f.D[1:])
    low, high = (m.const(32, bound) for bound in _bounds(f.D))
    mask = m.const(32, (1 << bits) - 1)
    upper, lower = (
        m.and_(int_min_max(m, "min", int_min_max(m, "max", x, low, True), high, True), mask)
        for x in (a, b)
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
    constraint=_ftz_is_f32,
    **ANY,
)
@row("cvt.{rnd}.{D}.{A}", "d:D = a:A", rnd=RND, D="bf16", A=WIDER, **HOPPER)
def int_to_float(m: Primitives, f: Form, a: Value) -> Value:
    """Round in the given mode; ``.sat`` clamps to [0, 1]."""
    result = m.i2f(a, signed(f.A), f.D, f.rnd)
    return saturate(m, f.D, result) if f.sat else result


@row(
    "cvt.{rnd}[.ftz][.sat].{D}.{A}",
    "d:D = a:A",
    rnd=IRND,
    D=INTS,
    A=FLOATS,
    constraint=_ftz_is_f32,
    **ANY,
)
@row("cvt.{rnd}.{D}.{A}", "d:D = a:A", rnd=IRND, D=WIDER, A="bf16", **HOPPER)
def float_to_int(m: Primitives, f: Form, a: Value) -> Value:
    """Round and clamp. A NaN gives 0; from f64 or to 64 bits, 1 << (width − 1)."""
    a = flush_subnormal(m, f.A, a) if f.ftz else a
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
    constraint=lambda f: _ftz_is_f32(f) or ("" if f.D == f.A else "the types differ"),
)
@row("cvt[.{rnd}].{D}.{A}", "d:D = a:A", rnd=IRND, D="bf16", A="bf16", **HOPPER)
def to_same(m: Primitives, f: Form, a: Value) -> Value:
    """The same format, rounded to an integral value if there is a rounding mode.

    Without one, f32 and f64 are copied; f16, bf16 and ``.ftz`` add −0, so a NaN becomes canonical.
    """
    a = flush_subnormal(m, f.A, a) if f.ftz else a
    if f.rnd:
        whole = m.frint(f.A, a, f.rnd[:2])
        a = convert_nan(m, f.A, f.A, a, whole) if f.A == "f64" else whole
    elif f.ftz or f.A in ("f16", "bf16"):
        a = canonical_nan(m, f.A, a)
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
    constraint=_narrows,
    **ANY,
)
@row("cvt[.ftz][.sat].{D}.{A}", "d:D = a:A", D="f32 f64", A=FLOATS, constraint=_widens, **ANY)
@row("cvt[.{rnd}].{D}.{A}", "d:D = a:A", rnd=RND, D="f64", A="bf16", **HOPPER)
@row("cvt[.{rnd}].{D}.{A}", "d:D = a:A", rnd=RND, D="bf16", A="f16", **HOPPER)
@row("cvt[.{rnd}].{D}.{A}", "d:D = a:A", rnd=RND, D="f16", A="bf16", **HOPPER)
@row("cvt.{rnd}.{D}.{A}", "d:D = a:A", rnd=RND, D="bf16", A="f64", **HOPPER)
@row("cvt.{rnd}[.ftz].{D}.{A}", "d:D = a:A", rnd=RND, D="bf16", A="f32", **AMPERE)
def float_to_float(m: Primitives, f: Form, a: Value) -> Value:
    """To a wider format exactly, to another one rounded in the given mode (``rn`` by default).

    ``.ftz`` flushes an f32 result, and an f32 operand (a multiplication by 1, so a NaN becomes
    canonical), but ptxas drops it for f16.
    """
    if f.ftz and f.A == "f32" and f.D != "f16":
        a = canonical_nan(m, "f32", flush_subnormal(m, "f32", a))
    result = m.fcvt(f.A, f.D, a, f.rnd or "rn")
    if "f64" in (f.A, f.D):
        result = convert_nan(m, f.A, f.D, a, result)
    if f.ftz and f.D == "f32":
        result = _flush_tiny(m, f, a, result)
    return saturate(m, f.D, result) if f.sat else result


def _flush_tiny(m: Primitives, f: Form, a: Value, result: Value) -> Value:
    """Flush a result that is tiny: below 2^-126 when rounded with an unbounded exponent range.

    So a value that the shorter significand of a subnormal rounds up to 2^-126 is flushed too, as
    by ptxas's thresholds. Tested on the value times 2^64.
    """
    if f.A != "f64":
        return flush_subnormal(m, "f32", result)
    scaled = m.fcvt("f64", "f32", m.fmul("f64", a, m.const(64, (1023 + 64) << 52)), f.rnd)
    is_tiny = m.cmp("lt", magnitude(m, "f32", scaled), m.const(32, (1 + 64) << 23))
    return m.select(is_tiny, m.and_(result, m.const(32, FORMATS["f32"].sign)), result)


@row(
    "cvt[.{rnd}][.ftz].{D}.{A}",
    "d:D = a:A",
    rnd=RND,
    D="f32",
    A="bf16",
    ptx="7.1",
    target="sm_80",
    needs={"ftz": ("7.8", "sm_90")},
)
def widen_bf16(m: Primitives, f: Form, a: Value) -> Value:
    """bf16 as the upper half of an f32, NaNs included; with ``.ftz`` a NaN becomes canonical."""
    if f.ftz:
        return flush_subnormal(m, "f32", m.fcvt("bf16", "f32", a))
    return m.join(m.const(16, 0), a)
