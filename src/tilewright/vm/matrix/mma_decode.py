"""Decodes elements for exact sums: a value, and the power of two of its leading bit.

Both are floats: f32 if every product of two elements is normal and exact in it, else f64. The power
of a product is then the product of the powers. Zero has the power 0, which is never the largest.
"""

from __future__ import annotations

from dataclasses import dataclass

import llvmlite.ir as ir

from ...dtypes import DType
from ..llvm.expressions import DOUBLE, FLOAT, Expr
from ..llvm.llvm_conversions import widened

ZERO_EXPONENT = 1 << 12
NARROW = 28
SPARE = 100  # exponents from −100 to 100 leave room for scaling in f32


def sparse_marker(t: DType) -> int:
    """The word that marks an element that sparse A does not store; not the bits of any element."""
    if t.kind != "float":
        return 0
    return 1 if t.unused else 1 << 31


@dataclass(frozen=True)
class Range:
    """The exponents that products of two formats can have."""

    least: int  # of the leading bit, also of subnormal numbers
    lowest: int  # of the last bit
    most: int  # all products are less than 2^most

    @classmethod
    def of(cls, a: DType, b: DType) -> Range:
        least = a.least + b.least
        top = [t.bias + (not t.has_inf) for t in (a, b)]
        return cls(least, least - a.mantissa - b.mantissa, sum(top) + 2)

    @classmethod
    def within(cls, reach: int, a: DType, b: DType) -> Range:
        """The range of products of numbers whose exponents are from −reach to reach."""
        return cls(-2 * reach, -2 * reach - a.mantissa - b.mantissa, 2 * reach + 2)

    @property
    def work(self) -> ir.Type:
        """The float type in which sums of such products are computed."""
        return FLOAT if self.lowest >= -SPARE and self.most <= SPARE else DOUBLE


def outside(word: Expr, t: DType) -> Expr:
    """Predicate: whether a number is not zero and its exponent not from −NARROW to NARROW."""
    code = word >> t.unused & ((1 << (t.exponent + t.mantissa)) - 1)
    steps = code - ((t.bias - NARROW) << t.mantissa)
    return (steps >= (2 * NARROW + 1) << t.mantissa) & code.ne(0)


@dataclass(frozen=True)
class Element:
    """``value`` and ``power`` of elements, and the predicate ``special``: NaN or infinite."""

    value: Expr
    power: Expr
    special: Expr


def decode(word: Expr, t: DType, lead_format: DType, work: ir.Type) -> Element:
    """Decode words of scratch memory. ``lead_format``: the format whose smallest exponent bounds
    that of the leading bit.

    NaN and infinity decode to 0; a separate path handles them.
    """
    code = word >> t.unused & ((1 << (t.exponent + t.mantissa)) - 1)
    special = code > t.max_finite
    live = code.ne(0) & ~special if t.has_nan else code.ne(0)
    fields = (code << (23 - t.mantissa)) + ((127 - t.bias) << 23)
    if t.bias != 127:  # a subnormal is read with a normal's hidden bit, which is subtracted
        hidden = (fields + (1 << 23)).float - 2.0**t.least
        fields = (code < 1 << t.mantissa).pick(hidden.bits, fields)
    sign = word << (32 - t.bits) & (1 << 31)
    lead = (fields & (0xFF << 23)).umax((127 + lead_format.least) << 23)
    value = live.pick(fields | sign, 0).float
    power = live.pick(lead, 0).float
    if work == DOUBLE:
        return Element(value.to_double(), power.to_double(), special)
    return Element(value, power, special)


@dataclass(frozen=True)
class BlockScale:
    """A block scale, or the product of two: an f64, the exponent of its leading bit
    (−ZERO_EXPONENT for zero), and whether it is NaN.
    """

    value: Expr
    lead: Expr
    nan: Expr

    @classmethod
    def of(cls, word: Expr, t: DType) -> BlockScale:
        code = word & ((1 << (t.exponent + t.mantissa)) - 1)
        lead = (code >> t.mantissa).umax(int(t.subnormal)) - t.bias
        if t.subnormal:
            lead = code.eq(0).pick(-ZERO_EXPONENT, lead)
        return cls(widened(code, t).float.to_double(), lead, code > t.max_finite)

    def __mul__(self, other: BlockScale) -> BlockScale:
        return BlockScale(self.value * other.value, self.lead + other.lead, self.nan | other.nan)


def integer(word: Expr, t: DType) -> Expr:
    """An integer as an f32, in which sums of products of bytes are exact."""
    if t.signed:
        word = (word << (32 - t.bits)).sar(32 - t.bits)
    return word.from_int(True, 32)
