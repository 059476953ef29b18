"""Stages that hide the latency of loads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....dtypes import dtype
from ....target import DeviceSpec
from ...columns import Column
from ...problem import Problem, result_types
from ..tma_columns import TmaColumns


def useful_stages(problem: Problem, configs: TmaColumns, device: DeviceSpec) -> Column:
    """The stages that hide latency. The narrow epilogue tiles of an epilogue function often leave
    room for one stage more than a plain product has, which was no faster.
    """
    if problem.epilogue is None:
        return configs.stages
    return np.minimum(configs.stages, configs.max_stages(_plain(problem), device))


def _plain(problem: Problem) -> Problem:
    """The problem without its epilogue function, with D of the default type, which is aligned at
    least to its elements.
    """
    d = result_types(problem.a, problem.weights is not None)[0]
    least = dtype(d).bits // 8
    align_c, align_d = max(problem.align_c, least), max(problem.align_d, least)
    return replace(problem, epilogue=None, d=d, pair=False, align_c=align_c, align_d=align_d)
