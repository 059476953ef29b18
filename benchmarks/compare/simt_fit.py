"""Fits the cost model of kernel ``simt`` to a sweep of ``f32_products.py``: its coefficients, and
how long the machine code of each tile takes for a k-tile.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import tilewright
from tilewright import gemm
from tilewright.gemm.cp_async import simt_cost
from tilewright.gemm.cp_async.simt_cost import (
    COEFFICIENTS,
    OTHER_RATES,
    RATES,
    SimtCoefficients,
)

Rates = dict[str, tuple[float, float]]  # by tile and threads: of a k-tile, of the rest of a CTA
Row = list[Any]  # M, N, K and the microseconds by configuration, torch's among them
STEPS = (1.5, 1.2, 1.08, 1.03)  # factors by which a coefficient is moved, one after another
# What a sweep hardly tells apart from other coefficients: as is.
NOT_FITTED = ("load", "partial_bytes", "sector")
ROUNDS = 2  # of coefficients and rates in turn
LOOPS = np.linspace(0.85, 1.15, 7)  # factors that are tried for the rate of a k-tile
ENDS = (0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0)  # of the rest
PRIOR = 0.1, 0.01  # of the squared logarithms of both, as a time's squared error
SQUARE = 9  # shapes that a square counts as: a sweep has few
SOFTNESS = 0.02  # a candidate estimated this much slower, in logarithms, counts 1/e as the choice


class Measured(NamedTuple):
    """A problem, its candidates' tiles and columns, and their microseconds."""

    problem: Any
    tiles: list[str]
    columns: Any
    times: list[float]

    def at(self, rates: Rates) -> Measured:
        """With other rates."""
        columns = simt_cost.rates_of(self.tiles, rates)
        return self._replace(columns=self.columns._replace(rates=columns))


def fit(rows: Sequence[Row]) -> None:
    """Print the fitted coefficients, the errors, and what the choice costs before and after, also
    for the half of the shapes that coefficients were not fitted to.
    """
    device = tilewright.plan(64, 64, 64, dtype="f32", device="vm").device.target
    data = [measured(row, device) for row in rows]
    found, rates = fitted(data, device)
    halves = [data[i::2] for i in range(2)]
    unseen = []
    for seen, others in (halves, halves[::-1]):
        c, of_half = fitted(seen, device)
        unseen += regrets([x.at(of_half) for x in others], device, c)
    print(f"fitted to half of the shapes: choice {math.exp(statistics.fmean(unseen)):.3f} of the "
          "best for the others")  # fmt: skip
    print("rates", {name: tuple(round(float(x), 3) for x in r) for name, r in rates.items()})
    for name, c, of_tiles in (("before", COEFFICIENTS, RATES), ("fitted", found, rates)):
        data = [x.at(of_tiles) for x in data]
        regret = statistics.fmean(regrets(data, device, c))
        squares = np.concatenate(errors(data, device, c)) ** 2
        spread = math.sqrt(squares.mean())
        print(f"{name}: error {spread:.3f}, choice {math.exp(regret):.3f} of the best; {c}")
    report(rows, data, device, found)


def fitted(data: Sequence[Measured], device: Any) -> tuple[SimtCoefficients, Rates]:
    """Coefficients and rates, in turn."""
    c, rates = COEFFICIENTS, dict(RATES)
    for _ in range(ROUNDS):
        c = fitted_coefficients([x.at(rates) for x in data], device, c)
        rates = fitted_rates(data, device, c, rates)
    return c, rates


def fitted_rates(data: Sequence[Measured], device: Any, c: SimtCoefficients, rates: Rates) -> Rates:
    """The rates of the least squared errors, each tile's for itself."""
    found = dict(rates)
    for tile in {x for row in data for x in row.tiles}:
        rows = [row for row in data if tile in row.tiles]
        old = rates.get(tile, OTHER_RATES)
        tried = product(LOOPS * old[0], np.array(ENDS) * old[1])
        found[tile] = min(tried, key=lambda x: _rate_loss(rows, device, c, tile, x, old))
    return found


