"""The multi-function unit (MUFU) on f32: 1/x, 1/√x, √x, 2^x, log2, sin, cos, tanh, bit for bit.

Each function is divided into segments. In a segment it is a quadratic c0 + c1·x + c2·x² of the bits
below the segment's index, computed in fixed point and truncated, as Oberman and Siu describe (A
high-performance area-efficient multifunction interpolator, 2005). The square is computed from 16
bits without partial products below 2^17. Negative arguments (2^x), negative results (log2) and
descending quarters (sin) are complemented, not negated. The coefficients were measured on an H200;
the results equal the H200's for all 2^32 operands of all eight functions.

The algorithm is written once, over wrapping 64-bit integers: NumPy evaluates it here, the virtual
machine compiles it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .errors import DtypeError
from .mufu_table import ROWS

Value = Any  # 64 unsigned bits in each lane, or a predicate
Row = tuple[int, int, int]

POINT = 56  # fraction bits of c0 and the sum; c1 and c2 have 24
NAN, INFINITY, ONE, SIGN = 0x7FFFFFFF, 0x7F800000, 0x3F800000, 0x80000000
MINUS_ONE = (1 << 64) - 1
IMPLICIT = 1 << 23  # the implicit first bit of a significand
MANTISSA = IMPLICIT - 1
TURN = 0xA2F983  # the significand of 1/2π in f32, 2^-3 · 1.27


class Numbers(Protocol):
    """The operations of an evaluator besides ``+ - * & | ^ << >>`` (all unsigned)."""

    def pick(self, p: Value, a: Any, b: Any) -> Value: ...
    def eq(self, a: Value, b: int) -> Value: ...
    def below(self, a: Value, b: int) -> Value: ...
    def length(self, a: Value) -> Value:
        """The number of bits up to the highest set bit; 0 for 0."""

    def take(self, table: tuple[int, ...], index: Value) -> Value:
        """``table[index]``, modulo 2^64; unspecified if ``index`` is out of range."""


@lru_cache(maxsize=None)
def rows(function: str) -> tuple[Row, ...]:
    """The coefficients of ``function``, one row for each segment."""
    text = (row.split(":") for row in ROWS[function].split())
    return tuple((int(c0, 16) << 16, int(c1, 16), int(c2, 16)) for c0, c1, c2 in text)


def f32(function: str, x: Value, o: Numbers) -> Value:
    """``rcp rsqrt sqrt ex2 lg2 sin cos tanh`` of f32 bits, as bits; only tanh keeps subnormals.

    ``sin`` and ``cos`` take radians, as ``sin.approx.f32`` does.
    """
    exponent, mantissa = x >> 23 & 255, x & MANTISSA
    result = _FUNCTIONS[function](o, x, exponent, mantissa)
    return o.pick(o.eq(exponent, 255) & ~o.eq(mantissa, 0), NAN, result)


# --- the quadratic ------------------------------------------------------------------------------


def _square(o: Numbers, x: Value) -> Value:
    """x² of 16 bits, without the partial products x_i·x_j whose weights are below 2^17."""
    total = x * x
    for i in range(9):
        omitted = (x >> (i + 1) & ((1 << max(15 - 2 * i, 0)) - 1)) << (2 * i + 2)
        total = total - o.pick(o.eq(x >> i & 1, 0), 0, omitted + (1 << 2 * i))
    return total


def _sum(o: Numbers, function: str, segment: Value, low: Value) -> Value:
    """The quadratic in a segment; ``low``: the 17 bits below the segment's index."""
    c0, c1, c2 = (o.take(column, segment) for column in zip(*rows(function), strict=True))
    return c0 + c1 * (low << 15) + c2 * _square(o, low >> 1)


def _float(o: Numbers, fixed: Value, point: int) -> Value:
    """The f32 of ``fixed`` · 2^-``point``, truncated."""
    length = o.length(fixed)
    significand = fixed << (64 - length & 63) >> 40
    return o.pick(o.eq(length, 0), 0, (length + (126 - point) << 23) + significand - IMPLICIT)


