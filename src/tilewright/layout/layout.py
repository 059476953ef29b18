"""A layout: a function from coordinates to offsets, written ``shape:stride``.

``Layout((4, 8), (8, 1))`` prints ``(4,8):(8,1)`` and maps the coordinate (i, j) to 8i + j. Shape
and stride are int tuples with the same nesting; the layout's modes are their parts. Layouts are
frozen and hashable.

    (4,(2,3)):(6,(3,1))     4 rows of 2·3 columns; row-major, also inside the second mode
    (128,64):(64,0)         a stride of 0 repeats: every column has the offsets of the first
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import LayoutError
from ..notebook_display import Drawable
from . import int_tuple
from .coordinate import coalesce_modes, crd2idx, idx2crd, offset_at, offset_of
from .int_tuple import (
    IntTuple,
    compact_col_major,
    compact_row_major,
    congruent,
    cute_text,
    has_none,
    is_static,
    normalize,
    product,
    same,
    slice_,
    text,
    weakly_congruent,
)
from .notation import makes, parse
from .scaled_basis import E, ScaledBasis, add_coordinates, has_basis
from .symbolic import Number, OffsetSum, add, mul

_ = None
"""In a coordinate: keep this mode. ``layout(_, 3)`` is column 3."""

MOST_INDICES = 1 << 27
"""The maximum number of offsets that ``indices`` returns."""


class LayoutBase(Drawable):
    """The base class of layouts and composed layouts."""

    __slots__ = ()


class Layout(LayoutBase):
    """``Layout(shape, stride=None)``: column-major by default.

    Raises LayoutError where the nesting of shape and stride differs, or a size is below 1.
    """

    __slots__ = ("shape", "stride")
    shape: IntTuple
    stride: IntTuple

    def __init__(self, shape: IntTuple, stride: IntTuple = None) -> None:
        shape = normalize(shape, "shape")
        _check_sizes(shape)
        if stride is None:
            stride = compact_col_major(shape)
        else:
            stride = normalize(stride, "stride")
            if not congruent(shape, stride):
                raise LayoutError(_mismatch(shape, stride))
        _set_shape(self, shape)
        _set_stride(self, stride)

    @classmethod
    def of(cls, shape: IntTuple, stride: IntTuple) -> Layout:
        """A layout of valid int tuples, without checks."""
        self = cls.__new__(cls)
        _set_shape(self, shape)
        _set_stride(self, stride)
        return self

    @staticmethod
    def parse(text: str) -> Any:
        """Parse this package's or CuTe's notation of a layout, composed layout or swizzle.
        >>> Layout.parse("(_4,(_2,_3)):(_6,(_3,_1))")
        Layout((4, (2, 3)), (6, (3, 1)))
        """
        return parse(text)

    # --- as a function ---------------------------------------------------------------------

    def __call__(self, *crd: Any) -> Any:
        """The offset of a coordinate, or the sublayout of the modes at ``None`` (CuTe's ``_``).

        Coordinates may be dynamic: ``layout(register, 3)`` emits as few operations as possible.
        """
        coordinate = crd[0] if len(crd) == 1 else crd
        if coordinate is None:
            return self
        if coordinate.__class__ is tuple and has_none(coordinate):
            return Layout.of(slice_(coordinate, self.shape), slice_(coordinate, self.stride))
        return offset_at(coordinate, self.shape, self.stride)

    def offset(self, crd: IntTuple) -> OffsetSum:
        """The offset of a coordinate as an ``OffsetSum``: the static part and the dynamic terms
        separately. ``None`` counts as 0.
        """
        result = OffsetSum()
        offset_of(crd, self.shape, self.stride, result)
        return result

    def indices(self, first: int = 0, end: int | None = None) -> NDArray[np.int64]:
        """The offsets of the whole domain, in order: ``layout(0), layout(1), …`` as int64, or those
        from ``first`` to before ``end``. LayoutError for more than ``MOST_INDICES``.
        """
        shapes, strides = coalesce_modes(self.shape, self.stride)
        if not (is_static(tuple(shapes)) and is_static(tuple(strides))):
            raise LayoutError(f"indices: the layout must be static, got {self}")
        if has_basis(tuple(strides)):
            raise LayoutError(f"indices: {self} maps to coordinates, not to offsets")
        size = self.size()
        count = (size if end is None else end) - first
        if count > MOST_INDICES:
            raise LayoutError(
                f"indices: {self} has {count} offsets, over the maximum of {MOST_INDICES}"
            )
        if count != size:
            return _between(shapes, strides, first, first + count)
        result = np.zeros(1, np.int64)
        for s, d in zip(shapes, strides, strict=True):
            result = (np.arange(0, s, dtype=np.int64)[:, None] * d + result).ravel()
        return result

    # --- as a tuple of modes ---------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.shape) if self.shape.__class__ is tuple else 1

    def __getitem__(self, i: int | slice) -> Layout:
        """Mode ``i``, or the layout of several modes."""
        try:
            if self.shape.__class__ is tuple:
                return Layout.of(self.shape[i], self.stride[i])
        except (IndexError, TypeError):
            pass
        if self.shape.__class__ is not tuple and i in (0, -1):
            return self
        count = "one mode" if len(self) == 1 else f"{len(self)} modes"
        raise LayoutError(f"{self} has {count}, got mode {i}")

    def __iter__(self) -> Iterator[Layout]:
        return (self[i] for i in range(len(self)))

    def map_layout(self, f: Callable[[Layout], Layout]) -> Layout:
        """``f`` of this layout; composed layouts and tensors apply it to the layout inside them."""
        return f(self)

    # --- sizes -----------------------------------------------------------------------------

    def size(self, mode: int | None = None) -> Number:
        """The number of coordinates (of one mode)."""
        return product(self.shape if mode is None else self[mode].shape)

    def cosize(self) -> Number:
        """One more than the largest absolute offset: the number of elements spanned."""
        if has_basis(self.stride):
            return product(self.coshape())
        span: Number = 1
        for s, d in self._leaves():
            span = add(span, mul(add(s, -1), abs(d) if d.__class__ is int else d))
        return span

    def coshape(self) -> IntTuple:
        """The spanned shape: the cosize, or a tuple where strides are coordinates."""
        if not has_basis(self.stride):
            return self.cosize()
        farthest: IntTuple = 0
        for s, d in self._leaves():
            if d.__class__ is ScaledBasis:
                farthest = add_coordinates(farthest, (abs(d) * add(s, -1)).coordinate())
        return _one_more(farthest)

    def _leaves(self) -> Iterator[tuple[Number, Number]]:
        return zip(int_tuple.flatten(self.shape), int_tuple.flatten(self.stride), strict=True)

    def rank(self) -> int:
        """The number of modes."""
        return len(self)

    def depth(self) -> int:
        """The depth of nested modes: 0 for ``4:1``, 1 for ``(4,8):(1,4)``."""
        return int_tuple.depth(self.shape)

    def is_static(self) -> bool:
        return is_static(self.shape) and is_static(self.stride)

    # --- coordinates -----------------------------------------------------------------------

    def get_hier_coord(self, idx: Number) -> IntTuple:
        """The coordinate of an offset of this compact layout, with the nesting of the shape."""
        return idx2crd(idx, self.shape, self.stride)

    def get_flat_coord(self, idx: Number) -> IntTuple:
        """The coordinate of an offset of this compact layout, with one number for each mode."""
        if self.shape.__class__ is not tuple:
            return self.get_hier_coord(idx)
        modes = [Layout.of(*map(_unwrap, coalesce_modes(m.shape, m.stride))) for m in self]
        merged = idx2crd(idx, tuple(m.shape for m in modes), tuple(m.stride for m in modes))
        return tuple(crd2idx(c, m.shape) for c, m in zip(merged, modes, strict=True))

    # --- as a value ------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        return same(self.shape, other.shape) and same(self.stride, other.stride)

    def __hash__(self) -> int:
        return hash((self.shape, self.stride))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a layout is frozen: {name} can't be set")

    __delattr__ = __setattr__  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return Layout.of, (self.shape, self.stride)

    def __str__(self) -> str:
        return f"{text(self.shape)}:{text(self.stride)}"

    def __format__(self, spec: str) -> str:
        """``f"{layout:cute}"`` is CuTe's notation, with static numbers underscored."""
        if spec != "cute":
            return format(str(self), spec)
        return f"{cute_text(self.shape)}:{cute_text(self.stride)}"

    def __repr__(self) -> str:
        return f"Layout({self.shape}, {self.stride})"


makes("layout")(Layout)

_set_shape = Layout.__dict__["shape"].__set__  # bypasses the frozen __setattr__
_set_stride = Layout.__dict__["stride"].__set__


def slice_and_offset(crd: IntTuple, layout: Any) -> tuple[Any, Any]:
    """The layout of the modes at ``None``, and the offset of the rest of the coordinate."""
    if not isinstance(layout, Layout):
        sliced: tuple[Any, Any] = layout.slice_and_offset(crd)
        return sliced
    modes = Layout.of(slice_(crd, layout.shape), slice_(crd, layout.stride))
    return modes, crd2idx(crd, layout.shape, layout.stride)


def _between(shapes: list[int], strides: list[int], first: int, end: int) -> NDArray[np.int64]:
    """The offsets of the coordinates from ``first`` to before ``end``, of flat modes."""
    left = np.arange(first, end, dtype=np.int64)
    offsets = np.zeros_like(left)
    for s, d in zip(shapes[:-1], strides[:-1], strict=True):
        offsets += left % s * d
        left //= s
    return offsets + left * strides[-1]


def _one_more(crd: IntTuple) -> IntTuple:
    return tuple(map(_one_more, crd)) if crd.__class__ is tuple else add(crd, 1)


def _check_sizes(shape: IntTuple) -> None:
    for s in shape if shape.__class__ is tuple else (shape,):
        if s.__class__ is tuple:
            _check_sizes(s)
        elif s.__class__ is ScaledBasis or (s.__class__ is int and s < 1):
            raise LayoutError(f"the sizes of a shape must be at least 1, got {s} in {text(shape)}")


def _mismatch(shape: IntTuple, stride: IntTuple, mode: str = "") -> str:
    """The message for the first mode where the nesting of shape and stride differs."""
    if shape.__class__ is tuple and stride.__class__ is tuple and len(shape) == len(stride):
        for i, (s, d) in enumerate(zip(shape, stride, strict=True)):
            if not congruent(s, d):
                return _mismatch(s, d, f"{mode}.{i}" if mode else str(i))
    where = f"mode {mode}: " if mode else ""
    return f"{where}shape {text(shape)} and stride {text(stride)} must have the same nesting"


def _unwrap(modes: list[Any]) -> Any:
    return modes[0] if len(modes) == 1 else tuple(modes)


def is_layout(x: object) -> bool:
    """Whether ``x`` is a layout or a composed layout."""
    return isinstance(x, LayoutBase)


class LayoutLeft:
    """As ``make_layout``'s stride or order: the first mode is the fastest (column-major)."""


class LayoutRight:
    """As ``make_layout``'s stride or order: the last mode is the fastest (row-major)."""


def make_layout(*args: Any, stride: Any = None) -> Layout:
    """``make_layout(a, b, …)`` with the layouts as modes; or ``make_layout(shape, stride)``.
    >>> print(make_layout(Layout(4, 2), Layout(8, 16)))
    (4,8):(2,16)
    >>> print(make_layout((4, 8), LayoutRight))
    (4,8):(8,1)
    """
    if len(args) == 1 and isinstance(args[0], Iterator):
        args = tuple(args[0])
    if not args:
        raise LayoutError("make_layout: expected layouts or a shape, got no arguments")
    if isinstance(args[0], Layout):
        for a in args:
            if not isinstance(a, Layout):
                raise LayoutError(f"make_layout: all modes must be layouts, got {a!r}")
        return Layout.of(tuple([a.shape for a in args]), tuple([a.stride for a in args]))
    if _of_layouts(args[0]):
        return make_layout(*args[0])
    if len(args) == 2:
        stride = args[1]
    if stride is LayoutRight:
        return Layout(args[0], compact_row_major(normalize(args[0], "shape")))
    return Layout(args[0], None if stride is LayoutLeft else stride)


def _of_layouts(x: Any) -> bool:
    return isinstance(x, (tuple, list)) and bool(x) and all(isinstance(a, Layout) for a in x)


def make_ordered_layout(shape: IntTuple, order: IntTuple = LayoutLeft) -> Layout:
    """A compact layout whose strides ascend with ``order``: (1, 0) is row-major.

    A number of ``order`` may correspond to a tuple of the shape, which is then column-major.
    """
    shape = normalize(shape, "shape")
    if order is LayoutLeft or order is LayoutRight:
        return make_layout(shape, order)
    order = normalize(order, "order")
    if not weakly_congruent(order, shape):
        rule = "must have the same nesting"
        raise LayoutError(f"order {text(order)} and shape {text(shape)} {rule}")
    ranks, modes = int_tuple.flatten(order), _modes_at(shape, order)
    counted = [r for r, m in zip(ranks, modes, strict=True) if not same(product(m), 1)]
    if len(set(counted)) < len(counted):
        raise LayoutError(f"order must be unique for modes larger than 1, got {text(order)}")
    strides: list[IntTuple] = [0] * len(modes)
    stride: Number = 1
    for i in sorted(range(len(modes)), key=lambda i: ranks[i]):
        strides[i] = compact_col_major(modes[i], stride)
        stride = mul(stride, product(modes[i]))
    return Layout(shape, int_tuple.unflatten(strides, order))


def _modes_at(shape: IntTuple, order: IntTuple) -> list[IntTuple]:
    """The parts of a shape that correspond to the numbers of an order."""
    if order.__class__ is not tuple:
        return [shape]
    return [part for s, o in zip(shape, order, strict=True) for part in _modes_at(s, o)]


def make_basis_like(shape: IntTuple, *mode: int) -> IntTuple:
    """The unit coordinate of each mode of a shape: ``(4,(2,3))`` → ``(1@0,(1@0@1,1@1@1))``."""
    if shape.__class__ is not tuple:
        return E(*mode)
    return tuple(make_basis_like(s, *mode, i) for i, s in enumerate(shape))


def make_identity_layout(shape: IntTuple) -> Layout:
    """The layout that maps each coordinate to itself.

    >>> print(make_identity_layout((4, 8)))
    (4,8):(1@0,1@1)
    """
    shape = normalize(shape, "shape")
    return Layout(shape, make_basis_like(shape))
