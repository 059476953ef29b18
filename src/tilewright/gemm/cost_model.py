"""Cost model: the estimated seconds of a configuration for a problem on a device.

The estimate combines the time in which the busiest SM multiplies, loads and stores its tiles with
the time of the memory traffic. Each kernel has a cost model that evaluates all candidates of a
problem at once, as columns; one configuration is a column of length one.
"""

from __future__ import annotations

import numpy as np

from ..target import DeviceSpec
from .cp_async import multistage_cost, simt_cost
from .cp_async.multistage_config import Config
from .cp_async.simt_config import SimtConfig
from .problem import Problem
from .tma import tma_cost
from .tma.tma_columns import TmaColumns
from .tma.tma_config import TmaConfig, relayout_problem

AnyConfig = Config | TmaConfig | SimtConfig


def estimate(problem: Problem, config: AnyConfig, device: DeviceSpec) -> float:
    """Estimated seconds on the device."""
    if isinstance(config, TmaConfig):
        column = tma_cost.estimates(problem, *_tma_columns(problem, config, device), device)
    elif isinstance(config, SimtConfig):
        costs = simt_cost.simt_costs(problem, [config], device)
        column = simt_cost.estimates(problem, costs, device)
    else:
        mma_costs = multistage_cost.multistage_costs(problem, [config], device)
        column = multistage_cost.estimates(problem, mma_costs, device)
    return float(column[0])


def terms(problem: Problem, config: AnyConfig, device: DeviceSpec) -> dict[str, float]:
    """The terms of the estimate: the seconds that each would take alone. Terms that overlap take
    about as long as the longest.
    """
    if isinstance(config, TmaConfig):
        columns = tma_cost.terms(problem, *_tma_columns(problem, config, device), device)
    elif isinstance(config, SimtConfig):
        costs = simt_cost.simt_costs(problem, [config], device)
        columns = simt_cost.terms(problem, costs, device)
    else:
        mma_costs = multistage_cost.multistage_costs(problem, [config], device)
        columns = multistage_cost.terms(problem, mma_costs, device)
    return {name: float(np.ravel(column)[0]) for name, column in columns.items()}


def _tma_columns(
    problem: Problem, config: TmaConfig, device: DeviceSpec
) -> tuple[TmaColumns, tma_cost.TileCosts]:
    columns = TmaColumns.of([config])
    return columns, tma_cost.tile_costs(relayout_problem(problem), columns, device)
