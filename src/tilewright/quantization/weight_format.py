"""``WeightFormat`` and ``PreparedWeights``: packed weights in the order in which kernels read them.

Weights N×K are cut into units of 64 rows by 128 of K, the rows of a wgmma and the depth of a
k-tile. A unit is contiguous, so one bulk copy brings it to shared memory: first the elements, then
the scales and the zero points of its groups (``weight_units``). A unit of 2:4 sparse weights has
128 stored elements of a row, of 256 of K, and ends with their metadata.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..dtypes import dtype
from .weight_types import weight_type

UNIT_ROWS, UNIT_K = 64, 128
STEP_BYTES = 32  # along K of a wgmma
UNITS_MULTIPLE = 2  # units along K, so that a k-tile may have two
FLOAT_ZEROS = ("f32", "f16", "bf16")


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """What a kernel must know of prepared weights.

    ``type``: of the elements; ``operand``: f16, bf16, e4m3 or s8, which they are converted to;
    ``group``: elements along K that share a scale, 16 to 128; ``scale``: f32, f16 or bf16;
    ``zeros``: none, integer (stored in ``operand``'s type), or the type of floats; ``zero``: an
    integer zero point of all elements; ``sparse``: only two of each four elements are stored, and
    ``group`` counts those.
    """

    type: str
    operand: str
    group: int
    scale: str
    zeros: str = "none"
    zero: int = 0
    sparse: bool = False

    @property
    def bits(self) -> int:
        """Of an element."""
        return weight_type(self.type).bits

    @property
    def unit_k(self) -> int:
        """Elements along K that a unit has, or of which it has half."""
        return UNIT_K * (1 + self.sparse)

    @property
    def step(self) -> int:
        """Elements along K of a wgmma, 32 bytes of the operand."""
        return STEP_BYTES * 8 // dtype(self.operand).bits

    @property
    def groups(self) -> int:
        """Groups along the K of a unit."""
        return UNIT_K // self.group

    @property
    def has_float_zeros(self) -> bool:
        """Whether zero points are added after scaling."""
        return self.zeros in FLOAT_ZEROS

    @property
    def shares_sums(self) -> bool:
        """Whether all rows have the same sum of X over a group, which zero points multiply."""
        return self.has_float_zeros and not self.sparse

    @property
    def zero_type(self) -> str:
        """The type in which zero points are stored."""
        return self.operand if self.zeros == "integer" else self.zeros

    @property
    def vectors(self) -> int:
        """Accesses of 16 bytes in which a thread loads its elements of a unit."""
        return self.bits // 2

    @property
    def scale_offset(self) -> int:
        """Bytes of a unit's elements, which its scales follow."""
        return UNIT_ROWS * UNIT_K * self.bits // 8

    @property
    def zero_offset(self) -> int:
        """Bytes before the zero points."""
        return self.scale_offset + self._numbers_bytes(self.scale)

    @property
    def metadata_offset(self) -> int:
        """Bytes before the metadata of sparse weights."""
        zeros = 0 if self.zeros == "none" else self._numbers_bytes(self.zero_type)
        return self.zero_offset + zeros

    @property
    def unit_bytes(self) -> int:
        """Bytes of a unit, a multiple of 16."""
        return self.metadata_offset + self.sparse * (UNIT_ROWS * self.unit_k // 8)

    def _numbers_bytes(self, type_: str) -> int:
        return self.groups * UNIT_ROWS * dtype(type_).bits // 8

    def __str__(self) -> str:
        zeros = "" if self.zeros == "none" else f", {self.zeros} zeros"
        kind, group = ("2:4 sparse ", 2 * self.group) if self.sparse else ("", self.group)
        return f"{kind}{self.type} weights, {self.scale} scales per {group}{zeros}"


@dataclass(frozen=True, eq=False)
class PreparedWeights:
    """Weights in the order in which kernels read them, as B of a product.

    ``units``: bytes (row blocks of 64, units along K · bytes of a unit), of any array library; of a
    stack of matrices, as many such arrays. ``shape``: (K, N) of B, or (…, K, N) of a stack.
    ``prepare_weights`` makes them from ``Packed`` weights.
    """

    units: Any
    format: WeightFormat
    shape: tuple[int, ...]

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.shape))
        return f"PreparedWeights({shape}, {self.format}, for {self.format.operand})"


def units_along(depth: int, unit_k: int = UNIT_K) -> int:
    """Units along K: whole pairs of them."""
    return max(1, -(-depth // (unit_k * UNITS_MULTIPLE))) * UNITS_MULTIPLE
