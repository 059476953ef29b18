"""``cvt`` to and from narrow and packed formats: f16x2, bf16x2, tf32, fp8, fp6, fp4, ue8m0, s2f6.

The first operand of a pair becomes the upper part; the first of four the highest. A 6-bit format
occupies 8 bits, the upper two zero; e2m1 occupies 4. ``.relu`` and ``.satfinite`` act before
rounding.

Published, not verified (no GPU here runs them): the forms that need sm_100 or later, which are fp6,
fp4, ue8m0, s2f6, bf16x2 to and from fp8, and tf32 with ``.satfinite`` and ``.rn`` or ``.rz``.
"""

from __future__ import annotations

from functools import lru_cache

from ...dtypes import dtype
from ...number_conversion import decode, encode
from .compose import FORMATS, canonical_nan, magnitude, relu
from .primitives import Primitives, Value
from .row import Form, Options, row

FAMILIES = "sm_100f|sm_101f|sm_120f"
AMPERE: Options = {"ptx": "7.0", "target": "sm_80"}
ADA: Options = {"ptx": "8.1|7.8", "target": "sm_89|sm_90"}
BLACKWELL: Options = {"ptx": "8.6", "target": FAMILIES}
HALVES: Options = {"ptx": "9.1", "target": FAMILIES}
TO_BF16: Options = {"ptx": "9.2", "target": FAMILIES}
FIXED: Options = {
    "ptx": "9.1",
    "target": "sm_100a|sm_103a|sm_110a|sm_120a|sm_121a",
}
SATFINITE = {"satfinite": ("8.1", "sm_80")}

FP8, FP6_FP4 = "e4m3x2 e5m2x2", "e2m3x2 e3m2x2 e2m1x2"
SCALED = "scaled::n2::ue8m0"


@lru_cache(maxsize=None)
def largest(source: str, dest: str) -> int:
    """The bits in ``source`` of the largest finite number of ``dest``."""
    t = dtype(dest)
    return int(encode(source, decode(t, t.max_finite << t.unused)))


def _finite(m: Primitives, source: str, dest: str, a: Value) -> Value:
    """``.satfinite``: clamp to the destination's largest finite number; a NaN is unchanged."""
    f = FORMATS[source]
    most = m.const(f.width, largest(source, dest))
    clamped = m.or_(most, m.and_(a, m.const(f.width, f.sign)))
    return m.select(m.fcmp(source, "gt", magnitude(m, source, a), most), clamped, a)


def narrow(m: Primitives, f: Form, source: str, dest: str, a: Value) -> Value:
    """Convert to ``dest`` with the form's rounding, ``.relu`` and ``.satfinite``.

    A NaN becomes the format's NaN, or its largest number if the format has no NaN.
    """
    if f.satfinite:
        a = _finite(m, source, dest, a)
    if f.relu:
        a = relu(m, source, a)
    return m.fcvt(source, dest, a, f.rnd)


def element(type_: str) -> str:
    """The format of a packed type's parts: ``e4m3x4`` → e4m3."""
    return type_.partition("x")[0]


def pack(m: Primitives, fmt: str, *codes: Value) -> Value:
    """Concatenated codes, the first the highest; two e2m1 codes fill a byte."""
    lowest_first = codes[::-1]
    if fmt != "e2m1":
        return m.join(*lowest_first)
    pairs = zip(lowest_first[::2], lowest_first[1::2], strict=True)
    return m.join(*(m.or_(low, m.shl(high, m.const(32, 4))) for low, high in pairs))


