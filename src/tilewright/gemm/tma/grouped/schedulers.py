"""The tile scheduler of a problem with groups, and its scatter."""

from __future__ import annotations

from typing import Any

from ....builder import Builder
from ...kernel_scalars import global_pointer
from ...problem import Problem
from ..launch.tma_parameters import GroupedParameters, ProblemListParameters, TmaParameters
from ..problem_list.problem_list_scheduler import ProblemListScheduler
from ..stage_operands import TmaCopy
from ..tile_scheduler import TileScheduler
from ..tma_config import TmaConfig
from .grouped_tile_scheduler import GroupedTileScheduler
from .k_grouped_tile_scheduler import KGroupedTileScheduler
from .row_scatter import RowScatter


def grouped_tile_scheduler(
    k: Builder, problem: Problem, config: TmaConfig, p: TmaParameters, k_blocks: Any
) -> TileScheduler:
    """The tile scheduler by the dimension that is divided. ``k_blocks``: of a product of rows."""
    if isinstance(p, ProblemListParameters):
        return ProblemListScheduler(k, problem, config, p)
    grouping = problem.groups
    assert grouping is not None and isinstance(p, GroupedParameters)
    if grouping.along == "k":
        sizes, unit = (p.m, p.n, p.k), problem.k_group_unit
        return KGroupedTileScheduler(grouping, p.groups, p.batches, k, config, *sizes, unit)
    return GroupedTileScheduler(grouping, p.groups, p.batches, k, config, p.m, p.n, k_blocks)


def row_scatter(k: Builder, problem: Problem, p: TmaParameters) -> RowScatter | None:
    """Where the rows of D are scattered to, if they are."""
    if not isinstance(p, GroupedParameters) or problem.groups is None or not problem.groups.scatter:
        return None
    return RowScatter(k, p.scatter, problem.groups.scatter, p.m, p.rows_d)


def place_matrices(k: Builder, problem: Problem, p: TmaParameters, copy: TmaCopy) -> None:
    """Let the copies of B find the matrices of a list."""
    if isinstance(p, GroupedParameters) and problem.groups is not None and problem.groups.listed:
        copy.places = global_pointer(k, p.places).cast("u32")
