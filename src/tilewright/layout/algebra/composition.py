"""The algebra of layouts: coalesce, filter, composition.

Everything rests on one observation: the composition of two layouts is a layout again, where sizes
and strides divide. Names, argument orders and results are those of CuTe. Where no layout is the
answer, a LayoutError names the mode and the reason; nothing wrong is returned silently.

Composed layouts and tensors may stand wherever the first argument is a layout: the operation acts
on the layout inside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, NoReturn, TypeAlias

from ...errors import LayoutError
from ..composed_layout import ComposedLayout, make_swizzled
from ..coordinate import coalesce_modes
from ..int_tuple import flatten
from ..layout import Layout, make_layout
from ..scaled_basis import ScaledBasis, has_basis
from ..swizzle import Swizzle, swizzle_after
from ..symbolic import Number, mul
from .function_properties import offsets_of


def on_layout(operation: Callable[..., Layout]) -> Callable[..., Any]:
    """The operation also for what holds a layout (``map_layout``), and for a shape as a layout."""

    @wraps(operation)
    def lifted(layout: Any, *args: Any, **named: Any) -> Any:
        if layout.__class__ is Layout:
            return operation(layout, *args, **named)
        if hasattr(layout, "map_layout"):
            return layout.map_layout(lambda inner: operation(inner, *args, **named))
        return operation(Layout(layout), *args, **named)

    return lifted


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


def of_modes(shapes: list[Any], strides: list[Any]) -> Layout:
    """The layout of flat sizes and strides; of one alone, without a tuple."""
    if len(shapes) == 1:
        return Layout.of(shapes[0], strides[0])
    return Layout.of(tuple(shapes), tuple(strides))


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
    return of_modes(*coalesce_modes(layout.shape, layout.stride))


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
    return of_modes(*coalesce_modes(kept.shape, kept.stride))


# --- composition -----------------------------------------------------------------------------


def composition(a: Any, b: Any) -> Any:
    """``R(c) = a(b(c))`` for every coordinate c of ``b``; R's shape refines ``b``'s.

    ``b`` is a layout or an int, or a tuple of them, which is composed mode by mode (a's further
    modes are dropped, ``None`` keeps a mode). A Swizzle or a composed layout on the left gives a
    composed layout; on the right, where the swizzle is one of ``a``'s offsets too. Strides of ``b``
    that are coordinates pick modes of ``a``.

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


def _compose_tiler(a: Layout, b: Any) -> Any:
    if b is None:
        return a
    if isinstance(b, (tuple, list)):
        check_rank(a, tuple(b), "composition")
        return make_layout(*by_mode(composition, a, b))
    if isinstance(b, Swizzle):
        return make_swizzled(swizzle_after(a, b), a)
    if isinstance(b, ComposedLayout):
        return _compose_composed(a, b)
    if hasattr(b, "map_layout"):
        raise LayoutError(f"composition: the right side of {a} is a layout or a tiler, not {b}")
    return _compose_all(a, Layout(b).shape, 1)


def _compose_composed(a: Layout, b: ComposedLayout) -> Any:
    """``a`` after a composed layout: the outer function moves to the other side of ``a``."""
    if b.outer.__class__ is Layout:
        return ComposedLayout(composition(a, b.outer), b.offset, b.inner)
    if b.offset.__class__ is not int or b.offset != 0:
        raise LayoutError(
            f"composition of {a} with {b}: {a} does not pass on the offset {b.offset}",
            hint="a swizzle with an offset can't stand on the right of a layout",
        )
    made = make_swizzled(swizzle_after(a, b.outer), composition(a, b.inner))
    if a.is_static() and b.is_static() and not has_basis(a.stride):
        reach = 1 << (b.inner.cosize() - 1).bit_length()
        if max(reach, b.outer.size()) > a.size():  # the swizzle may take b out of a's domain
            what = "composition beyond the left side's domain:"
            beyond = of_modes(*_open_ended(a))(offsets_of(b, what))
            if (offsets_of(made, what) != beyond).any():
                raise LayoutError(
                    f"composition of {a} with {b}: the swizzle moves offsets beyond {a.size()} "
                    "elements, where no swizzle after it does the same"
                )
    return made


Report: TypeAlias = Callable[[int, int, int, int], object] | None
"""Hears of each left mode that a right mode meets: its number, the stride that is left there, the
elements that are still wanted, and how many of them it holds."""

Left: TypeAlias = tuple[list[Number], list[Number], list[int], Report]
"""A left side: flat sizes and strides, the room left in each mode but the last, who listens."""


def _open_ended(a: Layout) -> tuple[list[Number], list[Number]]:
    """Coalesced modes, equal to ``a`` also for numbers beyond its size: the last mode is open."""
    if a.shape.__class__ is not tuple:
        return [a.shape], [a.stride]
    shapes = flatten(a.shape)
    if shapes and shapes[-1].__class__ is int and shapes[-1] == 1:
        shapes = (*shapes[:-1], 2)  # kept, so that the open end keeps its stride
    return coalesce_modes(shapes, flatten(a.stride))


