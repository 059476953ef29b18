"""Comparison and selection: ``setp``, ``set``, ``selp``, ``slct``.

Bit types have only ``eq`` and ``ne``. ``lo ls hi hs`` compare unsigned integers. The unordered
comparisons of floats (``ltu``) are true if an operand is a NaN; the ordered ones are false.
"""

from __future__ import annotations

from .compose import FORMATS, flush_subnormal, signed, width_of
from .primitives import Primitives, Value
from .row import Form, Options, row

EQUALITY = "eq ne"
SIGNED = f"{EQUALITY} lt le gt ge"
UNSIGNED = f"{SIGNED} lo ls hi hs"
FLOAT = f"{SIGNED} equ neu ltu leu gtu geu num nan"
UNSIGNED_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
BOOL = "and or xor"
HALF: Options = {"ptx": "4.2", "target": "sm_53"}
BHALF: Options = {"ptx": "7.8", "target": "sm_90"}


def compare(m: Primitives, f: Form, type_: str, a: Value, b: Value) -> Value:
    """The form's comparison of two values of a scalar type, as a predicate."""
    if type_ in FORMATS:
        if f.ftz:
            a, b = flush_subnormal(m, type_, a), flush_subnormal(m, type_, b)
        return m.fcmp(type_, f.cmp, a, b)
    return m.cmp(UNSIGNED_NAMES.get(f.cmp, f.cmp), a, b, signed(type_))


def _combine(m: Primitives, f: Form, p: Value, c: Value | None) -> Value:
    if c is None:
        return p
    return {"and": m.and_, "or": m.or_, "xor": m.xor}[f.bool](p, c)


# --- setp -------------------------------------------------------------------------------------


def _setp_operands(f: Form) -> str:
    second = "" if f.T in ("f16", "bf16") else "|q:pred?"  # ptxas: halves have one destination
    return f"p:pred{second} = a:T, b:T" + (", c:pred" if f.bool else "")


@row("setp.{cmp}[.{bool}].{T}", _setp_operands, cmp=EQUALITY, bool=BOOL, T="b16 b32 b64")
@row("setp.{cmp}[.{bool}].{T}", _setp_operands, cmp=SIGNED, bool=BOOL, T="s16 s32 s64")
@row("setp.{cmp}[.{bool}].{T}", _setp_operands, cmp=UNSIGNED, bool=BOOL, T="u16 u32 u64")
@row("setp.{cmp}[.{bool}][.ftz].{T}", _setp_operands, cmp=FLOAT, bool=BOOL, T="f32")
@row("setp.{cmp}[.{bool}].{T}", _setp_operands, cmp=FLOAT, bool=BOOL, T="f64", target="sm_13")
@row("setp.{cmp}[.{bool}][.ftz].{T}", _setp_operands, cmp=FLOAT, bool=BOOL, T="f16", **HALF)
@row("setp.{cmp}[.{bool}].{T}", _setp_operands, cmp=FLOAT, bool=BOOL, T="bf16", **BHALF)
def setp(
    m: Primitives, f: Form, a: Value, b: Value, c: Value | None = None
) -> Value | tuple[Value, Value]:
    """``p``: the comparison, ``q``: its opposite, each combined with ``c``."""
    holds = compare(m, f, f.T, a, b)
    first = _combine(m, f, holds, c)
    return first if f.T in ("f16", "bf16") else (first, _combine(m, f, m.not_(holds), c))


@row("setp.{cmp}[.{bool}][.ftz].{T}", _setp_operands, cmp=FLOAT, bool=BOOL, T="f16x2", **HALF)
@row("setp.{cmp}[.{bool}].{T}", _setp_operands, cmp=FLOAT, bool=BOOL, T="bf16x2", **BHALF)
def setp_pair(
    m: Primitives, f: Form, a: Value, b: Value, c: Value | None = None
) -> tuple[Value, Value]:
    """``p``: the comparison of the low halves, ``q``: of the high, each combined with ``c``."""
    fmt = f.T.removesuffix("x2")
    halves = zip(m.split(a, 16), m.split(b, 16), strict=True)
    low, high = (_combine(m, f, compare(m, f, fmt, x, y), c) for x, y in halves)
    return low, high


# --- set --------------------------------------------------------------------------------------


def _set_operands(f: Form) -> str:
    return "d:D = a:A, b:A" + (", c:pred" if f.bool else "")


