"""Grouping: how a dimension of a product is divided into groups, by an array in device memory.

    groups of rows (along M)      rows of A and D from offsets[g] to offsets[g + 1], times B[g]
    groups of fixed capacity      the first counts[g] rows of A[g] and D[g], times B[g]
    groups along K                D[g] is the product of columns of A and rows of B

The sizes are read by the kernel alone, so a call neither waits for them nor compiles for them. So
are indices: row i of the product is row gather[i] of A, and is written to row scatter[i] of D.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ProblemError

INDEX_TYPES = ("s32", "s64")
# What the array has: the end of each group; the begin of the first group and then the ends; the
# number of rows of each group, whose rows begin at a multiple of the capacity.
ENDS, OFFSETS, COUNTS = "ends", "offsets", "counts"
FORMS = (ENDS, OFFSETS, COUNTS)
DIMENSIONS = ("m", "k")


@dataclass(frozen=True, slots=True)
class Grouping:
    """The groups of a problem. ``index``: the type of the array, s32 or s64; ``form``: ``ends``,
    ``offsets`` or ``counts``; ``along``: the dimension that is divided, m or k; ``gather``,
    ``scatter``: the types of the indices of rows, or empty; ``listed``: an array says where
    the matrices B are. Raises ProblemError.
    """

    index: str
    form: str
    along: str = "m"
    gather: str = ""
    scatter: str = ""
    listed: bool = False

    def __post_init__(self) -> None:
        for name, given, allowed in (
            ("index", self.index, INDEX_TYPES), ("form", self.form, FORMS),
            ("along", self.along, DIMENSIONS), ("gather", self.gather, ("", *INDEX_TYPES)),
            ("scatter", self.scatter, ("", *INDEX_TYPES)),
        ):  # fmt: skip
            if given not in allowed:
                raise ProblemError(f"{name} must be one of {', '.join(allowed)}, got {given!r:.60}")

        if (self.gather or self.scatter) and (self.has_capacity or self.along == "k"):
            raise ProblemError("gather and scatter must be of groups of rows by offsets")

    @property
    def has_capacity(self) -> bool:
        """Whether the rows of each group are a matrix of their own, of a fixed capacity."""
        return self.form == COUNTS

    def __str__(self) -> str:
        along = {"m": "rows", "k": "K"}[self.along]
        indices = f"{', gathered' if self.gather else ''}{', scattered' if self.scatter else ''}"
        indices += ", of a list of matrices" if self.listed else ""
        return f"{along} by {self.form} of {self.index}{indices}"


def has_row_groups(groups: Grouping | None) -> bool:
    """Whether there are groups, and their rows are those of one matrix."""
    return groups is not None and groups.along == "m" and not groups.has_capacity


def has_k_groups(groups: Grouping | None) -> bool:
    """Whether there are groups along K."""
    return groups is not None and groups.along == "k"
