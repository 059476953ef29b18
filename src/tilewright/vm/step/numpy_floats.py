"""Floating point of the NumPy evaluator: exact, rounded once. It is the machine's specification.

Finite sums, products, quotients and roots are computed by ``exact``. Infinities, NaNs and division
by zero follow IEEE 754 double arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ... import exact, mufu
from ...errors import DtypeError
from ...exact import Exact, canonical, product, quiet, quotient, root, rounded, settled, total
from ...number_conversion import decode, encode, is_nan

Lanes = npt.NDArray[Any]

_NATIVE = {("f32", "rn"): np.float32, ("f64", "rn"): np.float64}  # NumPy rounds these as IEEE 754

COMPARISONS: dict[str, Callable[[Any, Any], Lanes]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def integral(x: Lanes, rnd: str) -> Lanes:
    """Round doubles to integral values, which keep the sign of the argument (zeros too)."""
    if rnd not in _INTEGRAL:
        raise DtypeError(f"unknown rounding mode {rnd!r}; known are {', '.join(_INTEGRAL)}")
    magnitude = np.abs(_INTEGRAL[rnd](x))
    return np.where(np.signbit(x), -magnitude, magnitude)


def _nearest_away(x: Lanes) -> Lanes:
    truncated = np.trunc(x)
    return np.where(np.abs(x - truncated) >= 0.5, truncated + np.sign(x), truncated)


_INTEGRAL: dict[str, Callable[[Lanes], Lanes]] = {
    "rn": np.rint,
    "rz": np.trunc,
    "rm": np.floor,
    "rp": np.ceil,
    "rna": _nearest_away,
}


def _native(fmt: str, operation: Callable[..., Any], *operands: Lanes) -> Lanes:
    """NumPy's arithmetic on the bits of float32 or float64."""
    with quiet():
        result = operation(*(bits.view(_NATIVE[fmt, "rn"]) for bits in operands))
    return canonical(fmt, result.view(operands[0].dtype))


class NumpyFloats:
    """The floating-point primitives of ``ptx/isa/primitives.py``."""

    def fadd(self, fmt: str, a: Lanes, b: Lanes, rnd: str = "rn") -> Lanes:
        if (fmt, rnd) in _NATIVE:
            return _native(fmt, np.add, a, b)
        x, y = decode(fmt, a), decode(fmt, b)
        bits = rounded(fmt, total(Exact.of(fmt, a), Exact.of(fmt, b), rnd), rnd)
        with quiet():
            return settled(fmt, bits, np.isfinite(x) & np.isfinite(y), x + y)

    def fmul(self, fmt: str, a: Lanes, b: Lanes, rnd: str = "rn") -> Lanes:
        if (fmt, rnd) in _NATIVE:
            return _native(fmt, np.multiply, a, b)
        x, y = decode(fmt, a), decode(fmt, b)
        bits = rounded(fmt, product(Exact.of(fmt, a), Exact.of(fmt, b)), rnd)
        with quiet():
            return settled(fmt, bits, np.isfinite(x) & np.isfinite(y), x * y)

    def fma(self, fmt: str, a: Lanes, b: Lanes, c: Lanes, rnd: str = "rn") -> Lanes:
        return exact.fma(fmt, a, b, c, rnd)

    def fdiv(self, fmt: str, a: Lanes, b: Lanes, rnd: str = "rn") -> Lanes:
        if (fmt, rnd) in _NATIVE:
            return _native(fmt, np.divide, a, b)
        x, y = decode(fmt, a), decode(fmt, b)
        ordinary = np.isfinite(x) & np.isfinite(y) & (y != 0)
        divisor = Exact.of(fmt, b)
        divisor = divisor._replace(magnitude=np.where(y == 0, 1, divisor.magnitude))
        bits = rounded(fmt, quotient(Exact.of(fmt, a), divisor), rnd)
        with quiet():
            return settled(fmt, bits, ordinary, x / y)

    def fsqrt(self, fmt: str, a: Lanes, rnd: str = "rn") -> Lanes:
        if (fmt, rnd) in _NATIVE:
            return _native(fmt, np.sqrt, a)
        x = decode(fmt, a)
        bits = rounded(fmt, root(Exact.of(fmt, a)), rnd)
        with quiet():
            return settled(fmt, bits, np.isfinite(x) & (x > 0), np.sqrt(x))

    def fcmp(self, fmt: str, op: str, a: Lanes, b: Lanes) -> Lanes:
        unordered = is_nan(fmt, a) | is_nan(fmt, b)
        if op in ("num", "nan"):
            return unordered if op == "nan" else ~unordered
        holds = COMPARISONS[op.removesuffix("u")](decode(fmt, a), decode(fmt, b))
        return holds | unordered if op.endswith("u") else holds & ~unordered

    def frint(self, fmt: str, a: Lanes, rnd: str) -> Lanes:
        with quiet():
            return encode(fmt, integral(decode(fmt, a), rnd))

    def fcvt(self, source: str, dest: str, a: Lanes, rnd: str = "rn") -> Lanes:
        return canonical(dest, encode(dest, decode(source, a), rnd))

    def i2f(self, a: Lanes, signed: bool, fmt: str, rnd: str = "rn") -> Lanes:
        number = decode(f"{'s' if signed else 'u'}{8 * a.dtype.itemsize}", a)
        return encode(fmt, number, rnd)

    def f2i(self, fmt: str, a: Lanes, width: int, signed: bool, rnd: str = "rz") -> Lanes:
        with quiet():
            return encode(f"{'s' if signed else 'u'}{width}", decode(fmt, a), rnd)

    def approx(self, name: str, a: Lanes) -> Lanes:
        return mufu.evaluate(name, a)
