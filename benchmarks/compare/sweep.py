"""Candidates of all structures for a problem, to fit the cost model of kernel ``tma``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import gemm
from tilewright.gemm.tma import tma_checks
from tilewright.gemm.tma.cost.coefficients import OTHERS, PRODUCTS, Coefficients, coefficients
from tilewright.gemm.tma.cost.tma_cost import estimates, tile_costs
from tilewright.gemm.tma.partial_tma_config import PartialTmaConfig
from tilewright.gemm.tma.tma_config import TmaConfig, relayout_problem
from tilewright.target import DEFAULT_DEVICE, DeviceSpec

from .rows import Row

# Every tile of the search space in these clusters too, whatever the schedule grid would select.
CLUSTERS = ("", "/2x1", "/1x2", "/2x2", "/4x1", "/1x4")


def problem_of(row: Row) -> gemm.Problem:
    """The problem of a row whose operands are packed, as torch's allocations are."""
    bits = 8 if row.type in ("e4m3", "s8") else 16
    align = [(x * bits // 8 | 16) & -(x * bits // 8 | 16) for x in (row.k, row.k)]
    return gemm.Problem(
        row.m, row.n, row.k, row.type, row.type, row.result, align_a=align[0], align_b=align[1],
        align_d=(row.n * 2 | 16) & -(row.n * 2 | 16), fast=row.fast,
    )  # fmt: skip


def candidates(
    row: Row, best: int, others: int, rivals: int = 0, device: DeviceSpec = DEFAULT_DEVICE
) -> list[TmaConfig]:
    """The ``best`` candidates of the heuristic; ``rivals`` that the coefficients of other problems
    rank best; then the best of each of ``others`` structures: its rows and warpgroups, k-tile,
    cluster, and kind of split.
    """
    problem = problem_of(row)
    found = [x for _, x in gemm.ranked(problem, device)[:best] if isinstance(x, TmaConfig)]
    own = coefficients(problem)
    configs, columns = _in_any_cluster(problem, device)
    rival = OTHERS if own is PRODUCTS else PRODUCTS
    for config in _ranked(problem, configs, columns, rival, device)[: rivals and len(configs)]:
        if len(found) < best + rivals and config not in found:
            found.append(config)
    structures: dict[Any, TmaConfig] = {}
    for config in _ranked(problem, configs, columns, own, device):
        if config not in found:
            structures.setdefault(_structure(config), config)
    return found + list(structures.values())[:others]


def _structure(config: TmaConfig) -> Any:
    bm, _, bk = config.tile
    kind = config.split > 1, config.tail
    return bm, bk, config.consumers, config.pingpong, config.cluster, kind


def _in_any_cluster(problem: gemm.Problem, device: DeviceSpec) -> tuple[list[TmaConfig], Any]:
    """The configurations of the search space in each cluster, and their columns."""
    found: dict[TmaConfig, None] = {}
    for cluster in CLUSTERS:
        partial = PartialTmaConfig.parse(f"tma{cluster}")
        assert partial is not None
        columns = partial.candidates(problem, device)
        fitting = np.flatnonzero(tma_checks.fits(relayout_problem(problem), columns, device))
        columns = columns.take(fitting)
        found |= dict.fromkeys(columns.config(i) for i in range(len(columns)))
    return list(found), type(columns).of(list(found))


def _ranked(
    problem: gemm.Problem, configs: list[TmaConfig], columns: Any, c: Coefficients,
    device: DeviceSpec,
) -> list[TmaConfig]:  # fmt: skip
    """The configurations by the estimates of these coefficients."""
    costs = tile_costs(relayout_problem(problem), columns, device, c)
    order = estimates(problem, columns, costs, device).argsort(kind="stable")
    return [configs[i] for i in order.tolist()]
