"""A tensor: data and a layout. ``t[crd]`` is ``engine[layout(crd)]``.

An engine is anything that is read and written at an offset, ``engine[i]``, and moved by one,
``engine + i``: a pointer of the kernel builder, or memory under a NumPy array (``ArrayEngine``).
Cutting a tensor up never moves data: a tile is the engine moved to its first element, and the
layout of what is left. Coordinates may be dynamic everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from tilewright.errors import LayoutError
from tilewright.layout.arithmetic import Number
from tilewright.layout.int_tuple import IntTuple, dice, has_none, product_each, rank
from tilewright.layout.layout import Layout, make_layout
from tilewright.layout.swizzle import ComposedLayout
from tilewright.layout.tiling import zipped_divide

AnyLayout = Layout | ComposedLayout


@dataclass(frozen=True, slots=True, eq=False)
class ArrayEngine:
    """One-dimensional NumPy memory and a position in it. Offsets may be arrays of integers."""

    memory: NDArray[Any]
    position: int = 0

    def __getitem__(self, offset: Any) -> Any:
        return self.memory[self._checked(offset)]

    def __setitem__(self, offset: Any, value: Any) -> None:
        self.memory[self._checked(offset)] = value

    def __add__(self, offset: int) -> ArrayEngine:
        return ArrayEngine(self.memory, self.position + offset)

    def _checked(self, offset: Any) -> Any:
        index = offset + self.position
        if np.any(index < 0) or np.any(index >= self.memory.size):
            raise LayoutError(f"offset {index} lies outside of {self.memory.size} elements")
        return index


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """An engine read through a layout: ``t[i, j]``, ``t[i, j] = x``, slices ``t[i, None]``."""

    engine: Any
    layout: AnyLayout

    def __getitem__(self, crd: IntTuple) -> Any:
        """The element at a coordinate, or the tensor of the modes at ``None`` (CuTe's ``_``)."""
        if has_none(crd):
            return self.slice(crd)
        return self.engine[self.layout(crd)]

    def __setitem__(self, crd: IntTuple, value: Any) -> None:
        self.engine[self.layout(crd)] = value

    def slice(self, crd: IntTuple) -> Tensor:
        """The modes at ``None``; the engine moves to the coordinate, unless a swizzle forbids."""
        if isinstance(self.layout, ComposedLayout):
            layout, offset = self.layout.slice_and_offset(crd)
            return Tensor(self._moved(offset), layout)
        return Tensor(self._moved(self.layout.offset(crd).total()), self.layout(crd))

    def _moved(self, offset: Number) -> Any:
        return self.engine if offset.__class__ is int and offset == 0 else self.engine + offset

    def map_layout(self, f: Callable[[Layout], Layout]) -> Tensor:
        """The same data under ``f`` of the layout."""
        return Tensor(self.engine, self.layout.map_layout(f))

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

    def __str__(self) -> str:
        return f"{self.engine} o {self.layout}"


def make_tensor(data: Any, layout: Any = None, stride: IntTuple = None) -> Tensor:
    """A tensor of an engine or NumPy array and a layout, or a shape and stride.

    An array without a layout gets the one that its strides say; with one, its memory is taken in
    order, and must be contiguous.
    """
    if isinstance(data, np.ndarray):
        if layout is None:
            return _tensor_of_array(data)
        data = ArrayEngine(_in_order(data))
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
    raise LayoutError(f"make_tensor: an array with strides {array.strides} is not contiguous")


def _tensor_of_array(array: NDArray[Any]) -> Tensor:
    if array.size == 0 or any(s < 0 or s % array.itemsize for s in array.strides):
        raise LayoutError(
            f"make_tensor: shape {array.shape} with strides {array.strides} in bytes is no layout"
            f" of {array.itemsize}-byte elements"
        )
    layout = Layout(array.shape, tuple(s // array.itemsize for s in array.strides))
    memory = as_strided(array, (layout.cosize(),), (array.itemsize,))
    return Tensor(ArrayEngine(memory), layout)


# --- partitioning ----------------------------------------------------------------------------


def _padded(crd: tuple[Any, ...], modes: int) -> tuple[Any, ...]:
    return crd + (None,) * (modes - len(crd))


def inner_partition(tensor: Any, tiler: Any, coord: IntTuple) -> Any:
    """The tile at a coordinate among the tiles: (TM, TN, …, and the tiles at ``None``)."""
    tiled = zipped_divide(tensor, tiler)
    tile, rest = _modes(tiled)
    crd = _padded(coord, rest) if isinstance(coord, tuple) else coord
    return tiled[(None,) * tile, crd]


def outer_partition(tensor: Any, tiler: Any, coord: IntTuple) -> Any:
    """What lies at a coordinate of every tile: (RM, RN, …)."""
    tiled = zipped_divide(tensor, tiler)
    tile, rest = _modes(tiled)
    crd = _padded(coord, tile) if isinstance(coord, tuple) else coord
    return tiled[crd, (None,) * rest]


def _modes(tiled: Tensor) -> tuple[int, int]:
    tile, rest = tiled.shape
    return rank(tile), rank(rest)


def local_tile(tensor: Tensor, tiler: Any, coord: IntTuple, proj: Any = None) -> Tensor:
    """One tile of a tensor, as a CTA takes it.

    ``coord`` counts tiles; modes at ``None`` or left out keep all their tiles as further modes.
    ``proj`` drops the modes of tiler and coordinate at its ``None``:

        local_tile(gA, (bM, bN, bK), (m, n, None), proj=(1, None, 1))     (bM, bK, k)
    """
    if proj is not None:
        tiler, coord = dice(proj, tiler), dice(proj, coord)
    tile: Tensor = inner_partition(tensor, tiler, coord)
    return tile


def local_partition(tensor: Tensor, tile: Layout, index: Number, proj: Any = None) -> Tensor:
    """The elements of one thread: of every tile of the thread layout's shape, the one at its
    coordinate.

    ``tile`` maps thread coordinates to thread numbers and is compact; ``index`` is the thread's
    number.
    """
    if proj is not None:
        tile = make_layout(*[m for m, p in zip(tile, proj, strict=True) if p is not None])
    part: Tensor = outer_partition(tensor, product_each(tile.shape), tile.get_flat_coord(index))
    return part
