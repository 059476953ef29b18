"""Arithmetic on numbers of which some are known now and some only when a kernel runs.

A number is a Python ``int`` (static) or any other object with ``+ * // % &`` (dynamic: a register
of the kernel builder, a NumPy array). The one idea: what is known is folded here, so an expression
reaches a dynamic object only where it must, always on the operator's left side, and powers of two
stay ``//`` and ``%``.

A ``OffsetSum`` is an offset in the making: its static part, and dynamic terms that nothing has been
emitted for yet. Each term knows a number that divides it; a swizzle uses that to leave alone what
it can't change.
"""

from __future__ import annotations

from math import gcd
from typing import Any, NamedTuple, TypeAlias

from ..errors import LayoutError

Number: TypeAlias = Any
"""An ``int``, or a dynamic object with the operators of one."""


def mul(a: Number, b: Number) -> Number:
    """``a * b``: nothing is emitted for 0, 1 or two static factors."""
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
    """``a + b``: nothing is emitted for 0 or two static summands."""
    if a.__class__ is int:
        if b.__class__ is int:
            return a + b
        a, b = b, a
    if b.__class__ is int and b == 0:
        return a
    return a + b


def floordiv(a: Number, b: Number) -> Number:
    """``a // b`` of a number that is not negative."""
    if b.__class__ is int and b == 1:
        return a
    if a.__class__ is int and a == 0:
        return 0
    return a // b


def mod(a: Number, b: Number) -> Number:
    """``a % b`` of a number that is not negative."""
    if b.__class__ is int and b == 1:
        return 0
    if a.__class__ is int and a == 0:
        return 0
    return a % b


def ceil_div(a: Number, b: Number) -> Number:
    """``a / b`` rounded up, for positive ``b``."""
    if a.__class__ is int and b.__class__ is int:
        if b == 0:
            raise LayoutError(f"{a} is divided by 0")
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
    """``static`` plus the dynamic ``terms``, in the order in which they came."""

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
        """The greatest number known to divide every dynamic term (0 where there is none)."""
        return gcd(*(t.unit for t in self.terms))

    def dynamic(self) -> Number:
        """The dynamic terms added up, 0 where there is none."""
        total: Number = 0
        for term in self.terms:
            total = add(total, mul(term.value, term.factor))
        return total

    def total(self) -> Number:
        """All of it; the static part is added last, where an address takes it as an immediate."""
        return add(self.dynamic(), self.static) if self.terms else self.static

    def split(self, period: int) -> tuple[OffsetSum, OffsetSum]:
        """(the rest, the part that is a multiple of ``period``)."""
        inside, outside = (
            OffsetSum(self.static % period),
            OffsetSum(self.static - self.static % period),
        )
        for term in self.terms:
            (outside if term.unit % period == 0 else inside).terms.append(term)
        return inside, outside
