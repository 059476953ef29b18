"""Epilogue of a list of problems: matrices, limits and operands are of the work tile's problem."""

from __future__ import annotations

from ...grouping import has_problems
from ...problem import Problem
from ..tile_scheduler import WorkTileInfo
from ..tma_graph_epilogue import TmaGraphEpilogue


class ProblemEpilogue(TmaGraphEpilogue):
    """Stores D of each problem."""

    def begin(self, tile: WorkTileInfo) -> None:
        problem, operands = tile.problem, self.operands
        assert problem is not None
        self.d.map = problem.map("d")
        self.d.pointer, self.d.leading = problem.d()
        self.limits = operands.limits = problem.sizes.m, problem.sizes.n
        operands.parameters = problem.operands(operands.bound)


def epilogue_class(problem: Problem) -> type[TmaGraphEpilogue]:
    """The epilogue of a problem with an epilogue function."""
    return ProblemEpilogue if has_problems(problem.groups) else TmaGraphEpilogue
