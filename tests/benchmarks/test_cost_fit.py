"""``benchmarks/cost_fit.py``: a fit finds the coefficients that made the times."""

from __future__ import annotations

from compare.fitting import Measured, Parameters, least_squares, random_steps
from compare.sweep import Numbers, candidates
from compare.sweep_problems import name_of, narrow
from cost_fit import print_choices, print_residuals, source

from tilewright.gemm.tma.cost.coefficients import OTHERS, PRODUCTS, Coefficients

MADE_BY = PRODUCTS._replace(cluster={1: 0, 2: 4e-7, 4: 8.26e-8, 8: 1.819e-7}, l2_request=2.0)


def measured(count: int) -> list[Measured]:
    """Narrow problems whose times are the estimates of ``MADE_BY``."""
    found = []
    for row in list(narrow(3, 0))[:: max(1, 33 // count)]:
        times = dict.fromkeys(map(str, candidates(row, Numbers(4, 5))), 1.0)
        one = Measured.of(name_of(row), 1.0, times)
        us = dict(zip(map(str, one.configs), 1e6 * one.seconds(MADE_BY), strict=True))
        found.append(Measured.of(one.name, 1.0, {config: float(us[config]) for config in times}))
    return found


def test_least_squares_find_changed_coefficients(capsys) -> None:
    problems = measured(8)
    free = {"cluster.2", "l2_request", "loaded_bytes"}
    parameters = Parameters(PRODUCTS)
    parameters.names = [name for name in parameters.names if name in free]
    logs = least_squares(problems, parameters, 16, spread=100.0)
    c = parameters.coefficients(logs)
    assert abs(c.cluster[2] / 4e-7 - 1) < 0.1
    assert abs(c.l2_request / 2.0 - 1) < 0.05
    assert abs(c.loaded_bytes / PRODUCTS.loaded_bytes - 1) < 0.05
    assert all(abs(p.residuals(c)).max() < 1e-3 for p in problems)
    print_residuals(problems, c)
    print_choices("fitted", problems, c)
    assert "cluster 1x2" in capsys.readouterr().out


def test_random_steps_lower_the_loss_of_choices() -> None:
    problems, parameters = measured(5), Parameters(OTHERS, ["straddle", "launch"])
    logs = least_squares(problems, parameters, 0)
    assert not logs.any() and parameters.coefficients(logs) == OTHERS
    moved = parameters.coefficients(random_steps(problems, parameters, logs, 20))
    before, after = (sum(p.loss(c) for p in problems) for c in (OTHERS, moved))
    assert after <= before and moved.straddle == OTHERS.straddle


def test_the_source_of_coefficients_is_python() -> None:
    found = eval(f"Coefficients({source(PRODUCTS)})", {"Coefficients": Coefficients})
    assert found == PRODUCTS
