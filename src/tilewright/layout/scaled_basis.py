"""Coordinates as strides: what layouts onto coordinates are made of.

A ``ScaledBasis`` is a coordinate with one entry, its ``value`` in the place ``mode``: ``3@1`` is
(0, 3), and ``2@1@0`` is ((0, 2),) (CuTe writes the outermost place last). A layout whose strides
are such maps to coordinates instead of offsets: ``(4,8):(1@0,1@1)`` is the identity. TMA and the
predicates of edges count in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import LayoutError
from .symbolic import Number, add, floordiv, mul


@dataclass(frozen=True, slots=True, eq=False)
class ScaledBasis:
    """``value`` in the place ``mode``, an index for each level: ``ScaledBasis(3, (1,))``.

    LayoutError for a place that is none.
    """

    value: Number
    mode: tuple[int, ...]

    def __post_init__(self) -> None:
        given: object = self.mode
        places = given if isinstance(given, tuple) else ()
        if not places or not all(m.__class__ is int and m >= 0 for m in places):
            raise LayoutError(
                f"a basis has its place as indices from 0 on, (1,) say, not {self.mode!r}"
            )

    def coordinate(self) -> Any:
        """As a coordinate: ``(0, 3)`` of ``3@1``."""
        result = self.value
        for place in reversed(self.mode):
            result = (*[0] * place, result)
        return result

    def __mul__(self, factor: Number) -> ScaledBasis:
        return ScaledBasis(mul(self.value, factor), self.mode)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> ScaledBasis:
        if self.value.__class__ is int and self.value % divisor:
            raise LayoutError(f"{divisor} does not divide {self}")
        return ScaledBasis(floordiv(self.value, divisor), self.mode)

    def __abs__(self) -> ScaledBasis:
        static = self.value.__class__ is int
        return ScaledBasis(abs(self.value) if static else self.value, self.mode)

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not ScaledBasis:
            return NotImplemented
        a, b = self.value, other.value
        known = a is b or (a.__class__ is int and b.__class__ is int and a == b)
        return self.mode == other.mode and known

    def __hash__(self) -> int:
        return hash((self.value, self.mode))

    def __str__(self) -> str:
        return "@".join(map(str, (self.value, *reversed(self.mode))))


def E(*mode: int) -> Any:
    """The unit coordinate of a place: ``E(1)`` is (0, 1), ``E(0, 1)`` is ((0, 1),), ``E()`` 1."""
    return ScaledBasis(1, mode) if mode else 1


def has_basis(stride: Any) -> bool:
    """Whether a ScaledBasis stands anywhere in a stride."""
    if stride.__class__ is tuple:
        return any(map(has_basis, stride))
    return stride.__class__ is ScaledBasis


def add_coordinates(a: Any, b: Any) -> Any:
    """The sum of two coordinates, place by place; what one lacks counts as 0."""
    if a.__class__ is not tuple and b.__class__ is not tuple:
        return add(a, b)
    for number, other in ((a, b), (b, a)):
        if number.__class__ is not tuple:
            if number.__class__ is int and number == 0:
                return other
            raise LayoutError(f"the number {number} and the coordinate {other} have no sum")
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    tail = longer[len(shorter) :]
    return (*map(add_coordinates, a[: len(shorter)], b[: len(shorter)]), *tail)