# --- the functions ------------------------------------------------------------------------------
# of x's bits, its exponent and its mantissa; the caller handles NaNs


def _rcp(o: Numbers, x: Value, exponent: Value, mantissa: Value) -> Value:
    near = _sum(o, "rcp", mantissa >> 16, (mantissa & 0xFFFF) << 1) >> 32
    result = (254 - exponent << 23) + near  # exponent plus 2: that of 1/2^127 would be below 0
    flushed = o.pick(o.below(result, 3 << 23), 0, result - (2 << 23))
    flushed = o.pick(o.eq(exponent, 0), INFINITY, o.pick(o.eq(exponent, 255), 0, flushed))
    return x & SIGN | flushed


def _rsqrt(o: Numbers, x: Value, exponent: Value, mantissa: Value) -> Value:
    odd = exponent & 1 ^ 1
    near = _sum(o, "rsqrt", (odd << 6) + (mantissa >> 17), mantissa & 0x1FFFF) >> 32
    near = o.pick(o.eq(mantissa, 0) & o.eq(odd, 0), 1 << 24, near)  # exact for 1
    result = (379 - exponent + odd >> 1 << 23) + near - IMPLICIT
    result = o.pick(o.eq(x, INFINITY), 0, o.pick(o.below(x, SIGN), result, NAN))
    return o.pick(o.eq(exponent, 0), x & SIGN | INFINITY, result)


def _sqrt(o: Numbers, x: Value, exponent: Value, mantissa: Value) -> Value:
    odd = exponent & 1 ^ 1
    near = _sum(o, "sqrt", (odd << 6) + (mantissa >> 17), mantissa & 0x1FFFF) >> 33
    result = (exponent + 127 - odd >> 1 << 23) + near - IMPLICIT
    result = o.pick(o.eq(x, INFINITY), INFINITY, o.pick(o.below(x, SIGN), result, NAN))
    return o.pick(o.eq(exponent, 0), x & SIGN, result)


def _ex2(o: Numbers, x: Value, exponent: Value, mantissa: Value) -> Value:
    positive, huge = o.below(x, SIGN), ~o.below(exponent, 135)  # at least 256
    right = o.pick(o.below(exponent, 135), 134 - exponent, 0)
    size = mantissa + IMPLICIT << 7 >> o.pick(o.below(right, 32), right, 31)  # 23 bits of fraction
    whole = o.eq(size & MANTISSA, 0)
    fixed = o.pick(positive, size, o.pick(whole, 0, MINUS_ONE) - size) + (256 << 23)
    near = _sum(o, "ex2", fixed >> 17 & 63, fixed & 0x1FFFF) >> 33
    result = ((fixed >> 23) - 129 << 23) + near - IMPLICIT
    result = o.pick(
        o.below(fixed, 130 << 23), 0, o.pick(o.below(fixed, 384 << 23), result, INFINITY)
    )
    return o.pick(huge, o.pick(positive, INFINITY, 0), result)


def _lg2(o: Numbers, x: Value, exponent: Value, mantissa: Value) -> Value:
    fraction = _sum(o, "lg2", mantissa >> 17, mantissa & 0x1FFFF) >> (POINT - 36)
    above = o.pick(o.eq(x, ONE), 0, (exponent - 127 << 36) + fraction)
    below = (127 - exponent << 36) - 1 - fraction
    less = o.below(exponent, 127)
    result = _float(o, o.pick(less, below, above), 36) | o.pick(less, SIGN, 0)
    result = o.pick(o.eq(x, INFINITY), INFINITY, o.pick(o.below(x, SIGN), result, NAN))
    return o.pick(o.eq(exponent, 0), SIGN | INFINITY, result)


def _sin(o: Numbers, x: Value, exponent: Value, mantissa: Value) -> Value:
    turns = _turns(o, exponent, mantissa)
    result = _wave(o, turns >> 23, turns & MANTISSA) ^ x & SIGN
    return o.pick(o.eq(exponent, 255), NAN, result)


