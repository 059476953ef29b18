"""Search space of kernel ``tma``: the candidates for a problem, as columns.

A catalog, computed once for the traits of a problem and a device, has every tile that may become a
candidate, with each cluster and kind of split, as many stages as fit, and its costs. For the sizes
of a problem some of these tiles are selected, and ``schedule_grid`` selects their schedules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from ...target import DeviceSpec
from ..columns import Column
from ..problem import PROMOTION_K, Problem, accumulator_type_of
from ..problem_traits import Traits, problem_with, traits
from .cost.coefficients import COEFFICIENTS, deciding
from .cost.tma_cost import TileCosts, tile_costs
from .mainloop.warpgroup_sharing import JOINED
from .schedule_grid import (
    ALL_CLUSTERS,
    CLUSTERS,
    LARGE_TILE,
    RESIDENT_CLUSTERS,
    STREAM_K,
    schedules,
)
from .tma_checks import fits
from .tma_columns import TmaColumns
from .tma_config import relayout_problem
from .tma_geometry import SWIZZLE_BYTES, WGMMA_ROWS

# (tile M, consumer warpgroups, pingpong): candidates of tile N
TILES = {
    (128, 2, True): (192, 176, 160, 144, 128),
    (128, 2, False): (256, 192, 160, 128, 96, 64, 32),
    (256, 2, False): (128,),
    (64, 1, False): (256, 192, 128, 96, 80, 64, 32, 16),
}
# Of stacks of matrices besides, of which a tile has a whole side: with few k-blocks the epilogue of
# one warpgroup overlaps the mainloop of the other.
STACK_TILES = {(64, 2, True): (64, 32, 16)}
# Of two matrices B besides, swapped: a warpgroup has 64 rows of each.
PAIR_TILES = {(128, 1, False): (128, 96, 64, 48, 32, 16)}
# Where each of the tile's columns has block scales, more: a warpgroup's 64-row blocks share them.
LINE_TILES = {(256, 2, False): (96,)}
# Of prepared weights: those of 64 rows with several warpgroups are sliced along K.
WEIGHT_TILES = {
    (256, 2, False): (128, 96, 64),
    (128, 2, False): (160, 128, 96, 64, 32),
    (64, 1, False): (160, 128, 96, 64, 32, 16),
    (64, 2, False): (80, 64, 32, 16),
    (64, 3, False): (64, 48, 32, 16),
    (64, 4, False): (32, 16),
}
# Of a pair of them: two warpgroups with 64 rows of each matrix, one that has both, or two (or twice
# two, sliced along K) that have one each.
WEIGHT_PAIR_TILES = {
    (256, 2, False): (128, 96, 64),
    (128, 1, False): (128, 96, 64, 32, 16),
    (128, 2, False): (160, 128, 96, 64, 32, 16),
    (128, 4, False): (32, 16),
}
# Tiles that are candidates for any N: a pair of MN-major matrices B needs two swizzled rows.
MIN_TILE_N, PAIR_TILE_N = 16, 128
FITTED_WAVES = 3  # fitted tiles fill 1 to 3 whole waves
MIN_STAGES, MAX_STAGES = 3, 12
MOST_ROWS, MOST_K_BYTES = 256, 512  # along M and N, and along K, of stacks of small matrices
GROUP, GROUP_OF_8_BITS = 8, 16  # rows of tiles per rasterization group

# Schedules of the catalog: every cluster with each kind of split: none, split-K, of the tail wave;
# and stream-K.
_KINDS_OF_SPLIT = ((1, False, 0), (2, False, 0), (2, True, 0))
_SCHEDULES = [(cluster, *kind) for cluster in CLUSTERS for kind in _KINDS_OF_SPLIT]
_SCHEDULES += [(cluster, 1, False, 0) for cluster in RESIDENT_CLUSTERS]
_SCHEDULES += [(CLUSTERS[0], 1, False, clusters) for clusters in STREAM_K]
# The schedule of each column of the grid.
_SCHEDULE_OF_COLUMN = np.array(
    [
        _SCHEDULES.index(((m, n), 2 if is_split else 1, tail, stream_k))
        for m, n, is_split, tail, stream_k in ALL_CLUSTERS.columns()
    ]
)

_Warpgroups = tuple[int, int, bool, bool]  # tile M, consumer warpgroups, pingpong; and swap


class _Catalog(NamedTuple):
    """Tiles with all schedules: ``configs`` and ``fits`` have len(_SCHEDULES) rows for each."""

    indices: dict[_Warpgroups, dict[int, list[int]]]  # by tile N, with one to three k-tiles
    tiles: Column  # (6, tiles): M, N, K, consumers, pingpong, swap
    configs: TmaColumns
    fits: Column


def candidates(problem: Problem, device: DeviceSpec) -> tuple[TmaColumns, list[TileCosts], Column]:
    """The candidates that fit problem and device; the costs of a catalog by each of the
    coefficients that decide, and the candidates' rows of it.
    """
    relaid = traits(relayout_problem(problem))
    catalog = _catalog(relaid, device)
    costs = [_costs(relaid, device, name) for name in deciding(problem)]
    problem = problem.balanced
    tiles = np.array(_tiles(problem, device, catalog), np.int64)
    row, column, split = schedules(problem, catalog.tiles[:, tiles], ALL_CLUSTERS, device)
    index = tiles[row] * len(_SCHEDULES) + _SCHEDULE_OF_COLUMN[column]
    fitting = catalog.fits[index]
    index = index[fitting]
    configs, split = catalog.configs.take(index), split[fitting]
    joined = configs.in_cluster & (split == JOINED)
    return replace(configs, split=split, in_cluster=joined), costs, index


@lru_cache(maxsize=32)
def _catalog(relaid: Traits, device: DeviceSpec) -> _Catalog:
    """The catalog for problems whose traits after relayout are ``relaid``."""
    problem = problem_with(relaid)
    tiles: list[tuple[int, ...]] = []
    indices: dict[_Warpgroups, dict[int, list[int]]] = {}
    k_tile = PROMOTION_K if problem.promoted else 8 * SWIZZLE_BYTES // problem.input.bits
    k_tile = k_tile if problem.weights is None else problem.weights.unit_k
    least = WGMMA_ROWS * (1 + problem.pair)
    for warpgroups in _warpgroups(problem):
        (bm, consumers, pingpong, swap), table = warpgroups, _table(problem, warpgroups)
        by_width = indices[warpgroups] = {}
        for bn in range(min(table), max(table) + 1, 8 if swap else 16):
            small = bm * bn < LARGE_TILE if problem.weights is None else bm == least
            factors = ((1, 2, 4) if problem.sparse else (1, 2)) if small else (1,)
            k_tiles = [k_tile * factor for factor in factors]
            by_width[bn] = [len(tiles) + i for i in range(len(k_tiles))]
            tiles += [(bm, bn, bk, consumers, pingpong, swap) for bk in k_tiles]
    configs = _configs(problem, tiles)
    np.minimum(configs.max_stages(problem, device), MAX_STAGES, out=configs.stages)
    fitting = fits(problem, configs, device) & (configs.stages >= MIN_STAGES)
    columns = np.array(tiles, np.int64).T
    return _Catalog(indices, columns, configs, fitting)


@lru_cache(maxsize=64)
def _costs(relaid: Traits, device: DeviceSpec, name: str) -> TileCosts:
    """The costs of a catalog's configurations by the coefficients of this name."""
    c = COEFFICIENTS[name]
    return tile_costs(problem_with(relaid), _catalog(relaid, device).configs, device, c)


