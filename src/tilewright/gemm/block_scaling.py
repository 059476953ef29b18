"""Block scaling: blocks of 128 along K of A and of B have scales of their own.

    D[m, n] = Σ_j (Σ_{k in block j} A[m, k] B[k, n]) · (scale_a[m, j] · scale_b[j, n])

The mainloop multiplies the scales where it promotes the accumulator of a k-block to f32: the
product of both scales is rounded, then one FMA adds the scaled accumulator to the total.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ProblemError

BLOCK = 128
SIDES = (1, BLOCK)


@dataclass(frozen=True, slots=True)
class BlockScaling:
    """The blocks of a problem's scales, which are f32.

    ``rows`` of A, and ``columns`` of B, share a scale in each block of 128 along K: 1 or 128.
    Raises ProblemError.
    """

    rows: int
    columns: int

    def __post_init__(self) -> None:
        for name, side in (("rows", self.rows), ("columns", self.columns)):
            if side not in SIDES:
                raise ProblemError(f"{name} of a scale must be 1 or {BLOCK}, got {side!r:.60}")

    def transposed(self) -> BlockScaling:
        """The blocks of Dᵀ = Bᵀ Aᵀ."""
        return BlockScaling(self.columns, self.rows)

    def __str__(self) -> str:
        return f"{self.rows}×{BLOCK} and {BLOCK}×{self.columns} scales"
