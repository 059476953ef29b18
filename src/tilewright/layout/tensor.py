"""A tensor: an engine (the data) and a layout. ``t[crd]`` is ``engine[layout(crd)]``.

Slicing and tiling never move data: a tile is the engine advanced to its first element, with the
layout of the remaining modes. Coordinates may be dynamic everywhere. An engine that computes
addresses (a kernel's pointer) receives an offset as an ``OffsetSum``, for which no instruction has
been emitted yet, and the part that goes through a swizzle: ``moved(outside, swizzle, inside)``.

    >>> t = make_tensor(np.arange(32), (4, 8))
    >>> int(t[1, 2]), [int(x) for x in t[1, None].elements()]
    (9, [1, 5, 9, 13, 17, 21, 25, 29])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from ..dtypes import DType
from ..dtypes import dtype as as_dtype
from ..errors import LayoutError
from ..notebook_display import Drawable
from .algebra.function_properties import layout_of
from .algebra.tiling import tiled_product
from .composed_layout import AnyLayout, ComposedLayout, inside, shifted
from .coordinate import crd2idx
from .engine import ArrayEngine, Coordinates, Mapped
from .int_tuple import (
    IntTuple,
    elem_less,
    flatten,
    has_none,
    is_static,
    product_each,
    text,
    unflatten,
)
from .layout import Layout, make_identity_layout, make_layout
from .recast import contiguous_mode
from .recast import recast as recast_layout
from .symbolic import Number, OffsetSum, mul

_MAX_ELEMENTS, _CHUNK = 1 << 30, 1 << 22  # of an array, and of one gather


@dataclass(frozen=True, slots=True, eq=False)
class Tensor(Drawable):
    """An engine read through a layout: ``t[i, j]``, ``t[i, j] = x``, slices ``t[i, None]``.

    Iteration yields its modes; ``elements()`` yields its elements, which ``np.asarray`` gathers.
    """

    engine: Any
    layout: AnyLayout

    def __getitem__(self, crd: IntTuple) -> Any:
        """The element at a coordinate, or the tensor of the modes at ``None`` (CuTe's ``_``)."""
        if has_none(crd):
            return self.slice(crd)
        engine, offset = self._element(crd)
        return engine[offset]

    def __setitem__(self, crd: IntTuple, value: Any) -> None:
        if has_none(crd):
            raise LayoutError(f"an assignment needs the coordinate of one element, got {text(crd)}")
        engine, offset = self._element(crd)
        engine[offset] = value

    def _element(self, crd: IntTuple) -> tuple[Any, Any]:
        """(engine, offset) of an element; the offset is static if the engine computes addresses."""
        if not hasattr(self.engine, "moved"):
            return self.engine, self.layout(crd)
        if isinstance(self.layout, Layout):
            offset = self.layout.offset(crd)
            if not offset.terms:
                return self.engine, offset.static
        return self.at(crd), 0

    def at(self, crd: IntTuple) -> Any:
        """The engine advanced to the element at a coordinate."""
        layout = self.layout
        if not isinstance(layout, ComposedLayout):
            return self._moved(layout, crd)
        if not hasattr(self.engine, "moved"):
            return self.engine + layout(crd)
        inside, outside = layout.parts(crd)
        return self.engine.moved(outside, layout.outer, inside)

    def slice(self, crd: IntTuple) -> Tensor:
        """The modes at ``None``, with the engine advanced as far as a swizzle permits."""
        if isinstance(self.layout, ComposedLayout):
            return self._advanced(self.layout, crd, self.layout.inner(crd))
        return Tensor(self._moved(self.layout, crd), self.layout(crd))

    def _moved(self, layout: Layout, crd: IntTuple) -> Any:
        if isinstance(self.engine, Coordinates):
            return self.engine + crd2idx(crd, layout.shape, layout.stride)
        return _by(self.engine, layout.offset(crd))

    def _advanced(self, layout: ComposedLayout, crd: IntTuple, inner: Layout) -> Tensor:
        """``inner`` under the same outer function, from the coordinate on."""
        inside, outside = layout.parts(crd)
        rest = ComposedLayout(layout.outer, shifted(inside), inner)
        return Tensor(_by(self.engine, outside), rest)

    def domain_offset(self, coord: IntTuple) -> Tensor:
        """The same layout from a coordinate on: its element 0 is the one at ``coord``."""
        if isinstance(self.layout, ComposedLayout):
            return self._advanced(self.layout, coord, self.layout.inner)
        return Tensor(self._moved(self.layout, coord), self.layout)

    def map_layout(self, f: Callable[[Layout], Layout]) -> Tensor:
        """The same data with ``f`` applied to the layout."""
        return Tensor(self.engine, self.layout.map_layout(f))

    # --- properties ------------------------------------------------------------------------

    @property
    def dtype(self) -> DType:
        """The number format of the elements."""
        found: DType = self.engine.dtype
        return found

    @property
    def shape(self) -> IntTuple:
        return self.layout.shape

    def size(self, mode: int | None = None) -> Number:
        return self.layout.size(mode)

    def cosize(self) -> Number:
        return self.layout.cosize()

    def rank(self) -> int:
        return len(self.layout)

    def depth(self) -> int:
        return self.layout.depth()

    def __len__(self) -> int:
        return len(self.layout)

    def __iter__(self) -> Iterator[Tensor]:
        """The modes as tensors."""
        return (Tensor(self.engine, self.layout[i]) for i in range(len(self)))

    def elements(self) -> Iterator[Any]:
        """The elements in order, the first mode fastest. LayoutError for a dynamic size."""
        size = self.size()
        if size.__class__ is not int:
            raise LayoutError(f"elements: the tensor's size must be static, got {size}")
        return (self[i] for i in range(size))

    def to_numpy(self) -> NDArray[Any]:
        """The elements as a new array with a dimension for each mode. LayoutError for more than
        2^30 elements.
        """
        if not isinstance(self.engine, ArrayEngine):
            raise LayoutError(f"to_numpy: the engine must be an array, got {self.engine}")
        size = self.size()
        if size.__class__ is not int or size > _MAX_ELEMENTS:
            limit = f"at most {_MAX_ELEMENTS} elements"
            raise LayoutError(f"to_numpy: a tensor must have {limit}, got {size} in {self}")
        values = np.empty(size, self.engine.memory.dtype)
        for first in range(0, size, _CHUNK):
            end = min(first + _CHUNK, size)
            values[first:end] = self.engine[self.layout.indices(first, end)]
        return values.reshape(product_each(self.shape), order="F")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("a tensor can't become an array without a copy")
        return self.to_numpy().astype(dtype or self.engine.memory.dtype, copy=False)

    def __str__(self) -> str:
        return f"{self.engine} o {self.layout}"


def _by(engine: Any, offset: OffsetSum) -> Any:
    """The engine advanced by an offset."""
    if not offset.terms and offset.static == 0:
        return engine
    return engine.moved(offset) if hasattr(engine, "moved") else engine + offset.total()


def check_tensors(*tensors: Any) -> None:
    """LayoutError for anything but tensors."""
    for x in tensors:
        if not isinstance(x, Tensor):
            raise LayoutError(f"expected a tensor, got {x!r}", hint="use make_tensor")


# --- constructors ----------------------------------------------------------------------------


def make_tensor(data: Any, layout: Any = None, stride: IntTuple = None) -> Tensor:
    """A tensor of an engine or NumPy array and a layout, or a shape and stride.

    An array without a layout gets the layout of its strides; with a layout, it must be contiguous,
    and its memory is used in order.
    """
    if isinstance(data, np.ndarray):
        if layout is None:
            return _tensor_of_array(data)
        data = ArrayEngine(_in_order(data))
    elif data is None or isinstance(data, (int, float, str, tuple, list)):
        hint = "for example a NumPy array"
        raise LayoutError(f"make_tensor: expected an engine or array, got {data!r}", hint=hint)
    if layout is None:
        raise LayoutError("make_tensor: an engine needs a layout")
    if not isinstance(layout, (Layout, ComposedLayout)):
        layout = make_layout(layout, stride=stride)
    return Tensor(data, layout)


def _in_order(array: NDArray[Any]) -> NDArray[Any]:
    if array.flags.c_contiguous:
        return array.reshape(-1)
    if array.flags.f_contiguous:
        return array.T.reshape(-1)
    raise LayoutError(f"make_tensor: the array must be contiguous, got strides {array.strides}")


def _tensor_of_array(array: NDArray[Any]) -> Tensor:
    if array.size == 0:
        raise LayoutError(f"make_tensor: the array must not be empty, got shape {array.shape}")
    if any(s < 0 or s % array.itemsize for s in array.strides):
        raise LayoutError(
            "make_tensor: the strides must be nonnegative multiples of the element size"
            f" {array.itemsize}, got shape {array.shape}, strides {array.strides} in bytes"
        )
    layout = Layout(array.shape, tuple(s // array.itemsize for s in array.strides))
    memory = as_strided(array, (layout.cosize(),), (array.itemsize,))
    return Tensor(ArrayEngine(memory), layout)


def make_coord_tensor(layout: Layout) -> Tensor:
    """The tensor whose elements are the layout's own offsets, numbers or coordinates."""
    return Tensor(Coordinates(), layout)


def make_identity_tensor(shape: IntTuple) -> Tensor:
    """The tensor whose elements are their own coordinates. Partitioned like the data, it has the
    coordinates of each part.
    >>> make_identity_tensor((4, 8))[1, 2]
    (1, 2)
    """
    layout = make_identity_layout(shape)
    origin = unflatten([0] * len(flatten(layout.shape)), layout.shape)
    return Tensor(Coordinates(origin), layout)


def lazy_transform(tensor: Tensor, function: Callable[[Any], Any]) -> Tensor:
    """``function`` of the elements of a tensor, computed each time one is read."""
    check_tensors(tensor)
    return Tensor(Mapped(tensor.engine, function), tensor.layout)


def make_predicate(coordinates: Tensor, bound: IntTuple) -> Tensor:
    """The tensor of predicates: whether each coordinate is below ``bound`` in every mode. It guards
    partial tiles at the edges of a problem.
    >>> tile = local_tile(make_identity_tensor((5, 5)), (4, 4), (1, 0))
    >>> [make_predicate(tile, (5, 5))[i, 3] for i in range(4)]
    [True, False, False, False]
    """

    def below(crd: IntTuple) -> Any:
        return elem_less(crd, bound)

    return lazy_transform(coordinates, below)


# --- constructors by example -----------------------------------------------------------------


def make_layout_like(layout: Any) -> Layout:
    """A compact layout with the same shape and order of modes; modes of stride 0 keep it.
    >>> print(make_layout_like(Layout((2, 2, 2, 2), (0, 2, 4, 1))))
    (2,2,2,2):(0,2,4,1)
    """
    layout = inside(layout_of(layout))
    return Layout(layout.shape, _compact(layout, _without_repeats(layout), layout.stride))


def make_fragment_like(example: Any, dtype: str | DType | None = None) -> Any:
    """For a layout, the compact layout of a thread's registers: mode 0 (an atom's values) in order,
    the other modes in the order of their strides. For a tensor, new memory of its thread with this
    layout, of the same or another ``dtype``.
    """
    if isinstance(example, Tensor):
        return _owning(example, make_fragment_like(example.layout), dtype)
    layout = inside(layout_of(example))
    if len(layout) == 1:
        return Layout(layout.shape)
    values, rest = layout[0], layout[1:]
    sizes = _without_repeats(values)
    first = Layout(values.shape, _compact(values, sizes, tuple(range(len(sizes)))))
    return tiled_product(
        first, Layout(rest.shape, _compact(rest, flatten(rest.shape), rest.stride))
    )


def _without_repeats(layout: Layout) -> tuple[Number, ...]:
    """The sizes, 1 where the stride is 0."""
    flat = zip(flatten(layout.shape), flatten(layout.stride), strict=True)
    return tuple([1 if d.__class__ is int and d == 0 else s for s, d in flat])


def _compact(layout: Layout, sizes: tuple[Number, ...], order: IntTuple) -> IntTuple:
    """Compact strides for these sizes in ascending ``order``; dynamic ones are last."""
    strides = [0] * len(sizes)
    stride: Number = 1
    ranks = flatten(order)
    for i in sorted(range(len(sizes)), key=lambda i: _rank(ranks[i])):
        if not (sizes[i].__class__ is int and sizes[i] == 1):
            strides[i] = stride
            stride = mul(stride, sizes[i])
    return unflatten(strides, layout.shape)


def _rank(stride: Number) -> tuple[bool, int]:
    return (False, stride) if stride.__class__ is int else (True, 0)


def make_tensor_like(tensor: Tensor, dtype: str | DType | None = None) -> Tensor:
    """New memory with the shape and order of modes of a tensor, of the same or another ``dtype``:
    NumPy zeros, or registers of the thread.
    """
    check_tensors(tensor)
    return _owning(tensor, make_layout_like(tensor.layout), dtype)


def _owning(tensor: Tensor, layout: Layout, dtype: str | DType | None) -> Tensor:
    if not is_static(layout.shape):
        raise LayoutError(f"new memory needs a static shape, got {layout}")
    t = tensor.dtype if dtype is None else as_dtype(dtype)
    return Tensor(tensor.engine.like(layout.cosize(), t), layout)


# --- recast ----------------------------------------------------------------------------------


def recast_tensor(tensor: Tensor, dtype: str | DType) -> Tensor:
    """The same memory as elements of another format, such as an f16 tensor as u32.

    LayoutError where the parts of a new element are not contiguous, or it is not aligned to its
    size.
    """
    check_tensors(tensor)
    old, new = tensor.dtype, as_dtype(dtype)
    layout = tensor.layout
    if old.bits == new.bits:
        return Tensor(tensor.engine.recast(new), layout)
    engine, widens = tensor.engine, new.bits > old.bits
    back = _backwards(layout, widens)
    if back and widens:
        engine = engine + (1 - new.bits // old.bits)  # to the lowest part of the first element
    engine = engine.recast(new)
    if back and not widens:
        engine = engine + (old.bits // new.bits - 1)
    return Tensor(engine, recast_layout(layout, old.bits, new.bits))


def _backwards(layout: AnyLayout, widens: bool) -> bool:
    """Whether the contiguous mode has stride -1; a mode of size 1 counts as ascending."""
    plain = inside(layout)
    mode = contiguous_mode(plain)
    if mode is None or flatten(plain.stride)[mode] != -1:
        return False
    size = flatten(plain.shape)[mode]
    if widens and size.__class__ is int and size == 1:
        return False
    if isinstance(layout, ComposedLayout):
        raise LayoutError(f"recast of {layout}: stride -1 is not supported under {layout.outer}")
    return True


def recast(x: Any, *args: Any) -> Any:
    """``recast(tensor, dtype)``, or ``recast(layout, old_bits, new_bits)``."""
    return (recast_tensor if isinstance(x, Tensor) else recast_layout)(x, *args)