def _compose_all(a: Layout, s: Any, d: Any) -> Layout:
    """``a o s:d``; right modes that add up to more than a left mode holds would carry."""
    if has_basis(d):
        return Layout.of(*_compose_basis(a, s, d, {}))
    return Layout.of(*compose_mode(left_side(a), s, d))


def left_side(a: Layout, report: Report = None) -> Left:
    """``a`` as the left side of a composition, all of whose modes are still to be met."""
    shapes, strides = _open_ended(a)
    room = [size - 1 if size.__class__ is int else 0 for size in shapes[:-1]]
    return shapes, strides, room, report


def _compose_basis(a: Layout, s: Any, d: Any, lefts: dict[Any, Left]) -> tuple[Any, Any]:
    """Composition with strides that are coordinates: each mode goes over the mode of ``a`` that it
    names; ``lefts`` keeps their room."""
    if s.__class__ is tuple:
        modes = [_compose_basis(a, *mode, lefts) for mode in zip(s, d, strict=True)]
        return tuple([m[0] for m in modes]), tuple([m[1] for m in modes])
    if d.__class__ is not ScaledBasis:
        if d.__class__ is int and d == 0:
            return s, d
        raise LayoutError(f"composition of {a}: the stride {d} is no coordinate, others are")
    if d.mode not in lefts:
        lefts[d.mode] = left_side(mode_at(a, d.mode))
    return compose_mode(lefts[d.mode], s, d.value)


def mode_at(a: Layout, places: tuple[int, ...]) -> Layout:
    mode = a
    for i in places:
        if i >= len(mode):
            raise LayoutError(f"composition: {a} has no mode {'.'.join(map(str, places))}")
        mode = mode[i]
    return mode


def compose_mode(left: Left, s: Any, d: Any) -> tuple[Any, Any]:
    """(shape, stride) of the composition with ``s:d``; what it takes leaves the modes' room."""
    if s.__class__ is tuple:
        shape, stride = [], []
        for i, (s_i, d_i) in enumerate(zip(s, d, strict=True)):
            try:
                mode = compose_mode(left, s_i, d_i)
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
    negative = s.__class__ is int and d.__class__ is int
    _refuse(left, s, d, "a negative stride" if negative else "it has dynamic numbers")


def _walk(left: Left, s: int, d: int) -> tuple[Any, Any]:
    """The left modes that ``s:d`` meets: divide out its stride, then its size."""
    shapes, strides, room, report = left
    new_shapes: list[Number] = []
    new_strides: list[Number] = []
    rest, step = s, d
    for i in range(len(room)):
        size = shapes[i]
        if size.__class__ is not int:
            if rest == 1:
                break
            _refuse(left, s, d, f"size {size} is dynamic")
        taken = _taken(left, s, d, size, rest, step) if rest > 1 and step % size else 1
        if report:
            report(i, step, rest, taken)
        if taken > 1:
            new_shapes.append(taken)
            new_strides.append(mul(strides[i], step))
            rest //= taken
            room[i] -= (taken - 1) * step
            if room[i] < 0:
                _refuse(left, s, d, f"with the modes before, it exceeds size {size}")
        step = -(-step // size)
    if rest > 1 or not new_shapes:
        if report:
            report(len(room), step, rest, rest)
        new_shapes.append(rest)
        new_strides.append(mul(strides[-1], step))
    if len(new_shapes) == 1:
        return new_shapes[0], new_strides[0]
    return tuple(new_shapes), tuple(new_strides)


def _taken(left: Left, s: int, d: int, size: int, rest: int, step: int) -> int:
    """How many of ``rest`` elements, ``step`` apart, lie in a left mode."""
    count = -(-size // step)
    if rest <= count:
        return rest
    if size % step:
        _refuse(left, s, d, f"stride {step} does not divide size {size}")
    if rest % count:
        _refuse(left, s, d, f"size {rest} is no multiple of {count}")
    return count


def _refuse(left: Left, s: int, d: int, why: str) -> NoReturn:
    raise LayoutError(
        f"composition of {of_modes(*left[:2])} with {s}:{d} is no layout: {why}",
        hint="size and stride of a right mode divide, or are divided by, the left modes they cross",
    )


@on_layout
def with_shape(layout: Layout, *shape: Any) -> Layout:
    """The same function on numbers, of another shape: ``with_shape(a, 4, 8)``.

    >>> print(with_shape(Layout((8, 4), (4, 1)), (2, 16)))
    (2,(4,4)):(4,(8,1))
    """
    made: Layout = composition(layout, Layout(shape[0] if len(shape) == 1 else shape))
    return made
