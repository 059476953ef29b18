"""Heuristic: selects the candidate configuration with the least estimated time on the device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, overload

import numpy as np

from ..errors import ConfigError, TargetError
from ..target import DeviceSpec
from .columns import Column
from .cost_model import AnyConfig
from .cp_async import multistage_config as multistage
from .cp_async import multistage_cost, simt_cost
from .cp_async import simt_config as simt
from .cp_async.simt_config import SimtConfig
from .cp_async.stack_configs import is_stack_of_tiny, stack_configs
from .problem import PACKED_TYPES, Problem, validate
from .problem_traits import Traits, problem_with, traits
from .tma import tma_checks, tma_search_space
from .tma.cost.candidate_order import ordered
from .tma.tma_columns import TmaColumns
from .tma.tma_config import TmaConfig, relayout_problem

Ranked = tuple[float, AnyConfig]


def choose(problem: Problem, device: DeviceSpec) -> AnyConfig:
    """The configuration with the least estimated time on the device.

    Raises TargetError for a device that no kernel for this problem runs on.
    """
    return ranked(problem, device)[0][1]


class Ranking(Sequence[Ranked]):
    """Candidates with their estimated seconds, the best first; configurations are constructed when
    read.
    """

    def __init__(
        self, seconds: Column, order: Column, tma: TmaColumns | None, others: Sequence[AnyConfig]
    ) -> None:
        """``seconds``: of the candidates of kernel ``tma``, then of the others."""
        self._order = order
        self._seconds, self._tma, self._others = seconds, tma, others

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, index: int) -> Ranked: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Ranked]: ...

    def __getitem__(self, index: int | slice) -> Ranked | Sequence[Ranked]:
        if isinstance(index, slice):
            return tuple(map(self._at, self._order[index].tolist()))
        return self._at(int(self._order[index]))

    def _at(self, row: int) -> Ranked:
        seconds, tma_rows = float(self._seconds[row]), 0 if self._tma is None else len(self._tma)
        if self._tma is not None and row < tma_rows:
            return seconds, self._tma.config(row)
        return seconds, self._others[row - tma_rows]


def ranked(problem: Problem, device: DeviceSpec) -> Ranking:
    """All candidates that fit, the best first, each with its estimated seconds: by these, but for
    those of nearly the best one, which other coefficients may decide.

    Raises TargetError for a device that no kernel for this problem runs on.
    """
    validate(problem, device)
    return _ranked(problem, device)


@lru_cache(maxsize=256)
def _ranked(problem: Problem, device: DeviceSpec) -> Ranking:
    by_tma, others, seconds, order = None, list[AnyConfig](), [], None
    if multiplies_by_tma(problem, device):
        by_tma, catalog, rows = tma_search_space.candidates(problem, device)
        estimates, order = ordered(problem, by_tma, catalog, rows, device)
        seconds.append(estimates)
    if not _only_by_tma(problem) and (
        by_tma is None
        or (problem.input.bits == 16 and not problem.sparse and not _accumulates_by_tma(problem))
    ):  # of others wgmma is at least twice as fast
        others, costs = _table(traits(problem), device, is_stack_of_tiny(problem))
        if others:
            model: Any = simt_cost if problem.a == simt.TYPE else multistage_cost
            seconds.append(model.estimates(problem, costs, device))
            order = None
    if not sum(map(len, seconds)):
        if _only_by_tma(problem) and by_tma is None:
            what = f"{_only_by_tma(problem)} require kernel tma, which {device.name} does not run"
            raise TargetError(what)
        check(problem, table(problem, device)[-1], device)  # the reason
        raise ConfigError(f"no configuration fits {problem} on {device.name}")
    every = np.concatenate(seconds)
    order = every.argsort(kind="stable") if order is None else order
    return Ranking(every, order, by_tma, others)


@lru_cache(maxsize=64)
def _table(key: Traits, device: DeviceSpec, tiny: bool) -> tuple[list[AnyConfig], Any]:
    """The configurations of the table that fit problems with these traits, and their costs.
    ``tiny``: with those for stacks of tiny matrices.
    """
    problem, found = problem_with(key), list[AnyConfig]()
    configs = simt.candidates() if problem.a == simt.TYPE else table(problem, device)
    if tiny:
        configs = [*configs, *stack_configs(device)]
    if problem.a != simt.TYPE and not multiplies_by_tma(problem, device):
        configs = [*configs, *multistage.split_candidates(problem.a, device.target, problem.sparse)]
    for config in configs:
        try:
            check(problem, config, device)
        except (ConfigError, TargetError):
            continue
        found.append(config)
    costs: Any = (
        simt_cost.simt_costs if problem.a == simt.TYPE else multistage_cost.multistage_costs
    )
    return found, costs(problem, found, device) if found else None


def multiplies_by_tma(problem: Problem, device: DeviceSpec) -> bool:
    """Whether kernel ``tma`` has configurations for the problem that the device runs."""
    by_wgmma = problem.a not in (simt.TYPE, "f64", *PACKED_TYPES)
    return by_wgmma and device.target.runs(tma_checks.REQUIRED_TARGET)


def _accumulates_by_tma(problem: Problem) -> bool:
    """Whether kernel ``tma`` adds to D in memory and copies no matrix first. ``multistage`` reads D
    into registers, which its cost model does not know: large D with K below 128 took four times
    the estimate.
    """
    aligned = relayout_problem(problem) == problem
    return problem.accumulates and aligned and not is_stack_of_tiny(problem)


def check(problem: Problem, config: AnyConfig, device: DeviceSpec) -> None:
    """Raise ConfigError where the configuration does not fit problem and device, TargetError where
    no configuration of its kernel does.
    """
    validate(problem, device)
    if not isinstance(config, AnyConfig):
        raise ConfigError(f"config must be a configuration, got {config!r:.60}")
    _check_target(problem, device)
    if isinstance(config, SimtConfig):
        simt.check(problem, config, device)
    elif problem.a == simt.TYPE:
        raise TargetError(
            f"{config}: tensor cores do not multiply {simt.TYPE} without rounding",
            hint="precision='tf32' rounds to 10 bits of mantissa; or a configuration of simt",
        )
    elif isinstance(config, TmaConfig):
        if problem.a in ("f64", *PACKED_TYPES):
            raise TargetError(
                f"{config}: tma does not multiply {problem.a}", hint="a configuration of multistage"
            )
        tma_checks.check(relayout_problem(problem), config, device)
    elif _only_by_tma(problem):
        raise ConfigError(f"{config}: {_only_by_tma(problem)} require a configuration of tma")
    else:
        multistage.check(multistage.relayout_problem(problem), config, device)


def _only_by_tma(problem: Problem) -> str:
    """What only kernel ``tma`` multiplies."""
    if problem.groups is not None:
        return "grouped products"
    return "packed weights" if problem.weights is not None else ""


def _check_target(problem: Problem, device: DeviceSpec) -> None:
    """Raise TargetError for what only kernel ``tma`` does, on a device that it does not run on."""
    needs = "block scales" if problem.scaling is not None else "two matrices B"
    if (problem.scaling is not None or problem.pair) and not device.target.runs(
        tma_checks.REQUIRED_TARGET
    ):
        needed, own = tma_checks.REQUIRED_TARGET, device.target
        raise TargetError(f"{needs} need {needed}; {device.name} is {own}")


def table(problem: Problem, device: DeviceSpec) -> Sequence[AnyConfig]:
    """The configuration table of ``multistage`` or ``simt`` for this type."""
    if problem.a == simt.TYPE:
        return simt.TABLE
    return multistage.table(problem.a, device.target, problem.sparse)
