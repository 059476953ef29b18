"""The matrix descriptor of wgmma: 64 bits that say where in shared memory an operand stands.

An operand is made of core matrices, 8 rows of 16 bytes. ``K``-major: a row's K elements follow one
another; ``MN``-major (16-bit types alone, "transposed" in PTX): a column's do. Without a swizzle a
core matrix is 128 bytes in a row and ``leading``, ``stride`` say how far the next one is, along K
and along MN; with one, 8 rows of 32, 64 or 128 bytes belong together, their 16-byte pieces
permuted: address bits from 4 up are XORed with those from 7 up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import LayoutError
from ..layout import Layout, Swizzle

SWIZZLES = {0: 0, 128: 1, 64: 2, 32: 3}  # bytes of a swizzled row → the field's value
_LIMIT = 1 << 18  # bytes that 14 bits count in sixteens


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Where an operand stands: bytes in shared memory, all multiples of 16 below 2^18.

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
            if value % 16 or not 0 <= value < _LIMIT:
                raise LayoutError(f"{name} is a multiple of 16 below {_LIMIT}, not {value}")
        if self.swizzle not in SWIZZLES:
            raise LayoutError(f"swizzle is one of {sorted(SWIZZLES)} bytes, not {self.swizzle}")
        if not 0 <= self.base_offset < 8:
            raise LayoutError(f"base_offset is 0 … 7, not {self.base_offset}")

    @property
    def bits(self) -> int:
        """The 64-bit operand."""
        fields = ((self.start >> 4, 0), (self.leading >> 4, 16), (self.stride >> 4, 32))
        more = ((self.base_offset, 49), (SWIZZLES[self.swizzle], 62))
        return sum(value << low for value, low in (*fields, *more))

    @classmethod
    def parse(cls, bits: int) -> Descriptor:
        """The fields of a 64-bit operand; bits that mean nothing are ignored."""
        start, leading, stride = ((bits >> low & 0x3FFF) << 4 for low in (0, 16, 32))
        swizzle = {value: size for size, value in SWIZZLES.items()}[bits >> 62 & 3]
        return cls(start, leading, stride, swizzle, bits >> 49 & 7)

    def layout(self, element_bits: int, rows: int, columns: int, major: str = "K") -> Layout:
        """(row, column) → bit offset from the start, before the swizzle: rows of A or B^T (M or N),
        columns of K. Rows are as many as whole core matrices have.
        """
        per = 128 // element_bits  # elements in 16 bytes
        lead, stride = 8 * self.leading, 8 * self.stride
        row = 8 * (self.swizzle or 16)  # bits of a core matrix's row
        wide = row // element_bits
        if major == "K":
            if self.swizzle == 0:
                per = min(per, columns)
                return Layout(
                    ((8, rows // 8), (per, columns // per)),
                    ((row, stride), (element_bits, lead)),
                )
            wide = min(wide, columns)
            return Layout(
                ((8, rows // 8), (wide, columns // wide)), ((row, stride), (element_bits, lead))
            )
        along, across = (stride, lead) if self.swizzle == 0 else (lead, stride)
        wide = min(wide, rows)
        return Layout(
            ((wide, -(-rows // wide)), (8, columns // 8)), ((element_bits, along), (row, across))
        )

    def addresses(
        self, element_bits: int, rows: int, columns: int, major: str = "K"
    ) -> npt.NDArray[Any]:
        """(rows, columns) → the bit address of each element in shared memory, swizzled."""
        if major not in ("K", "MN"):
            raise LayoutError(f"major is K or MN, not {major!r}")
        offsets = self.layout(element_bits, rows, columns, major).indices()
        linear = 8 * self.start + offsets.reshape((-1, columns), order="F")[:rows]
        return np.asarray(self._swizzled(linear))

    def _swizzled(self, bits: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self.swizzle == 0:
            return bits
        pieces = {32: 1, 64: 2, 128: 3}[self.swizzle]
        mask = (1 << pieces) - 1
        return np.asarray(bits ^ ((bits >> 10) - self.base_offset & mask) << 7)


__all__ = ["Descriptor", "SWIZZLES", "Swizzle"]
