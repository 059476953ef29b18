"""The matrix descriptor (wgmma descriptor): 64 bits that locate an operand in shared memory.

An operand consists of core matrices, 8 rows of 16 bytes. In a ``K``-major operand the K elements of
a row are contiguous, in an ``MN``-major one (16-bit types only, "transposed" in PTX) those of a
column. Without a swizzle a core matrix is 128 contiguous bytes, and ``leading`` and ``stride`` are
the byte offsets to the next one along K and along MN. With a swizzle, 8 rows of 32, 64 or 128 bytes
form a swizzle atom whose 16-byte chunks are permuted: address bits from 4 up are XORed with those
from 7 up.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import LayoutError
from ..layout import Layout, Swizzle, make_layout

SWIZZLES = {0: 0, 128: 1, 64: 2, 32: 3}  # bytes of a swizzled row → the field's value
WIDTHS = (1, 8, 16, 32)  # bits of an element
MAJORS = ("K", "MN")
CHUNK_BYTES = 16  # the unit that a swizzle permutes; a row of a core matrix
_LIMIT = 1 << 18  # of an address: 14 bits in units of 16 bytes


def _is_number(x: Any) -> bool:
    return isinstance(x, Integral)


def swizzle_pattern(swizzle: int) -> Swizzle:
    """The swizzle of bit addresses for rows of ``swizzle`` bytes."""
    if not _is_number(swizzle) or swizzle not in SWIZZLES:
        raise LayoutError(f"swizzle must be one of {sorted(SWIZZLES)} bytes, got {swizzle!r}")
    return Swizzle(swizzle.bit_length() - 5 if swizzle else 0, 7, 3)


def swizzle_atom(element_bits: int, swizzle: int, major: str) -> Layout:
    """The (row, column) → element of a swizzle atom: 8 rows (MN-major: columns) of ``swizzle``
    bytes, or of a core matrix without a swizzle.
    """
    if major.__class__ is not str or major not in MAJORS:
        raise LayoutError(f"major must be K or MN, got {major!r}")
    length = 8 * (swizzle or CHUNK_BYTES) // element_bits
    return Layout((8, length), (length, 1)) if major == "K" else Layout((length, 8), (1, length))


@dataclass(frozen=True, slots=True)
class MatrixDescriptor:
    """The location of an operand in shared memory, in bytes, each a multiple of 16 below 2^18.

    ``swizzle`` is 0, 32, 64 or 128 bytes; ``base_offset`` (0 … 7) is for swizzled operands whose
    pattern does not begin at a multiple of its size.
    """

    start: int
    leading: int = 0
    stride: int = 0
    swizzle: int = 0
    base_offset: int = 0

    def __post_init__(self) -> None:
        for name in ("start", "leading", "stride"):
            value = getattr(self, name)
            if not _is_number(value) or value % 16 or not 0 <= value < _LIMIT:
                raise LayoutError(f"{name} must be a multiple of 16 below {_LIMIT}, got {value!r}")
        swizzle_pattern(self.swizzle)
        if self.base_offset not in range(8):
            raise LayoutError(f"base_offset must be 0 … 7, got {self.base_offset!r}")

    @property
    def bits(self) -> int:
        """The 64-bit operand."""
        fields = ((self.start >> 4, 0), (self.leading >> 4, 16), (self.stride >> 4, 32))
        more = ((self.base_offset, 49), (SWIZZLES[self.swizzle], 62))
        return sum(value << low for value, low in (*fields, *more))

    @classmethod
    def parse(cls, bits: int) -> MatrixDescriptor:
        """The fields of a 64-bit operand; unused bits are ignored."""
        if not _is_number(bits) or not 0 <= bits < 1 << 64:
            raise LayoutError(f"a descriptor must be a 64-bit integer, got {bits!r}")
        start, leading, stride = ((int(bits) >> low & 0x3FFF) << 4 for low in (0, 16, 32))
        swizzle = {value: size for size, value in SWIZZLES.items()}[int(bits) >> 62 & 3]
        return cls(start, leading, stride, swizzle, int(bits) >> 49 & 7)

    def layout(self, element_bits: int, rows: int, columns: int, major: str = "K") -> Layout:
        """(row, column) → bit offset from the start, before the swizzle. Rows are of A or B^T (M or
        N), columns are K. MN-major rows are rounded up to whole swizzle atoms.

        LayoutError unless the number of rows is a multiple of 8 and the number of columns one of 16
        bytes (K-major) or of 8 elements of 16 bits (MN-major); more columns than a swizzle atom
        must be a multiple of it.
        """
        self._check(element_bits, rows, columns, major)
        one = swizzle_atom(element_bits, self.swizzle, major)
        along, across = self.leading, self.stride
        if major == "MN" and self.swizzle == 0:
            along, across = across, along
        steps = (across, along) if major == "K" else (along, across)
        modes = []
        for mode, extent, step in zip(one, (rows, columns), steps, strict=True):
            unit = min(mode.size(), extent)
            counts, strides = (unit, -(-extent // unit)), (mode.stride * element_bits, 8 * step)
            modes.append(Layout(counts, strides))
        return make_layout(*modes)

    def _check(self, element_bits: int, rows: int, columns: int, major: str) -> None:
        if element_bits not in WIDTHS or (major == "MN" and element_bits != 16):
            allowed = "16" if major == "MN" else "1, 8, 16 or 32"
            rule = f"{major}-major elements of wgmma must have {allowed} bits"
            raise LayoutError(f"{rule}, got {element_bits!r}")
        atom_columns = swizzle_atom(element_bits, self.swizzle, major).size(1)
        unit = 8 * CHUNK_BYTES // element_bits if major == "K" else 8
        for what, extent, least in (("rows", rows, 8), ("columns", columns, unit)):
            if not _is_number(extent) or extent < 1 or extent % least:
                raise LayoutError(f"{what} must be a multiple of {least}, got {extent!r}")
        if columns > atom_columns and columns % atom_columns:
            expected = f"at most {atom_columns} or a multiple of it (a swizzled row)"
            raise LayoutError(f"columns must be {expected}, got {columns}")

    def offsets(
        self, element_bits: int, rows: int, columns: int, major: str = "K"
    ) -> npt.NDArray[Any]:
        """(rows, columns) → the bit offset of each element from the start, before the swizzle."""
        offsets = self.layout(element_bits, rows, columns, major).indices()
        return np.asarray(offsets.reshape((-1, columns), order="F")[:rows])

    def addresses(
        self, element_bits: int, rows: int, columns: int, major: str = "K"
    ) -> npt.NDArray[Any]:
        """(rows, columns) → the bit address of each element in shared memory, swizzled."""
        first = self.base_offset << 10  # the bit address at which the pattern begins
        linear = 8 * self.start + self.offsets(element_bits, rows, columns, major)
        swizzled: npt.NDArray[Any] = swizzle_pattern(self.swizzle)(linear - first)
        return swizzled + first
