"""Composed layouts: a layout followed by another function of its offsets, usually a swizzle.

    c -> outer(offset + inner(c))

They are called, sliced, divided and tiled like the inner layout. Parts of the offset that the outer
function does not change are separated, so that a slice of a swizzled tile is an address plus a
smaller swizzled layout, often a plain layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import LayoutError
from .algebra.swizzled_maximum import greatest
from .int_tuple import IntTuple, cute_text, flatten, has_none, is_static, unflatten
from .layout import Layout, LayoutBase, slice_and_offset
from .notation import makes
from .scaled_basis import has_basis
from .swizzle import Swizzle
from .symbolic import Number, OffsetSum, add, floordiv, is_power_of_two, mul


@dataclass(frozen=True, slots=True)
class Shifted:
    """A dynamic offset in two parts: ``dynamic``, a multiple of ``unit``, plus ``static``."""

    dynamic: Any
    unit: int
    static: int = 0

    def __mul__(self, n: int) -> Shifted:
        return Shifted(mul(self.dynamic, n), self.unit * n, self.static * n)

    def __floordiv__(self, n: int) -> Shifted:
        """The exact quotient of a multiple of ``n``."""
        return Shifted(floordiv(self.dynamic, n), self.unit // n, self.static // n)

    def __str__(self) -> str:
        return f"{self.dynamic}+{self.static}" if self.static else str(self.dynamic)


def is_multiple(offset: Number | Shifted, n: int) -> bool:
    """Whether ``n`` is known to divide an offset."""
    if isinstance(offset, Shifted):
        return offset.unit % n == offset.static % n == 0
    return bool(offset.__class__ is int and offset % n == 0)


def shifted(offset: OffsetSum) -> int | Shifted:
    """An offset for a composed layout, with its dynamic terms added."""
    if not offset.terms:
        return offset.static
    return Shifted(offset.dynamic(), offset.unit, offset.static)


@dataclass(frozen=True, slots=True)
class ComposedLayout(LayoutBase):
    """``c -> outer(offset + inner(c))``: a swizzle or layout, an offset, and a layout.

    Called, sliced, divided and tiled like the inner layout. Prints ``Sw<3,4,3> o (64,64):(64,1)``,
    with a nonzero offset in between.
    """

    outer: Any
    offset: Any
    inner: Layout

    def _start(self, crd: IntTuple) -> OffsetSum:
        """The argument of the outer function: the offset plus that of the coordinate."""
        result = self.inner.offset(crd)
        if isinstance(self.offset, Shifted):
            result.add(self.offset.dynamic, 1, self.offset.unit)
            result.static += self.offset.static
        else:
            result.add(self.offset)
        return result

    def _split(self, total: OffsetSum) -> tuple[OffsetSum, OffsetSum]:
        if not isinstance(self.outer, Swizzle):
            return total, OffsetSum()
        return total.split(self.outer.size())

    def parts(self, crd: IntTuple) -> tuple[OffsetSum, OffsetSum]:
        """A coordinate's offset as (the argument of the outer function, the part it preserves)."""
        return self._split(self._start(crd))

    def __call__(self, *crd: Any) -> Any:
        """The offset of a coordinate, or the layout of the modes at ``None``: that of
        ``slice_and_offset``, without its offset.
        """
        coordinate = crd[0] if len(crd) == 1 else crd
        if has_none(coordinate):
            return self.slice_and_offset(coordinate)[0]
        total = self._start(coordinate)
        if not total.terms:
            return self.outer(total.static)
        inside, outside = self._split(total)
        low = 0
        if isinstance(self.outer, Swizzle) and inside.terms:  # bits below the swizzled ones
            low = inside.static & (_lowest_bit(inside.unit, 1 << self.outer.base) - 1)
            inside.static -= low
        return add(add(self.outer(inside.total()), outside.total()), low)

    def slice_and_offset(self, crd: IntTuple) -> tuple[Layout | ComposedLayout, Number]:
        """The layout of the modes at ``None``, and the offset that the swizzle does not change.

        For a static coordinate the layout is plain unless its modes reach both bits of a pair of
        the swizzle.
        """
        inside, outside = self.parts(crd)
        inner, preserved = slice_and_offset(crd, self.inner)[0], outside.total()
        start = inside.static
        if inside.terms or not isinstance(self.outer, Swizzle) or _carries(start, inner):
            return ComposedLayout(self.outer, shifted(inside), inner), preserved
        if _holds_number(crd):
            plain = _plain(self.outer, start, inner)
            if plain is not None:
                return plain, add(preserved, self.outer(start))
        swizzled = start & (self.outer.yyy_msk | self.outer.zzz_msk)
        return ComposedLayout(self.outer, swizzled, inner), add(preserved, start - swizzled)

    def indices(self, first: int = 0, end: int | None = None) -> NDArray[np.int64]:
        """The offsets of the whole domain, in order, as int64, or of a part of it."""
        if not is_static(self.offset):
            raise LayoutError(f"indices: the layout must be static, got {self}")
        offsets = self.inner.indices(first, end)
        if self.offset:
            offsets += self.offset
        result = self.outer(offsets)  # a number if the outer layout's strides are 0
        return result if isinstance(result, np.ndarray) else np.full_like(offsets, result)

    # --- as the inner layout -----------------------------------------------------------------

    def map_layout(self, f: Callable[[Layout], Layout]) -> ComposedLayout:
        return ComposedLayout(self.outer, self.offset, f(self.inner))

    @property
    def shape(self) -> IntTuple:
        return self.inner.shape

    @property
    def layoutB(self) -> Any:
        """``outer``, by pycute's name."""
        return self.outer

    @property
    def layoutA(self) -> Layout:
        """``inner``, by pycute's name."""
        return self.inner

    @property
    def contiguous(self) -> int:
        """The number of elements that remain contiguous under the outer function."""
        return 1 << self.outer.base if isinstance(self.outer, Swizzle) else 1

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, i: int | slice) -> ComposedLayout:
        return ComposedLayout(self.outer, self.offset, self.inner[i])

    def __iter__(self) -> Iterator[ComposedLayout]:
        return (self[i] for i in range(len(self)))

    def size(self, mode: int | None = None) -> Number:
        return self.inner.size(mode)

    def cosize(self) -> Number:
        """One more than the greatest offset."""
        if not isinstance(self.outer, Swizzle):
            return self.outer.cosize()
        if not self.is_static() or has_basis(self.inner.stride):
            raise LayoutError(f"cosize: the layout must be static, got {self}")
        leaves = zip(flatten(self.inner.shape), flatten(self.inner.stride), strict=True)
        return greatest(self.outer, self.offset, list(leaves)) + 1

    def rank(self) -> int:
        return len(self.inner)

    def depth(self) -> int:
        return self.inner.depth()

    def is_static(self) -> bool:
        return is_static(self.offset) and self.inner.is_static()

    def __str__(self) -> str:
        start = "" if self.offset.__class__ is int and self.offset == 0 else f" o {self.offset}"
        return f"{self.outer}{start} o {self.inner}"

    def __format__(self, spec: str) -> str:
        """``f"{layout:cute}"`` is CuTe's notation: ``Sw<3,4,3> o _0 o (_64,_64):(_64,_1)``."""
        if spec != "cute":
            return format(str(self), spec)
        outer = format(self.outer, "cute") if isinstance(self.outer, Layout) else str(self.outer)
        return f"{outer} o {cute_text(self.offset)} o {self.inner:cute}"