INT_RESULT = dict.fromkeys(("u16", "s16", "u32", "s32"), ("6.5", "sm_53"))
SET: Options = {
    "bool": BOOL, "D": "u32 s32 f32 f16 bf16",
    "needs": {"D=f16": ("4.2", "sm_53"), "D=bf16": ("7.8", "sm_90")},
}  # fmt: skip


def _no_ftz(f: Form) -> str:
    return ".ftz and .bf16 exclude each other" if f.ftz and f.D == "bf16" else ""


@row("set.{cmp}[.{bool}].{D}.{A}", _set_operands, cmp=EQUALITY, A="b16 b32 b64", **SET)
@row("set.{cmp}[.{bool}].{D}.{A}", _set_operands, cmp=SIGNED, A="s16 s32 s64", **SET)
@row("set.{cmp}[.{bool}].{D}.{A}", _set_operands, cmp=UNSIGNED, A="u16 u32 u64", **SET)
@row(
    "set.{cmp}[.{bool}][.ftz].{D}.{A}", _set_operands, cmp=FLOAT, A="f32", constraint=_no_ftz, **SET
)
@row("set.{cmp}[.{bool}].{D}.{A}", _set_operands, cmp=FLOAT, A="f64", target="sm_13", **SET)
@row(
    "set.{cmp}[.{bool}][.ftz].{D}.{A}",
    _set_operands,
    cmp=FLOAT,
    A="f16",
    bool=BOOL,
    D="f16 u16 s16 u32 s32",
    needs=INT_RESULT,
    **HALF,
)
@row("set.{cmp}[.{bool}].{D}.{A}", _set_operands, cmp=FLOAT, A="f16", bool=BOOL, D="bf16", **BHALF)
@row(
    "set.{cmp}[.{bool}].{D}.{A}",
    _set_operands,
    cmp=FLOAT,
    A="bf16",
    bool=BOOL,
    D="bf16 u16 s16 u32 s32",
    **BHALF,
)
def set_(m: Primitives, f: Form, a: Value, b: Value, c: Value | None = None) -> Value:
    """All ones (1.0 for a float type) where the comparison, combined with ``c``, holds; else 0."""
    return _flag(m, f.D, _combine(m, f, compare(m, f, f.A, a, b), c))


def _flag(m: Primitives, type_: str, p: Value) -> Value:
    true = FORMATS[type_].one if type_ in FORMATS else -1
    width = width_of(type_)
    return m.select(p, m.const(width, true), m.const(width, 0))


@row(
    "set.{cmp}[.{bool}][.ftz].{D}.{A}",
    _set_operands,
    cmp=FLOAT,
    A="f16x2",
    bool=BOOL,
    D="f16x2 u32 s32",
    needs=INT_RESULT,
    **HALF,
)
@row(
    "set.{cmp}[.{bool}].{D}.{A}",
    _set_operands,
    cmp=FLOAT,
    A="bf16x2",
    bool=BOOL,
    D="bf16x2 u32 s32",
    **BHALF,
)
def set_pair(m: Primitives, f: Form, a: Value, b: Value, c: Value | None = None) -> Value:
    """Each half compared separately: 1.0, or 16 ones for an integer destination; else 0."""
    fmt = f.A.removesuffix("x2")
    flag = fmt if f.D == f.A else "b16"
    halves = zip(m.split(a, 16), m.split(b, 16), strict=True)
    return m.join(*(_flag(m, flag, _combine(m, f, compare(m, f, fmt, x, y), c)) for x, y in halves))


# --- selection --------------------------------------------------------------------------------

ANY = "b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64"


@row("selp.{T}", "d:T = a:T, b:T, p:pred", T=ANY)
def selp(m: Primitives, f: Form, a: Value, b: Value, p: Value) -> Value:
    """``a`` where ``p``, else ``b``."""
    return m.select(p, a, b)


@row("slct.{T}.s32", "d:T = a:T, b:T, c:s32", T=ANY)
def slct(m: Primitives, f: Form, a: Value, b: Value, c: Value) -> Value:
    """``a`` where ``c`` ≥ 0, else ``b``."""
    return m.select(m.cmp("ge", c, m.const(32, 0), True), a, b)


@row("slct[.ftz].{T}.f32", "d:T = a:T, b:T, c:f32", T=ANY)
def slct_f32(m: Primitives, f: Form, a: Value, b: Value, c: Value) -> Value:
    """``a`` where ``c`` ≥ ±0, else (a NaN too) ``b``."""
    c = flush_subnormal(m, "f32", c) if f.ftz else c
    return m.select(m.fcmp("f32", "ge", c, m.const(32, 0)), a, b)
