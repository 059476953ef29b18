"""Candidates of all structures for a problem, to fit the cost model of kernel ``tma``."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tilewright import gemm
from tilewright.gemm.tma import tma_checks
from tilewright.gemm.tma.cost.coefficients import OTHERS, PRODUCTS, Coefficients, coefficients
from tilewright.gemm.tma.cost.tma_cost import estimates, tile_costs
from tilewright.gemm.tma.partial_tma_config import PartialTmaConfig
from tilewright.gemm.tma.tma_columns import TmaColumns
from tilewright.gemm.tma.tma_config import TmaConfig, relayout_problem
from tilewright.gemm.tma.tma_geometry import SWIZZLE_BYTES
from tilewright.target import DEFAULT_DEVICE, DeviceSpec

from .rows import Row

# Every tile of the search space in these clusters too, whatever the schedule grid would select.
CLUSTERS = ("", "/2x1", "/1x2", "/2x2", "/4x1", "/1x4")
# Tiles that the search space does not have: warpgroups and tile N, by tile M.
LEAST = 128  # of M and N
EXTRA_TILES = {192: (3, (128, 144, 160, 176, 192)), 256: (2, (96, 144, 160, 176, 192))}


def problem_of(row: Row) -> gemm.Problem:
    """The problem of a row whose operands are packed, as torch's allocations are."""
    bits = 8 if row.type in ("e4m3", "s8") else 16
    align = [(x * bits // 8 | 16) & -(x * bits // 8 | 16) for x in (row.k, row.k)]
    return gemm.Problem(
        row.m, row.n, row.k, row.type, row.type, row.result, align_a=align[0], align_b=align[1],
        align_d=(row.n * 2 | 16) & -(row.n * 2 | 16), fast=row.fast,
    )  # fmt: skip


class Numbers(NamedTuple):
    """Of candidates: the heuristic's best; what the coefficients of other problems rank best; the
    best of other structures (rows, warpgroups, k-tile, cluster, kind of split); the best of the
    first extra tiles.
    """

    best: int
    others: int
    rivals: int = 0
    extras: int = 0


def candidates(
    row: Row, numbers: Numbers, device: DeviceSpec = DEFAULT_DEVICE
) -> list[gemm.AnyConfig]:
    """Candidates for a row, the heuristic's choice first."""
    problem = problem_of(row)
    own = coefficients(problem)
    found = [config for _, config in gemm.ranked(problem, device)[: numbers.best]]
    if numbers.rivals or numbers.others:
        found += _of_any_structure(problem, numbers, found, device)
    for bm in list(EXTRA_TILES)[: numbers.extras if min(row.m, row.n) > LEAST else 0]:
        found += _ranked(problem, _columns(problem, _extra(problem, bm), device), own, device)[:1]
    return found


def _of_any_structure(
    problem: gemm.Problem, numbers: Numbers, best: list[gemm.AnyConfig], device: DeviceSpec
) -> list[gemm.AnyConfig]:
    """The rivals, and the best of other structures than theirs."""
    own = coefficients(problem)
    columns = _columns(problem, [f"tma{cluster}" for cluster in CLUSTERS], device)
    rivals = _ranked(problem, columns, PRODUCTS if own is OTHERS else OTHERS, device)
    found = [config for config in rivals if config not in best][: numbers.rivals]
    structures: dict[Any, gemm.AnyConfig] = {}
    for config in _ranked(problem, columns, own, device):
        if config not in best + found:
            structures.setdefault(_structure(config), config)
    return found + list(structures.values())[: numbers.others]


def _extra(problem: gemm.Problem, bm: int) -> list[str]:
    """The extra tiles with so many rows, swapped or not."""
    consumers, widths = EXTRA_TILES[bm]
    bk = 8 * SWIZZLE_BYTES // problem.input.bits
    return [f"tma:{bm}x{bn}x{bk}:{consumers}{swap}" for bn in widths for swap in ("", "~")]


def _structure(config: TmaConfig) -> Any:
    bm, _, bk = config.tile
    kind = config.split > 1, config.tail
    return bm, bk, config.consumers, config.pingpong, config.cluster, kind


def _columns(problem: gemm.Problem, texts: list[str], device: DeviceSpec) -> TmaColumns:
    """The configurations that agree with one of the texts, each once."""
    found: dict[TmaConfig, None] = {}
    for text in texts:
        partial = PartialTmaConfig.parse(text)
        assert partial is not None
        columns = partial.candidates(problem, device)
        fitting = np.flatnonzero(tma_checks.fits(relayout_problem(problem), columns, device))
        columns = columns.take(fitting)
        found |= dict.fromkeys(columns.config(i) for i in range(len(columns)))
    return TmaColumns.of(list(found))


def _ranked(
    problem: gemm.Problem, columns: TmaColumns, c: Coefficients, device: DeviceSpec
) -> list[TmaConfig]:
    """The configurations by the estimates of these coefficients."""
    costs = tile_costs(relayout_problem(problem), columns, device, c)
    order = estimates(problem, columns, costs, device).argsort(kind="stable")
    return [columns.config(i) for i in order.tolist()]