def unpack(m: Primitives, fmt: str, a: Value) -> tuple[Value, Value]:
    """A pair's two codes, the upper first."""
    if fmt == "e2m1":
        return m.lshr(a, m.const(32, 4)), m.and_(a, m.const(8, 0xF))
    low, high = m.split(a, m.width(a) // 2)
    return high, low


# --- f16, bf16 and tf32 -----------------------------------------------------------------------

RELU, FINITE = "cvt.{rnd}.relu[.satfinite].{D}.{A}", "cvt.{rnd}.satfinite.{D}.{A}"
HALF: Options = {"rnd": "rn rz", "A": "f32", "needs": SATFINITE, **AMPERE}
TURING: Options = {"rnd": "rn rz", "A": "f32", "ptx": "8.1", "target": "sm_70"}


@row(RELU, "d:D = a:A", D="f16", effects="relaxed", **HALF)
@row(RELU, "d:D = a:A", D="bf16", **HALF)
@row(FINITE, "d:D = a:A", D="f16", effects="relaxed", **TURING)
@row(FINITE, "d:D = a:A", D="bf16", **HALF)
def to_half(m: Primitives, f: Form, a: Value) -> Value:
    """f32 to f16 or bf16; ``.relu`` replaces negative values by +0, ``.satfinite`` clamps to the
    finite range.

    For sm_70 and sm_75 ptxas accepts ``.satfinite.f16`` and converts nothing; this is the manual's
    meaning.
    """
    return narrow(m, f, "f32", f.D, a)


@row(
    "cvt.{rnd}[.satfinite].{D}.{A}",
    "d:D = a:A",
    rnd="rna",
    D="tf32",
    A="f32",
    needs=SATFINITE,
    **AMPERE,
)
def to_tf32_away(m: Primitives, f: Form, a: Value) -> Value:
    """f32 to ten fraction bits, ties away from zero, in the steps of ptxas: half a unit is added to
    a finite value and the lowest 13 bits are cleared, so a NaN may lose its payload (and become
    infinity). ``.satfinite`` then subtracts one unit from an infinity or a NaN.
    """
    inf = m.const(32, FORMATS["f32"].infinity)
    finite = m.fcmp("f32", "lt", magnitude(m, "f32", a), inf)
    a = m.select(finite, m.add(a, m.const(32, 0x1000)), a)
    a = m.and_(a, m.const(32, -0x2000))
    if f.satfinite:
        finite = m.fcmp("f32", "lt", magnitude(m, "f32", a), inf)
        a = m.select(finite, a, m.sub(a, m.const(32, 0x2000)))
    return a


@row(
    "cvt.{rnd}[.satfinite][.relu].{D}.{A}",
    "d:D = a:A",
    rnd="rn rz",
    D="tf32",
    A="f32",
    ptx="7.8",
    target="sm_90",
    needs={"satfinite": ("8.6", "sm_100")},
)
def to_tf32(m: Primitives, f: Form, a: Value) -> Value:
    """f32 rounded to ten fraction bits; the lower thirteen are zero, in a NaN too (0x7FFFE000)."""
    return narrow(m, f, "f32", "tf32", a)


# --- pairs ------------------------------------------------------------------------------------

PAIR, CLAMPED = "cvt.{rnd}[.relu][.satfinite].{D}.{A}", "cvt.{rnd}.satfinite[.relu].{D}.{A}"


@row(PAIR, "d:D = a:f32, b:f32", D="f16x2", effects="relaxed", **HALF)
@row(PAIR, "d:D = a:f32, b:f32", D="bf16x2", **HALF)
@row(CLAMPED, "d:D = a:f32, b:f32", rnd="rn", D=FP8, A="f32", **ADA)
@row(CLAMPED, "d:D = a:f32, b:f32", rnd="rn", D=FP6_FP4, A="f32", **BLACKWELL)
def to_pair(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """Two f32 to a pair: ``a`` becomes the upper part, ``b`` the lower."""
    dest = element(f.D)
    return pack(m, dest, *(narrow(m, f, "f32", dest, x) for x in (a, b)))


@row(CLAMPED, "d:D = a:A", rnd="rn", D=FP8, A="f16x2", **ADA)
@row(CLAMPED, "d:D = a:A", rnd="rn", D=FP8, A="bf16x2", **HALVES)
@row(CLAMPED, "d:D = a:A", rnd="rn", D=FP6_FP4, A="f16x2 bf16x2", **HALVES)
def pair_to_narrow(m: Primitives, f: Form, a: Value) -> Value:
    """A pair of f16 or bf16 to a pair of fp8, fp6 or fp4."""
    source, dest = element(f.A), element(f.D)
    return pack(m, dest, *(narrow(m, f, source, dest, x) for x in unpack(m, source, a)))


@row("cvt.{rnd}[.relu].{D}.{A}", "d:D = a:A", rnd="rn", D="f16x2", A=FP8, **ADA)
@row("cvt.{rnd}[.relu].{D}.{A}", "d:D = a:A", rnd="rn", D="f16x2", A=FP6_FP4, **BLACKWELL)
def narrow_to_f16(m: Primitives, f: Form, a: Value) -> Value:
    """A pair of fp8, fp6 or fp4 to a pair of f16, exactly."""
    source = element(f.A)
    wide = (canonical_nan(m, "f16", m.fcvt(source, "f16", x)) for x in unpack(m, source, a))
    return pack(m, "f16", *(relu(m, "f16", x) if f.relu else x for x in wide))


# --- with a scale -----------------------------------------------------------------------------


def _scaled_source(f: Form) -> str:
    return "d:D = a:A" + (", scale:ue8m0x2" if f.scaled else "")


def _scales(m: Primitives, scale: Value | None) -> tuple[Value, ...]:
    """The scales of the upper and the lower value, 1 by default."""
    return unpack(m, "ue8m0", m.const(16, 0x7F7F) if scale is None else scale)


@row(
    "cvt.{rnd}[.relu][.satfinite][.{scaled}].{D}.{A}",
    _scaled_source,
    rnd="rn",
    scaled=SCALED,
    D="bf16x2",
    A=f"{FP8} {FP6_FP4}",
    **TO_BF16,
)
@row(
    "cvt.{rnd}[.relu][.satfinite][.{scaled}].{D}.{A}",
    _scaled_source,
    rnd="rn",
    scaled=SCALED,
    D="bf16x2",
    A="s2f6x2",
    **FIXED,
)
def narrow_to_bf16(m: Primitives, f: Form, a: Value, scale: Value | None = None) -> Value:
    """A pair to a pair of bf16, each times its scale. The f32 product has four to eight bits."""
    source = element(f.A)
    wide = []
    for code, factor in zip(unpack(m, source, a), _scales(m, scale), strict=True):
        x = _from_s2f6(m, code) if source == "s2f6" else m.fcvt(source, "f32", code)
        x = m.fmul("f32", x, m.fcvt("ue8m0", "f32", factor))
        wide.append(narrow(m, f, "f32", "bf16", x))
    return pack(m, "bf16", *wide)


def _from_s2f6(m: Primitives, code: Value) -> Value:
    """A signed number of 64ths as an f32."""
    return m.fmul("f32", m.i2f(code, True, "f32"), m.const(32, 0x3C800000))


def _fixed_operands(f: Form) -> str:
    sources = "a:f32, b:f32" if f.A == "f32" else "a:A"
    return f"d:b16 = {sources}" + (", scale:ue8m0x2" if f.scaled else "")


@row(
    "cvt.{rnd}.satfinite[.relu][.{scaled}].{D}.{A}",
    _fixed_operands,
    rnd="rn",
    scaled=SCALED,
    D="s2f6x2",
    A="f32 bf16x2",
    **FIXED,
)
def to_s2f6(m: Primitives, f: Form, a: Value, *more: Value) -> Value:
    """Two f32 or a pair of bf16, each divided by its scale, to signed numbers of 64ths.

    They clamp to −128 … 127; a NaN, or a value whose scale is a NaN, becomes 127.
    """
    scale = more[-1] if f.scaled else None
    pair = (a, more[0]) if f.A == "f32" else unpack(m, "bf16", a)
    codes = []
    for x, factor in zip(pair, _scales(m, scale), strict=True):
        x = relu(m, element(f.A), x) if f.relu else x
        codes.append(_s2f6(m, m.fcvt(element(f.A), "f64", x), factor))
    return m.join(*codes[::-1])


def _s2f6(m: Primitives, x: Value, factor: Value) -> Value:
    """An f64 as 64ths, divided by 2^(factor − 127): times 2^(133 − factor), which is exact."""
    exponent = m.sub(m.const(64, 1023 + 133), m.zext(factor, 64))
    x = m.fmul("f64", x, m.shl(exponent, m.const(32, 52)))
    nan = m.or_(m.fcmp("f64", "nan", x, x), m.cmp("eq", factor, m.const(8, 0xFF)))
    return m.select(nan, m.const(8, 127), m.f2i("f64", x, 8, True, "rn"))


@row(
    "cvt.{rnd}[.satfinite].{D}.{A}",
    "d:D = a:f32, b:f32",
    rnd="rz rp",
    D="ue8m0x2",
    A="f32",
    **BLACKWELL,
)
@row(
    "cvt.{rnd}[.satfinite].{D}.{A}",
    "d:D = a:A",
    rnd="rz rp",
    D="ue8m0x2",
    A="bf16x2",
    **BLACKWELL,
)
def to_ue8m0(m: Primitives, f: Form, a: Value, b: Value | None = None) -> Value:
    """Powers of two just below (``rz``) or above (``rp``) two magnitudes; a zero gives 2^-127."""
    source = element(f.A)
    pair = unpack(m, source, a) if b is None else (a, b)
    sizes = (magnitude(m, source, x) for x in pair)
    return pack(m, "ue8m0", *(narrow(m, f, source, "ue8m0", x) for x in sizes))


@row("cvt.{rnd}.{D}.{A}", "d:D = a:A", rnd="rn", D="bf16x2", A="ue8m0x2", **BLACKWELL)
def from_ue8m0(m: Primitives, f: Form, a: Value) -> Value:
    """Two powers of two to a pair of bf16."""
    return pack(m, "bf16", *(m.fcvt("ue8m0", "bf16", x) for x in unpack(m, "ue8m0", a)))
