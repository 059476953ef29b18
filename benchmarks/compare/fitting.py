"""Fit of coefficients of the cost model of kernel ``tma`` to a sweep's times.

The parameters are logarithms of the coefficients over those of the start. First least squares
(Levenberg-Marquardt) of the logarithms of estimate over time, most of each problem's mean left out,
since a ranking does not need it. Then random steps that lower the expected loss of a choice among
all candidates of the search space. Both hold the parameters near 0, so that coefficients of which
the sweep says nothing stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright import gemm
from tilewright.gemm.tma.cost.coefficients import Coefficients
from tilewright.gemm.tma.cost.tma_cost import estimates, tile_costs
from tilewright.gemm.tma.tma_columns import TmaColumns
from tilewright.gemm.tma.tma_config import TmaConfig, relayout_problem
from tilewright.gemm.tma.tma_search_space import candidates
from tilewright.target import DEFAULT_DEVICE

from .sweep import problem_of
from .sweep_problems import is_held_out, row_of

FAR = 0.15  # of configurations that take longer than the best: their weight falls by e
MEAN = 0.7  # of a problem's mean residual that is left out
NOISE, SPREAD = 0.03, 1.0  # standard deviations: of a residual, and of a parameter
UNMEASURED = 1.08  # time of a candidate that was not measured, over the best one's
TEMPERATURE = 0.007  # differences of estimates that decide a choice
SLOWER = 2.0  # times the loss where a choice is slower than the one before
DIFFERENCE = 1e-4  # of a parameter, for derivatives

Vector = Any  # of floats


class Measured(NamedTuple):
    """A problem with all its candidates, and the times of those that were measured, else NaN."""

    name: str
    problem: gemm.Problem
    columns: TmaColumns
    configs: list[TmaConfig]
    is_candidate: Vector
    us: Vector
    torch_us: float
    before: int  # index of the choice
    held_out: bool

    @classmethod
    def of(cls, name: str, torch_us: float, us: dict[str, float]) -> Measured:
        row = row_of(*name.split())
        problem = problem_of(row)
        found, *_ = candidates(problem, DEFAULT_DEVICE)
        own = [found.config(i) for i in range(len(found))]
        times = {gemm.parse(config): t for config, t in us.items()}
        configs = list(dict.fromkeys([*own, *(c for c in times if isinstance(c, TmaConfig))]))
        known = np.array([times.get(config, np.nan) for config in configs])
        columns, is_candidate = TmaColumns.of(configs), np.arange(len(configs)) < len(own)
        held_out = is_held_out(row.m, row.n, row.k)
        before = configs.index(gemm.choose(problem, DEFAULT_DEVICE))
        return cls(name, problem, columns, configs, is_candidate, known, torch_us, before, held_out)

    def seconds(self, c: Coefficients) -> Vector:
        """The estimates of all configurations."""
        costs = tile_costs(relayout_problem(self.problem), self.columns, DEFAULT_DEVICE, c)
        return estimates(self.problem, self.columns, costs, DEFAULT_DEVICE)

    def choice(self, c: Coefficients) -> int:
        """The index of the candidate that is chosen."""
        return int(np.where(self.is_candidate, self.seconds(c), np.inf).argmin())

    @property
    def best(self) -> float:
        return float(np.nanmin(self.us))

    @property
    def slowness(self) -> Vector:
        """The time of each configuration over the best one's, also of those not measured."""
        return np.where(np.isnan(self.us), UNMEASURED, self.us / self.best)

    def residuals(self, c: Coefficients) -> Vector:
        """Weighted logarithms of estimate over time."""
        known = ~np.isnan(self.us)
        errors = np.log(1e6 * self.seconds(c)[known] / self.us[known])
        weights = np.exp(-(self.us[known] / self.best - 1) / FAR)
        mean = (weights * errors).sum() / weights.sum()
        return np.sqrt(weights) * (errors - MEAN * mean)

    def loss(self, c: Coefficients) -> float:
        """The expected loss of the choice."""
        seconds = np.where(self.is_candidate, self.seconds(c), np.inf)
        shares = np.exp((1 - seconds / seconds.min()) / TEMPERATURE)
        slowness, before = self.slowness, self.slowness[self.before]
        cost = slowness - 1 + SLOWER * np.maximum(0, slowness - max(before, 1.0))
        return float((shares * cost).sum() / shares.sum())


class Parameters:
    """The free coefficients: fields, and ``field.key`` of those that are dictionaries."""

    def __init__(self, start: Coefficients, fixed: Sequence[str] = ()) -> None:
        self.start = start
        self.names = [
            name
            for name, value in _flat(start).items()
            if value > 0 and name not in fixed and name.partition(".")[0] not in fixed
        ]

    def coefficients(self, logs: Vector) -> Coefficients:
        """The start's coefficients, each times the exponential of its parameter."""
        flat = _flat(self.start)
        for name, log in zip(self.names, logs.tolist(), strict=True):
            flat[name] *= float(np.exp(log))
        values: dict[str, Any] = {}
        for name, value in flat.items():
            field, _, key = name.partition(".")
            if key:
                values.setdefault(field, {})[int(key)] = value
            else:
                values[field] = value
        return Coefficients(**values)


def _flat(c: Coefficients) -> dict[str, float]:
    flat: dict[str, float] = {}
    for name, value in c._asdict().items():
        if isinstance(value, dict):
            flat |= {f"{name}.{key}": each for key, each in value.items()}
        else:
            flat[name] = value
    return flat


def least_squares(
    problems: Sequence[Measured], parameters: Parameters, steps: int, spread: float = SPREAD
) -> Vector:
    """The parameters after some steps of Levenberg-Marquardt from 0."""

    def residuals(logs: Vector) -> Vector:
        c = parameters.coefficients(logs)
        measured = np.concatenate([p.residuals(c) for p in problems]) / NOISE
        return np.concatenate((measured, logs / spread))

    logs, damping = np.zeros(len(parameters.names)), 0.1
    here = residuals(logs)
    for _ in range(steps):
        moved = np.eye(len(logs)) * DIFFERENCE
        slopes = np.stack([(residuals(logs + move) - here) / DIFFERENCE for move in moved], 1)
        normal = slopes.T @ slopes
        step = np.linalg.solve(normal + damping * np.eye(len(logs)), -slopes.T @ here)
        there = residuals(logs + step)
        if there @ there < here @ here:
            logs, here, damping = logs + step, there, damping / 4
        else:
            damping *= 8
    return logs


def random_steps(
    problems: Sequence[Measured], parameters: Parameters, logs: Vector, steps: int
) -> Vector:
    """The parameters after random steps that lower the mean expected loss."""
    rng = np.random.default_rng(0)

    def loss(logs: Vector) -> float:
        c = parameters.coefficients(logs)
        prior = NOISE**2 * float(((logs / SPREAD) ** 2).sum()) / len(problems)
        return sum(p.loss(c) for p in problems) / len(problems) + prior

    here = loss(logs)
    for _ in range(steps):
        moved = rng.random(len(logs)) < 3 / len(logs)
        tried = logs + moved * rng.normal(0, 0.1, len(logs))
        there = loss(tried)
        if there < here:
            logs, here = tried, there
    return logs
