"""Swizzles, and layouts under them: how shared memory keeps rows out of each other's banks.

``Swizzle(bits, base, shift)`` XORs ``bits`` bits of an offset with those ``shift`` places above,
and leaves the lowest ``base`` bits alone, so 1 << base elements stay together:

    offset   … x Y Y Y x Z Z Z x x x x       Sw<3,4,4>: bits 3, base 4, shift 4
    result   … x Y Y Y x A A A x x x x       A = Y ^ Z

It is its own inverse. A ``ComposedLayout`` is a layout followed by such a function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import LayoutError
from tilewright.layout.arithmetic import Number, Sum, add
from tilewright.layout.int_tuple import IntTuple, has_none, is_static
from tilewright.layout.layout import Layout


@dataclass(frozen=True, slots=True)
class Swizzle:
    """``Sw<bits,base,shift>``; a negative ``shift`` takes the bits from below.

    Callable on ints, dynamic values and integer arrays. LayoutError unless bits, base ≥ 0 and
    |shift| ≥ bits.
    """

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        if self.bits < 0 or self.base < 0:
            raise LayoutError(f"{self}: bits and base are not negative")
        if abs(self.shift) < self.bits:
            raise LayoutError(
                f"{self}: the shift moves by at least as many places as there are bits"
            )

    @property
    def yyy_msk(self) -> int:
        """The bits that are read."""
        return ((1 << self.bits) - 1) << (self.base + max(0, self.shift))

    @property
    def zzz_msk(self) -> int:
        """The bits that are changed."""
        return ((1 << self.bits) - 1) << (self.base - min(0, self.shift))

    def __call__(self, offset: Any) -> Any:
        if self.bits == 0:
            return offset
        if isinstance(offset, np.ndarray):
            return self._of_array(offset)
        if self.shift >= 0:
            return offset ^ ((offset >> self.shift) & self.zzz_msk)
        return offset ^ ((offset << -self.shift) & self.zzz_msk)

    def _of_array(self, offset: NDArray[Any]) -> NDArray[Any]:
        moved = offset >> self.shift if self.shift >= 0 else offset << -self.shift
        moved &= self.zzz_msk
        moved ^= offset
        return moved

    def size(self) -> int:
        """The period: adding a multiple of it to an offset adds it to the result."""
        return 1 << (self.bits + self.base + abs(self.shift))

    cosize = size

    def __str__(self) -> str:
        return f"Sw<{self.bits},{self.base},{self.shift}>"


@dataclass(frozen=True, slots=True)
class Shifted:
    """A dynamic offset whose parts are known: ``dynamic``, a multiple of ``unit``, plus
    ``static``."""

    dynamic: Any
    unit: int
    static: int = 0

    def __str__(self) -> str:
        return f"{self.dynamic}+{self.static}" if self.static else str(self.dynamic)


@dataclass(frozen=True, slots=True)
class ComposedLayout:
    """``c -> outer(offset + inner(c))``: a swizzle or layout, an offset, and a layout.

    Called, sliced, divided and tiled like the layout inside. Prints ``Sw<3,4,3> o
    (64,64):(64,1)``, with the offset between where it is not 0.
    """

    outer: Any
    offset: Any
    inner: Layout

    def _start(self, crd: IntTuple) -> Sum:
        """Offset and coordinate together, before the outer function."""
        result = self.inner.offset(crd)
        if isinstance(self.offset, Shifted):
            result.add(self.offset.dynamic, 1, self.offset.unit)
            result.static += self.offset.static
        else:
            result.add(self.offset)
        return result

    def _split(self, total: Sum) -> tuple[Sum, Number]:
        """(what the outer function must see, what it only passes on)."""
        if not isinstance(self.outer, Swizzle):
            return total, 0
        inside, outside = total.split(self.outer.size())
        return inside, outside.total()

    def __call__(self, *crd: Any) -> Any:
        """The offset of a coordinate, or the composed layout of the modes at ``None``."""
        coordinate = crd[0] if len(crd) == 1 else crd
        if has_none(coordinate):
            return ComposedLayout(self.outer, self.offset, self.inner(coordinate))
        total = self._start(coordinate)
        if not total.terms:
            return self.outer(total.static)
        inside, outside = self._split(total)
        low = 0
        if isinstance(self.outer, Swizzle) and inside.terms:  # bits that stay where they are
            low = inside.static & (_lowest_bit(inside.unit, 1 << self.outer.base) - 1)
            inside.static -= low
        return add(add(self.outer(inside.total()), outside), low)

    def slice_and_offset(self, crd: IntTuple) -> tuple[ComposedLayout, Number]:
        """The modes at ``None`` from the coordinate on, and the offset that needs no swizzle."""
        inside, outside = self._split(self._start(crd))
        offset: Any = inside.static
        if inside.terms:
            offset = Shifted(inside.dynamic(), inside.unit, inside.static)
        return ComposedLayout(self.outer, offset, self.inner(crd)), outside

    def indices(self) -> NDArray[np.int64]:
        """The offsets of the whole domain, in order, as int64."""
        if not is_static(self.offset):
            raise LayoutError(f"indices: {self} is not static")
        offsets = self.inner.indices()
        if self.offset:
            offsets += self.offset
        result: NDArray[np.int64] = self.outer(offsets)
        return result

    # --- as the layout inside ----------------------------------------------------------------

    def map_layout(self, f: Callable[[Layout], Layout]) -> ComposedLayout:
        return ComposedLayout(self.outer, self.offset, f(self.inner))

    @property
    def shape(self) -> IntTuple:
        return self.inner.shape

    @property
    def contiguous(self) -> int:
        """The elements that the outer function keeps together."""
        return 1 << self.outer.base if isinstance(self.outer, Swizzle) else 1

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, i: int | slice) -> ComposedLayout:
        return ComposedLayout(self.outer, self.offset, self.inner[i])

    def size(self, mode: int | None = None) -> Number:
        return self.inner.size(mode)

    def cosize(self) -> Number:
        """One more than the greatest offset."""
        if not isinstance(self.outer, Swizzle):
            return self.outer.cosize()
        if not is_static(self.offset):
            raise LayoutError(f"cosize: {self} is not static")
        return int(self.indices().max()) + 1

    def rank(self) -> int:
        return len(self.inner)

    def depth(self) -> int:
        return self.inner.depth()

    def is_static(self) -> bool:
        return is_static(self.offset) and self.inner.is_static()

    def __str__(self) -> str:
        start = "" if self.offset.__class__ is int and self.offset == 0 else f" o {self.offset}"
        return f"{self.outer}{start} o {self.inner}"


def _lowest_bit(*numbers: int) -> int:
    """The greatest power of two that divides all of them."""
    return min(n & -n for n in numbers)


def make_swizzled(swizzle: Swizzle, layout: Layout, offset: Any = 0) -> Layout | ComposedLayout:
    """The layout under the swizzle; the layout itself where the swizzle does nothing."""
    if swizzle.bits == 0 and offset.__class__ is int and offset == 0:
        return layout
    return ComposedLayout(swizzle, offset, layout)
