"""Order of candidates: by their estimates; of those close to the least, by other coefficients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....target import DeviceSpec
from ...columns import Column
from ...problem import Problem
from ..tma_columns import TmaColumns
from .tma_cost import TileCosts, estimates

CLOSE = 0.0125  # relative difference of estimates that says little of which candidate is faster


def ordered(
    problem: Problem, configs: TmaColumns, costs: Sequence[TileCosts], rows: Column,
    device: DeviceSpec,
) -> tuple[Column, Column]:  # fmt: skip
    """The estimated seconds of candidates, and their indices, the best first. ``costs``: by each of
    the coefficients that ``deciding`` names; ``rows`` of them are the candidates'.
    """
    seconds = estimates(problem, configs, costs[0].take(rows), device)
    order: Column = seconds.argsort(kind="stable")
    if len(costs) > 1 and len(order):
        count = int(np.count_nonzero(seconds <= (1 + CLOSE) * seconds.min()))
        close = order[:count]
        again = estimates(problem, configs.take(close), costs[1].take(rows[close]), device)
        order[:count] = close[again.argsort(kind="stable")]
    return seconds, order
