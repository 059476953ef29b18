"""Fits the cost model of kernel ``simt`` to a sweep of ``f32_products.py``: its coefficients, and
how long the machine code of each tile takes for a k-tile.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import tilewright
from tilewright import gemm
from tilewright.gemm.cp_async import simt_cost
from tilewright.gemm.cp_async.simt_cost import COEFFICIENTS, OTHER_RATE, RATES, SimtCoefficients

Row = list[Any]  # M, N, K and the microseconds by configuration, torch's among them
STEPS = (1.5, 1.2, 1.08, 1.03)  # factors by which a coefficient is moved, one after another
# What a sweep hardly tells apart from other coefficients: as is.
NOT_FITTED = ("load", "partial_bytes", "sector")
ROUNDS = 3  # of coefficients and rates in turn
LONG = 30  # microseconds, of times that rates are fitted to
PRIOR = 3  # times that keep a rate as it is
SQUARE = 9  # shapes that a square counts as: a sweep has few
SOFTNESS = 0.02  # a candidate estimated this much slower, in logarithms, counts 1/e as the choice


class Measured(NamedTuple):
    """A problem, its candidates' tiles and columns, and their microseconds."""

    problem: Any
    tiles: list[str]
    columns: Any
    times: list[float]

    def at(self, rates: dict[str, float]) -> Measured:
        """With other rates."""
        column = np.array([rates.get(x, OTHER_RATE) for x in self.tiles])
        return self._replace(columns=self.columns._replace(rate=column))


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
    print("rates", {name: round(rate, 3) for name, rate in rates.items()})
    for name, c in (("before", COEFFICIENTS), ("fitted", found)):
        data = data if c is COEFFICIENTS else [x.at(rates) for x in data]
        regret = statistics.fmean(regrets(data, device, c))
        squares = np.concatenate(errors(data, device, c)) ** 2
        spread = math.sqrt(squares.mean())
        print(f"{name}: error {spread:.3f}, choice {math.exp(regret):.3f} of the best; {c}")
    report(rows, data, device, found)


def fitted(data: Sequence[Measured], device: Any) -> tuple[SimtCoefficients, dict[str, float]]:
    """Coefficients and rates, in turn."""
    c, rates = COEFFICIENTS, dict(RATES)
    for _ in range(ROUNDS):
        data = [x.at(rates) for x in data]
        c = fitted_coefficients(data, device, c)
        rates = fitted_rates(data, device, c, rates)
    return fitted_coefficients([x.at(rates) for x in data], device, c), rates


def fitted_rates(
    data: Sequence[Measured], device: Any, c: SimtCoefficients, rates: dict[str, float]
) -> dict[str, float]:
    """The rates without errors on average, each tile's for itself."""
    found = defaultdict[str, list[float]](list)
    for each, row in zip(errors(data, device, c), data, strict=True):
        for tile, error, time in zip(row.tiles, each, row.times, strict=True):
            if time > LONG:
                found[tile].append(float(error))
    return rates | {
        tile: rates.get(tile, OTHER_RATE) * math.exp(-sum(each) / (len(each) + PRIOR))
        for tile, each in found.items()
    }


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
