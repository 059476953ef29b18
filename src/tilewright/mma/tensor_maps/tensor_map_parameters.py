"""The parameters of a tensor map: address, element type, shape, strides, and box or im2col."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...dtypes import DType, dtype
from ...errors import DtypeError
from ...layout.int_tuple import text


class ElementType(NamedTuple):
    """An element type of tensor copies: the ``code`` of the type field, the size in bytes, whether
    a NaN may fill it, and whether a load rounds f32 to tf32.
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
    """The name in ``TYPES`` for a number format: its own, or ``u8`` … ``u64`` by its size.

    DtypeError for elements of less than one byte or more than eight.
    """
    name = str(type_).removeprefix(".")
    if name in TYPES:
        return name
    if name in _BLACKWELL:
        raise DtypeError(f"{name} is supported by sm_100's tensor maps, not by sm_90's")
    found = dtype(type_)
    if f"u{found.bits}" not in TYPES:
        raise DtypeError(
            "elements of sm_90's tensor copies must have 1, 2, 4 or 8 bytes, got"
            f" {found.bits} bits ({found})",
            hint="copy smaller elements as u8, several per byte",
        )
    return f"u{found.bits}"


@dataclass(frozen=True, slots=True)
class Im2col:
    """The box of an im2col copy: ``channels`` of ``pixels`` consecutive pixels in W, H, D, N order.

    ``lower`` and ``upper`` are the corners of the bounding box in which a filter's base moves, one
    entry for each of W, H, D: relative to the tensor's first and last pixel (PTX ISA, 5.5.4).
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
