"""The fields of a tensor map, which bits of its 1024 say what, and what tensormap.replace does.

    byte  0    address
          8    kind, rank, element type, interleave, swizzle, fill, L2 promotion
         12    strides of dimensions 1 … 4 in sixteens: 32 bits each, at 28 their upper four
         32    sizes of dimensions 0 … 4, less one
         52    element strides less one, 3 bits each; at 55 the box's first extent, less one
         56    the box's other extents less one, or the corners of im2col's bounding box
         60    im2col's pixels, less one
         64    for the driver: the box's bytes; at 72 after how many bytes its swizzle repeats

Inferred from 24,613 maps that driver 13.0 made on an H200, and from what tensormap.replace did
there to 453. The hardware keeps to the first 64 bytes: tensormap.replace leaves the others alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ...errors import LayoutError


class TensorMapField(NamedTuple):
    """``entries`` numbers of ``width`` bits, the first from bit ``low`` on."""

    low: int
    width: int
    entries: int = 1

    def put(self, values: Iterable[int]) -> int:
        """The numbers where they stand, cut to their width."""
        mask = (1 << self.width) - 1
        return sum((v & mask) << self.low + i * self.width for i, v in enumerate(values))

    def get(self, bits: int) -> list[int]:
        """The numbers that stand there."""
        mask = (1 << self.width) - 1
        return [bits >> self.low + i * self.width & mask for i in range(self.entries)]

    def at(self, i: int) -> TensorMapField:
        """Number ``i`` alone."""
        if not 0 <= i < self.entries:
            raise LayoutError(f"this field of a tensor map has {self.entries} entries, and no {i}")
        return TensorMapField(self.low + i * self.width, self.width)


ADDRESS = TensorMapField(0, 64)
IM2COL = TensorMapField(64, 1)
RANK = TensorMapField(68, 3)
TYPE = TensorMapField(71, 4)
INTERLEAVE = TensorMapField(75, 2)
SWIZZLE = TensorMapField(77, 2)
FILL = TensorMapField(79, 1)
ROUNDED = TensorMapField(80, 1)  # to tf32
PROMOTION = TensorMapField(81, 2)
STRIDE = TensorMapField(96, 32, 4)
STRIDE_TOP = TensorMapField(224, 4, 4)
SIZE = TensorMapField(256, 32, 5)
STEP = TensorMapField(416, 3, 5)
EXTENT = TensorMapField(440, 8, 5)
PIXELS = TensorMapField(480, 10)
NOTED_BYTES = TensorMapField(512, 32)
NOTED_PERIOD = TensorMapField(576, 16)


def corners(rank: int) -> tuple[TensorMapField, TensorMapField]:
    """The lower and upper corners of im2col's bounding box, signed; the more, the narrower."""
    width = {3: 16, 4: 8, 5: 5}[rank]
    return TensorMapField(448, width, rank - 2), TensorMapField(464, width, rank - 2)


# --- tensormap.replace ----------------------------------------------------------------------------


def replace(encoded: bytes, field: str, value: int, ordinal: int = 0) -> bytes:
    """The map that tensormap.replace.tile makes of a map, by PTX's name of the field.

    ``ordinal`` is the entry of ``box_dim``, ``global_dim``, ``global_stride`` or
    ``element_stride``. Nothing is checked: what exceeds a field is cut off, as the hardware does.
    LayoutError for another field or entry (PTX ISA, 9.7.9.28).
    """
    bits = int.from_bytes(encoded, "little")
    for one, number in written(field, value, ordinal):
        bits = bits & ~one.put([-1]) | one.put([number])
    return bits.to_bytes(len(encoded), "little")


Written = list[tuple[TensorMapField, Any]]


def written(field: str, value: Any, ordinal: int = 0) -> Written:
    """What ``replace`` puts where, before it is cut. ``value`` is an integer, or for all but the
    named ones (``elemtype`` … ``fill_mode``) anything that has ``-`` and ``>>``.
    """
    if field not in _REPLACED:
        raise LayoutError(f"tensormap.replace knows {', '.join(_REPLACED)}, not {field!r}")
    return [(one.at(ordinal), number) for one, number in _REPLACED[field](value)]


def _element_type(code: int) -> Written:
    """tf32 and tf32.ftz, 11 and 12, are 7 and 8, f32 and f32.ftz, but rounded; and stay rounded."""
    return [(TYPE, code - 4), (ROUNDED, 1)] if code in (11, 12) else [(TYPE, code)]


_REPLACED: dict[str, Callable[[Any], Written]] = {
    "global_address": lambda value: [(ADDRESS, value)],
    "rank": lambda value: [(RANK, value)],
    "box_dim": lambda value: [(EXTENT, value - 1)],
    "global_dim": lambda value: [(SIZE, value - 1)],
    "global_stride": lambda value: [(STRIDE, value >> 4), (STRIDE_TOP, value >> 36)],
    "element_stride": lambda value: [(STEP, value - 1)],
    "elemtype": _element_type,
    "interleave_layout": lambda value: [(INTERLEAVE, value)],
    "swizzle_mode": lambda value: [(SWIZZLE, value)],
    "fill_mode": lambda value: [(FILL, value)],
}
