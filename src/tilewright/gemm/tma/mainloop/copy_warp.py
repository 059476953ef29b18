"""The copies of a stage that no tensor copy makes: by a free warp of the producer warpgroup."""

from __future__ import annotations

from ....builder import Builder
from ...problem import Problem
from ..grouped.gather_warp import GatherWarp
from ..grouped.gathered_rows import GatheredRows
from ..launch.tma_parameters import GroupedParameters, ScaledParameters, TmaParameters
from ..stage_operands import SharedStages
from ..tile_scheduler import TileScheduler
from ..tma_config import TmaConfig
from .scale_load_warp import ScaleLoadWarp
from .stage_scales import StageScales


def run_copy_warp(
    k: Builder, problem: Problem, config: TmaConfig, p: TmaParameters, stages: SharedStages,
    scales: StageScales | None, scheduler: TileScheduler,
) -> None:  # fmt: skip
    """Gather rows of A and copy block scales. All lanes of the warp call it."""
    rows = None
    if problem.gathers and isinstance(p, GroupedParameters):
        assert problem.groups is not None
        rows = GatheredRows(k, p.gather, problem.groups.gather, p.rows_a)
    own = None
    if isinstance(p, ScaledParameters) and scales and _by_warp(problem):
        own = ScaleLoadWarp(k, problem, config, p, scales, stages.pipeline, scheduler, rows)
    if rows is not None and isinstance(p, GroupedParameters):
        GatherWarp(k, problem, config, p, stages, scheduler, rows, own).run()
    elif own is not None:
        own.run()


def _by_warp(problem: Problem) -> bool:
    return problem.scaling is not None and problem.scaling.loaded_by_warp
