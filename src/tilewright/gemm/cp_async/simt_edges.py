"""What sizes and rows of the matrices decide of kernel ``simt``: how wide copies and stores are,
and whether tiles overlap.
"""

from __future__ import annotations

from math import gcd

from ..epilogue.graph import BIT
from ..problem import Problem
from .simt_config import FLOAT, VECTOR, WARP, SimtConfig


def copy_bytes(problem: Problem, config: SimtConfig, side: int) -> int:
    """The bytes of a copy of A (side 0) or B (1). Where the last tile ends with the matrix, no copy
    crosses its edge.
    """
    major, align = ((problem.a_major, problem.align_a), (problem.b_major, problem.align_b))[side]
    if major == "k":
        return FLOAT
    size = (problem.m, problem.n)[side]
    return gcd(align, size * FLOAT) if ends_inside(problem, config, side) else align


def ends_inside(problem: Problem, config: SimtConfig, side: int) -> bool:
    """Whether the last tile along M (side 0) or N (1) ends with the matrix, which is no multiple of
    it: so no copy compares its row. Another tile must precede it.
    """
    size, tile = (problem.m, problem.n)[side], config.tile[side]
    return size > tile and size % tile != 0 and may_overlap(problem, config)


def may_overlap(problem: Problem, config: SimtConfig) -> bool:
    """Whether tiles of D may overlap: where an epilogue function stores tensors alone, by vectors
    of which each is one tile's, and not in the split-K reduction.
    """
    if problem.epilogue is None:
        return True
    graph = problem.epilogue.graph
    if graph.reductions or any(x.type == BIT for x in graph.inputs) or config.has_partials:
        return False
    return store_width(problem) == VECTOR or is_staged(problem, config)


def store_width(problem: Problem) -> int:
    """Neighbours of a row of D, and of C, that one access may move, at most 4."""
    align = min(problem.align_d, problem.align_c) if problem.with_c else problem.align_d
    return min(VECTOR, align * 8 // problem.output.bits)


def is_staged(problem: Problem, config: SimtConfig) -> bool:
    """Whether D goes through shared memory: where rows are not aligned, and no output combines
    elements of D.
    """
    if config.has_partials or config.in_cluster or store_width(problem) >= VECTOR:
        return False
    if problem.epilogue is not None and problem.epilogue.graph.reductions:
        return False
    warps = config.threads // WARP
    return config.slices > 1 or config.staged_bytes * warps <= config.shared_bytes
