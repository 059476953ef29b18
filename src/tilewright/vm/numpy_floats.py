"""Floating point of the NumPy evaluator: exact, rounded once. It says what the machine must give.

A finite number is sign, magnitude and exponent as Python integers (arrays of dtype object), on
which sums and products lose nothing; ``rounded`` turns one into bits in a single step. A quotient
or a root has no end, so its last bit says whether anything follows (it is odd then), far below
where rounding looks. What involves infinities, NaNs or a zero divisor is what IEEE's double
arithmetic says of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..dtypes import decode, dtype, encode, is_nan, parts, round_to
from ..errors import DtypeError

Lanes = npt.NDArray[Any]

_NATIVE = {("f32", "rn"): np.float32, ("f64", "rn"): np.float64}  # NumPy rounds these as IEEE says

_bit_length: Any = np.frompyfunc(int.bit_length, 1, 1)
_isqrt: Any = np.frompyfunc(math.isqrt, 1, 1)

COMPARISONS: dict[str, Callable[[Any, Any], Lanes]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}

# Of doubles. The hardware's last bits differ; those of ``_FLUSHED`` know no subnormal f32.
_APPROXIMATED: dict[str, Callable[[Any], Any]] = {
    "rcp": lambda x: 1.0 / x,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sqrt": np.sqrt,
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}
_FLUSHED = ("rcp", "rsqrt", "sqrt", "ex2", "lg2")


class Exact(NamedTuple):
    """(−1)^negative · magnitude · 2^exponent in each lane; integers of any size."""

    negative: Lanes
    magnitude: Lanes
    exponent: Lanes

    @classmethod
    def of(cls, fmt: str, bits: Lanes) -> Exact:
        """The numbers that bits mean (of infinities and NaNs: something finite)."""
        negative, significand, exponent = parts(fmt, bits)
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


def integral(x: Lanes, rnd: str) -> Lanes:
    """Doubles rounded to whole numbers, which keep the sign of what they come from."""
    if rnd not in _WHOLE:
        raise DtypeError(f"unknown rounding mode {rnd!r}; known are {', '.join(_WHOLE)}")
    whole = np.abs(_WHOLE[rnd](x))
    return np.where(np.signbit(x), -whole, whole)


def _nearest_away(x: Lanes) -> Lanes:
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.sign(x), whole)


_WHOLE: dict[str, Callable[[Lanes], Lanes]] = {
    "rn": np.rint,
    "rz": np.trunc,
    "rm": np.floor,
    "rp": np.ceil,
    "rna": _nearest_away,
}


def flushed(bits: Lanes) -> Lanes:
    """f32 bits, subnormals replaced by zeros of their sign."""
    subnormal = bits & np.uint32(0x7F800000) == 0
    made: Lanes = np.where(subnormal, bits & np.uint32(0x80000000), bits)
    return made


def _quiet() -> np.errstate:
    return np.errstate(all="ignore")


def _native(fmt: str, operation: Callable[..., Any], *operands: Lanes) -> Lanes:
    """NumPy's own arithmetic on the bits of float32 or float64."""
    with _quiet():
        made = operation(*(bits.view(_NATIVE[fmt, "rn"]) for bits in operands))
    return canonical(fmt, made.view(operands[0].dtype))


def _settled(fmt: str, bits: Lanes, ordinary: Lanes, special: Lanes) -> Lanes:
    """The bits in ordinary lanes, in the others those of the double that IEEE arithmetic gave."""
    if not ordinary.all():
        bits = np.where(ordinary, bits, encode(fmt, np.where(ordinary, 0.0, special)))
    return canonical(fmt, bits)


