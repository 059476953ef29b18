"""Rounding at the end of a conversion: shifts a significand out, and replaces an overflow.

The modes are those of ``number_conversion.ROUNDINGS``: ``rn`` nearest even, ``rz`` toward zero,
``rm`` down, ``rp`` up, ``rna`` nearest away. The *code* of a magnitude is its exponent and mantissa
fields as one integer: it increases with the magnitude, and a carry out of the mantissa correctly
increments the exponent.
"""

from __future__ import annotations

from functools import lru_cache

from ...dtypes import DType, dtype
from ...errors import DtypeError
from ...number_conversion import ROUNDINGS
from .expressions import Expr, Operand

F32, F64 = dtype("f32"), dtype("f64")


@lru_cache(maxsize=None)
def float_format(name: str) -> DType:
    """The row of a floating-point format. Raises DtypeError for any other name."""
    t = dtype(name)
    if t.kind != "float":
        raise DtypeError(f"{name} is not a floating-point format")
    return t


def check_rounding(rnd: str) -> None:
    if rnd not in ROUNDINGS:
        raise DtypeError(f"unknown rounding mode {rnd!r}; known are {', '.join(ROUNDINGS)}")


def storage(t: DType) -> int:
    """The width of the value that holds a format's bits."""
    return max(8, t.bits)


def is_native(t: DType) -> bool:
    """Whether the host has arithmetic for it: f32 and f64."""
    return t in (F32, F64)


def canonical(result: Expr) -> Expr:
    """The bits of a float, with the canonical NaN for any NaN. Bits are chosen, not floats: to
    LLVM's optimizer all NaNs are the same float.
    """
    nan = F32.nan if result.width == 32 else F64.nan
    return result.is_nan.pick(nan, result.bits)


def round_off(sig: Expr, shift: Operand, rnd: str, negative: Expr) -> Expr:
    """``sig >> shift``, rounded (``shift`` ≥ 1). ``negative`` is the number's sign, a predicate."""
    if rnd == "rz":
        return sig >> shift
    if rnd in ("rm", "rp"):
        most = (1 << shift) - 1 if isinstance(shift, int) else (sig.const(1) << shift) - 1
        ends = (most, sig.const(0)) if rnd == "rm" else (sig.const(0), most)
        return (sig + negative.pick(*ends)) >> shift
    half = 1 << (shift - 1) if isinstance(shift, int) else sig.const(1) << (shift - 1)
    if rnd == "rna":
        return (sig + half) >> shift
    return (sig + half + ((sig >> shift) & 1) - 1) >> shift


def overflowed(code: Expr, t: DType, rnd: str, negative: Expr) -> Expr:
    """A magnitude's code; one beyond the largest finite code is replaced by the overflow result."""
    top, infinity = t.max_finite, infinity_of(t)
    if rnd in ("rm", "rp") and infinity != top:
        ends = (infinity, code.const(top)) if rnd == "rm" else (top, code.const(infinity))
        return (code > top).pick(negative.pick(*ends), code)
    return (code > top).pick(top if rnd == "rz" else infinity, code)


def infinity_of(t: DType) -> int:
    """The code of infinity, or of its substitute (``number_conversion.round_to``)."""
    return t.max_finite + (t.has_inf or t.has_nan)
