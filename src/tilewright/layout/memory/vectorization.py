"""Vectorized access: contiguous runs, alignment, and the widest vector of a layout.

A vector of n elements needs n contiguous elements in memory whose first offset is a multiple of n.
Both follow from the modes. The modes that continue one another from stride 1 on form the contiguous
run; n must divide its length, all other strides and the offset, and a swizzle must keep n elements
contiguous. A dynamic stride or size has no known divisor.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

from ...errors import LayoutError
from ..algebra.function_properties import layout_of
from ..composed_layout import AnyLayout, ComposedLayout, Shifted, inside
from ..coordinate import coalesce_modes
from ..int_tuple import flatten
from ..layout import Layout
from ..scaled_basis import has_basis
from ..symbolic import Number, is_power_of_two

WIDEST = 16
"""Bytes of the widest vector that an instruction moves."""


def check_bits(bits: int) -> None:
    """Raise LayoutError unless ``bits`` is a power of two up to 128."""
    if bits.__class__ is not int or not (is_power_of_two(bits) and bits <= 8 * WIDEST):
        raise LayoutError(f"elements must have 1, 2, 4, … or {8 * WIDEST} bits, got {bits!r}")


def _split(layout: AnyLayout) -> tuple[Layout, Any, int]:
    """(the plain layout, the offset added to it, the number of elements that the outer swizzle
    keeps contiguous, 0 for all).
    """
    inner = inside(layout)
    if has_basis(inner.stride):
        raise LayoutError(f"{layout} maps to coordinates, not to memory")
    if isinstance(layout, ComposedLayout):
        return inner, layout.offset, layout.contiguous
    return inner, 0, 0


def alignment(layout: Any) -> int:
    """The greatest known divisor of all offsets; 0 if all offsets are 0.

    Under a swizzle, at most the number of elements that it keeps contiguous. Dynamic strides count
    as 1.

    >>> alignment(Layout((4, 8), (16, 72)))
    8
    """
    inner, offset, kept = _split(layout_of(layout))
    modes = zip(flatten(inner.shape), flatten(inner.stride), strict=True)
    strides = [_unit(d) for s, d in modes if not (s.__class__ is int and s == 1)]
    common = gcd(_unit(offset), *strides)
    return gcd(common, kept) if common else 0


def _unit(number: Number) -> int:
    """The greatest known divisor of a number."""
    if isinstance(number, Shifted):
        return gcd(number.unit, number.static)
    return abs(number) if number.__class__ is int else 1


def contiguous_run(layout: Any) -> Number:
    """The largest n such that n consecutive coordinates, from each multiple of n on, have
    consecutive offsets. It may be a dynamic size.

    >>> contiguous_run(Layout((8, (4, 2)), (1, (8, 64)))), contiguous_run(Layout((8, 8), (8, 1)))
    (32, 1)
    """
    inner, offset, kept = _split(layout_of(layout))
    shapes, strides = coalesce_modes(inner.shape, inner.stride)
    length: Number = shapes[0] if strides[0].__class__ is int and strides[0] == 1 else 1
    if not kept:
        return length
    outer = [d for d in strides[1:] if d.__class__ is int]  # runs begin at their multiples
    aligned = gcd(kept, _unit(offset), *outer)
    return gcd(aligned, length) if length.__class__ is int else 1


@dataclass(frozen=True, slots=True)
class WidestVector:
    """The widest vector: ``elements`` of ``bits`` bits, and the limiting reason ``why``."""

    elements: int
    bits: int
    why: str

    @property
    def width(self) -> int:
        """Bits of the whole vector."""
        return self.elements * self.bits

    def __str__(self) -> str:
        size = f"{self.width // 8} bytes" if self.width % 8 == 0 else f"{self.width} bits"
        many = "elements" if self.elements > 1 else "element"
        return f"{size}, {self.elements} {many} of {self.bits} bits: {self.why}"


def widest_vector(layout: Any, bits: int) -> WidestVector:
    """The widest vector in which all elements can be accessed: contiguous, aligned (if the memory
    is), a power of two, at most 16 bytes. LayoutError unless ``bits`` is a power of two up to 128.

    >>> print(widest_vector(Layout((64, 8), (1, 72)), 16))
    16 bytes, 8 elements of 16 bits: instructions move at most 16 bytes
    >>> print(widest_vector(Layout((64, 8), (1, 66)), 16))
    4 bytes, 2 elements of 16 bits: mode 8:66 begins at multiples of 2
    """
    check_bits(bits)
    inner, offset, kept = _split(layout_of(layout))
    limits = [(8 * WIDEST // bits, "instructions move at most 16 bytes"), *_limits(inner)]
    if kept:
        limits.append((kept, f"the swizzle keeps {kept} elements contiguous"))
    if not _is_zero(offset):
        low = _low_bit(_unit(offset))
        limits.append((low, f"the offset {offset} is a multiple of {low}"))
    elements, why = min(limits, key=lambda limit: limit[0])
    return WidestVector(elements, bits, why)


def _low_bit(n: int) -> int:
    """The greatest power of two that divides n, which is not 0."""
    return n & -n


def _limits(layout: Layout) -> list[tuple[int, str]]:
    """The vector lengths that the run and each further mode allow, with the reasons."""
    modes = list(zip(flatten(layout.shape), flatten(layout.stride), strict=True))
    outer = [i for i, (s, _) in enumerate(modes) if not (s.__class__ is int and s == 1)]
    known = [i for i in outer if modes[i][0].__class__ is modes[i][1].__class__ is int]
    length = 1
    for i in sorted(known, key=lambda i: modes[i][1]):
        if modes[i][1] == length:
            length *= modes[i][0]
            outer.remove(i)
    limits = [_limit(*modes[i]) for i in outer if not _is_zero(modes[i][1])]
    run = f"{length} elements are" if length > 1 else "no two elements are known to be"
    return [*limits, (_low_bit(length), f"{run} contiguous")]


def _is_zero(number: Number) -> bool:
    return number.__class__ is int and number == 0


def _limit(size: Number, stride: Number) -> tuple[int, str]:
    if stride.__class__ is not int:
        return 1, f"stride {stride} is dynamic"
    if size.__class__ is not int and stride == 1:
        return 1, f"size {size} is dynamic"
    low = _low_bit(stride)
    return low, f"mode {size}:{stride} begins at multiples of {low}"
