"""Arithmetic on f32 bits in NumPy: correctly rounded, with flushing, saturation and one NaN.

A sum or product of two floats is computed in doubles, exactly or rounded to odd, so that rounding
to f32 happens once. Other modes than to nearest are computed with exact integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .... import exact

Bits = npt.NDArray[Any]
NAN = np.uint32(0x7FFFFFFF)
_SIGN, _MAGNITUDE = np.uint32(0x80000000), np.uint32(0x7FFFFFFF)
_MODES = {"RN": "rn", "RZ": "rz", "RM": "rm", "RP": "rp"}


def rounding(opcode: str) -> str:
    """The rounding mode that an opcode's modifiers name: rn, rz, rm or rp."""
    return next((mode for name, mode in _MODES.items() if f".{name}" in opcode), "rn")


def flushed(bits: Bits) -> Bits:
    """Subnormal numbers as zeros of their sign."""
    return np.where(bits & np.uint32(0x7F800000), bits, bits & _SIGN)


def fma(a: Bits, b: Bits, c: Bits, opcode: str = "") -> Bits:
    """a · b + c of f32 bits, rounded once; the modifiers .RZ, .RM, .RP, .FTZ and .SAT hold."""
    ftz = ".FTZ" in opcode
    if ftz:
        a, b, c = flushed(a), flushed(b), flushed(c)
    mode = rounding(opcode)
    if mode == "rn":
        result = _nearest(a, b, c)
    else:
        a, b, c = np.broadcast_arrays(a, b, c)
        shape = a.shape
        x, y, z = (np.ascontiguousarray(v).ravel() for v in (a, b, c))
        result = exact.fma("f32", x, y, z, mode).astype(np.uint32).reshape(shape)
        result = np.where((result & _MAGNITUDE) > np.uint32(0x7F800000), NAN, result)
    if ftz:
        result = flushed(result)
    return _saturated(result) if ".SAT" in opcode else result


def _nearest(a: Bits, b: Bits, c: Bits) -> Bits:
    with exact.quiet():
        product = _double(a) * _double(b)  # 48 bits: exact
        addend = _double(c)
        total = product + addend
        back = total - product
        error = (product - (total - back)) + (addend - back)
        inexact = (error != 0) & np.isfinite(total)
        if inexact.any():
            total = to_odd(total, error, inexact)
        result = total.astype(np.float32)
    bits = result.view(np.uint32)
    return np.where(np.isnan(result), NAN, bits)


def to_odd(total: Bits, error: Bits, inexact: Bits) -> Bits:
    """The double next to ``total`` on the side of the error, where the last bit is even."""
    whole = np.ascontiguousarray(total).view(np.int64)
    away = (error > 0) == (total > 0)  # the magnitude grows
    step = np.where(away, 1, -1)
    even = (whole & 1) == 0
    return np.where(inexact & even, whole + step, whole).view(np.float64)


def _double(bits: Bits) -> Bits:
    return np.ascontiguousarray(bits, np.uint32).view(np.float32).astype(np.float64)


def _saturated(bits: Bits) -> Bits:
    """Clamped to [0, 1]; NaN gives 0."""
    value = bits.view(np.float32)
    with exact.quiet():
        clamped = np.where(value > 0, np.minimum(value, np.float32(1)), np.float32(0))
    return clamped.astype(np.float32).view(np.uint32)


def minimum(a: Bits, b: Bits, smaller: Bits) -> Bits:
    """The smaller where ``smaller``, else the larger; a NaN gives the other operand."""
    x, y = (np.ascontiguousarray(v).view(np.float32) for v in np.broadcast_arrays(a, b))
    with exact.quiet():
        less = (x < y) | ((x == y) & np.signbit(x))
        picked = np.where(less == smaller, x.view(np.uint32), y.view(np.uint32))
    picked = np.where(np.isnan(x), y.view(np.uint32), picked)
    picked = np.where(np.isnan(y), x.view(np.uint32), picked)
    return np.where(np.isnan(x) & np.isnan(y), NAN, picked)


def compare(name: str, a: Bits, b: Bits) -> Bits:
    """LT EQ LE GT NE GE NUM, and with U (true if unordered) LTU EQU …; T and F; NAN."""
    order = name[:-1] if name.endswith("U") and name not in ("U",) else name
    unordered = np.isnan(a) | np.isnan(b)
    with exact.quiet():
        results = {
            "LT": a < b, "EQ": a == b, "LE": a <= b, "GT": a > b, "GE": a >= b,
            "NE": (a != b) & ~unordered, "NUM": ~unordered, "NAN": unordered,
            "T": np.ones_like(unordered), "F": np.zeros_like(unordered),
        }  # fmt: skip
    return np.asarray(results[order] | unordered if order != name else results[order])
