"""The algebra of layouts: coalesce, composition, complement, inverses.

Everything rests on one observation: the composition of two layouts is a layout again, where sizes
and strides divide. Names, argument orders and results are those of CuTe. Where no layout is the
answer, a LayoutError names the mode and the reason; nothing wrong is returned silently.

Composed layouts and tensors may stand wherever the first argument is a layout: the operation acts
on the layout inside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from math import gcd
from typing import Any, NoReturn, TypeAlias

from tilewright.errors import LayoutError
from tilewright.layout.arithmetic import Number, ceil_div, mul
from tilewright.layout.coordinate import coalesce_modes
from tilewright.layout.int_tuple import flatten, is_static, prefix_product, product
from tilewright.layout.layout import Layout, make_layout
from tilewright.layout.swizzle import Swizzle, make_swizzled


def on_layout(operation: Callable[..., Layout]) -> Callable[..., Any]:
    """The operation also for what holds a layout (``map_layout``), and for a shape as a layout."""

    @wraps(operation)
    def lifted(layout: Any, *args: Any) -> Any:
        if layout.__class__ is Layout:
            return operation(layout, *args)
        if hasattr(layout, "map_layout"):
            return layout.map_layout(lambda inner: operation(inner, *args))
        return operation(Layout(layout), *args)

    return lifted


def of_layout(operation: Callable[..., Layout]) -> Callable[..., Layout]:
    """The operation for layouts and shapes, but not for what only holds a layout."""

    @wraps(operation)
    def checked(layout: Any, *args: Any) -> Layout:
        if layout.__class__ is Layout:
            return operation(layout, *args)
        if hasattr(layout, "map_layout"):
            raise LayoutError(f"{operation.__name__}: {layout} is not a layout alone")
        return operation(Layout(layout), *args)

    return checked


def by_mode(operation: Callable[..., Layout], *sides: Iterable[Any]) -> list[Layout]:
    """The operation on corresponding modes; an error names the mode."""
    out = []
    for i, args in enumerate(zip(*sides, strict=False)):
        try:
            out.append(operation(*args))
        except LayoutError as e:
            raise LayoutError(f"mode {i}: {e.message}", hint=e.hint) from None
    return out


def check_rank(layout: Layout, tiler: tuple[Any, ...], what: str) -> None:
    if len(tiler) > len(layout):
        raise LayoutError(f"{what}: {len(tiler)} modes are given for the {len(layout)} of {layout}")


def _layout(shapes: list[Any], strides: list[Any]) -> Layout:
    if len(shapes) == 1:
        return Layout.of(shapes[0], strides[0])
    return Layout.of(tuple(shapes), tuple(strides))


def require_static(layout: Layout, what: str) -> None:
    if not layout.is_static():
        raise LayoutError(f"{what} needs static numbers, and {layout} has dynamic ones")


# --- coalesce --------------------------------------------------------------------------------


@on_layout
def coalesce(layout: Layout, profile: Any = None) -> Layout:
    """The same function on numbers with the fewest modes; by mode where ``profile`` is a tuple.

    >>> print(coalesce(Layout((2, (1, 6)), (1, (6, 2)))))
    12:1
    """
    if profile.__class__ is tuple:
        check_rank(layout, profile, "coalesce")
        rest = list(layout)[len(profile) :]
        return make_layout(*by_mode(coalesce, layout, profile), *rest)
    return _layout(*coalesce_modes(layout.shape, layout.stride))


@on_layout
def filter_zeros(layout: Layout) -> Layout:
    """Modes of stride 0 with size 1: each offset once, the rank kept."""
    if layout.shape.__class__ is tuple:
        return make_layout(*map(filter_zeros, layout))
    repeats = layout.stride.__class__ is int and layout.stride == 0
    return Layout.of(1, 0) if repeats else layout


@on_layout
def filter(layout: Layout, profile: Any = None) -> Layout:  # CuTe's name
    """Coalesced, without the modes of stride 0 that only repeat."""
    if profile.__class__ is tuple:
        check_rank(layout, profile, "filter")
        rest = list(layout)[len(profile) :]
        return make_layout(*by_mode(filter, layout, profile), *rest)
    kept = filter_zeros(layout)
    return _layout(*coalesce_modes(kept.shape, kept.stride))


# --- composition -----------------------------------------------------------------------------


def composition(a: Any, b: Any) -> Any:
    """``R(c) = a(b(c))`` for every coordinate c of ``b``; R's shape refines ``b``'s.

    ``b`` is a layout or an int, or a tuple of them, which is composed mode by mode (a's further
    modes are dropped, ``None`` keeps a mode). A Swizzle or a composed layout on the left gives a
    composed layout.

    Each mode s:d of ``b`` walks over the modes of ``a`` from the left: its stride d is divided out
    of their sizes, then its size s. LayoutError where one does not divide.

    >>> print(composition(Layout((6, 2), (8, 2)), Layout((4, 3), (3, 1))))
    ((2,2),3):((24,2),8)
    """
    if a.__class__ is Layout:
        if b.__class__ is Layout:
            return _compose_all(a, b.shape, b.stride)
        return _compose_tiler(a, b)
    if isinstance(a, Swizzle):
        if b.__class__ is not Layout:
            raise LayoutError(f"composition: the right side of {a} is a layout, not {b}")
        return make_swizzled(a, b)
    if hasattr(a, "map_layout"):
        return a.map_layout(lambda inner: composition(inner, b))
    return composition(Layout(a), b)


def _compose_tiler(a: Layout, b: Any) -> Layout:
    if b is None:
        return a
    if isinstance(b, (tuple, list)):
        check_rank(a, tuple(b), "composition")
        return make_layout(*by_mode(composition, a, b))
    if hasattr(b, "map_layout") or isinstance(b, Swizzle):
        raise LayoutError(f"composition: the right side of {a} is a layout or a tiler, not {b}")
    return _compose_all(a, Layout(b).shape, 1)


_Left: TypeAlias = tuple[list[Number], list[Number], list[int]]
"""A left side as flat sizes and strides, and the room left in each mode but the last."""


def _left_side(a: Layout) -> tuple[list[Number], list[Number]]:
    """Coalesced modes, equal to ``a`` also for numbers beyond its size: the last mode is open."""
    if a.shape.__class__ is not tuple:
        return [a.shape], [a.stride]
    shapes = flatten(a.shape)
    if shapes[-1].__class__ is int and shapes[-1] == 1:
        shapes = (*shapes[:-1], 2)  # kept, so that the open end keeps its stride
    return coalesce_modes(shapes, flatten(a.stride))


def _compose_all(a: Layout, s: Any, d: Any) -> Layout:
    """``a o s:d``; right modes that add up to more than a left mode holds would carry."""
    shapes, strides = _left_side(a)
    room = [size - 1 if size.__class__ is int else 0 for size in shapes[:-1]]
    return Layout.of(*_compose((shapes, strides, room), s, d))


def _compose(left: _Left, s: Any, d: Any) -> tuple[Any, Any]:
    """(shape, stride) of the composition with ``s:d``; what it takes leaves the modes' room."""
    if s.__class__ is tuple:
        shape, stride = [], []
        for i, (s_i, d_i) in enumerate(zip(s, d, strict=True)):
            try:
                mode = _compose(left, s_i, d_i)
            except LayoutError as e:
                raise LayoutError(f"mode {i}: {e.message}", hint=e.hint) from None
            shape.append(mode[0])
            stride.append(mode[1])
        return tuple(shape), tuple(stride)
    if d.__class__ is int and d == 0:
        return s, d
    if len(left[0]) == 1:
        return s, mul(left[1][0], d)
    if s.__class__ is int and d.__class__ is int and d > 0:
        return _walk(left, s, d)
    _refuse(left, s, d, "a negative stride" if d.__class__ is int else "it has dynamic numbers")


