"""The algebra of layouts: coalesce, filter, composition.

The composition of two layouts is a layout if sizes and strides divide. Names, argument orders and
results are those of CuTe. Where the result is not a layout, a LayoutError names the mode and the
reason.

The first argument may also be a composed layout or a tensor: the operation acts on its inner
layout.
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
    """Extend an operation to objects with a layout (``map_layout``), and to shapes."""

    @wraps(operation)
    def lifted(layout: Any, *args: Any, **named: Any) -> Any:
        if layout.__class__ is Layout:
            return operation(layout, *args, **named)
        if hasattr(layout, "map_layout"):
            return layout.map_layout(lambda inner: operation(inner, *args, **named))
        return operation(Layout(layout), *args, **named)

    return lifted


def by_mode(operation: Callable[..., Layout], *sides: Iterable[Any]) -> list[Layout]:
    """Apply an operation to corresponding modes; an error names the mode."""
    out = []
    for i, args in enumerate(zip(*sides, strict=False)):
        try:
            out.append(operation(*args))
        except LayoutError as e:
            raise LayoutError(f"mode {i}: {e.message}", hint=e.hint) from None
    return out


def check_rank(layout: Layout, tiler: tuple[Any, ...], what: str) -> None:
    if len(tiler) > len(layout):
        limit = f"at most the {len(layout)} modes of {layout}"
        raise LayoutError(f"{what}: the tiler must have {limit}, got {len(tiler)}")


def of_modes(shapes: list[Any], strides: list[Any]) -> Layout:
    """The layout of flat sizes and strides; without a tuple for a single mode."""
    if len(shapes) == 1:
        return Layout.of(shapes[0], strides[0])
    return Layout.of(tuple(shapes), tuple(strides))


# --- coalesce --------------------------------------------------------------------------------


@on_layout
def coalesce(layout: Layout, profile: Any = None) -> Layout:
    """The same function of linear indices with the fewest modes; by mode for a tuple ``profile``.
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
    """Set the size of modes with stride 0 to 1, so that each offset occurs once; same rank."""
    if layout.shape.__class__ is tuple:
        return make_layout(*map(filter_zeros, layout))
    repeats = layout.stride.__class__ is int and layout.stride == 0
    return Layout.of(1, 0) if repeats else layout


@on_layout
def filter(layout: Layout, profile: Any = None) -> Layout:  # CuTe's name
    """Coalesce, after dropping the modes of stride 0."""
    if profile.__class__ is tuple:
        check_rank(layout, profile, "filter")
        rest = list(layout)[len(profile) :]
        return make_layout(*by_mode(filter, layout, profile), *rest)
    filtered = filter_zeros(layout)
    return of_modes(*coalesce_modes(filtered.shape, filtered.stride))


# --- composition -----------------------------------------------------------------------------


def composition(a: Any, b: Any) -> Any:
    """``R(c) = a(b(c))`` for every coordinate c of ``b``; R's shape refines ``b``'s.

    ``b`` is a layout or an int, or a tuple of them, which is composed mode by mode (further modes
    of ``a`` are dropped, ``None`` keeps a mode). For a Swizzle or a composed layout on the left the
    result is a composed layout; on the right too, if an equivalent swizzle follows ``a``. Strides
    of ``b`` that are coordinates select modes of ``a``.

    For each mode s:d of ``b``, the modes of ``a`` from the left are divided by the stride d, then
    the size s is taken from them. LayoutError where one does not divide.
    >>> print(composition(Layout((6, 2), (8, 2)), Layout((4, 3), (3, 1))))
    ((2,2),3):((24,2),8)
    """
    if a.__class__ is Layout:
        if b.__class__ is Layout:
            return _compose_all(a, b.shape, b.stride)
        return _compose_tiler(a, b)
    if isinstance(a, Swizzle):
        if b.__class__ is not Layout:
            raise LayoutError(f"composition: the right side of {a} must be a layout, got {b}")
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
        rule = "must be a layout or a tiler"
        raise LayoutError(f"composition: the right side of {a} {rule}, got {b}")
    return _compose_all(a, Layout(b).shape, 1)


def _compose_composed(a: Layout, b: ComposedLayout) -> Any:
    """``a`` after a composed layout: its outer function is moved after ``a``."""
    if b.outer.__class__ is Layout:
        return ComposedLayout(composition(a, b.outer), b.offset, b.inner)
    if b.offset.__class__ is not int or b.offset != 0:
        raise LayoutError(
            f"composition of {a} with {b}: the right side's offset must be 0, got {b.offset}",
            hint="compose with the layout without an offset",
        )
    made = make_swizzled(swizzle_after(a, b.outer), composition(a, b.inner))
    if a.is_static() and b.is_static() and not has_basis(a.stride):
        reach = 1 << (b.inner.cosize() - 1).bit_length()
        if max(reach, b.outer.size()) > a.size():  # b's offsets may exceed a's domain
            what = "composition beyond the left side's domain:"
            beyond = of_modes(*_open_ended(a))(offsets_of(b, what))
            if (offsets_of(made, what) != beyond).any():
                raise LayoutError(
                    f"composition of {a} with {b}: offsets exceed the {a.size()} elements of the "
                    "left side, where no swizzle after it is equivalent"
                )
    return made