class NumpyFloats:
    """The floating-point primitives of ``ptx/isa/primitives.py``."""

    def fadd(self, fmt: str, a: Lanes, b: Lanes, rnd: str = "rn") -> Lanes:
        if (fmt, rnd) in _NATIVE:
            return _native(fmt, np.add, a, b)
        x, y = decode(fmt, a), decode(fmt, b)
        bits = rounded(fmt, total(Exact.of(fmt, a), Exact.of(fmt, b), rnd), rnd)
        with _quiet():
            return _settled(fmt, bits, np.isfinite(x) & np.isfinite(y), x + y)

    def fmul(self, fmt: str, a: Lanes, b: Lanes, rnd: str = "rn") -> Lanes:
        if (fmt, rnd) in _NATIVE:
            return _native(fmt, np.multiply, a, b)
        x, y = decode(fmt, a), decode(fmt, b)
        bits = rounded(fmt, product(Exact.of(fmt, a), Exact.of(fmt, b)), rnd)
        with _quiet():
            return _settled(fmt, bits, np.isfinite(x) & np.isfinite(y), x * y)

    def fma(self, fmt: str, a: Lanes, b: Lanes, c: Lanes, rnd: str = "rn") -> Lanes:
        x, y, z = decode(fmt, a), decode(fmt, b), decode(fmt, c)
        ab = product(Exact.of(fmt, a), Exact.of(fmt, b))
        bits = rounded(fmt, total(ab, Exact.of(fmt, c), rnd), rnd)
        factors = np.isfinite(x) & np.isfinite(y)
        with _quiet():  # a finite product never is what makes a result special
            special = np.where(factors, 0.0, x * y) + z
        return _settled(fmt, bits, factors & np.isfinite(z), special)

    def fdiv(self, fmt: str, a: Lanes, b: Lanes, rnd: str = "rn") -> Lanes:
        if (fmt, rnd) in _NATIVE:
            return _native(fmt, np.divide, a, b)
        x, y = decode(fmt, a), decode(fmt, b)
        ordinary = np.isfinite(x) & np.isfinite(y) & (y != 0)
        divisor = Exact.of(fmt, b)
        divisor = divisor._replace(magnitude=np.where(y == 0, 1, divisor.magnitude))
        bits = rounded(fmt, quotient(Exact.of(fmt, a), divisor), rnd)
        with _quiet():
            return _settled(fmt, bits, ordinary, x / y)

    def fsqrt(self, fmt: str, a: Lanes, rnd: str = "rn") -> Lanes:
        if (fmt, rnd) in _NATIVE:
            return _native(fmt, np.sqrt, a)
        x = decode(fmt, a)
        bits = rounded(fmt, root(Exact.of(fmt, a)), rnd)
        with _quiet():
            return _settled(fmt, bits, np.isfinite(x) & (x > 0), np.sqrt(x))

    def fcmp(self, fmt: str, op: str, a: Lanes, b: Lanes) -> Lanes:
        unordered = is_nan(fmt, a) | is_nan(fmt, b)
        if op in ("num", "nan"):
            return unordered if op == "nan" else ~unordered
        holds = COMPARISONS[op.removesuffix("u")](decode(fmt, a), decode(fmt, b))
        return holds | unordered if op.endswith("u") else holds & ~unordered

    def frint(self, fmt: str, a: Lanes, rnd: str) -> Lanes:
        with _quiet():
            return encode(fmt, integral(decode(fmt, a), rnd))

    def fcvt(self, source: str, dest: str, a: Lanes, rnd: str = "rn") -> Lanes:
        return canonical(dest, encode(dest, decode(source, a), rnd))

    def i2f(self, a: Lanes, signed: bool, fmt: str, rnd: str = "rn") -> Lanes:
        number = decode(f"{'s' if signed else 'u'}{8 * a.dtype.itemsize}", a)
        return encode(fmt, number, rnd)

    def f2i(self, fmt: str, a: Lanes, width: int, signed: bool, rnd: str = "rz") -> Lanes:
        with _quiet():
            return encode(f"{'s' if signed else 'u'}{width}", decode(fmt, a), rnd)

    def approx(self, name: str, a: Lanes) -> Lanes:
        """The function of the double, rounded to f32: not the bits that hardware returns.

        ``rcp``, ``rsqrt``, ``sqrt``, ``ex2`` and ``lg2`` take subnormals for zeros of their sign
        and give such zeros for them (``.ftz``); ``sin``, ``cos`` and ``tanh`` keep them.
        """
        ftz = name in _FLUSHED
        with _quiet():
            made = _APPROXIMATED[name](decode("f32", flushed(a) if ftz else a))
        bits = encode("f32", made)
        return flushed(bits) if ftz else bits
