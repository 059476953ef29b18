"""The parameters of a tensor map: address, element type, shape, strides, and box or im2col."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...dtypes import DType, dtype
from ...errors import DtypeError
from ...layout.int_tuple import text


class ElementType(NamedTuple):
    """What a tensor copy knows of an element: the type field's ``code``, its bytes, whether a NaN
    may fill it, and whether f32 is rounded to tf32 on the way.
    """

    code: int
    bytes: int
    floating: bool = False
    rounded: bool = False


# PTX's names (tensormap.replace.elemtype), in the order of CUtensorMapDataType.
TYPES = {
    "u8": ElementType(0, 1),
    "u16": ElementType(1, 2),
    "u32": ElementType(2, 4),
    "s32": ElementType(3, 4),
    "u64": ElementType(4, 8),
    "s64": ElementType(5, 8),
    "f16": ElementType(6, 2, floating=True),
    "f32": ElementType(7, 4, floating=True),
    "f64": ElementType(9, 8, floating=True),
    "bf16": ElementType(10, 2, floating=True),
    "f32.ftz": ElementType(8, 4, floating=True),
    "tf32": ElementType(7, 4, floating=True, rounded=True),
    "tf32.ftz": ElementType(8, 4, floating=True, rounded=True),
}
_BLACKWELL = ("b4x16", "b4x16_p64", "b6x16_p32", "b6p2x16")


def element_type(type_: str | DType) -> str:
    """The name in ``TYPES`` for elements of a number format: its own, or ``u8`` … ``u64``.

    DtypeError for elements of less than a byte, or of more than eight.
    """
    name = str(type_).removeprefix(".")
    if name in TYPES:
        return name
    if name in _BLACKWELL:
        raise DtypeError(f"{name} is an element of sm_100's tensor maps, not of sm_90's")
    found = dtype(type_)
    if f"u{found.bits}" not in TYPES:
        raise DtypeError(
            f"tensor copies of sm_90 move elements of 1, 2, 4 and 8 bytes, and {found} has"
            f" {found.bits} bits",
            hint="smaller ones are moved as u8, several in one",
        )
    return f"u{found.bits}"


@dataclass(frozen=True, slots=True)
class Im2col:
    """What an im2col copy takes: ``channels`` of ``pixels`` that follow one another in W, H, D, N.

    ``lower`` and ``upper`` are the corners of the bounding box in which a filter's base moves, one
    entry for each of W, H, D: from the tensor's first pixel, and from its last (PTX ISA, 5.5.4).
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    channels: int
    pixels: int

    def __str__(self) -> str:
        corners = f"{text(self.lower)}…{text(self.upper)}"
        return f"im2col {corners}, {self.channels} channels of {self.pixels} pixels"


@dataclass(frozen=True, slots=True)
class TensorMapParameters:
    """The fields of a tensor map, in the order of cuTensorMapEncodeTiled; see ``TensorMap``."""

    address: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...] | Im2col
    element_strides: tuple[int, ...]
    interleave: int = 0
    swizzle: int = 0
    l2_promotion: int = 0
    oob_fill: str = "zero"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def element_bytes(self) -> int:
        return TYPES[self.dtype].bytes