Report: TypeAlias = Callable[[int, int, int, int], object] | None
"""Called for each left mode that a right mode reaches: its index, the remaining stride, the number
of remaining elements, and how many of them it holds."""

Left: TypeAlias = tuple[list[Number], list[Number], list[int], Report]
"""A left side: flat sizes and strides, the capacity left in each mode but the last, a report."""


def _open_ended(a: Layout) -> tuple[list[Number], list[Number]]:
    """Coalesced modes, equal to ``a`` also beyond its size: the last mode is unbounded."""
    if a.shape.__class__ is not tuple:
        return [a.shape], [a.stride]
    shapes = flatten(a.shape)
    if shapes and shapes[-1].__class__ is int and shapes[-1] == 1:
        shapes = (*shapes[:-1], 2)  # not dropped, so that the last mode keeps its stride
    return coalesce_modes(shapes, flatten(a.stride))


def _compose_all(a: Layout, s: Any, d: Any) -> Layout:
    """``a o s:d``; the right modes together must not exceed the capacity of a left mode."""
    if has_basis(d):
        return Layout.of(*_compose_basis(a, s, d, {}))
    return Layout.of(*compose_mode(left_side(a), s, d))


def left_side(a: Layout, report: Report = None) -> Left:
    """``a`` as the left side of a composition, with the full capacity of all modes."""
    shapes, strides = _open_ended(a)
    capacity = [size - 1 if size.__class__ is int else 0 for size in shapes[:-1]]
    return shapes, strides, capacity, report


def _compose_basis(a: Layout, s: Any, d: Any, lefts: dict[Any, Left]) -> tuple[Any, Any]:
    """Composition with strides that are coordinates: each mode is composed with the mode of ``a``
    that it names; ``lefts`` has their remaining capacity."""
    if s.__class__ is tuple:
        modes = [_compose_basis(a, *mode, lefts) for mode in zip(s, d, strict=True)]
        return tuple([m[0] for m in modes]), tuple([m[1] for m in modes])
    if d.__class__ is not ScaledBasis:
        if d.__class__ is int and d == 0:
            return s, d
        raise LayoutError(f"composition of {a}: all strides must be coordinates, got {d}")
    if d.mode not in lefts:
        lefts[d.mode] = left_side(mode_at(a, d.mode))
    return compose_mode(lefts[d.mode], s, d.value)


def mode_at(a: Layout, path: tuple[int, ...]) -> Layout:
    """The nested mode of ``a`` at a path of indices."""
    mode = a
    for i in path:
        if i >= len(mode):
            raise LayoutError(f"composition: {a} has no mode {'.'.join(map(str, path))}")
        mode = mode[i]
    return mode


def compose_mode(left: Left, s: Any, d: Any) -> tuple[Any, Any]:
    """(shape, stride) of the composition with ``s:d``; reduces the capacity of the used modes."""
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
    _fail(left, s, d, "a negative stride" if negative else "it has dynamic numbers")


def _walk(left: Left, s: int, d: int) -> tuple[Any, Any]:
    """Compose with the left modes that ``s:d`` reaches: divide by its stride, then by its size."""
    shapes, strides, capacity, report = left
    new_shapes: list[Number] = []
    new_strides: list[Number] = []
    rest, step = s, d
    for i in range(len(capacity)):
        size = shapes[i]
        if size.__class__ is not int:
            if rest == 1:
                break
            _fail(left, s, d, f"size {size} is dynamic")
        taken = _taken(left, s, d, size, rest, step) if rest > 1 and step % size else 1
        if report:
            report(i, step, rest, taken)
        if taken > 1:
            new_shapes.append(taken)
            new_strides.append(mul(strides[i], step))
            rest //= taken
            capacity[i] -= (taken - 1) * step
            if capacity[i] < 0:
                _fail(left, s, d, f"with the modes before, it exceeds size {size}")
        step = -(-step // size)
    if rest > 1 or not new_shapes:
        if report:
            report(len(capacity), step, rest, rest)
        new_shapes.append(rest)
        new_strides.append(mul(strides[-1], step))
    if len(new_shapes) == 1:
        return new_shapes[0], new_strides[0]
    return tuple(new_shapes), tuple(new_strides)


def _taken(left: Left, s: int, d: int, size: int, rest: int, step: int) -> int:
    """The number of the ``rest`` elements with stride ``step`` that are in a left mode."""
    count = -(-size // step)
    if rest <= count:
        return rest
    if size % step:
        _fail(left, s, d, f"stride {step} does not divide size {size}")
    if rest % count:
        _fail(left, s, d, f"size {rest} is not a multiple of {count}")
    return count


def _fail(left: Left, s: int, d: int, why: str) -> NoReturn:
    raise LayoutError(
        f"composition of {of_modes(*left[:2])} with {s}:{d} is not a layout: {why}",
        hint="size and stride of a right mode must divide the left modes, or be multiples of them",
    )


@on_layout
def with_shape(layout: Layout, *shape: Any) -> Layout:
    """The same function of linear indices with another shape: ``with_shape(a, 4, 8)``.
    >>> print(with_shape(Layout((8, 4), (4, 1)), (2, 16)))
    (2,(4,4)):(4,(8,1))
    """
    reshaped: Layout = composition(layout, Layout(shape[0] if len(shape) == 1 else shape))
    return reshaped
