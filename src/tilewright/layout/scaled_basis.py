"""Scaled basis vectors: the strides of layouts that map to coordinates.

A ``ScaledBasis`` is a coordinate with one nonzero entry, ``value`` at ``mode``: ``3@1`` is (0, 3),
and ``2@1@0`` is ((0, 2),) (CuTe writes the outermost mode last). A layout with such strides maps to
coordinates instead of offsets: ``(4,8):(1@0,1@1)`` is the identity. TMA and the predicates of
partial tiles use them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import LayoutError
from .symbolic import Number, add, floordiv, mul


@dataclass(frozen=True, slots=True, eq=False)
class ScaledBasis:
    """``value`` at ``mode``, an index for each level: ``ScaledBasis(3, (1,))``.

    LayoutError for an invalid mode.
    """

    value: Number
    mode: tuple[int, ...]

    def __post_init__(self) -> None:
        checked: object = self.mode
        mode = checked if isinstance(checked, tuple) else ()
        if not mode or not all(m.__class__ is int and m >= 0 for m in mode):
            expected = "a tuple of nonnegative integers such as (1,)"
            raise LayoutError(f"the mode of a basis must be {expected}, got {self.mode!r}")

    def coordinate(self) -> Any:
        """As a coordinate: ``(0, 3)`` of ``3@1``."""
        result = self.value
        for index in reversed(self.mode):
            result = (*[0] * index, result)
        return result

    def __mul__(self, factor: Number) -> ScaledBasis:
        return ScaledBasis(mul(self.value, factor), self.mode)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> ScaledBasis:
        if self.value.__class__ is int and self.value % divisor:
            raise LayoutError(f"{self} must be a multiple of {divisor}")
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
    """The unit coordinate of a mode: ``E(1)`` is (0, 1), ``E(0, 1)`` is ((0, 1),), ``E()`` 1."""
    return ScaledBasis(1, mode) if mode else 1


def has_basis(stride: Any) -> bool:
    """Whether a stride contains a ScaledBasis."""
    if stride.__class__ is tuple:
        return any(map(has_basis, stride))
    return stride.__class__ is ScaledBasis


def add_coordinates(a: Any, b: Any) -> Any:
    """The elementwise sum of two coordinates; missing entries count as 0."""
    if a.__class__ is not tuple and b.__class__ is not tuple:
        return add(a, b)
    for number, other in ((a, b), (b, a)):
        if number.__class__ is not tuple:
            if number.__class__ is int and number == 0:
                return other
            raise LayoutError(f"expected two numbers or two coordinates, got {number} and {other}")
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    tail = longer[len(shorter) :]
    return (*map(add_coordinates, a[: len(shorter)], b[: len(shorter)]), *tail)
