"""A layout as planes of numbers: mode 0 runs down, mode 1 across, further modes count the planes.

A layout of one mode is a column. Of a layout without end only a corner is evaluated, so that text
and pictures of any layout are soon made.
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

ELEMENTS = 1 << 22  # that are evaluated, at most

Size = tuple[int, int, int]  # planes, rows, columns


@dataclass(frozen=True, slots=True)
class Plane:
    """``offsets`` are (planes, rows, columns): numbers, or the texts of coordinates where strides
    are such; ``before`` are the numbers before the outer function of a composed layout, or the
    same.
    """

    layout: AnyLayout
    before: Array
    offsets: Array

    @property
    def shape(self) -> Size:
        """Planes, rows and columns that were evaluated."""
        planes, rows, columns = self.offsets.shape
        return planes, rows, columns

    @property
    def counts(self) -> bool:
        """Whether the layout maps to coordinates, not to offsets."""
        return self.offsets.dtype == object

    def mode(self, axis: int) -> IntTuple:
        """The shape that the planes (0), rows (1) or columns (2) are nested in."""
        return self.layout.shape[axis - 1] if axis else self.layout.shape[2:]

    def coordinates(self, axis: int) -> list[str]:
        """The coordinates of planes, rows or columns as they are written."""
        shape = self.mode(axis)
        return [text(idx2crd(i, shape)) for i in range(self.shape[axis])]

    def names(self) -> list[str]:
        """``(_,_,2)``, the coordinate that a plane belongs to; "" where there is one alone."""
        if len(self.layout) == 2:
            return [""]
        return [f"(_,_,{crd[1:-1].removesuffix(',')})" for crd in self.coordinates(0)]


def plane(layout: Any, most: Size | None = None) -> Plane:
    """A layout's planes, or of each axis as much as ``most`` says.

    LayoutError for what is no layout, for one with dynamic numbers, and for more than 4194304
    elements.
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

    LayoutError for other values, and for dynamic numbers.
    """
    if isinstance(given, Tensor):
        given = given.layout
    if isinstance(given, Swizzle):
        given = pattern(given)
    if isinstance(given, (int, tuple)) and not isinstance(given, bool):
        given = Layout(given)
    if not isinstance(given, (Layout, ComposedLayout)):
        raise LayoutError(f"a layout is needed, not {given!r}")
    if not given.is_static():
        raise LayoutError(f"{given} has dynamic numbers, and only known ones can be shown")
    return given


def check_size(elements: int, what: str) -> None:
    """LayoutError for more elements than are evaluated."""
    if elements > ELEMENTS:
        raise LayoutError(
            f"{what} has {elements} elements, and no more than {ELEMENTS} are shown",
            hint="show a tile of it: composition(layout, (128, 64)), say",
        )


def pattern(swizzle: Swizzle) -> AnyLayout:
    """The smallest layout that shows all of what a swizzle does: the bits that it reads count the
    rows, those that it changes the pieces of a row.
    """
    count, piece = 1 << swizzle.bits, 1 << swizzle.base
    read, changed = (mask & -mask or piece for mask in (swizzle.yyy_msk, swizzle.zzz_msk))
    made: AnyLayout = composition(swizzle, Layout((count, (piece, count)), (read, (1, changed))))
    return made


def size_of(layout: AnyLayout) -> Size:
    """Planes, rows and columns of all of a layout."""
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
    """Of strides that are coordinates: what each coordinate is mapped to, as text."""
    result = np.empty(shown, object)
    for at in np.ndindex(shown):
        rest = idx2crd(at[0], layout.shape[2:]) if len(layout) > 2 else ()
        result[at] = text(layout((*at[1:], *rest)))
    return result