def _walk(left: _Left, s: int, d: int) -> tuple[Any, Any]:
    """The left modes that ``s:d`` meets: divide out its stride, then its size."""
    shapes, strides, room = left
    new_shapes: list[Number] = []
    new_strides: list[Number] = []
    rest, step = s, d
    for i in range(len(room)):
        size = shapes[i]
        if size.__class__ is not int:
            if rest == 1:
                break
            _refuse(left, s, d, f"size {size} is dynamic")
        if rest > 1 and step % size:
            taken = _taken(left, s, d, size, rest, step)
            if taken > 1:
                new_shapes.append(taken)
                new_strides.append(mul(strides[i], step))
                rest //= taken
                room[i] -= (taken - 1) * step
                if room[i] < 0:
                    _refuse(left, s, d, f"with the modes before, it exceeds size {size}")
        step = -(-step // size)
    if rest > 1 or not new_shapes:
        new_shapes.append(rest)
        new_strides.append(mul(strides[-1], step))
    if len(new_shapes) == 1:
        return new_shapes[0], new_strides[0]
    return tuple(new_shapes), tuple(new_strides)


def _taken(left: _Left, s: int, d: int, size: int, rest: int, step: int) -> int:
    """How many of ``rest`` elements, ``step`` apart, lie in a left mode."""
    count = -(-size // step)
    if rest <= count:
        return rest
    if size % step:
        _refuse(left, s, d, f"stride {step} does not divide size {size}")
    if rest % count:
        _refuse(left, s, d, f"size {rest} is no multiple of {count}")
    return count


def _refuse(left: _Left, s: int, d: int, why: str) -> NoReturn:
    raise LayoutError(
        f"composition of {_layout(*left[:2])} with {s}:{d} is no layout: {why}",
        hint="size and stride of a right mode divide, or are divided by, the left modes they cross",
    )


# --- complement and inverses -----------------------------------------------------------------


@of_layout
def complement(layout: Layout, max_idx: Any = 1) -> Layout:
    """What is left: offsets below ``max_idx`` (an int or a shape) that repeat ``layout`` without
    overlap.

    Ordered, and disjoint from ``layout`` but for 0; with it, it covers ``max_idx`` where strides
    divide.

    >>> print(complement(Layout((2, 2), (1, 6)), 24))
    (3,2):(2,12)
    """
    bound = product(max_idx.shape if isinstance(max_idx, Layout) else max_idx)
    flat = filter(layout)
    modes = list(zip(flatten(flat.stride), flatten(flat.shape), strict=True))
    if len(modes) > 1 or modes[0][0].__class__ is not int:
        require_static(layout, "complement")
    shapes: list[Number] = []
    strides: list[Number] = []
    current: Number = 1
    for d, s in sorted(modes) if len(modes) > 1 else modes:
        if s.__class__ is int and s == 1:
            continue
        if d < current:
            raise LayoutError(
                f"complement of {layout}: its mode {s}:{d} "
                + ("is negative" if d < 0 else f"overlaps the modes below, which span {current}")
            )
        shapes.append(d // current)
        strides.append(current)
        current = mul(s, d)
    shapes.append(ceil_div(bound, current))
    strides.append(current)
    return _layout(*coalesce_modes(tuple(shapes), tuple(strides)))


def _by_stride(layout: Layout) -> list[tuple[Number, int, Number]]:
    """(stride, size, place in the domain) of the coalesced modes, by ascending stride."""
    shapes, strides = coalesce_modes(layout.shape, layout.stride)
    places = prefix_product(tuple(shapes))
    modes = [m for m in zip(strides, shapes, places, strict=True) if m[0].__class__ is int]
    return sorted(modes, key=lambda m: m[0])


@of_layout
def right_inverse(layout: Layout) -> Layout:
    """The largest R with ``layout(R(i)) == i`` for all i below its size: the contiguous part,
    inverted.

    >>> print(right_inverse(Layout((8, 4), (4, 1))))
    (4,8):(8,1)
    """
    shapes: list[Number] = [1]
    strides: list[Number] = [0]
    current = 1
    for d, s, place in _by_stride(layout):
        if d == current and s.__class__ is int and is_static(place):
            shapes.append(s)
            strides.append(place)
            current = s * d
    return _layout(*coalesce_modes(tuple(shapes), tuple(strides)))


@of_layout
def left_inverse(layout: Layout) -> Layout:
    """R with ``R(layout(i)) == i`` for all i, for an injective layout.

    Modes of stride 0 take no part: there ``layout(R(layout(i))) == layout(i)``. LayoutError where
    modes overlap, or where a stride is no multiple of the one below.

    >>> print(left_inverse(Layout((4, 2), (1, 16))))
    (16,2):(1,4)
    """
    require_static(layout, "left_inverse")
    modes = [m for m in _by_stride(layout) if m[0] != 0]
    shapes: list[int] = []
    strides: list[int] = [0]
    place, span = 1, 0
    for d, s, domain in modes:
        if d <= span or d % place:
            why = "is negative" if d < 0 else "overlaps" if d <= span else "is no multiple of"
            below = "" if d < 0 else " the modes below"
            raise LayoutError(f"left_inverse of {layout}: the stride of {s}:{d} {why}{below}")
        shapes.append(d // place)
        strides.append(domain)
        place, span = d, span + (s - 1) * d
    shapes.append(modes[-1][1] if modes else 1)
    return _layout(*coalesce_modes(tuple(shapes), tuple(strides)))


# --- common parts ----------------------------------------------------------------------------


def max_common_layout(a: Any, b: Any) -> Layout:
    """The longest R with ``a(R(i)) == b(R(i)) == i``: elements that are contiguous in both alike.

    Under a swizzle, no longer than the elements that it keeps together; none are lost where both
    have the same.
    """
    limit = 0 if getattr(a, "outer", None) == getattr(b, "outer", None) else gcd(_kept(a), _kept(b))
    a, b = getattr(a, "inner", a), getattr(b, "inner", b)
    inverse = right_inverse(b)
    for modes in range(len(inverse), 0, -1):
        start = coalesce(make_layout(*list(inverse)[:modes]))
        try:
            first = coalesce(composition(a, start))[0]
            if first.stride.__class__ is int and first.stride == 1 and is_static(first.shape):
                return _compose_all(start, gcd(first.shape, limit), 1)
        except LayoutError:
            continue  # these modes do not divide a's; fewer may
    return Layout.of(1, 0)


def _kept(layout: Any) -> int:
    """The elements that a swizzle keeps together, 0 (all) where there is none."""
    return int(getattr(layout, "contiguous", 0))


def max_common_vector(a: Any, b: Any) -> int:
    """The number of elements that are contiguous in both layouts alike: the widest vector copy."""
    return int(max_common_layout(a, b).size())
