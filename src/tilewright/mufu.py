"""What the multi-function unit (MUFU) makes of an f32: 1/x, 1/√x, √x, 2^x, log2, sin, cos, tanh.

Each function is cut into segments, and in each it is a quadratic c0 + c1·x + c2·x² of the bits
below the segment's number, added up in fixed point and cut off: as Oberman and Siu describe such a
unit (A high-performance area-efficient multifunction interpolator, 2005). The square is taken of
16 bits, its partial products below 2^17 left out. What is negative on the way in (2^x) or out
(log2), or runs backward (sin), is complemented, not negated. An H200 gave the coefficients, and
gives for all 2^32 operands of all eight functions what is computed here.

The algorithm is written once, over integers of 64 bits that wrap: NumPy evaluates it here, the
virtual machine makes machine code of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .errors import DtypeError
from .mufu_table import ROWS

Value = Any  # 64 unsigned bits in each lane, or a truth
Row = tuple[int, int, int]

POINT = 56  # c0's and the sum's bits after the point; c1 and c2 have 24
NAN, INFINITY, ONE, SIGN = 0x7FFFFFFF, 0x7F800000, 0x3F800000, 0x80000000
MINUS_ONE = (1 << 64) - 1
IMPLICIT = 1 << 23  # a significand's first bit
MANTISSA = IMPLICIT - 1
TURN = 0xA2F983  # the significand of 1/2π in f32, 2^-3 · 1.27


class Numbers(Protocol):
    """Besides ``+ - * & | ^ << >>`` (all unsigned): what an evaluator provides."""

    def pick(self, p: Value, a: Any, b: Any) -> Value: ...
    def eq(self, a: Value, b: int) -> Value: ...
    def below(self, a: Value, b: int) -> Value: ...
    def length(self, a: Value) -> Value:
        """Bits up to the highest that is set; 0 for 0."""

    def take(self, table: tuple[int, ...], index: Value) -> Value:
        """``table[index]``, modulo 2^64; ``index`` may be out of range: any number then."""


@lru_cache(maxsize=None)
def rows(function: str) -> tuple[Row, ...]:
    """``function``'s coefficients, a row for each segment."""
    text = (row.split(":") for row in ROWS[function].split())
    return tuple((int(c0, 16) << 16, int(c1, 16), int(c2, 16)) for c0, c1, c2 in text)


def f32(function: str, x: Value, o: Numbers) -> Value:
    """``rcp rsqrt sqrt ex2 lg2 sin cos tanh`` of f32 bits, as bits; without subnormals, but tanh's.

    ``sin`` and ``cos`` take radians, as ``sin.approx.f32`` does.
    """
    exponent, mantissa = x >> 23 & 255, x & MANTISSA
    made = _FUNCTIONS[function](o, x, exponent, mantissa)
    return o.pick(o.eq(exponent, 255) & ~o.eq(mantissa, 0), NAN, made)


# --- the quadratic ------------------------------------------------------------------------------


def _square(o: Numbers, x: Value) -> Value:
    """x² of 16 bits, less the partial products x_i·x_j whose weights are below 2^17."""
    total = x * x
    for i in range(9):
        left_out = (x >> (i + 1) & ((1 << max(15 - 2 * i, 0)) - 1)) << (2 * i + 2)
        total = total - o.pick(o.eq(x >> i & 1, 0), 0, left_out + (1 << 2 * i))
    return total


def _sum(o: Numbers, function: str, segment: Value, low: Value) -> Value:
    """The quadratic in a segment; ``low``: the 17 bits below its number."""
    c0, c1, c2 = (o.take(column, segment) for column in zip(*rows(function), strict=True))
    return c0 + c1 * (low << 15) + c2 * _square(o, low >> 1)


def _float(o: Numbers, fixed: Value, point: int) -> Value:
    """The f32 of ``fixed`` · 2^-``point``, cut off."""
    length = o.length(fixed)
    significand = fixed << (64 - length & 63) >> 40
    return o.pick(o.eq(length, 0), 0, (length + (126 - point) << 23) + significand - IMPLICIT)


# --- the functions ------------------------------------------------------------------------------
# of x's bits, its exponent and its mantissa; NaNs are seen to


def _rcp(o: Numbers, x: Value, exponent: Value, mantissa: Value) -> Value:
    near = _sum(o, "rcp", mantissa >> 16, (mantissa & 0xFFFF) << 1) >> 32
    made = (254 - exponent << 23) + near  # an exponent too high by 2: that of 2^127 goes below 0
    flushed = o.pick(o.below(made, 3 << 23), 0, made - (2 << 23))
    flushed = o.pick(o.eq(exponent, 0), INFINITY, o.pick(o.eq(exponent, 255), 0, flushed))
    return x & SIGN | flushed


def _rsqrt(o: Numbers, x: Value, exponent: Value, mantissa: Value) -> Value:
    odd = exponent & 1 ^ 1
    near = _sum(o, "rsqrt", (odd << 6) + (mantissa >> 17), mantissa & 0x1FFFF) >> 32
    near = o.pick(o.eq(mantissa, 0) & o.eq(odd, 0), 1 << 24, near)  # of 1, exactly
    made = (379 - exponent + odd >> 1 << 23) + near - IMPLICIT
    made = o.pick(o.eq(x, INFINITY), 0, o.pick(o.below(x, SIGN), made, NAN))
    return o.pick(o.eq(exponent, 0), x & SIGN | INFINITY, made)


