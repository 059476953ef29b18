"""Floating-point arithmetic with any rounding: bits in, bits out, one rounding.

To nearest even, f32 and f64 use the processor's arithmetic. f16 and bf16 are computed in f32 and
rounded again, which is harmless for + × ÷ √: f32's 24 bits are at least twice theirs plus two
(Figueroa 1995; for a subnormal bf16 result, f32 still has 16 bits to spare). In all other cases the
result is computed in a wider format and *rounded to odd*: truncated, with the last bit set if it is
inexact. Rounding that to a format with at least two bits less equals rounding the exact result, in
any mode (Boldo and Melquiond 2008). f16 is computed in f32, bf16 and f32 in f64; f64 is corrected
from the nearest result (``directed_rounding``) or computed in integers (``soft_f64``). Nothing
changes the processor's rounding mode, so the bits are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable

from ...dtypes import DType
from .directed_rounding import arithmetic as directed64
from .expressions import Expr, shared
from .llvm_conversions import convert, widen
from .rounding import F32, F64, canonical, check_rounding, float_format, is_native, storage

_NATIVE: dict[str, Callable[..., Expr]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "sqrt": lambda a: a.sqrt(),
    "fma": lambda a, b, c: a.intrinsic("fma", b, c),
}


def arithmetic(op: str, fmt: str, operands: tuple[Expr, ...], rnd: str = "rn") -> Expr:
    """``op``: add mul div sqrt fma."""
    check_rounding(rnd)
    t = float_format(fmt)
    if rnd == "rn" and is_native(t):
        return canonical(_NATIVE[op](*(o.float for o in operands)))
    if t == F64:
        return directed64(op, operands, rnd)
    twice = rnd == "rn" and op != "fma"
    body = _through_f32 if twice else _through_odd
    name = f"tw.{t}.{op}.{rnd}"
    return shared(name, lambda *x: body(op, t, x, rnd), operands[0].ints(storage(t)), *operands)


def _through_f32(op: str, t: DType, operands: tuple[Expr, ...], rnd: str) -> Expr:
    return convert("f32", t.name, _NATIVE[op](*(widen(o, t) for o in operands)).bits, rnd)


def _through_odd(op: str, t: DType, operands: tuple[Expr, ...], rnd: str) -> Expr:
    work = F32 if t.name == "f16" else F64
    wide = [widen(o, t) for o in operands]
    if work == F64:
        wide = [w.to_double() for w in wide]
    return convert(work.name, t.name, _ODD[op](*wide, t, work, rnd), rnd)


# --- rounded to odd -----------------------------------------------------------------------------
# The operands are floats of format ``work`` that hold numbers of format ``t``.


def _to_odd(result: Expr, rest: Expr, direction: Expr) -> Expr:
    """The bits of ``result``, rounded to odd.

    ``rest`` · ``direction`` has the sign of (exact − result) · result; ``rest`` is 0 if the result
    is exact. For an infinite or NaN result ``rest`` is a NaN, and the result stays.
    """
    inexact = rest.ne(0.0)
    below = (rest.bits ^ direction.bits) >> (rest.width - 1)
    return inexact.pick((result.bits - below) | 1, result.bits)


def _odd_sum(a: Expr, b: Expr, rnd: str) -> Expr:
    """A sum rounded to odd, by Knuth's exact error. Nothing over- or underflows in ``work``."""
    total = a + b
    part = total - a
    rest = (a - (total - part)) + (b - part)
    bits = _to_odd(total, rest, total)
    if rnd == "rm":  # x − x is −0 when rounding down
        sign = 1 << (a.width - 1)
        bits = total.eq(0.0).pick((a.bits | b.bits) & sign, bits)
    return bits


def _odd_add(a: Expr, b: Expr, t: DType, work: DType, rnd: str) -> Expr:
    return _odd_sum(a, b, rnd)


def _odd_mul(a: Expr, b: Expr, t: DType, work: DType, rnd: str) -> Expr:
    return (a * b).bits  # exact


def _odd_fma(a: Expr, b: Expr, c: Expr, t: DType, work: DType, rnd: str) -> Expr:
    return _odd_sum(a * b, c, rnd)  # the product is exact


def _odd_div(a: Expr, b: Expr, t: DType, work: DType, rnd: str) -> Expr:
    """The quotient, truncated so that its product with ``b`` and the remainder are exact."""
    quotient = _truncated(a / b, work.mantissa - t.mantissa, work)
    return _to_odd(quotient, a - quotient * b, a)


def _odd_sqrt(a: Expr, t: DType, work: DType, rnd: str) -> Expr:
    root = _truncated(a.sqrt(), (work.mantissa + 1) // 2, work)
    return _to_odd(root, a - root * root, root)


def _truncated(x: Expr, length: int, work: DType) -> Expr:
    """The first ``length`` bits of the significand of ``x``."""
    return (x.bits & -(1 << (work.mantissa + 1 - length))).float


_ODD: dict[str, Callable[..., Expr]] = {
    "add": _odd_add, "mul": _odd_mul, "div": _odd_div, "sqrt": _odd_sqrt, "fma": _odd_fma,
}  # fmt: skip


# --- comparison -------------------------------------------------------------------------------


def compare(fmt: str, op: str, a: Expr, b: Expr) -> Expr:
    """``fcmp``: a predicate."""
    t = float_format(fmt)
    x, y = (a.float, b.float) if is_native(t) else (widen(a, t), widen(b, t))
    if op in ("num", "nan"):
        return x.unordered("ord" if op == "num" else "uno", y)
    if len(op) == 3:  # equ neu ltu leu gtu geu
        return x.unordered(op[:2], y)
    return x.cmp(op, y)
