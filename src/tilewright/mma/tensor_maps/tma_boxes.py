"""The boxes of tensor copies that fill a tile of shared memory.

The algorithm is CuTe's (make_tma_copy): the inverse of the shared layout gives the tensor's
elements in their order in shared memory. From the first element on, this order determines the
dimensions of the tensor map and the extents of the box, up to the first mode that a box can't
cover; the rest of the tile is more boxes of the same extents.
    f16, (M,K):(K,1) to a tile Sw<3,3,3> o ((8,16),(64,2)):((64,512),(1,8192)) of 128 by 128:
    shape (K,M), strides (2K), box (64,128), swizzle 128, at (0,0) and, 16384 bytes on, at (64,0)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd, prod
from typing import NamedTuple

import numpy as np

from ...errors import LayoutError
from ...layout import (
    IntTuple,
    Layout,
    coalesce,
    complement,
    composition,
    flatten,
    make_identity_layout,
    make_layout,
    product_each,
    right_inverse,
    upcast,
)
from ...layout.algebra.function_properties import layout_of
from ...layout.composed_layout import AnyLayout
from ...layout.int_tuple import text, unflatten
from ...layout.scaled_basis import ScaledBasis, add_coordinates, has_basis
from ..matrix_descriptor import SWIZZLES, swizzle_pattern
from .tensor_map_rules import EXTENT, RANK

ALIGNMENT = 128  # bytes, of a box in shared memory


@dataclass(frozen=True, slots=True)
class TmaBox:
    """The box of one copy: its ``coordinates`` in the tensor map, relative to the tile's, and its
    ``offset`` in bytes from the tile's start in shared memory.
    """

    coordinates: tuple[int, ...]
    offset: int


class TensorMode(NamedTuple):
    """A mode of the tensor: its path in the nested shape, its size, its stride in elements."""

    path: tuple[int, ...]
    size: int
    stride: int


@dataclass(frozen=True, slots=True)
class MapDimension:
    """A dimension of the map: the extent of the box, and the modes of the tensor in it."""

    extent: int
    modes: tuple[TensorMode, ...]

    @property
    def stride(self) -> int:
        return gcd(*(mode.stride for mode in self.modes))

    @property
    def size(self) -> int:
        if self.stride == 0:
            return self.modes[0].size
        return 1 + sum((m.size - 1) * (m.stride // self.stride) for m in self.modes)


@dataclass(frozen=True, slots=True)
class TmaTiling:
    """A tensor map's ``shape``, ``strides`` (bytes), ``box``, ``swizzle``; the ``parts`` of a tile.

    ``coordinates`` maps a coordinate of the tensor to one of the map (CuTe's get_tma_tensor).
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    coordinates: Layout
    parts: tuple[TmaBox, ...]

    @classmethod
    def of(
        cls, tensor: AnyLayout, shared: AnyLayout, bits: int, tile: IntTuple | None = None
    ) -> TmaTiling:
        """The tiling that copies a ``tile`` of a tensor of ``bits``-bit elements from global to
        ``shared`` memory, where it begins at a multiple of the swizzle's period.

        ``tile`` is a tiler of the tensor, by default the sizes of the modes of ``shared``.
        LayoutError where no box fits: elements contiguous in the tensor are not in shared memory.
        """
        shared = layout_of(shared)
        if (
            not isinstance(tensor, Layout)
            or not (tensor.is_static() and shared.is_static())
            or has_basis(tensor.stride)
        ):
            raise LayoutError(f"a tensor map needs static layouts, got {tensor} and {shared}")
        swizzle, inner = _without_swizzle(shared, bits)
        tensor = tensor if isinstance(tensor.shape, tuple) else make_layout(tensor)
        identity = make_identity_layout(tensor.shape)
        tiler = _tiler(tensor, product_each(shared.shape) if tile is None else tile)
        values = composition(identity, tiler)
        if values.size() != inner.size():
            size = values.size()
            raise LayoutError(f"tile and shared layout differ in size: {size}, got {shared}")
        paths = [unit.mode for unit in flatten(identity.stride)]
        modes = list(map(TensorMode, paths, flatten(tensor.shape), flatten(tensor.stride)))
        consecutive = coalesce(composition(values, right_inverse(inner)))
        box = list(_box(consecutive, modes, 8 * swizzle // bits))
        if not box or box[0].stride != 1:
            why = "they must be contiguous in the same mode"
            raise LayoutError(f"no box copies {tensor} to {shared}: {why}")
        dimensions = _with_others(box, modes)
        coordinates = _coordinates(tensor, dimensions)
        extents = tuple(d.extent for d in dimensions)
        parts = _parts(inner, composition(coordinates, values), extents, bits)
        return cls(
            tuple(d.size for d in dimensions),
            tuple(d.stride * bits // 8 for d in dimensions[1:]),
            extents,
            swizzle,
            coordinates,
            tuple(parts),
        )


def _tiler(tensor: Layout, tile: IntTuple) -> IntTuple:
    """The tiler, extended by a 1 for each further mode of the tensor."""
    return (*tile, *[1] * (len(tensor) - len(tile))) if isinstance(tile, tuple) else tile


def _without_swizzle(shared: AnyLayout, bits: int) -> tuple[int, Layout]:
    """(the swizzle in bytes, the layout inside it)."""
    if isinstance(shared, Layout):
        return 0, shared
    known = {upcast(swizzle_pattern(size), bits): size for size in SWIZZLES}
    if shared.outer not in known or shared.offset != 0:
        allowed = ", ".join(map(str, known))
        raise LayoutError(
            f"the swizzle of a tensor copy of {bits}-bit elements must be {allowed} without offset,"
            f" got {shared}"
        )
    return known[shared.outer], shared.inner


def _box(consecutive: Layout, modes: list[TensorMode], row: int) -> Iterator[MapDimension]:
    """The dimensions of the box. ``consecutive``: offset in shared memory → coordinate.

    A dimension begins at a mode's first element and has stride one. ``row`` is the number of
    elements in a row of the swizzle: a box with shorter rows has one row.
    """
    by_path = {mode.path: mode for mode in modes}
    limit = min(EXTENT, row or EXTENT)
    for size, unit in zip(flatten(consecutive.shape), flatten(consecutive.stride), strict=True):
        if not isinstance(unit, ScaledBasis) or unit.value != 1:
            return
        extent = next(n for n in range(min(size, limit), 0, -1) if size % n == 0)
        yield MapDimension(extent, (by_path[unit.mode],))
        if extent < size or (limit == row and extent < row):
            return
        row, limit = 0, EXTENT


def _with_others(box: list[MapDimension], modes: list[TensorMode]) -> list[MapDimension]:
    """The dimensions of the map: the box's, and the other modes with an extent of 1. The last
    dimension combines those beyond the maximum rank.
    """
    taken = {mode for dimension in box for mode in dimension.modes}
    others = [m for m in modes if m not in taken and m.size > 1 and m.stride != 0]
    every = box + [MapDimension(1, (mode,)) for mode in others]
    if len(every) <= RANK:
        return every
    if len(box) >= RANK:
        raise LayoutError(f"a box must have at most {RANK} dimensions, got {len(box)}")
    last = MapDimension(1, tuple(m for d in every[RANK - 1 :] for m in d.modes))
    return [*every[: RANK - 1], last]


def _coordinates(tensor: Layout, dimensions: list[MapDimension]) -> Layout:
    """The layout from the tensor's coordinates to the map's."""
    strides: dict[tuple[int, ...], ScaledBasis] = {}
    for i, dimension in enumerate(dimensions):
        for mode in dimension.modes:
            step = mode.stride // dimension.stride if dimension.stride else 1
            strides[mode.path] = ScaledBasis(step, (i,))
    units = flatten(make_identity_layout(tensor.shape).stride)
    return Layout(tensor.shape, unflatten([strides.get(u.mode, 0) for u in units], tensor.shape))


def _parts(inner: Layout, coordinates: Layout, box: tuple[int, ...], bits: int) -> Iterator[TmaBox]:
    """The boxes of a tile in their order in shared memory. ``coordinates``: index in the tile →
    coordinate in the map.
    """
    size, origin = prod(box), (0,) * len(box)
    first = composition(right_inverse(inner), size)  # index in the box → index in the tile
    offsets, starts = inner.indices(), complement(first, inner.size()).indices()
    every = offsets[starts[:, None] + first.indices()]
    if every.size != offsets.size or (every - every[:, :1] != np.arange(size)).any():
        raise LayoutError(f"consecutive boxes of {size} elements do not fill {inner}")
    for start in sorted(starts.tolist(), key=lambda i: int(offsets[i])):
        offset = int(offsets[start]) * bits // 8
        if offset % ALIGNMENT:
            raise LayoutError(
                f"a box must begin at a multiple of {ALIGNMENT} bytes in shared memory, got"
                f" {offset} for a box of {text(box)} in {inner}"
            )
        yield TmaBox(add_coordinates(origin, coordinates(start)), offset)
