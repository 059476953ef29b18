"""Swizzles: permutations of offsets that avoid bank conflicts in shared memory.

``Swizzle(bits, base, shift)`` XORs ``bits`` bits of an offset with those ``shift`` bits above, and
does not change the lowest ``base`` bits, so 1 << base elements remain contiguous:
    offset   … x Y Y Y x Z Z Z x x x x       Sw<3,4,4>: bits 3, base 4, shift 4
    result   … x Y Y Y x A A A x x x x       A = Y ^ Z

It is its own inverse. A ``ComposedLayout`` is a layout followed by a swizzle. For a layout after a
swizzle, ``swizzle_after`` returns the equivalent swizzle after the layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..errors import LayoutError
from ..notebook_display import Drawable
from .coordinate import coalesce_modes
from .int_tuple import is_int
from .layout import Layout
from .notation import makes
from .symbolic import is_power_of_two


@makes("swizzle")
@dataclass(frozen=True, slots=True)
class Swizzle(Drawable):
    """``Sw<bits,base,shift>``; a negative ``shift`` reads the lower bits.
    Callable on ints, dynamic values and integer arrays. LayoutError unless bits, base ≥ 0 and
    |shift| ≥ bits.
    """

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        if not all(map(is_int, (self.bits, self.base, self.shift))):
            raise LayoutError(f"bits, base and shift of a swizzle must be integers, got {self}")
        if self.bits < 0 or self.base < 0:
            raise LayoutError(f"bits and base of a swizzle must not be negative, got {self}")
        if abs(self.shift) < self.bits:
            raise LayoutError(f"|shift| of a swizzle must be at least bits, got {self}")

    @property
    def yyy_msk(self) -> int:
        """The bits that are read."""
        return ((1 << self.bits) - 1) << (self.base + max(0, self.shift))

    @property
    def zzz_msk(self) -> int:
        """The bits that are changed."""
        return ((1 << self.bits) - 1) << (self.base - min(0, self.shift))

    def __call__(self, offset: Any) -> Any:
        if offset.__class__ is not int:
            self._check(offset)
        if self.bits == 0:
            return offset
        if isinstance(offset, np.ndarray):
            return self._of_array(offset)
        return offset ^ (shiftr(offset, self.shift) & self.zzz_msk)

    def _check(self, offset: Any) -> None:
        """LayoutError for anything but integers."""
        of_numpy = isinstance(offset, (np.ndarray, np.generic))
        shifts = hasattr(offset, "__rshift__") and not isinstance(offset, type)
        if not (offset.dtype.kind in "iu" if of_numpy else shifts):
            raise LayoutError(f"the offsets of {self} must be integers, got {offset!r}")

    def _of_array(self, offset: NDArray[Any]) -> NDArray[Any]:
        moved: NDArray[Any] = shiftr(offset, self.shift)
        moved &= self.zzz_msk
        moved ^= offset
        return moved

    def size(self) -> int:
        """The period: adding a multiple of it to an offset adds it to the result."""
        return 1 << (self.bits + self.base + abs(self.shift))

    cosize = size

    def pairs(self) -> list[tuple[int, int]]:
        """The positions (bit that is read, bit that it flips), from low to high."""
        read, changed = self.base + max(0, self.shift), self.base - min(0, self.shift)
        return [(read + i, changed + i) for i in range(self.bits)]

    def keeps(self, count: int) -> bool:
        """Whether it maps the numbers below ``count`` onto themselves."""
        return all(count % (2 << changed) == 0 for y, changed in self.pairs() if 1 << y < count)

    def __str__(self) -> str:
        return f"Sw<{self.bits},{self.base},{self.shift}>"


def shiftr(a: Any, s: int) -> Any:
    """``a >> s``; to the left where ``s`` is negative."""
    return a >> s if s >= 0 else a << -s


def shiftl(a: Any, s: int) -> Any:
    """``a << s``; to the right where ``s`` is negative."""
    return shiftr(a, -s)


def swizzle_after(layout: Layout, swizzle: Swizzle) -> Swizzle:
    """The swizzle S with ``layout(swizzle(i)) == S(layout(i))``.

    LayoutError where there is none: the layout must map each bit that the swizzle reads or flips to
    one bit of the offset, and these bits must form a swizzle.
    >>> print(swizzle_after(Layout((64, 8), (8, 1)), Swizzle(3, 3, 3)))
    Sw<3,0,-6>
    """
    for x, kind in ((layout, Layout), (swizzle, Swizzle)):
        if not isinstance(x, kind):
            raise LayoutError(f"swizzle_after expects a layout and a swizzle, got {x!r}")
    images, used = _bit_images(layout, swizzle)
    pairs = [(images[y], images[z]) for y, z in swizzle.pairs() if images.get(y)]
    if not any(y & used for y, _ in pairs):  # the identity: CuTe's notation for it, if there is one
        pairs = [(layout(1 << y), layout(1 << z)) for y, z in swizzle.pairs()]
        if any(y & used for y, _ in pairs):
            pairs = []
    (y, z), bits = pairs[0] if pairs else (0, 0), len(pairs)
    shift = y.bit_length() - z.bit_length()
    regular = pairs == [(y << i, z << i) for i in range(bits)] and abs(shift) >= bits
    if is_power_of_two(y) and is_power_of_two(z) and regular:
        return Swizzle(bits, min(y, z).bit_length() - 1, shift)
    if not any(y & used for y, _ in pairs):
        return Swizzle(0, swizzle.base, swizzle.shift)
    _no_swizzle(layout, swizzle, "it changes the order of the bits")


def _bit_images(layout: Layout, swizzle: Swizzle) -> tuple[dict[int, int], int]:
    """The image under the layout of each bit that the swizzle reads or flips, 0 for a bit that is
    never set; and the bits of all offsets.

    The last mode is open-ended, as in CuTe, while its bits do not overlap those of others.
    """
    images: dict[int, int] = {}
    shapes, strides = coalesce_modes(layout.shape, layout.stride)
    open_end = 0  # the offset of the last mode's next bit
    while (
        shapes and is_power_of_two(strides[0]) and (is_power_of_two(shapes[0]) or len(shapes) == 1)
    ):
        s, d = shapes.pop(0), strides.pop(0)
        bits = (s - 1).bit_length() if s.__class__ is int else 0
        for k in range(bits):
            images[len(images)] = d << k
        open_end = d << bits
    used = sum(images.values())
    if len(set(images.values())) < len(images):
        _no_swizzle(layout, swizzle, "its modes overlap")
    if any(d.__class__ is not int or d % (1 << used.bit_length()) for d in strides):
        _no_swizzle(layout, swizzle, "the strides of its first modes must be powers of two")
    for bit in range(len(images), swizzle.size().bit_length() - 1):
        if shapes:
            _no_swizzle(layout, swizzle, "the sizes of its first modes must be powers of two")
        images[bit] = 0 if open_end & used else open_end
        open_end <<= 1
    return images, used


def _no_swizzle(layout: Layout, swizzle: Swizzle, why: str) -> NoReturn:
    raise LayoutError(f"no swizzle after {layout} is equivalent to {swizzle} before it: {why}")
