"""Complement, inverses, nullspace and common vectors of layouts.

All of them sort a layout's modes by stride: if each stride is a multiple of the span of the smaller
modes, the gaps between the modes and the inverses are layouts too. Names, argument orders and
results are those of CuTe; where the result is not a layout, a LayoutError names the mode and the
reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import gcd
from typing import Any

from ...errors import LayoutError
from ..composed_layout import ComposedLayout, inside
from ..coordinate import coalesce_modes
from ..int_tuple import (
    IntTuple,
    ceil_div,
    compact_col_major,
    flatten,
    is_static,
    normalize,
    prefix_product,
    text,
)
from ..layout import Layout, make_layout
from ..scaled_basis import has_basis
from ..swizzle import Swizzle
from ..symbolic import Number, add, mul
from .composition import coalesce, composition, filter, of_modes
from .function_properties import layout_of


def _alone(layout: Any, what: str) -> Layout:
    """A layout or a shape as a layout; LayoutError for a tensor."""
    if layout.__class__ is Layout:
        return layout
    if hasattr(layout, "map_layout"):
        raise LayoutError(f"{what}: expected a layout, got {layout}")
    return Layout(layout)


def require_static_below(layout: Layout, what: str) -> None:
    """LayoutError unless all strides are static, and all sizes but that of the largest stride."""
    if has_basis(layout.stride):
        raise LayoutError(f"{what} needs strides that are numbers, got {layout}")
    modes = zip(flatten(layout.stride), flatten(layout.shape), strict=True)
    ordered = sorted((m for m in modes if m[0].__class__ is int), key=lambda m: m[0])
    if not is_static(layout.stride) or not is_static(tuple(s for _, s in ordered[:-1])):
        raise LayoutError(f"{what} needs static numbers, got {layout}")


def complement(layout: Any, max_idx: Any = 1) -> Layout:
    """The complement: offsets below ``max_idx`` (an int or a shape) at which ``layout`` repeats
    without overlap.

    It is ordered, and disjoint from ``layout`` except for 0. Both together cover ``max_idx`` if
    strides divide; otherwise it is rounded up, in each mode of a shape. For a composed layout it is
    the complement of the inner layout.
    >>> print(complement(Layout((2, 2), (1, 6)), 24))
    (3,2):(2,12)
    """
    bound = normalize(getattr(max_idx, "shape", max_idx), "bound")
    if any(b.__class__ is int and b < 1 for b in flatten(bound)):
        raise LayoutError(
            f"complement of {layout}: the bound must be at least 1, got {text(bound)}"
        )
    layout = layout.inner if isinstance(layout, ComposedLayout) else _alone(layout, "complement")
    shapes: list[Number] = []
    strides: list[Number] = []
    span: Number = 1
    for s, d, below in gaps(layout):
        shapes.append(d // below)
        strides.append(below)
        span = mul(s, d)
    for s in _joined(ceil_div(bound, span)):
        shapes.append(s)
        strides.append(span)
        span = mul(span, s)
    return of_modes(*coalesce_modes(tuple(shapes), tuple(strides)))


def _joined(shape: IntTuple) -> list[Number]:
    """The sizes of a shape; adjacent static sizes are multiplied, and adjacent dynamic ones."""
    sizes: list[Number] = []
    for s in flatten(shape):
        if sizes and (sizes[-1].__class__ is int) == (s.__class__ is int):
            sizes[-1] = mul(sizes[-1], s)
        else:
            sizes.append(s)
    return sizes


def gaps(layout: Layout) -> Iterator[tuple[Number, Number, Number]]:
    """(size, stride, span of the smaller modes) of the modes by ascending stride, without those of
    stride 0. LayoutError where they overlap.
    """
    flat = filter(layout)
    modes = list(zip(flatten(flat.stride), flatten(flat.shape), strict=True))
    if len(modes) > 1 or has_basis(flat.stride):
        require_static_below(flat, "complement")
    span: Number = 1
    for d, s in sorted(modes, key=lambda m: m[0]) if len(modes) > 1 else modes:
        if s.__class__ is int and s == 1:
            continue
        if d.__class__ is int and d < span:
            raise LayoutError(
                f"complement of {layout}: its mode {s}:{d} "
                + ("is negative" if d < 0 else f"overlaps the modes below, which span {span}")
            )
        yield s, d, span
        span = mul(s, d)


def _by_stride(layout: Layout) -> list[tuple[int, Number, Number]]:
    """(stride, size, weight in the linear index) of the coalesced modes, by ascending stride."""
    shapes, strides = coalesce_modes(layout.shape, layout.stride)
    weights = prefix_product(tuple(shapes))
    modes = [m for m in zip(strides, shapes, weights, strict=True) if m[0].__class__ is int]
    return sorted(modes, key=lambda m: m[0])


def right_inverse(layout: Any) -> Any:
    """The largest R with ``layout(R(i)) == i`` for all i below its size: the inverse of the
    contiguous part.
    Under a swizzle, R is swizzled (see ``swizzle_after``). ``None`` stays ``None``.

    >>> print(right_inverse(Layout((8, 4), (4, 1))))
    (4,8):(8,1)
    """
    if layout is None:
        return None
    if isinstance(layout, ComposedLayout):
        return _inverse_composed(layout, right_inverse)
    modes = list(chain(_alone(layout, "right_inverse")))
    shapes = (1, *(s for s, _, _ in modes))
    return of_modes(*coalesce_modes(shapes, (0, *(place for _, _, place in modes))))


def chain(layout: Layout) -> Iterator[tuple[Number, int, Number]]:
    """(size, stride, weight in the linear index) of the modes that continue one another from stride
    1, up to the first of dynamic size."""
    span: Number = 1
    for d, s, place in _by_stride(layout):
        if span.__class__ is int and d == span:
            yield s, d, place
            span = mul(s, d)


def left_inverse(layout: Any) -> Any:
    """R with ``R(layout(i)) == i`` for all i, for an injective layout.

    Modes of stride 0 are ignored: with them, ``layout(R(layout(i))) == layout(i)``. LayoutError
    where modes overlap, or where a stride is not a multiple of the next smaller one. Under a
    swizzle, R is swizzled. ``None`` stays ``None``.
    >>> print(left_inverse(Layout((4, 2), (1, 16))))
    (16,2):(1,4)
    """
    if layout is None:
        return None
    if isinstance(layout, ComposedLayout):
        return _inverse_composed(layout, left_inverse)
    layout = _alone(layout, "left_inverse")
    modes = list(rungs(layout))
    last = modes[-1][0] if modes else layout.size()
    shapes = (*(d // below for _, d, _, below in modes), last)
    return of_modes(*coalesce_modes(shapes, (0, *(place for _, _, place, _ in modes))))


def rungs(layout: Layout) -> Iterator[tuple[Number, int, Number, int]]:
    """(size, stride, weight in the linear index, next smaller stride) of the modes by ascending
    stride, without those of stride 0. LayoutError where they overlap or do not divide.
    """
    modes = _by_stride(layout)
    require_static_below(layout, "left_inverse")
    below, span = 1, 0
    for d, s, place in modes:
        if d == 0:
            continue
        if d <= span or d % below:
            why = "is negative" if d < 0 else "overlaps" if d <= span else "is not a multiple of"
            what = "" if d < 0 else " the modes below"
            raise LayoutError(f"left_inverse of {layout}: the stride of {s}:{d} {why}{what}")
        yield s, d, place, below
        below, span = d, add(span, mul(add(s, -1), d))


def _inverse_composed(layout: ComposedLayout, inverse: Callable[[Any], Any]) -> Any:
    """``inner⁻¹ o outer⁻¹``; a swizzle is its own inverse."""
    name = inverse.__name__
    if layout.offset.__class__ is not int or layout.offset != 0:
        raise LayoutError(f"{name} of {layout}: the offset must be 0, got {layout.offset}")
    swizzle = layout.outer
    if not isinstance(swizzle, Swizzle):
        return inverse(composition(swizzle, layout.inner))
    back = inverse(layout.inner)
    if not swizzle.keeps(back.size()):
        raise LayoutError(f"{name} of {layout}: {swizzle} exceeds its {back.size()} offsets")
    return composition(back, swizzle)


def nullspace(layout: Any) -> Layout:
    """The layout of the coordinates that a layout maps to offset 0 because their strides are 0.
    >>> print(nullspace(Layout((4, 2, 3), (0, 1, 0))))
    (4,3):(1,8)
    """
    if isinstance(layout, ComposedLayout):
        return Layout.of(1, 0)
    layout = _alone(layout, "nullspace")
    shapes = flatten(layout.shape)
    modes = zip(shapes, compact_col_major(shapes), flatten(layout.stride), strict=True)
    kept = [(s, place) for s, place, d in modes if d.__class__ is int and d == 0]
    return of_modes(*map(list, zip(*kept, strict=True))) if kept else Layout.of(1, 0)


# --- common parts ----------------------------------------------------------------------------


def max_common_layout(a: Any, b: Any) -> Layout:
    """The longest R with ``a(R(i)) == b(R(i)) == i``: elements that are contiguous in both layouts.

    Under a swizzle, it is limited to the elements that the swizzle keeps contiguous, unless both
    have the same swizzle.
    """
    a, b = layout_of(a), layout_of(b)
    limit = (
        0
        if getattr(a, "outer", None) == getattr(b, "outer", None)
        else gcd(_contiguous_limit(a), _contiguous_limit(b))
    )
    a, b = inside(a), inside(b)
    inverse = right_inverse(b)
    for modes in range(len(inverse), 0, -1):
        start = coalesce(make_layout(*list(inverse)[:modes]))
        try:
            first = coalesce(composition(a, start))[0]
            if first.stride.__class__ is int and first.stride == 1 and is_static(first.shape):
                common: Layout = composition(start, gcd(first.shape, limit))
                return common
        except LayoutError:
            continue  # these modes do not divide a's modes; try fewer
    return Layout.of(1, 0)


def _contiguous_limit(layout: Any) -> int:
    """The number of elements that a swizzle keeps contiguous, 0 (all) without a swizzle."""
    return int(getattr(layout, "contiguous", 0))


def max_common_vector(a: Any, b: Any) -> int:
    """The number of elements that are contiguous in both layouts: the widest vector copy."""
    return int(max_common_layout(a, b).size())


def max_alignment(layout: Any) -> int:
    """The widest elements that a layout's static part consists of: the largest n that divides the
    contiguous run from 0 and all larger strides.
    >>> max_alignment(Layout((8, 4), (1, 12)))
    4
    """
    if isinstance(layout, Swizzle):
        return 1 << layout.base
    if isinstance(layout, ComposedLayout):
        whole = layout.offset if layout.offset.__class__ is int else 1
        return gcd(max_alignment(layout.outer), whole, max_alignment(layout.inner))
    flat = coalesce(layout_of(layout))
    modes = zip(flatten(flat.shape), flatten(flat.stride), strict=True)
    known = [(s if s.__class__ is int else 1, d if d.__class__ is int else 0) for s, d in modes]
    static = of_modes([s for s, _ in known], [d for _, d in known])
    run = right_inverse(static)
    beyond = composition(static, complement(run, static.size()))
    return gcd(int(run.size()), *flatten(beyond.stride))
