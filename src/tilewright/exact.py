"""Numbers of any size, exactly: what rounds once must have lost nothing before.

A finite number is sign, magnitude and exponent as Python integers (arrays of dtype object), on
which sums and products lose nothing; ``rounded`` turns one into bits in a single step. A quotient
or a root has no end, so its last bit says whether anything follows (it is odd then), far below
where rounding looks. ``fma`` is IEEE's, infinities and NaNs included, with one canonical NaN.
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
        """The numbers that bits mean (of infinities and NaNs: something finite)."""
        negative, significand, exponent = decompose(fmt, bits)
        return cls(negative, significand.astype(object), exponent.astype(object))

    def scaled(self, exponent: Lanes) -> Lanes:
        """The signed integers that times 2^exponent are these numbers; none is cut off."""
        steps: Lanes = self.magnitude << (self.exponent - exponent)
        return np.where(self.negative, -steps, steps)


def product(x: Exact, y: Exact) -> Exact:
    return Exact(x.negative ^ y.negative, x.magnitude * y.magnitude, x.exponent + y.exponent)


def total(x: Exact, y: Exact, rnd: str) -> Exact:
    """x + y. Opposites add up to +0, in mode ``rm`` to −0; zeros of one sign keep it."""
    low = np.minimum(x.exponent, y.exponent)
    steps = x.scaled(low) + y.scaled(low)
    of_zero = np.where(x.negative == y.negative, x.negative, rnd == "rm")
    negative = np.where(steps == 0, of_zero, steps < 0).astype(bool)
    return Exact(negative, abs(steps), low)


def quotient(x: Exact, y: Exact) -> Exact:
    """x / y to at least 64 bits, odd where it goes on; y is not zero."""
    spare = 128
    above = x.magnitude << spare
    whole = above // y.magnitude
    whole |= whole * y.magnitude != above
    return Exact(x.negative ^ y.negative, whole, x.exponent - y.exponent - spare)


def root(x: Exact) -> Exact:
    """√x to at least 64 bits, odd where it goes on; x is not negative."""
    spare = 128 + x.exponent % 2
    square = x.magnitude << spare
    whole = _isqrt(square)
    whole |= whole * whole != square
    return Exact(x.negative, whole, (x.exponent - spare) // 2)


def rounded(fmt: str, x: Exact, rnd: str) -> Lanes:
    """The bits nearest to x in the sense of ``rnd``.

    ``round_to`` takes 64 bits. What lies below the first 63 only matters by being there, so it
    makes the lowest of them odd.
    """
    spare = np.maximum(_bit_length(x.magnitude) - 63, 0)
    kept = x.magnitude >> spare
    kept |= kept << spare != x.magnitude
    exponent = x.exponent + spare
    # From 2^(bias+1) on all overflow alike; round_to counts no further than that for f64.
    exponent -= np.maximum(_bit_length(kept) + exponent - (dtype(fmt).bias + 2), 0)
    return round_to(fmt, x.negative, kept.astype(np.uint64), exponent.astype(np.int64), rnd)


def canonical(fmt: str, bits: Lanes) -> Lanes:
    """The bits, every NaN replaced by the format's own."""
    row = dtype(fmt)
    made: Lanes = np.where(is_nan(row, bits), row.nan, bits).astype(row.storage)
    return made


def quiet() -> np.errstate:
    """NumPy without warnings: what overflows or is no number is what was asked for."""
    return np.errstate(all="ignore")


def settled(fmt: str, bits: Lanes, ordinary: Lanes, special: Lanes) -> Lanes:
    """The bits in ordinary lanes, in the others those of the double that IEEE arithmetic gave."""
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