def _warpgroups(problem: Problem) -> list[_Warpgroups]:
    """The tables' warpgroups, each as it is and swapped; with prepared weights swapped."""
    if problem.weights is not None:
        return [(*warpgroups, True) for warpgroups in _weight_tiles(problem)]
    tables = TILES | STACK_TILES
    found = [(*warpgroups, swap) for warpgroups, swap in product(tables, (False, True))]
    if problem.pair:
        found += [(*warpgroups, True) for warpgroups in PAIR_TILES]
    return found


def _table(problem: Problem, warpgroups: _Warpgroups) -> tuple[int, ...]:
    """The table's tile N."""
    key = warpgroups[:3]
    if problem.weights is not None:
        return _weight_tiles(problem)[key]
    if key in LINE_TILES and _has_column_scales(problem, warpgroups[3]):
        return LINE_TILES[key]
    return (TILES | STACK_TILES | PAIR_TILES)[key]


def _weight_tiles(problem: Problem) -> dict[tuple[int, int, bool], tuple[int, ...]]:
    """The tables of prepared weights."""
    return WEIGHT_PAIR_TILES if problem.pair else WEIGHT_TILES


def _has_column_scales(problem: Problem, swap: bool) -> bool:
    """Whether each of the tile's columns has block scales."""
    scaling = problem.scaling
    return scaling is not None and (scaling.rows if swap else scaling.columns) == 1


