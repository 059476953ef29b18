"""Completes a configuration's text: parts that are left out are chosen by the cost model.

``tma:128x256x64`` leaves out the schedule, stages, cluster, split-K and group, ``128x128x32`` warps
and stages; a kernel's name alone leaves out everything. A text that has the schedule and the stages
is complete: what may follow them has default values.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from ..errors import ConfigError
from ..target import DeviceSpec
from .cost_model import AnyConfig, estimates
from .cp_async.partial_cp_async_config import multistage_candidates, simt_candidates
from .heuristic import check
from .problem import Problem, validate
from .tma import tma_checks
from .tma.cost.candidate_order import ordered
from .tma.cost.coefficients import COEFFICIENTS, deciding
from .tma.cost.tma_cost import tile_costs
from .tma.partial_tma_config import PartialTmaConfig
from .tma.tma_config import TmaConfig, relayout_problem


def complete(text: str, problem: Problem, device: DeviceSpec) -> AnyConfig:
    """The configuration with the least estimated time of those that agree with the text.

    Raises ConfigError if the text is not a configuration, or if none that agrees fits problem and
    device; TargetError where the kernel does not run.
    """
    validate(problem, device)
    if not isinstance(text, str):
        raise ConfigError(f"a configuration must be text, got {text!r:.60}")
    partial = PartialTmaConfig.parse(text)
    if partial and not partial.is_complete:
        return _best_of_tma(partial, text, problem, device)
    if text.startswith("tma"):
        return TmaConfig.parse(text)
    if text.startswith("simt"):
        configs: Sequence[AnyConfig] = simt_candidates(text, device)
    else:
        configs = multistage_candidates(text, problem, device)
    return configs[0] if len(configs) == 1 else _best(text, configs, problem, device)


def _best_of_tma(
    partial: PartialTmaConfig, text: str, problem: Problem, device: DeviceSpec
) -> TmaConfig:
    columns, relaid = partial.candidates(problem, device), relayout_problem(problem)
    with suppress(ConfigError):
        check(problem, columns.config(0), device)  # TargetError where the kernel does not run
    fitting = np.flatnonzero(tma_checks.fits(relaid, columns, device))
    if not len(fitting):
        raise _misfit(text, problem, columns.config(0), device)
    columns = columns.take(fitting)
    costs = [tile_costs(relaid, columns, device, COEFFICIENTS[name]) for name in deciding(problem)]
    _, order = ordered(problem, columns, costs, np.arange(len(columns)), device)
    return columns.config(int(order[0]))


def _best(
    text: str, configs: Sequence[AnyConfig], problem: Problem, device: DeviceSpec
) -> AnyConfig:
    fitting = []
    for config in configs:
        try:
            check(problem, config, device)
        except ConfigError:
            continue
        fitting.append(config)
    if not fitting:
        example = max(configs, key=lambda config: config.threads)
        raise _misfit(text, problem, example, device)
    return fitting[int(estimates(problem, fitting, device).argmin())]


def _misfit(text: str, problem: Problem, example: AnyConfig, device: DeviceSpec) -> ConfigError:
    """The error where nothing fits; the hint says why one of the configurations does not."""
    reason = ""
    try:
        check(problem, example, device)
    except ConfigError as error:
        reason = str(error).splitlines()[0]
    return ConfigError(f"no configuration {text} fits {problem} on {device.name}", hint=reason)
