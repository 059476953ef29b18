"""Block scaling: blocks of 128 along K of A and of B have scales of their own.

    D[m, n] = Σ_j (Σ_{k in block j} A[m, k] B[k, n]) · (scale_a[m, j] · scale_b[j, n])

The mainloop multiplies the scales where it promotes the accumulator of a k-block to f32: the
product of both scales is rounded, then one FMA adds the scaled accumulator to the total.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import DtypeError, ProblemError

BLOCK = 128
SIDES = (1, BLOCK)
SCALE_TYPES = ("f32", "bf16", "ue8m0")


@dataclass(frozen=True, slots=True)
class BlockScaling:
    """The blocks of a problem's scales, and their types, which are converted to f32 exactly.

    ``rows`` of A, and ``columns`` of B, share a scale in each block of 128 along K: 1 or 128.
    ``types``: of the scales of A and of B: f32, bf16 or ue8m0. ``contiguous``: the dimension along
    which they are contiguous in lines at multiples of 16 bytes, so that tensor copies load f32
    scales: ``mn`` (M of A, N of B) or ``k``; empty: they have any strides, a warp loads them.
    Raises ProblemError, DtypeError.
    """

    rows: int
    columns: int
    types: tuple[str, str] = ("f32", "f32")
    contiguous: tuple[str, str] = ("", "")

    def __post_init__(self) -> None:
        for name, side in (("rows", self.rows), ("columns", self.columns)):
            if side not in SIDES:
                raise ProblemError(f"{name} of a scale must be 1 or {BLOCK}, got {side!r:.60}")
        for name, type_ in zip("ab", self.types, strict=True):
            if type_ not in SCALE_TYPES:
                allowed = ", ".join(SCALE_TYPES)
                raise DtypeError(f"the scales of {name} must be one of {allowed}, got {type_}")
        for type_, contiguous in zip(self.types, self.contiguous, strict=True):
            if contiguous not in ("", "mn", "k") or (contiguous and type_ != "f32"):
                raise ProblemError(
                    f"contiguous must be mn or k of f32 scales or empty, got {contiguous!r:.60} "
                    f"of {type_}"
                )

    @property
    def loaded_by_warp(self) -> bool:
        """Whether some scales are not loaded by tensor copies."""
        return "" in self.contiguous

    def transposed(self) -> BlockScaling:
        """The blocks of Dᵀ = Bᵀ Aᵀ."""
        return BlockScaling(self.columns, self.rows, self.types[::-1], self.contiguous[::-1])

    def __str__(self) -> str:
        types = "" if {*self.types} == {"f32"} else f" of {' and '.join(self.types)}"
        return f"{self.rows}×{BLOCK} and {BLOCK}×{self.columns} scales{types}"
