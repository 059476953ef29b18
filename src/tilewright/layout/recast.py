"""The same memory in elements of another width.

``upcast`` counts in elements n times as wide: of the contiguous mode every n-th stays, all other
strides shrink. ``downcast`` is the way back. ``recast`` picks between them by the widths in bits.
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
    """In elements n times as wide; also for swizzles and composed layouts.

    LayoutError where an element would be split or its parts are not together.

    >>> print(upcast(Layout((8, 4), (1, 8)), 2))
    (4,4):(1,4)
    """
    _check_factor(n, "upcast")
    if isinstance(layout, Swizzle):
        base = layout.base - _log2(layout, n)
        return Swizzle(max(layout.bits + min(base, 0), 0), max(base, 0), layout.shift)
    if isinstance(layout, ComposedLayout):
        if not is_multiple(layout.offset, n):
            raise LayoutError(
                f"upcast: the offset of {layout} is not known to be a multiple of {n}"
            )
        return ComposedLayout(upcast(layout.outer, n), layout.offset // n, upcast(layout.inner, n))
    if layout.shape.__class__ is tuple:
        return make_layout(*by_mode(lambda mode: upcast(mode, n), layout))
    return _upcast_mode(layout, n)


def _upcast_mode(mode: Layout, n: int) -> Layout:
    s, d = mode.shape, mode.stride
    if d.__class__ is not int:
        return Layout.of(s, floordiv(d, n))  # taken to be a multiple, as no one can know
    if d % n == 0:
        return Layout.of(s, d // n)
    if n % d:
        raise LayoutError(f"upcast of {mode} by {n}: neither of stride and {n} divides the other")
    together = n // abs(d)
    if s.__class__ is not int or (s % together and together % s):
        raise LayoutError(
            f"upcast of {mode} by {n}: {together} elements become one, and {s} are given"
        )
    return Layout.of(max(s // together, 1), signum(d))


def downcast(layout: Any, n: int) -> Any:
    """In elements a n-th as wide; also for swizzles and composed layouts.

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
        raise LayoutError(f"downcast: {layout} has no mode of stride 1 to split")
    shapes, strides = flatten(layout.shape), flatten(layout.stride)
    finer = [mul(s, n) if i == split else s for i, s in enumerate(shapes)]
    wider = [d if i == split else mul(d, n) for i, d in enumerate(strides)]
    return Layout.of(unflatten(finer, layout.shape), unflatten(wider, layout.shape))


def contiguous_mode(layout: Layout) -> int | None:
    """The first flat mode of stride ±1, of more than one element where there is such a one."""
    shapes, strides = flatten(layout.shape), flatten(layout.stride)
    units = [i for i, d in enumerate(strides) if d.__class__ is int and abs(d) == 1]
    long = [i for i in units if shapes[i].__class__ is not int or shapes[i] > 1]
    return next(iter(long + units), None)


def _log2(swizzle: Swizzle, n: int) -> int:
    if not is_power_of_two(n):
        raise LayoutError(f"recast of {swizzle}: {n} is not a power of two")
    return n.bit_length() - 1


def _check_factor(n: int, what: str) -> None:
    if not is_int(n) or n < 1:
        raise LayoutError(f"{what}: elements are some times as wide, not {n!r} times")


def recast(layout: Any, old_bits: int, new_bits: int) -> Any:
    """A layout in elements of ``old_bits`` bits as one in elements of ``new_bits``.

    >>> print(recast(Layout((64, 8), (1, 64)), 16, 32))
    (32,8):(1,32)
    """
    for bits in (old_bits, new_bits):
        if not is_int(bits) or bits < 1:
            raise LayoutError(f"recast: an element has one bit or more, not {bits!r}")
    shared = gcd(old_bits, new_bits)
    wider, narrower = new_bits // shared, old_bits // shared
    if wider > 1:
        layout = upcast(layout, wider)
    return downcast(layout, narrower) if narrower > 1 else layout
