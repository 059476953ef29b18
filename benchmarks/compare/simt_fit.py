"""Fits the coefficients of the cost model of kernel ``simt`` to a sweep of ``f32_products.py``."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tilewright
from tilewright import gemm
from tilewright.gemm.cp_async import simt_cost
from tilewright.gemm.cp_async.simt_cost import COEFFICIENTS, SimtCoefficients

Row = list[Any]  # M, N, K and the microseconds by configuration, torch's among them
STEPS = (1.5, 1.2, 1.08, 1.03)  # factors by which a coefficient is moved, one after another
# What a sweep hardly tells apart from other coefficients: as is.
NOT_FITTED = ("load", "launch", "reduction", "partial_bytes", "sector")
SQUARE = 9  # shapes that a square counts as: a sweep has few
SOFTNESS = 0.02  # a candidate estimated this much slower, in logarithms, counts 1/e as the choice
Measured = tuple[Any, Any, list[float]]  # a problem, the columns of its candidates, microseconds


def fit(rows: Sequence[Row]) -> None:
    """Print the fitted coefficients, the errors, and what the choice costs before and after, also
    for the half of the shapes that coefficients were not fitted to.
    """
    device = tilewright.plan(64, 64, 64, dtype="f32", device="vm").device.target
    data = [measured(row, device) for row in rows]
    found = fitted(data, device)
    halves = [data[i::2] for i in range(2)]
    unseen = [r for a, b in (halves, halves[::-1]) for r in regrets(b, device, fitted(a, device))]
    print(f"fitted to half of the shapes: choice {math.exp(statistics.fmean(unseen)):.3f} of the "
          "best for the others")  # fmt: skip
    for name, c in (("before", COEFFICIENTS), ("fitted", found)):
        regret = statistics.fmean(regrets(data, device, c))
        squares = np.concatenate(errors(data, device, c)) ** 2
        spread = math.sqrt(squares.mean())
        print(f"{name}: error {spread:.3f}, choice {math.exp(regret):.3f} of the best; {c}")
    report(rows, data, device, found)


def fitted(data: Sequence[Measured], device: Any) -> SimtCoefficients:
    """The coefficients of the least errors, of estimates and of their ratios, and regrets."""

    def loss(c: SimtCoefficients) -> float:
        parts = []
        for each, (_, _, times) in zip(errors(data, device, c), data, strict=True):
            estimated = each + np.log(times)
            chance = np.exp((estimated.min() - estimated) / SOFTNESS)
            regret = chance @ np.log(np.array(times) / min(times)) / chance.sum()
            parts.append(((each**2).mean() + each.var()) / 2 + 2 * regret)
        return statistics.fmean(parts, weights)

    weights = [SQUARE if p.m == p.n == p.k else 1 for p, *_ in data]
    return minimized(loss, COEFFICIENTS)


def errors(data: Sequence[Measured], device: Any, c: SimtCoefficients) -> list[Any]:
    """For each problem the logarithms of the estimates over the times."""
    return [np.log(seconds(p, columns, device, c) / times) for p, columns, times in data]


def measured(row: Row, device: Any) -> Measured:
    """A row's problem, candidates and microseconds."""
    m, n, k, times = row
    plan = tilewright.plan(m, n, k, dtype="f32", device="vm")
    named = [(gemm.parse(x), t) for x, t in times.items() if x.startswith("simt")]
    configs, values = [c for c, _ in named], [t for _, t in named]
    return plan.problem, simt_cost.simt_costs(plan.problem, configs, device), values


def seconds(problem: Any, columns: Any, device: Any, c: SimtCoefficients) -> Any:
    """Estimated microseconds."""
    return simt_cost.estimates(problem, columns, device, c) * 1e6


def regrets(data: Sequence[Measured], device: Any, c: SimtCoefficients) -> list[float]:
    """For each problem the logarithm of the choice's time over the least time."""
    found = []
    for problem, columns, times in data:
        choice = int(np.argmin(seconds(problem, columns, device, c)))
        found.append(math.log(times[choice] / min(times)))
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
    for row, (problem, columns, times), regret in zip(
        rows, data, regrets(data, device, c), strict=True
    ):
        names = [x for x in row[3] if x.startswith("simt")]
        estimated = seconds(problem, columns, device, c)
        chosen, best = int(np.argmin(estimated)), int(np.argmin(times))
        if regret > 0.03:
            print(f"{row[:3]}: {names[chosen]} {times[chosen]:.1f} (estimated "
                  f"{estimated[chosen]:.1f}), best {names[best]} {times[best]:.1f} "
                  f"({estimated[best]:.1f}), torch {row[3]['torch']:.1f}")  # fmt: skip
