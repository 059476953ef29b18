"""f16 and bf16 arithmetic, scalar and in pairs (``f16x2``, ``bf16x2``).

All of it rounds to nearest even, once. f16 may flush (``.ftz``) and saturate; bf16 neither.
"""

from __future__ import annotations

from ...mma.tensor_maps.tma_copy import OUTSIDE
from .compose import arithmetic, canonical_nan, elementwise, flip_sign, flush_subnormal, magnitude
from .floating import float_min_max_form, mode
from .primitives import Primitives, Value
from .row import Form, Options, row

F16, BF16 = "f16 f16x2", "bf16 bf16x2"
HOPPER: Options = {"ptx": "7.8", "target": "sm_90"}
AMPERE: Options = {"ptx": "7.0", "target": "sm_80"}
PASCAL: Options = {"ptx": "4.2", "target": "sm_53"}


@row("add[.{rnd}][.ftz][.sat].{T}", "d:T = a:T, b:T", rnd="rn", T=F16, **PASCAL)
@row("add[.{rnd}].{T}", "d:T = a:T, b:T", rnd="rn", T=BF16, **HOPPER)
def add(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """Sum."""
    return arithmetic(m, f, lambda fmt, x, y: m.fadd(fmt, x, y), a, b)


@row("sub[.{rnd}][.ftz][.sat].{T}", "d:T = a:T, b:T", rnd="rn", T=F16, **PASCAL)
@row("sub[.{rnd}].{T}", "d:T = a:T, b:T", rnd="rn", T=BF16, **HOPPER)
def sub(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """Difference."""
    return arithmetic(m, f, lambda fmt, x, y: m.fadd(fmt, x, flip_sign(m, fmt, y)), a, b)


@row("mul[.{rnd}][.ftz][.sat].{T}", "d:T = a:T, b:T", rnd="rn", T=F16, **PASCAL)
@row("mul[.{rnd}].{T}", "d:T = a:T, b:T", rnd="rn", T=BF16, **HOPPER)
def mul(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """Product."""
    return arithmetic(m, f, lambda fmt, x, y: m.fmul(fmt, x, y), a, b, product=True)


@row("fma.rn[.ftz][.sat].{T}", "d:T = a:T, b:T, c:T", T=F16, **PASCAL)
@row("fma.rn[.ftz].relu.{T}", "d:T = a:T, b:T, c:T", T=F16, **AMPERE)
@row("fma.rn[.relu].{T}", "d:T = a:T, b:T, c:T", T=BF16, **AMPERE)
def fma(m: Primitives, f: Form, a: Value, b: Value, c: Value) -> Value:
    """Product plus ``c``, rounded once; ``.relu`` makes a negative result +0."""
    return arithmetic(m, f, lambda fmt, x, y, z: m.fma(fmt, x, y, z), a, b, c, product=True)


@row("fma.rn.oob[.sat].{T}", "d:T = a:T, b:T, c:T", T=F16, ptx="8.1", target="sm_90")
@row("fma.rn.oob[.relu].{T}", "d:T = a:T, b:T, c:T", T=f"{F16} {BF16}", ptx="8.1", target="sm_90")
def fma_oob(m: Primitives, f: Form, a: Value, b: Value, c: Value) -> Value:
    """``fma``, but +0 if a factor is the NaN, of either sign, with which tensor copies fill
    out-of-bounds elements (``NAN_REQUEST_ZERO_FMA``).
    """

    def one(fmt: str, x: Value, y: Value, z: Value) -> Value:
        nan, zero = m.const(16, OUTSIDE), m.const(16, 0)
        sizes = (m.and_(factor, m.const(16, 0x7FFF)) for factor in (x, y))
        outside = m.or_(*(m.cmp("eq", size, nan) for size in sizes))
        return m.select(outside, zero, m.fma(fmt, x, y, z))

    return arithmetic(m, f, one, a, b, c)


@row("neg[.ftz].{T}", "d:T = a:T", T=F16, ptx="6.0", target="sm_53")
@row("neg.{T}", "d:T = a:T", T=BF16, **AMPERE)
@row("abs[.ftz].{T}", "d:T = a:T", T=F16, ptx="6.5", target="sm_53")
@row("abs.{T}", "d:T = a:T", T=BF16, **AMPERE)
def sign(m: Primitives, f: Form, a: Value) -> Value:
    """The sign flipped or cleared; a NaN becomes the canonical one."""

    def one(fmt: str, x: Value) -> Value:
        x = flush_subnormal(m, fmt, x) if f.ftz else x
        changed = flip_sign(m, fmt, x) if f.mnemonic == "neg" else magnitude(m, fmt, x)
        return canonical_nan(m, fmt, changed)

    return elementwise(m, f.T, one, a)


XORSIGN: Options = {"ptx": "7.2", "target": "sm_86"}


@row("min[.ftz][.NaN].{T}", "d:T = a:T, b:T", T=F16, **AMPERE)
@row("max[.ftz][.NaN].{T}", "d:T = a:T, b:T", T=F16, **AMPERE)
@row("min[.NaN].{T}", "d:T = a:T, b:T", T=BF16, **AMPERE)
@row("max[.NaN].{T}", "d:T = a:T, b:T", T=BF16, **AMPERE)
@row("min[.ftz][.NaN].xorsign.abs.{T}", "d:T = a:T, b:T", T=F16, **XORSIGN)
@row("max[.ftz][.NaN].xorsign.abs.{T}", "d:T = a:T, b:T", T=F16, **XORSIGN)
@row("min[.NaN].xorsign.abs.{T}", "d:T = a:T, b:T", T=BF16, **XORSIGN)
@row("max[.NaN].xorsign.abs.{T}", "d:T = a:T, b:T", T=BF16, **XORSIGN)
def min_max(m: Primitives, f: Form, a: Value, b: Value) -> Value:
    """The smaller or larger, with −0 < +0. A NaN is ignored, or with ``.NaN`` returned."""
    return arithmetic(m, f, lambda fmt, x, y: float_min_max_form(m, f, fmt, x, y), a, b)


# --- mixed precision (Blackwell) --------------------------------------------------------------

MIXED: Options = {"rnd": "rn rz rm rp", "A": "f16 bf16", "ptx": "8.6", "target": "sm_100"}


def _widen(m: Primitives, f: Form, a: Value) -> Value:
    return m.fcvt(f.A, "f32", a)


@row("add[.{rnd}][.sat].{T}.{A}", "d:f32 = a:A, c:f32", T="f32", **MIXED)
@row("sub[.{rnd}][.sat].{T}.{A}", "d:f32 = a:A, c:f32", T="f32", **MIXED)
def add_mixed(m: Primitives, f: Form, a: Value, c: Value) -> Value:
    """``a`` plus or minus an f32 ``c``, in f32."""
    c = flip_sign(m, "f32", c) if f.mnemonic == "sub" else c
    return arithmetic(m, f, lambda _, x, y: m.fadd("f32", x, y, mode(f)), _widen(m, f, a), c)


@row("fma.{rnd}[.sat].{T}.{A}", "d:f32 = a:A, b:A, c:f32", T="f32", **MIXED)
def fma_mixed(m: Primitives, f: Form, a: Value, b: Value, c: Value) -> Value:
    """The product of two narrow values plus an f32 ``c``, in f32."""
    wide = _widen(m, f, a), _widen(m, f, b)
    return arithmetic(m, f, lambda _, x, y, z: m.fma("f32", x, y, z, f.rnd), *wide, c)
