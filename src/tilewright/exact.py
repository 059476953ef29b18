"""Exact arithmetic on floating-point numbers, with a single rounding at the end.

A finite number is sign, magnitude and exponent as Python integers (arrays of dtype object), so sums
and products are exact; ``rounded`` converts one to bits in a single step. A quotient or root is
computed to more bits than any format has, with a sticky last bit: it is odd if digits follow.
``fma`` is IEEE 754's, including infinities and NaNs, with one canonical NaN.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .dtypes import dtype
from .number_conversion import decode, decompose, encode, is_nan, round_to

Lanes = npt.NDArray[Any]

_bit_length: Any = np.frompyfunc(int.bit_length, 1, 1)
_isqrt: Any = np.frompyfunc(math.isqrt, 1, 1)


class Exact(NamedTuple):
    """(−1)^negative · magnitude · 2^exponent in each lane; integers of any size."""

    negative: Lanes
    magnitude: Lanes
    exponent: Lanes

    @classmethod
    def of(cls, fmt: str, bits: Lanes) -> Exact:
        """The numbers with these bits (an arbitrary finite number for infinities and NaNs)."""
        negative, significand, exponent = decompose(fmt, bits)
        return cls(negative, significand.astype(object), exponent.astype(object))

    def scaled(self, exponent: Lanes) -> Lanes:
        """The signed integers n with these numbers = n · 2^exponent, exactly."""
        steps: Lanes = self.magnitude << (self.exponent - exponent)
        return np.where(self.negative, -steps, steps)


def product(x: Exact, y: Exact) -> Exact:
    return Exact(x.negative ^ y.negative, x.magnitude * y.magnitude, x.exponent + y.exponent)


def total(x: Exact, y: Exact, rnd: str) -> Exact:
    """x + y. The sum of opposite numbers is +0, in mode ``rm`` −0; zeros of one sign keep it."""
    low = np.minimum(x.exponent, y.exponent)
    steps = x.scaled(low) + y.scaled(low)
    of_zero = np.where(x.negative == y.negative, x.negative, rnd == "rm")
    negative = np.where(steps == 0, of_zero, steps < 0).astype(bool)
    return Exact(negative, abs(steps), low)


def quotient(x: Exact, y: Exact) -> Exact:
    """x / y to at least 64 bits with a sticky bit; y is not zero."""
    spare = 128
    above = x.magnitude << spare
    whole = above // y.magnitude
    whole |= whole * y.magnitude != above
    return Exact(x.negative ^ y.negative, whole, x.exponent - y.exponent - spare)


def root(x: Exact) -> Exact:
    """√x to at least 64 bits with a sticky bit; x is not negative."""
    spare = 128 + x.exponent % 2
    square = x.magnitude << spare
    whole = _isqrt(square)
    whole |= whole * whole != square
    return Exact(x.negative, whole, (x.exponent - spare) // 2)


def rounded(fmt: str, x: Exact, rnd: str) -> Lanes:
    """The bits of x, rounded in mode ``rnd``.

    ``round_to`` takes 64 bits, so the bits below the first 63 are combined into a sticky bit.
    """
    spare = np.maximum(_bit_length(x.magnitude) - 63, 0)
    kept = x.magnitude >> spare
    kept |= kept << spare != x.magnitude
    exponent = x.exponent + spare
    # All numbers from 2^(bias+1) on overflow alike; round_to takes no larger ones for f64.
    exponent -= np.maximum(_bit_length(kept) + exponent - (dtype(fmt).bias + 2), 0)
    return round_to(fmt, x.negative, kept.astype(np.uint64), exponent.astype(np.int64), rnd)


def canonical(fmt: str, bits: Lanes) -> Lanes:
    """The bits with every NaN replaced by the format's canonical one."""
    row = dtype(fmt)
    result: Lanes = np.where(is_nan(row, bits), row.nan, bits).astype(row.storage)
    return result


def quiet() -> np.errstate:
    """Suppress NumPy's warnings: overflow and NaN are valid results here."""
    return np.errstate(all="ignore")


def settled(fmt: str, bits: Lanes, ordinary: Lanes, special: Lanes) -> Lanes:
    """The bits in ordinary lanes; in the others the encoded double ``special``."""
    if not ordinary.all():
        bits = np.where(ordinary, bits, encode(fmt, np.where(ordinary, 0.0, special)))
    return canonical(fmt, bits)


def fma(fmt: str, a: Lanes, b: Lanes, c: Lanes, rnd: str = "rn") -> Lanes:
    """a · b + c of bits, rounded once."""
    x, y, z = decode(fmt, a), decode(fmt, b), decode(fmt, c)
    ab = product(Exact.of(fmt, a), Exact.of(fmt, b))
    bits = rounded(fmt, total(ab, Exact.of(fmt, c), rnd), rnd)
    factors = np.isfinite(x) & np.isfinite(y)
    with quiet():  # a finite product never is what makes a result special
        special = np.where(factors, 0.0, x * y) + z
    return settled(fmt, bits, factors & np.isfinite(z), special)