def _holds_number(crd: IntTuple) -> bool:
    return any(map(_holds_number, crd)) if crd.__class__ is tuple else crd is not None


def _carries(start: int, layout: Layout) -> bool:
    """Whether the offsets of a layout's modes may carry into each other's bits or into those of
    ``start``. False only if their bits are disjoint.
    """
    if not layout.is_static():
        return True
    used = start
    for s, d in zip(flatten(layout.shape), flatten(layout.stride), strict=True):
        bits = d * ((1 << (s - 1).bit_length()) - 1)
        if bits and (not is_power_of_two(d) or used & bits):
            return True
        used |= bits
    return False


def _plain(swizzle: Swizzle, start: int, layout: Layout) -> Layout | None:
    """``c -> swizzle(start + layout(c)) - swizzle(start)`` as a layout, if the modes don't carry.

    None if the modes have both bits of a pair of the swizzle.
    """
    modes = list(zip(flatten(layout.shape), flatten(layout.stride), strict=True))
    reached = sum(d * ((1 << (s - 1).bit_length()) - 1) for s, d in modes)
    if any(reached >> y & reached >> z & 1 for y, z in swizzle.pairs()):
        return None
    first = swizzle(start)
    split = [_split_mode(s, d, lambda bit: swizzle(start + bit) - first) for s, d in modes]
    if None in split:
        return None
    shape = unflatten([p[0] for p in split if p], layout.shape)
    return Layout.of(shape, unflatten([p[1] for p in split if p], layout.shape))


def _split_mode(s: int, d: int, moved: Callable[[int], int]) -> tuple[IntTuple, IntTuple] | None:
    """Size and stride of a mode whose bits are ``moved``, split where the steps don't double."""
    steps = [moved(d << k) for k in range((s - 1).bit_length())] if d else []
    cuts = [k for k in range(1, len(steps)) if steps[k] != 2 * steps[k - 1]]
    if s % (1 << max(cuts, default=0)):
        return None
    if not cuts:
        return s, steps[0] if steps else d
    ends = [0, *cuts]
    sizes = [1 << b - a for a, b in pairwise(ends)]
    return (*sizes, s >> ends[-1]), tuple(steps[k] for k in ends)


def _lowest_bit(*numbers: int) -> int:
    """The largest power of two that divides all numbers."""
    return min(n & -n for n in numbers)


AnyLayout: TypeAlias = Layout | ComposedLayout


def inside(layout: AnyLayout) -> Layout:
    """The inner layout of a composed layout; a plain layout unchanged."""
    return layout.inner if isinstance(layout, ComposedLayout) else layout


@makes("composed")
def make_composed_layout(outer: Any, offset: Any, inner: Layout) -> ComposedLayout:
    """``c -> outer(offset + inner(c))``. LayoutError for arguments of other types."""
    if not isinstance(outer, (Swizzle, Layout)):
        raise LayoutError(f"outer of a composed layout must be a swizzle or layout, got {outer}")
    if not isinstance(inner, Layout):
        raise LayoutError(f"inner of a composed layout must be a layout, got {inner}")
    if isinstance(offset, (tuple, Layout, Swizzle, float, str)) or offset is None:
        raise LayoutError(f"offset of a composed layout must be a number, got {offset}")
    return ComposedLayout(outer, offset, inner)


def make_swizzled(swizzle: Swizzle, layout: Layout, offset: Any = 0) -> Layout | ComposedLayout:
    """The composed layout of a swizzle and a layout; the layout itself for an identity swizzle."""
    if swizzle.bits == 0 and offset.__class__ is int and offset == 0:
        return layout
    return ComposedLayout(swizzle, offset, layout)
