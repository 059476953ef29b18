"""A layout as planes of offsets: mode 0 are the rows, mode 1 the columns, further modes the planes.

A layout of one mode is a column. Only a corner of a very large layout is evaluated, so that its
text and picture are made quickly.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import LayoutError
from ..layout import ComposedLayout, Layout, Swizzle, Tensor, append, composition, idx2crd
from ..layout.composed_layout import AnyLayout, inside
from ..layout.int_tuple import IntTuple, flatten, product, text
from ..layout.scaled_basis import has_basis

Array = npt.NDArray[Any]

ELEMENTS = 1 << 22  # the most elements that are evaluated

Size = tuple[int, int, int]  # planes, rows, columns


@dataclass(frozen=True, slots=True)
class Plane:
    """``offsets`` are (planes, rows, columns): numbers, or texts of coordinates if the strides are
    basis elements. ``before`` are the offsets before the outer function of a composed layout, else
    the same.
    """

    layout: AnyLayout
    before: Array
    offsets: Array

    @property
    def shape(self) -> Size:
        """The number of planes, rows and columns that were evaluated."""
        planes, rows, columns = self.offsets.shape
        return planes, rows, columns

    @property
    def counts(self) -> bool:
        """Whether the layout maps to coordinates, not to offsets."""
        return self.offsets.dtype == object

    def mode(self, axis: int) -> IntTuple:
        """The shape of the mode of planes (0), rows (1) or columns (2)."""
        return self.layout.shape[axis - 1] if axis else self.layout.shape[2:]

    def coordinates(self, axis: int) -> list[str]:
        """The coordinates of planes, rows or columns as text."""
        shape = self.mode(axis)
        return [text(idx2crd(i, shape)) for i in range(self.shape[axis])]

    def names(self) -> list[str]:
        """``(_,_,2)``, the coordinate of each plane; "" for a single one."""
        if len(self.layout) == 2:
            return [""]
        return [f"(_,_,{crd[1:-1].removesuffix(',')})" for crd in self.coordinates(0)]


def plane(layout: Any, most: Size | None = None) -> Plane:
    """A layout's planes, or at most ``most`` along each axis.

    Raises LayoutError for another object, a dynamic layout, and more than 4194304 elements.
    """
    layout = append(as_layout(layout), up_to_rank=2)
    size = size_of(layout)
    shown = size if most is None else tuple(map(min, size, most))
    check_size(prod(shown), str(layout))
    before = _evaluated(inside(layout), shown)
    if not hasattr(layout, "outer"):
        return Plane(layout, before, before)
    before = before + layout.offset
    return Plane(layout, before, layout.outer(before))


def as_layout(given: Any) -> AnyLayout:
    """A layout, the layout of a tensor, a shape as a layout, or a swizzle's ``pattern``.

    Raises LayoutError for other values and for dynamic layouts.
    """
    if isinstance(given, Tensor):
        given = given.layout
    if isinstance(given, Swizzle):
        given = pattern(given)
    if isinstance(given, (int, tuple)) and not isinstance(given, bool):
        given = Layout(given)
    if not isinstance(given, (Layout, ComposedLayout)):
        raise LayoutError(f"expected a layout, got {given!r}")
    if not given.is_static():
        raise LayoutError(f"the layout must be static, got the dynamic layout {given}")
    return given


def check_size(elements: int, what: str) -> None:
    """Raise LayoutError for more elements than are evaluated."""
    if elements > ELEMENTS:
        raise LayoutError(
            f"there must be at most {ELEMENTS} elements to show, got {elements} of {what}",
            hint="show a tile, for example composition(layout, (128, 64))",
        )


def pattern(swizzle: Swizzle) -> AnyLayout:
    """The smallest layout that shows a swizzle completely: the bits that it reads number the rows,
    the bits that it changes number the pieces of a row.
    """
    count, piece = 1 << swizzle.bits, 1 << swizzle.base
    read, changed = (mask & -mask or piece for mask in (swizzle.yyy_msk, swizzle.zzz_msk))
    made: AnyLayout = composition(swizzle, Layout((count, (piece, count)), (read, (1, changed))))
    return made


def size_of(layout: AnyLayout) -> Size:
    """The number of planes, rows and columns of a layout."""
    shape = layout.shape if isinstance(layout.shape, tuple) else (layout.shape,)
    rows, columns = (product(x) for x in (*shape, 1, 1)[:2])
    return prod(flatten(shape[2:])), rows, columns


def _evaluated(layout: Layout, shown: Size) -> Array:
    planes, rows, columns = shown
    if has_basis(layout.stride):
        return _coordinates(layout, shown)
    result = np.zeros(shown, np.int64)
    result += _mode(layout[0], rows)[:, None]
    result += _mode(layout[1], columns)
    if len(layout) > 2:
        result += _mode(layout[2:], planes)[:, None, None]
    return result


def _mode(mode: Layout, count: int) -> Array:
    index = np.arange(count, dtype=np.int64)
    return index * 0 + mode(index)


def _coordinates(layout: Layout, shown: Size) -> Array:
    """The coordinates to which a layout with basis strides maps, as text."""
    result = np.empty(shown, object)
    for at in np.ndindex(shown):
        rest = idx2crd(at[0], layout.shape[2:]) if len(layout) > 2 else ()
        result[at] = text(layout((*at[1:], *rest)))
    return result