def _cos(o: Numbers, x: Value, exponent: Value, mantissa: Value) -> Value:
    turns = _turns(o, exponent, mantissa)
    result = o.pick(o.eq(turns, 0), ONE, _wave(o, (turns >> 23) + 1, turns & MANTISSA))
    return o.pick(o.eq(exponent, 255), NAN, result)


def _turns(o: Numbers, exponent: Value, mantissa: Value) -> Value:
    """The fraction of |x|/2π, from the product truncated to f32: 25 bits."""
    product = (mantissa + IMPLICIT) * TURN
    high = product >> 47
    right = 153 - exponent - high
    right = o.pick(o.below(right, 64), right, o.pick(o.below(exponent, 128), 63, 0))
    return product >> 23 >> high << 25 >> right & ((1 << 25) - 1)


def _wave(o: Numbers, quarter: Value, position: Value) -> Value:
    """The sine at a ``position`` (23 bits of fraction) in a quarter of a turn."""
    position = position ^ o.pick(o.eq(quarter & 1, 0), 0, MANTISSA)
    result = _float(o, _sum(o, "sin", position >> 17, position & 0x1FFFF), POINT)
    return result | (quarter & 2) << 30


# for each octave of x from 2^-8 to 2^3: bits of the mantissa in the segment index, first segment
_TANH_BITS = (0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3)
_TANH_FIRST = (0, 1, 2, 3, 5, 7, 11, 15, 19, 27, 43)


def _tanh(o: Numbers, x: Value, exponent: Value, mantissa: Value) -> Value:
    octave = o.pick(o.below(exponent, 119), 0, o.pick(o.below(exponent, 130), exponent - 119, 10))
    bits, first = o.take(_TANH_BITS, octave), o.take(_TANH_FIRST, octave)
    scaled = mantissa << bits
    low = (scaled & MANTISSA) >> 6
    result = _float(o, _sum(o, "tanh", first + (scaled >> 23), low), POINT)
    result = o.pick(o.below(exponent, 130), result, ONE) | x & SIGN
    return o.pick(o.below(exponent, 119), x, result)


_FUNCTIONS: dict[str, Callable[[Numbers, Value, Value, Value], Value]] = {
    "rcp": _rcp,
    "rsqrt": _rsqrt,
    "sqrt": _sqrt,
    "ex2": _ex2,
    "lg2": _lg2,
    "sin": _sin,
    "cos": _cos,
    "tanh": _tanh,
}


# --- with NumPy ---------------------------------------------------------------------------------

Bits = npt.NDArray[np.uint32]


class _Arrays:
    """``Numbers`` of any count, as arrays of uint64."""

    def pick(self, p: Any, a: Any, b: Any) -> Any:
        return np.where(p, np.uint64(a), np.uint64(b))

    def eq(self, a: Any, b: int) -> Any:
        return a == b

    def below(self, a: Any, b: int) -> Any:
        return a < b

    def length(self, a: Any) -> Any:
        parts = (a >> 32).astype(np.float64), (a & 0xFFFFFFFF).astype(np.float64)
        upper, lower = (np.frexp(part)[1].astype(np.uint64) for part in parts)
        return np.where(upper != 0, upper + np.uint64(32), lower)

    def take(self, table: tuple[int, ...], index: Any) -> Any:
        column = np.array([entry & MINUS_ONE for entry in table], np.uint64)
        return np.take(column, index, mode="clip")


def evaluate(function: str, bits: Bits) -> Bits:
    """``function`` of f32 bits (uint32 of any shape), as ``f32`` says. Raises DtypeError."""
    if function not in _FUNCTIONS:
        raise DtypeError(f"unknown approximation {function!r}; known are {', '.join(_FUNCTIONS)}")
    found = getattr(bits, "dtype", type(bits).__name__)
    if found != np.uint32:
        raise DtypeError(f"f32 bits must be uint32, got {found}", hint="use x.view(numpy.uint32)")
    result: Bits = f32(function, np.asarray(bits, np.uint64), _Arrays()).astype(np.uint32)
    return result
