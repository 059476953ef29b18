"""The bit fields of a tensor map's 1024 bits, and the semantics of tensormap.replace.
    byte  0    address
          8    kind, rank, element type, interleave, swizzle, fill, L2 promotion
         12    strides of dimensions 1 … 4 / 16: 32 bits each, at 28 their upper four
         32    sizes of dimensions 0 … 4, minus one
         52    element strides minus one, 3 bits each; at 55 the box's first extent, minus one
         56    the box's other extents minus one, or the corners of im2col's bounding box
         60    im2col's pixels, minus one
         64    for the driver: the box's size in bytes; at 72 the period of its swizzle in bytes

Inferred from 24,613 maps encoded by driver 13.0 for an H200, and from the results of
tensormap.replace for 453 of them. The hardware uses the first 64 bytes: tensormap.replace does not
change the others.
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
        """The bits of the numbers, each truncated to its width."""
        mask = (1 << self.width) - 1
        return sum((v & mask) << self.low + i * self.width for i, v in enumerate(values))

    def get(self, bits: int) -> list[int]:
        """The numbers in a tensor map's bits."""
        mask = (1 << self.width) - 1
        return [bits >> self.low + i * self.width & mask for i in range(self.entries)]

    def at(self, i: int) -> TensorMapField:
        """The field of number ``i`` alone."""
        if not 0 <= i < self.entries:
            raise LayoutError(
                f"the ordinal must be 0 to {self.entries - 1} for this field, got {i}"
            )
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
BOX_BYTES = TensorMapField(512, 32)
SWIZZLE_PERIOD = TensorMapField(576, 16)


def corners(rank: int) -> tuple[TensorMapField, TensorMapField]:
    """The lower and upper corners of im2col's bounding box, signed; narrower for higher ranks."""
    width = {3: 16, 4: 8, 5: 5}[rank]
    return TensorMapField(448, width, rank - 2), TensorMapField(464, width, rank - 2)


# --- tensormap.replace ----------------------------------------------------------------------------


def replace(encoded: bytes, field: str, value: int, ordinal: int = 0) -> bytes:
    """The result of tensormap.replace.tile on a map, for PTX's name of the field.

    ``ordinal`` is the entry of ``box_dim``, ``global_dim``, ``global_stride`` or
    ``element_stride``. Values are not checked but truncated to the field, as by the hardware.
    LayoutError for another field or entry (PTX ISA, 9.7.9.28).
    """
    bits = int.from_bytes(encoded, "little")
    for entry, number in written(field, value, ordinal):
        bits = bits & ~entry.put([-1]) | entry.put([number])
    return bits.to_bytes(len(encoded), "little")


Written = list[tuple[TensorMapField, Any]]


def written(field: str, value: Any, ordinal: int = 0) -> Written:
    """The (field, number) pairs that ``replace`` writes, before truncation. ``value`` is an int, or
    for all but the enumerations (``elemtype`` … ``fill_mode``) anything with ``-`` and ``>>``.
    """
    if field not in _REPLACED:
        known = ", ".join(_REPLACED)
        raise LayoutError(f"the field of tensormap.replace must be one of {known}, got {field!r}")
    return [(entry.at(ordinal), number) for entry, number in _REPLACED[field](value)]


def _element_type(code: int) -> Written:
    """11 and 12 (tf32, tf32.ftz) are 7 and 8 (f32, f32.ftz) with rounding, which then remains."""
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
