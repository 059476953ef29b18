"""Layouts of the same memory in elements of another width.

``upcast`` is the layout in elements n times as wide: the size of the contiguous mode and all other
strides are divided by n. ``downcast`` is the inverse. ``recast`` selects between them by the widths
in bits.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from ..errors import LayoutError
from .algebra.composition import by_mode
from .composed_layout import ComposedLayout, is_multiple
from .int_tuple import flatten, is_int, signum, unflatten
from .layout import Layout, make_layout
from .swizzle import Swizzle
from .symbolic import floordiv, is_power_of_two, mul


def upcast(layout: Any, n: int) -> Any:
    """The layout in elements n times as wide; also of swizzles and composed layouts.

    LayoutError where an element would be split or its parts are not contiguous.
    >>> print(upcast(Layout((8, 4), (1, 8)), 2))
    (4,4):(1,4)
    """
    _check_factor(n, "upcast")
    if isinstance(layout, Swizzle):
        base = layout.base - _log2(layout, n)
        return Swizzle(max(layout.bits + min(base, 0), 0), max(base, 0), layout.shift)
    if isinstance(layout, ComposedLayout):
        if not is_multiple(layout.offset, n):
            raise LayoutError(f"upcast: the offset must be a known multiple of {n}, got {layout}")
        return ComposedLayout(upcast(layout.outer, n), layout.offset // n, upcast(layout.inner, n))
    if layout.shape.__class__ is tuple:
        return make_layout(*by_mode(lambda mode: upcast(mode, n), layout))
    return _upcast_mode(layout, n)


def _upcast_mode(mode: Layout, n: int) -> Layout:
    s, d = mode.shape, mode.stride
    if d.__class__ is not int:
        return Layout.of(s, floordiv(d, n))  # a dynamic stride is assumed to be a multiple
    if d % n == 0:
        return Layout.of(s, d // n)
    if n % d:
        raise LayoutError(f"upcast of {mode} by {n}: stride and {n} must divide one another")
    count = n // abs(d)
    if s.__class__ is not int or (s % count and count % s):
        raise LayoutError(f"upcast of {mode} by {n}: {count} elements become one, got {s}")
    return Layout.of(max(s // count, 1), signum(d))


def downcast(layout: Any, n: int) -> Any:
    """The layout in elements n times as narrow; also of swizzles and composed layouts.
    >>> print(downcast(Layout((4, 4), (1, 4)), 2))
    (8,4):(1,8)
    """
    _check_factor(n, "downcast")
    if isinstance(layout, Swizzle):
        return Swizzle(layout.bits, layout.base + _log2(layout, n), layout.shift)
    if isinstance(layout, ComposedLayout):
        outer, inner = downcast(layout.outer, n), downcast(layout.inner, n)
        return ComposedLayout(outer, mul(layout.offset, n), inner)
    if n == 1:
        return layout
    split = contiguous_mode(layout)
    if split is None:
        raise LayoutError(f"downcast: expected a mode of stride 1, got {layout}")
    shapes, strides = flatten(layout.shape), flatten(layout.stride)
    finer = [mul(s, n) if i == split else s for i, s in enumerate(shapes)]
    wider = [d if i == split else mul(d, n) for i, d in enumerate(strides)]
    return Layout.of(unflatten(finer, layout.shape), unflatten(wider, layout.shape))


def contiguous_mode(layout: Layout) -> int | None:
    """The first flat mode of stride ±1, preferably of more than one element."""
    shapes, strides = flatten(layout.shape), flatten(layout.stride)
    units = [i for i, d in enumerate(strides) if d.__class__ is int and abs(d) == 1]
    long = [i for i in units if shapes[i].__class__ is not int or shapes[i] > 1]
    return next(iter(long + units), None)


def _log2(swizzle: Swizzle, n: int) -> int:
    if not is_power_of_two(n):
        raise LayoutError(f"recast of {swizzle}: the factor must be a power of two, got {n}")
    return n.bit_length() - 1


def _check_factor(n: int, what: str) -> None:
    if not is_int(n) or n < 1:
        raise LayoutError(f"{what}: the factor must be a positive integer, got {n!r}")


def recast(layout: Any, old_bits: int, new_bits: int) -> Any:
    """A layout in elements of ``old_bits`` bits as one in elements of ``new_bits``.

    >>> print(recast(Layout((64, 8), (1, 64)), 16, 32))
    (32,8):(1,32)
    """
    for bits in (old_bits, new_bits):
        if not is_int(bits) or bits < 1:
            raise LayoutError(f"recast: an element must have at least one bit, got {bits!r}")
    shared = gcd(old_bits, new_bits)
    wider, narrower = new_bits // shared, old_bits // shared
    if wider > 1:
        layout = upcast(layout, wider)
    return downcast(layout, narrower) if narrower > 1 else layout