def _configs(problem: Problem, tiles: Sequence[tuple[int, ...]]) -> TmaColumns:
    """Each tile with each schedule."""
    bm, bn, bk, consumers, pingpong, swap = np.repeat(np.array(tiles), len(_SCHEDULES), axis=0).T
    rows = len(bm)
    (cm, cn), split, tail, stream_k = (
        np.tile(np.array(column).T, len(tiles)) for column in zip(*_SCHEDULES, strict=True)
    )
    group = np.full(rows, rasterization_group(problem))
    stages, dynamic = np.zeros(rows, np.int64), np.zeros(rows, bool)
    in_cluster = np.zeros(rows, bool)
    found = TmaColumns(
        (bm, bn, bk), consumers, stages, (cm, cn), pingpong != 0, split, tail, group, swap != 0,
        dynamic, stream_k, in_cluster,
    )  # fmt: skip
    in_cluster[:] = found.may_join(problem)
    return found


def tiles(problem: Problem, device: DeviceSpec) -> Column:
    """The candidate tiles for a problem: (6, tiles) of M, N, K, consumers, pingpong, swap."""
    catalog = _catalog(traits(relayout_problem(problem)), device)
    return catalog.tiles[:, _tiles(problem.balanced, device, catalog)]


def rasterization_group(problem: Problem) -> int:
    """Rows of tiles per rasterization group."""
    return GROUP_OF_8_BITS if problem.input.bits == 8 or problem.sparse else GROUP


def _tiles(problem: Problem, device: DeviceSpec, catalog: _Catalog) -> list[int]:
    """The tiles for this problem, by their index; those of twice the problem's size are left
    out.
    """
    found: list[int] = []
    for warpgroups, by_width in catalog.indices.items():
        bm, *_, swap = warpgroups
        if warpgroups[:3] in STACK_TILES and not _is_small_stack(problem):
            continue
        always = PAIR_TILE_N if problem.pair and not swap else MIN_TILE_N
        rows, columns = (problem.n, problem.m) if swap else (problem.m, problem.n)
        if bm < 2 * rows or bm <= 64 or warpgroups[:3] in PAIR_TILES:
            for bn in _widths(problem, device, warpgroups):
                if bn < 2 * columns or bn <= always:
                    found += by_width[bn]
    return found


def _is_small_stack(problem: Problem) -> bool:
    """Whether the problem is a stack of products of few tiles and k-blocks, with a short side."""
    k_bytes, (short, long) = problem.k * problem.input.bits // 8, sorted((problem.m, problem.n))
    few = short <= WGMMA_ROWS and long <= MOST_ROWS and k_bytes <= MOST_K_BYTES
    return problem.batch > 1 and few


def _widths(problem: Problem, device: DeviceSpec, warpgroups: _Warpgroups) -> Iterable[int]:
    """Candidates of tile N: the table's; narrower ones that need as many tiles; tile sizes fitted
    to the problem, so that the tiles fill whole waves. Only the table's where the epilogue needs
    accumulator registers: with a C, or where D is not stored by tensor copies.
    """
    (bm, _, _, swap), table = warpgroups, _table(problem, warpgroups)
    if problem.loads_c or relayout_problem(problem).align_d < 16:
        return table
    rows, columns = (problem.n, problem.m) if swap else (problem.m, problem.n)
    right = problem.a_major if swap else problem.b_major
    eights = swap and right == "k" and accumulator_type_of(problem.a) != "s32"
    down = max(1, -(-rows // bm))
    counts = [-(-columns // bn) for bn in table]
    counts += [wave * device.sms // down for wave in range(1, FITTED_WAVES + 1)]
    low, high = min(table), max(table)
    found = dict.fromkeys(table)
    for each in (-(-columns // count) for count in counts if count):
        unit = 8 if eights and each <= 128 else 16  # wider tiles in eights need narrow stores
        bn = -(-each // unit) * unit
        if low <= bn <= high:
            found[bn] = None
    return found
