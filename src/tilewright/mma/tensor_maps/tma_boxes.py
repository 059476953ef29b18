"""How tensor copies fill a tile of shared memory: which box one copy takes, and how many it takes.

The idea is CuTe's (make_tma_copy): the shared layout, inverted, says which of the tensor's elements
follow one another in shared memory. Followed from the first on, they name the dimensions of the
tensor map in order and the box's extents, until something that no box can do; the rest of the tile
is more boxes of the same kind.

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
    """One copy's share of a tile: its ``coordinates`` in the tensor map, from the tile's, and the
    bytes from the tile's start in shared memory.
    """

    coordinates: tuple[int, ...]
    offset: int


class TensorMode(NamedTuple):
    """A mode of the tensor: its place in the nested shape, size and stride in elements."""

    path: tuple[int, ...]
    size: int
    stride: int


@dataclass(frozen=True, slots=True)
class MapDimension:
    """A dimension of the map: the box's extent, and the modes that it runs over."""

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

    ``coordinates`` takes a coordinate of the tensor to that in the map (CuTe's get_tma_tensor).
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
        """How a ``tile`` of a tensor of ``bits``-bit elements gets from global to ``shared``
        memory, where it stands from a multiple of the swizzle's period on.

        ``tile`` is a tiler of the tensor, by default the sizes of the modes of ``shared``.
        LayoutError where no box does it: what is contiguous in the tensor is not in shared memory.
        """
        shared = layout_of(shared)
        if (
            not isinstance(tensor, Layout)
            or not (tensor.is_static() and shared.is_static())
            or has_basis(tensor.stride)
        ):
            raise LayoutError(f"a tensor map is of static layouts, not of {tensor} and {shared}")
        swizzle, inner = _without_swizzle(shared, bits)
        tensor = tensor if isinstance(tensor.shape, tuple) else make_layout(tensor)
        identity = make_identity_layout(tensor.shape)
        tiler = _tiler(tensor, product_each(shared.shape) if tile is None else tile)
        values = composition(identity, tiler)
        if values.size() != inner.size():
            raise LayoutError(f"a tile of {values.size()} elements does not fill {shared}")
        paths = [unit.mode for unit in flatten(identity.stride)]
        modes = list(map(TensorMode, paths, flatten(tensor.shape), flatten(tensor.stride)))
        ahead = coalesce(composition(values, right_inverse(inner)))
        box = list(_box(ahead, modes, 8 * swizzle // bits))
        if not box or box[0].stride != 1:
            raise LayoutError(
                f"no box of {tensor} fills {shared}: it is contiguous in another mode"
            )
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
    """The tiler with a 1 for each mode that it does not name."""
    return (*tile, *[1] * (len(tensor) - len(tile))) if isinstance(tile, tuple) else tile


def _without_swizzle(shared: AnyLayout, bits: int) -> tuple[int, Layout]:
    """(bytes of the swizzle, the layout under it)."""
    if isinstance(shared, Layout):
        return 0, shared
    known = {upcast(swizzle_pattern(size), bits): size for size in SWIZZLES}
    if shared.outer not in known or shared.offset != 0:
        allowed = ", ".join(map(str, known))
        raise LayoutError(
            f"a tensor copy of {bits}-bit elements swizzles by {allowed} without an offset, not as"
            f" {shared}"
        )
    return known[shared.outer], shared.inner


def _box(ahead: Layout, modes: list[TensorMode], row: int) -> Iterator[MapDimension]:
    """The dimensions of the box, from what follows in shared memory: offset → coordinate.

    A dimension begins at a mode's first element and goes through it in steps of one. ``row`` is how
    many elements a swizzle has in a row: a shorter row is alone in its box.
    """
    by_path = {mode.path: mode for mode in modes}
    limit = min(EXTENT, row or EXTENT)
    for size, unit in zip(flatten(ahead.shape), flatten(ahead.stride), strict=True):
        if not isinstance(unit, ScaledBasis) or unit.value != 1:
            return
        extent = next(n for n in range(min(size, limit), 0, -1) if size % n == 0)
        yield MapDimension(extent, (by_path[unit.mode],))
        if extent < size or (limit == row and extent < row):
            return
        row, limit = 0, EXTENT


def _with_others(box: list[MapDimension], modes: list[TensorMode]) -> list[MapDimension]:
    """The dimensions of the map: the box's, and the other modes with an extent of 1; those that do
    not fit are the last one together.
    """
    taken = {mode for dimension in box for mode in dimension.modes}
    others = [m for m in modes if m not in taken and m.size > 1 and m.stride != 0]
    every = box + [MapDimension(1, (mode,)) for mode in others]
    if len(every) <= RANK:
        return every
    if len(box) >= RANK:
        raise LayoutError(f"a box has at most {RANK} dimensions, and {len(box)} are needed here")
    last = MapDimension(1, tuple(m for d in every[RANK - 1 :] for m in d.modes))
    return [*every[: RANK - 1], last]


def _coordinates(tensor: Layout, dimensions: list[MapDimension]) -> Layout:
    """The tensor's coordinate → the map's."""
    strides: dict[tuple[int, ...], ScaledBasis] = {}
    for i, dimension in enumerate(dimensions):
        for mode in dimension.modes:
            step = mode.stride // dimension.stride if dimension.stride else 1
            strides[mode.path] = ScaledBasis(step, (i,))
    units = flatten(make_identity_layout(tensor.shape).stride)
    return Layout(tensor.shape, unflatten([strides.get(u.mode, 0) for u in units], tensor.shape))


def _parts(inner: Layout, coordinates: Layout, box: tuple[int, ...], bits: int) -> Iterator[TmaBox]:
    """The boxes of a tile as they follow in shared memory; ``coordinates`` are those of its places
    in the map.
    """
    size, origin = prod(box), (0,) * len(box)
    first = composition(right_inverse(inner), size)  # place in the box → place in the tile
    offsets, starts = inner.indices(), complement(first, inner.size()).indices()
    every = offsets[starts[:, None] + first.indices()]
    if every.size != offsets.size or (every - every[:, :1] != np.arange(size)).any():
        raise LayoutError(f"boxes of {size} elements that follow one another do not fill {inner}")
    for start in sorted(starts.tolist(), key=lambda place: int(offsets[place])):
        offset = int(offsets[start]) * bits // 8
        if offset % ALIGNMENT:
            raise LayoutError(
                f"a box of {text(box)} in {inner} would begin at byte {offset}, and a tensor copy"
                f" writes from a multiple of {ALIGNMENT} on"
            )
        yield TmaBox(add_coordinates(origin, coordinates(start)), offset)
