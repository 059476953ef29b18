"""The copies that fill a stage of kernel ``tma``."""

from __future__ import annotations

from typing import Any

from ....builder import Builder
from ...problem import Problem
from ..grouped.schedulers import place_matrices
from ..launch.tma_parameters import (
    PairParameters,
    ScaledParameters,
    SparseParameters,
    TmaParameters,
    WeightParameters,
)
from ..mixed_input.unit_copy import unit_copy
from ..problem_list.problem_copies import copy_classes
from ..sparse.metadata_copy import MetadataCopy
from ..stage_operands import (
    PairCopy,
    SharedStages,
    SparseCopy,
    SparsePairCopy,
    StageCopy,
    TmaCopy,
)
from ..tile_scheduler import TileScheduler
from ..tma_config import TmaConfig
from ..tma_producer import multicast_masks
from .stage_scales import StageScales, scale_copies


def stage_copies(
    k: Builder, problem: Problem, config: TmaConfig, p: TmaParameters, scheduler: TileScheduler,
    stages: SharedStages, scales: StageScales | None,
) -> list[StageCopy]:  # fmt: skip
    """The copies of A and B, of their block scales, and of a sparse operand's metadata."""

    def swapped(a: Any, b: Any) -> tuple[Any, Any]:
        return (b, a) if config.swap else (a, b)

    b_maps = (p.map_b, p.map_b2 if isinstance(p, PairParameters) else p.edge_b)
    left_maps, right_maps = swapped((p.map_a, p.edge_a), b_maps)
    left_rows, right_rows = swapped(p.m, p.n)
    left_mask, right_mask = multicast_masks(k, config, scheduler)
    left_share, right_share = scheduler.rank_n, scheduler.rank_m
    right: StageCopy
    left: StageCopy
    if isinstance(p, WeightParameters):
        left = unit_copy(k, problem, config, p, scheduler, stages)
        right = TmaCopy(
            k, stages.right, right_maps, right_rows, along_n=True, share=right_share,
            multicast=right_mask,
        )  # fmt: skip
        return [left] if problem.gathers else [left, right]
    left_copy, right_copy = swapped(*copy_classes(problem))
    if problem.sparse:
        left_copy = SparsePairCopy if left_copy is PairCopy else SparseCopy
    left = left_copy(
        k, stages.left, left_maps, left_rows, along_n=False, share=left_share,
        multicast=left_mask,
    )  # fmt: skip
    right = right_copy(
        k, stages.right, right_maps, right_rows, along_n=True, share=right_share,
        multicast=right_mask,
    )  # fmt: skip
    place_matrices(k, problem, p, swapped(left, right)[1])
    copies: list[StageCopy] = [left, right]
    if problem.gathers:  # A by the gather warp
        copies = [swapped(left, right)[1]]
    if scales and isinstance(p, ScaledParameters):
        copies += scale_copies(k, scales, swapped(*p.scale_maps))
    if stages.metadata and isinstance(p, SparseParameters):
        copies.append(MetadataCopy(k, stages.metadata, p, config))
    return copies
