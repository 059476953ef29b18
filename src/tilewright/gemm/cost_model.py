"""Cost model: the estimated seconds of a configuration for a problem on a device.

The estimate combines the time in which the busiest SM multiplies, loads and stores its tiles with
the time of the memory traffic. Each kernel has a cost model that evaluates all candidates of a
problem at once, as columns; one configuration is a column of length one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..target import DeviceSpec
from .columns import Column
from .cp_async import multistage_cost, simt_cost
from .cp_async.multistage_config import Config
from .cp_async.simt_config import SimtConfig
from .problem import Problem
from .tma.cost import tma_cost
from .tma.cost.coefficients import coefficients
from .tma.tma_columns import TmaColumns
from .tma.tma_config import TmaConfig, relayout_problem

AnyConfig = Config | TmaConfig | SimtConfig


def estimate(problem: Problem, config: AnyConfig, device: DeviceSpec) -> float:
    """Estimated seconds on the device."""
    return float(estimates(problem, [config], device)[0])


def estimates(problem: Problem, configs: Sequence[AnyConfig], device: DeviceSpec) -> Column:
    """Estimated seconds of configurations of one kernel."""
    model, *columns = _columns(problem, configs, device)
    seconds: Column = model.estimates(problem, *columns, device)
    return seconds


def terms(problem: Problem, config: AnyConfig, device: DeviceSpec) -> dict[str, float]:
    """The terms of the estimate: the seconds that each would take alone. Terms that overlap take
    about as long as the longest.
    """
    model, *columns = _columns(problem, [config], device)
    found = model.terms(problem, *columns, device)
    return {name: float(np.ravel(column)[0]) for name, column in found.items()}


def _columns(problem: Problem, configs: Sequence[Any], device: DeviceSpec) -> tuple[Any, ...]:
    """The cost model of the configurations' kernel, and its columns."""
    if isinstance(configs[0], TmaConfig):
        columns = TmaColumns.of(configs)
        relaid, c = relayout_problem(problem), coefficients(problem)
        return tma_cost, columns, tma_cost.tile_costs(relaid, columns, device, c)
    if isinstance(configs[0], SimtConfig):
        return simt_cost, simt_cost.simt_costs(problem, configs, device)
    return multistage_cost, multistage_cost.multistage_costs(problem, configs, device)
