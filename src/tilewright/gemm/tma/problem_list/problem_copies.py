"""Copies of A and B by the tensor maps of a work tile's problem."""

from __future__ import annotations

from typing import Any

from ...grouping import has_problems
from ...problem import Problem
from ..stage_operands import PairCopy, TmaCopy
from ..tile_scheduler import WorkTileInfo


class ProblemCopy(TmaCopy):
    """Tensor copies of a matrix of the work tile's problem."""

    matrix = ""

    def begin(self, tile: WorkTileInfo) -> Any:
        assert tile.problem is not None
        self.row, self.batch, self.window = self._row(tile), None, None
        self.map = tile.problem.map(self.matrix)
        return self.operand.bytes


class CopyOfA(ProblemCopy):
    """Tensor copies of A."""

    matrix = "a"


class CopyOfB(ProblemCopy):
    """Tensor copies of B."""

    matrix = "b"


def copy_classes(problem: Problem) -> tuple[type[TmaCopy], type[TmaCopy]]:
    """The copies of dense A and B."""
    if has_problems(problem.groups):
        return CopyOfA, CopyOfB
    return TmaCopy, PairCopy if problem.pair else TmaCopy