def _rate_loss(
    rows: Sequence[Measured], device: Any, c: SimtCoefficients, tile: str,
    rates: tuple[float, float], old: tuple[float, float],
) -> float:  # fmt: skip
    """The squared errors of a tile with these rates, and what these moved."""
    at = [x.at({tile: rates}) for x in rows]
    pairs = zip(errors(at, device, c), rows, strict=True)
    squares = [float((each[np.array(row.tiles) == tile] ** 2).sum()) for each, row in pairs]
    moved = (math.log(a / b) ** 2 for a, b in zip(rates, old, strict=True))
    return sum(squares) + sum(w * x for w, x in zip(PRIOR, moved, strict=True))


def fitted_coefficients(
    data: Sequence[Measured], device: Any, start: SimtCoefficients
) -> SimtCoefficients:
    """The coefficients of the least errors, of estimates and of their ratios, and regrets."""

    def loss(c: SimtCoefficients) -> float:
        parts = []
        for each, row in zip(errors(data, device, c), data, strict=True):
            times = np.array(row.times)
            estimated = each + np.log(times)
            chance = np.exp((estimated.min() - estimated) / SOFTNESS)
            regret = chance @ np.log(times / times.min()) / chance.sum()
            parts.append(((each**2).mean() + each.var()) / 2 + 2 * regret)
        return statistics.fmean(parts, weights)

    weights = [SQUARE if x.problem.m == x.problem.n == x.problem.k else 1 for x in data]
    return minimized(loss, start)


def errors(data: Sequence[Measured], device: Any, c: SimtCoefficients) -> list[Any]:
    """For each problem the logarithms of the estimates over the times."""
    return [np.log(seconds(x, device, c) / x.times) for x in data]


def measured(row: Row, device: Any) -> Measured:
    """A row's problem, candidates and microseconds."""
    m, n, k, times = row
    plan = tilewright.plan(m, n, k, dtype="f32", device="vm")
    named = [(gemm.parse(x), t) for x, t in times.items() if x.startswith("simt")]
    configs, values = [c for c, _ in named], [t for _, t in named]
    columns = simt_cost.simt_costs(plan.problem, configs, device)
    return Measured(plan.problem, list(map(simt_cost.tile_and_threads, configs)), columns, values)


def seconds(row: Measured, device: Any, c: SimtCoefficients) -> Any:
    """Estimated microseconds."""
    return simt_cost.estimates(row.problem, row.columns, device, c) * 1e6


def regrets(data: Sequence[Measured], device: Any, c: SimtCoefficients) -> list[float]:
    """For each problem the logarithm of the choice's time over the least time."""
    found = []
    for row in data:
        choice = int(np.argmin(seconds(row, device, c)))
        found.append(math.log(row.times[choice] / min(row.times)))
    return found


def minimized(
    loss: Callable[[SimtCoefficients], float], start: SimtCoefficients
) -> SimtCoefficients:
    """Coordinate descent."""
    best, value = start, loss(start)
    for step in STEPS:
        improved = True
        while improved:
            improved = False
            for name in (x for x in best._fields if x not in NOT_FITTED):
                for factor in (step, 1 / step):
                    tried = best._replace(**{name: getattr(best, name) * factor})
                    if (cost := loss(tried)) < value * 0.9999:
                        best, value, improved = tried, cost, True
    return best


def report(rows: Sequence[Row], data: Sequence[Measured], device: Any, c: SimtCoefficients) -> None:
    """Print the rows whose choice is much slower than the best, with the estimates of both."""
    for row, each, regret in zip(rows, data, regrets(data, device, c), strict=True):
        names, times = [x for x in row[3] if x.startswith("simt")], each.times
        estimated = seconds(each, device, c)
        chosen, best = int(np.argmin(estimated)), int(np.argmin(times))
        if regret > 0.03:
            print(f"{row[:3]}: {names[chosen]} {times[chosen]:.1f} (estimated "
                  f"{estimated[chosen]:.1f}), best {names[best]} {times[best]:.1f} "
                  f"({estimated[best]:.1f}), torch {row[3]['torch']:.1f}")  # fmt: skip
