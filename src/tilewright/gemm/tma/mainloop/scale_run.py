"""Block scales of a tile in a stage: how many, and how they lie in shared memory.

    contiguous        a stage has (f32)                               loaded by
    along M or N      s[0], s[1], s[2], …                             a tensor copy
    along K           s[0] of four k-blocks, s[1] of these, …         a tensor copy
    neither           s[0], s[1], s[2], …                             the scale load warp

Tensor copies begin at multiples of 16 bytes, so along K the k-block is one of four, and of blocks
of rows or columns, and of the rows of a group, up to three come before the tile's first one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...block_scaling import BLOCK
from ...columns import power_of_two_divisor

SCALE_BYTES = 4  # of a scale in shared memory, f32
LINE = 4  # scales of 16 bytes, which a line of a tensor copy begins at, and has, multiples of
RUN_ALIGNMENT = 128  # bytes, of what a tensor copy writes in shared memory


class ScaleRun(NamedTuple):
    """The scales of a tile's rows, or of its columns, in a stage: one for each block of ``side``
    that the tile meets, ``length`` at most. ``contiguous``: as ``BlockScaling`` has it.
    ``matrices``: 2 where the tile's halves are of two matrices B, each with such a run;
    ``stacked``: a problem with batches has those of each matrix; ``anywhere``: the tile begins at
    any row, not at a multiple of its extent. The fields are numbers, or columns of candidates.
    """

    length: Any
    side: int
    contiguous: str
    matrices: int = 1
    stacked: bool = True
    anywhere: bool = False

    @classmethod
    def of(cls, extent: Any, side: int, *more: Any) -> ScaleRun:
        """Those of a tile of this extent in each matrix."""
        if side == 1:
            return cls(extent, side, *more)
        before = BLOCK - power_of_two_divisor(extent, BLOCK)  # of the first block, at most
        return cls(-(-(before + extent) // BLOCK), side, *more)

    @property
    def step(self) -> int:
        """Scales from one block to the next."""
        return LINE if self.contiguous == "k" else 1

    @property
    def box(self) -> tuple[Any, Any]:
        """The box of a tensor copy: (scales of a line, lines)."""
        if self.contiguous == "k":
            return LINE, self.length
        before = 0 if self.side == 1 and not self.anywhere else LINE - 1
        return -(-(before + self.length) // LINE) * LINE, 1

    @property
    def first_line(self) -> int:
        """What divides the row or column where the scales of a stage begin."""
        return self.side * (LINE if self.contiguous == "mn" else 1)

    @property
    def copied_bytes(self) -> Any:
        """Bytes of the box, of one matrix."""
        line, lines = self.box
        return line * lines * SCALE_BYTES

    @property
    def matrix_bytes(self) -> Any:
        """Bytes in a stage, of one matrix."""
        return -(-self.copied_bytes // RUN_ALIGNMENT) * RUN_ALIGNMENT

    @property
    def bytes(self) -> Any:
        """Bytes in a stage."""
        return self.matrix_bytes * self.matrices