def _sqrt(o: Numbers, x: Value, exponent: Value, mantissa: Value) -> Value:
    odd = exponent & 1 ^ 1
    near = _sum(o, "sqrt", (odd << 6) + (mantissa >> 17), mantissa & 0x1FFFF) >> 33
    made = (exponent + 127 - odd >> 1 << 23) + near - IMPLICIT
    made = o.pick(o.eq(x, INFINITY), INFINITY, o.pick(o.below(x, SIGN), made, NAN))
    return o.pick(o.eq(exponent, 0), x & SIGN, made)


def _ex2(o: Numbers, x: Value, exponent: Value, mantissa: Value) -> Value:
    positive, huge = o.below(x, SIGN), ~o.below(exponent, 135)  # 256 at least
    right = o.pick(o.below(exponent, 135), 134 - exponent, 0)
    size = mantissa + IMPLICIT << 7 >> o.pick(o.below(right, 32), right, 31)  # 23 bits of fraction
    whole = o.eq(size & MANTISSA, 0)
    fixed = o.pick(positive, size, o.pick(whole, 0, MINUS_ONE) - size) + (256 << 23)
    near = _sum(o, "ex2", fixed >> 17 & 63, fixed & 0x1FFFF) >> 33
    made = ((fixed >> 23) - 129 << 23) + near - IMPLICIT
    made = o.pick(o.below(fixed, 130 << 23), 0, o.pick(o.below(fixed, 384 << 23), made, INFINITY))
    return o.pick(huge, o.pick(positive, INFINITY, 0), made)


def _lg2(o: Numbers, x: Value, exponent: Value, mantissa: Value) -> Value:
    fraction = _sum(o, "lg2", mantissa >> 17, mantissa & 0x1FFFF) >> (POINT - 36)
    above = o.pick(o.eq(x, ONE), 0, (exponent - 127 << 36) + fraction)
    below = (127 - exponent << 36) - 1 - fraction
    less = o.below(exponent, 127)
    made = _float(o, o.pick(less, below, above), 36) | o.pick(less, SIGN, 0)
    made = o.pick(o.eq(x, INFINITY), INFINITY, o.pick(o.below(x, SIGN), made, NAN))
    return o.pick(o.eq(exponent, 0), SIGN | INFINITY, made)


def _sin(o: Numbers, x: Value, exponent: Value, mantissa: Value) -> Value:
    turns = _turns(o, exponent, mantissa)
    made = _wave(o, turns >> 23, turns & MANTISSA) ^ x & SIGN
    return o.pick(o.eq(exponent, 255), NAN, made)


def _cos(o: Numbers, x: Value, exponent: Value, mantissa: Value) -> Value:
    turns = _turns(o, exponent, mantissa)
    made = o.pick(o.eq(turns, 0), ONE, _wave(o, (turns >> 23) + 1, turns & MANTISSA))
    return o.pick(o.eq(exponent, 255), NAN, made)


def _turns(o: Numbers, exponent: Value, mantissa: Value) -> Value:
    """|x|/2π, an f32 cut off, less whole turns: 25 bits."""
    product = (mantissa + IMPLICIT) * TURN
    high = product >> 47
    right = 153 - exponent - high
    right = o.pick(o.below(right, 64), right, o.pick(o.below(exponent, 128), 63, 0))
    return product >> 23 >> high << 25 >> right & ((1 << 25) - 1)


def _wave(o: Numbers, quarter: Value, way: Value) -> Value:
    """The sine, ``way`` of the distance through a quarter of a turn."""
    way = way ^ o.pick(o.eq(quarter & 1, 0), 0, MANTISSA)
    made = _float(o, _sum(o, "sin", way >> 17, way & 0x1FFFF), POINT)
    return made | (quarter & 2) << 30


# x from 2^-8 on, below 2^3: how many bits of the mantissa number the segments, and which is first
_TANH_BITS = (0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3)
_TANH_FIRST = (0, 1, 2, 3, 5, 7, 11, 15, 19, 27, 43)


def _tanh(o: Numbers, x: Value, exponent: Value, mantissa: Value) -> Value:
    octave = o.pick(o.below(exponent, 119), 0, o.pick(o.below(exponent, 130), exponent - 119, 10))
    bits, first = o.take(_TANH_BITS, octave), o.take(_TANH_FIRST, octave)
    scaled = mantissa << bits
    low = (scaled & MANTISSA) >> 6
    made = _float(o, _sum(o, "tanh", first + (scaled >> 23), low), POINT)
    made = o.pick(o.below(exponent, 130), made, ONE) | x & SIGN
    return o.pick(o.below(exponent, 119), x, made)


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
    given = getattr(bits, "dtype", type(bits).__name__)
    if given != np.uint32:
        raise DtypeError(f"f32 bits must be uint32, got {given}", hint="use x.view(numpy.uint32)")
    made: Bits = f32(function, np.asarray(bits, np.uint64), _Arrays()).astype(np.uint32)
    return made
