"""Arithmetic on static and dynamic numbers.

A number is a Python ``int`` (static) or any other object with ``+ * // % &`` (dynamic: a register
of the kernel builder, a NumPy array). Static operations are folded here, so that few operations
reach a dynamic object, which is always the left operand; divisions by powers of two remain ``//``
and ``%``.

An ``OffsetSum`` is an offset whose dynamic terms have not been emitted yet. Each term has a known
divisor, by which a swizzle recognizes the parts that it does not change.
"""

from __future__ import annotations

from math import gcd
from typing import Any, NamedTuple, TypeAlias

from ..errors import LayoutError

Number: TypeAlias = Any
"""An ``int``, or a dynamic object with the operators of one."""


def mul(a: Number, b: Number) -> Number:
    """``a * b``; emits nothing for a factor 0 or 1, or two static factors."""
    if a.__class__ is int:
        if b.__class__ is int:
            return a * b
        a, b = b, a
    if b.__class__ is int:
        if b == 0:
            return 0
        if b == 1:
            return a
    return a * b


def add(a: Number, b: Number) -> Number:
    """``a + b``; emits nothing for a summand 0, or two static summands."""
    if a.__class__ is int:
        if b.__class__ is int:
            return a + b
        a, b = b, a
    if b.__class__ is int and b == 0:
        return a
    return a + b


def floordiv(a: Number, b: Number) -> Number:
    """``a // b`` for nonnegative ``a``."""
    if b.__class__ is int and b == 1:
        return a
    if a.__class__ is int and a == 0:
        return 0
    return a // b


def mod(a: Number, b: Number) -> Number:
    """``a % b`` for nonnegative ``a``."""
    if b.__class__ is int and b == 1:
        return 0
    if a.__class__ is int and a == 0:
        return 0
    return a % b


def ceil_div(a: Number, b: Number) -> Number:
    """``a / b`` rounded up, for positive ``b``."""
    if a.__class__ is int and b.__class__ is int:
        if b == 0:
            raise LayoutError(f"division of {a} by 0")
        return -(-a // b)
    if b.__class__ is int and b == 1:
        return a
    return floordiv(add(a, add(b, -1)), b)


def is_power_of_two(n: Number) -> bool:
    return n.__class__ is int and n > 0 and n & (n - 1) == 0


class Term(NamedTuple):
    """``value * factor``, a multiple of ``unit``."""

    value: Any
    factor: Number
    unit: int


class OffsetSum:
    """``static`` plus the dynamic ``terms``, in the order of their addition."""

    __slots__ = ("static", "terms")

    def __init__(self, static: int = 0) -> None:
        self.static = static
        self.terms: list[Term] = []

    def add(self, value: Number, factor: Number = 1, unit: int = 1) -> None:
        """Add ``value * factor``; ``unit`` divides ``value``."""
        if value.__class__ is int:
            value, factor = factor, value
        if value.__class__ is int:
            self.static += value * factor
        elif factor.__class__ is not int:
            self.terms.append(Term(value, factor, unit))
        elif factor != 0:
            self.terms.append(Term(value, factor, unit * abs(factor)))

    @property
    def unit(self) -> int:
        """The greatest known divisor of all dynamic terms (0 without terms)."""
        return gcd(*(t.unit for t in self.terms))

    def dynamic(self) -> Number:
        """The sum of the dynamic terms, 0 without terms."""
        total: Number = 0
        for term in self.terms:
            total = add(total, mul(term.value, term.factor))
        return total

    def total(self) -> Number:
        """The whole sum, with the static part added last, so that it can become an immediate."""
        return add(self.dynamic(), self.static) if self.terms else self.static

    def split(self, period: int) -> tuple[OffsetSum, OffsetSum]:
        """(the remainder, the part that is a multiple of ``period``)."""
        inside, outside = (
            OffsetSum(self.static % period),
            OffsetSum(self.static - self.static % period),
        )
        for term in self.terms:
            (outside if term.unit % period == 0 else inside).terms.append(term)
        return inside, outside
