"""Grouping: how a dimension of a product is divided into groups, by an array in device memory.

    groups of rows (along M)      rows of A and D from offsets[g] to offsets[g + 1], times B[g]
    groups of fixed capacity      the first counts[g] rows of A[g] and D[g], times B[g]
    groups along K                D[g] is the product of columns of A and rows of B
    problems                      A, B and D of each are matrices of any sizes, anywhere

The sizes are read by the kernel alone, so a call neither waits for them nor compiles for them. So
are indices: row i of the product is row gather[i] of A, and is written to row scatter[i] of D.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import ProblemError

if TYPE_CHECKING:
    from .epilogue.graph import EpilogueOutput

INDEX_TYPES = ("s32", "s64")
# What the array has: the end of each group; the begin of the first group and then the ends; the
# number of rows of each group, whose rows begin at a multiple of the capacity; the sizes and the
# addresses of each problem.
ENDS, OFFSETS, COUNTS, PROBLEMS = "ends", "offsets", "counts", "problems"
FORMS = (ENDS, OFFSETS, COUNTS, PROBLEMS)
DIMENSIONS = ("m", "k")


@dataclass(frozen=True, slots=True)
class Grouping:
    """The groups of a problem. ``index``: the type of the array, s32 or s64; ``form``: ``ends``,
    ``offsets``, ``counts`` or ``problems``; ``along``: the dimension that is divided, m or k;
    ``gather``, ``scatter``: the types of the indices of rows, or empty; ``listed``: an array says
    where the matrices B are. Raises ProblemError.
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

        if self.form == PROBLEMS and (self.along == "k" or self.listed):
            raise ProblemError("problems must each have matrices A, B and D, and no groups")
        indexed = self.form in (ENDS, OFFSETS) and self.along == "m"
        if (self.gather or self.scatter) and not indexed:
            raise ProblemError("gather and scatter must be of groups of rows by offsets")

    def check_reductions(self, outputs: Iterable[EpilogueOutput]) -> None:
        """Raise ProblemError for outputs that cannot be reduced: rows of groups begin anywhere, and
        so do the units of partial results.
        """
        for output in outputs if self.along == "m" else ():
            if "m" in output.reduced and not output.atomic:
                what = f"{output.name} of groups of rows must be a sum along n, or a maximum"
                raise ProblemError(f"{what}, got {output.reduction} along {output.reduced}")
            if self.scatter:
                raise ProblemError(f"{output.name} must not reduce rows of D that are scattered")

    @property
    def has_capacity(self) -> bool:
        """Whether the rows of each group are a matrix of their own, of a fixed capacity."""
        return self.form == COUNTS

    @property
    def has_problems(self) -> bool:
        """Whether a table has the matrices of each problem."""
        return self.form == PROBLEMS

    @property
    def lists(self) -> bool:
        """Whether matrices are in a list."""
        return self.listed or self.has_problems

    def __str__(self) -> str:
        if self.has_problems:
            return "a list of problems"
        along = {"m": "rows", "k": "K"}[self.along]
        indices = f"{', gathered' if self.gather else ''}{', scattered' if self.scatter else ''}"
        indices += ", of a list of matrices" if self.listed else ""
        return f"{along} by {self.form} of {self.index}{indices}"


def has_row_groups(groups: Grouping | None) -> bool:
    """Whether there are groups, and their rows are those of one matrix."""
    return groups is not None and groups.along == "m" and groups.form in (ENDS, OFFSETS)


def has_k_groups(groups: Grouping | None) -> bool:
    """Whether there are groups along K."""
    return groups is not None and groups.along == "k"


def has_problems(groups: Grouping | None) -> bool:
    """Whether a table has the matrices of each problem."""
    return groups is not None and groups.has_problems
