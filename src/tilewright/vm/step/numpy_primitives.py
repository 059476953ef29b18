"""Values and pure primitives in NumPy: the specification of the virtual machine's arithmetic.

A value is an array of 32 lanes with dtype bool (width 1), uint8 … uint64, or object (width 128,
Python integers). Wrapping arithmetic uses NumPy's unsigned integers, all else Python integers:
``integers`` reads a value, ``value`` writes one, modulo 2^width.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .numpy_floats import COMPARISONS, Lanes, NumpyFloats

LANES = 32
ALL_LANES = (1 << LANES) - 1

_DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.bool_),
    8: np.dtype(np.uint8),
    16: np.dtype(np.uint16),
    32: np.dtype(np.uint32),
    64: np.dtype(np.uint64),
    128: np.dtype(object),
}
_WIDTHS = {dtype: width for width, dtype in _DTYPES.items()}

_bit_count: Any = np.frompyfunc(int.bit_count, 1, 1)
_bit_length: Any = np.frompyfunc(int.bit_length, 1, 1)
_reversed: Any = np.frompyfunc(lambda x, width: int(f"{x:0{width}b}"[::-1], 2), 2, 1)


def value(integers: Lanes, width: int) -> Lanes:
    """Python integers (dtype object) as a value, modulo 2^width."""
    return (integers & ((1 << width) - 1)).astype(_DTYPES[width])


def integers(a: Lanes, signed: bool = False) -> Lanes:
    """A value's lanes as Python integers (dtype object); ``signed`` reads two's complement."""
    width = _WIDTHS[a.dtype]
    plain = (a.astype(np.uint8) if width == 1 else a).astype(object)
    return plain - ((plain >> (width - 1)) << width) if signed else plain


class NumpyValues(NumpyFloats):
    """The primitives of ``ptx/isa/primitives.py`` without memory access and control flow.

    ``mask`` has a bit for each active lane; only ``active`` and ``ballot`` depend on it.
    """

    mask: int = ALL_LANES

    # --- making and reshaping ---
    def const(self, width: int, value: int) -> Lanes:
        return np.full(LANES, value & ((1 << width) - 1), _DTYPES[width])

    def width(self, a: Lanes) -> int:
        return _WIDTHS[a.dtype]

    def trunc(self, a: Lanes, width: int) -> Lanes:
        return value(integers(a), width)

    def zext(self, a: Lanes, width: int) -> Lanes:
        return value(integers(a), width)

    def sext(self, a: Lanes, width: int) -> Lanes:
        return value(integers(a, signed=True), width)

    def join(self, *parts: Lanes) -> Lanes:
        width = self.width(parts[0])
        whole = sum(integers(part) << (i * width) for i, part in enumerate(parts))
        return value(np.asarray(whole), width * len(parts))

    def split(self, a: Lanes, width: int) -> tuple[Lanes, ...]:
        return tuple(value(integers(a) >> low, width) for low in range(0, self.width(a), width))

    # --- integers ---
    def add(self, a: Lanes, b: Lanes) -> Lanes:
        return self._wrapped(a + b)

    def sub(self, a: Lanes, b: Lanes) -> Lanes:
        return self._wrapped(a - b)

    def mul(self, a: Lanes, b: Lanes) -> Lanes:
        return self._wrapped(a * b)

    def _wrapped(self, result: Lanes) -> Lanes:
        """Reduce a result modulo 2^width; NumPy's integers have wrapped already."""
        return value(result, 128) if result.dtype == object else result

    def mul_high(self, a: Lanes, b: Lanes, signed: bool) -> Lanes:
        width = self.width(a)
        return value((integers(a, signed) * integers(b, signed)) >> width, width)

    def div(self, a: Lanes, b: Lanes, signed: bool) -> Lanes:
        x, y = integers(a, signed), integers(b, signed)
        return value(np.where(y == 0, -1, _toward_zero(x, y)), self.width(a))

    def rem(self, a: Lanes, b: Lanes, signed: bool) -> Lanes:
        x, y = integers(a, signed), integers(b, signed)
        return value(np.where(y == 0, -1, x - y * _toward_zero(x, y)), self.width(a))

    def and_(self, a: Lanes, b: Lanes) -> Lanes:
        return a & b

    def or_(self, a: Lanes, b: Lanes) -> Lanes:
        return a | b

    def xor(self, a: Lanes, b: Lanes) -> Lanes:
        return a ^ b

    def not_(self, a: Lanes) -> Lanes:
        return self._wrapped(~a)

    def shl(self, a: Lanes, n: Lanes) -> Lanes:
        return value(integers(a) << self._count(a, n), self.width(a))

    def lshr(self, a: Lanes, n: Lanes) -> Lanes:
        return value(integers(a) >> self._count(a, n), self.width(a))

    def ashr(self, a: Lanes, n: Lanes) -> Lanes:
        return value(integers(a, signed=True) >> self._count(a, n), self.width(a))

    def _count(self, a: Lanes, n: Lanes) -> Lanes:
        """The shift count, at most the width."""
        return np.minimum(integers(n), self.width(a))

    def popc(self, a: Lanes) -> Lanes:
        return value(_bit_count(integers(a)), 32)

    def clz(self, a: Lanes) -> Lanes:
        return value(self.width(a) - _bit_length(integers(a)), 32)

    def brev(self, a: Lanes) -> Lanes:
        return value(_reversed(integers(a), self.width(a)), self.width(a))

    def cmp(self, op: str, a: Lanes, b: Lanes, signed: bool = False) -> Lanes:
        if signed:
            a, b = integers(a, signed), integers(b, signed)
        return COMPARISONS[op](a, b)

    def select(self, p: Lanes, a: Lanes, b: Lanes) -> Lanes:
        return np.where(p, a, b)

    # --- lanes ---
    def lane(self) -> Lanes:
        return np.arange(LANES, dtype=np.uint32)

    def active(self) -> Lanes:
        return self.const(32, self.mask)

    def shuffle(self, a: Lanes, lane: Lanes) -> Lanes:
        result: Lanes = a[lane & np.uint32(LANES - 1)]
        return result

    def ballot(self, p: Lanes) -> Lanes:
        votes = sum(1 << lane for lane in range(LANES) if p[lane])
        return self.const(32, votes & self.mask)


def _toward_zero(x: Lanes, y: Lanes) -> Lanes:
    """The quotient of Python integers, rounded toward zero; 0 where y is 0."""
    magnitude = abs(x) // np.where(y == 0, 1, abs(y))
    return np.where(y == 0, 0, np.where((x < 0) == (y < 0), magnitude, -magnitude))
