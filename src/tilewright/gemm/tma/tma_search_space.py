"""Search space of kernel ``tma``: the candidates for a problem, as columns.

A catalog, computed once for the traits of a problem and a device, has every tile that may become a
candidate, with each cluster and kind of split, as many stages as fit, and its costs. For a problem,
some of these tiles are the rows of a grid whose columns are the schedules: clusters and splits.
Conditions over the grid select the candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from ...target import DeviceSpec
from ..columns import Column, tile_count
from ..config_checks import MAX_SPLIT
from ..problem import PROMOTION_K, Problem
from ..problem_traits import Traits, problem_with, traits
from .tma_checks import fits
from .tma_columns import TmaColumns
from .tma_config import relayout_problem
from .tma_cost import TileCosts, tile_costs
from .tma_geometry import SWIZZLE_BYTES, resident_clusters

# (tile M, consumer warpgroups, pingpong): candidates of tile N
TILES = {
    (128, 2, True): (192, 176, 160, 144, 128),
    (128, 2, False): (256, 192, 160, 128, 96, 64, 32),
    (256, 2, False): (128,),
    (64, 1, False): (256, 192, 128, 96, 80, 64, 32, 16),
}
CLUSTERS = ((1, 1), (2, 1), (1, 2))
RESIDENT_CLUSTERS = ((4, 1), (1, 4), (4, 2), (2, 4))  # only where all of them are resident
LARGE_TILE = 128 * 128  # elements; smaller tiles also try a k-tile of two swizzled rows
FITTED_WAVES = 3  # fitted tiles fill 1 to 3 whole waves
MIN_STAGES, MAX_STAGES = 3, 12
GROUP, GROUP_OF_8_BITS = 8, 16  # rows of tiles per rasterization group

# Columns of the grid. Each of CLUSTERS has six: unsplit; split-K by 2, by half of what fills the
# device once, by all of that; split-K of the tail wave by 2 and by 3. The others are unsplit.
_SPLIT, _TAIL = slice(1, 4), slice(4, 6)
_SCHEDULES = 6
# Columns of the catalog: the same clusters, but one kind of split each: none, split-K, of the tail.
_KINDS_OF_SPLIT = ((1, False), (2, False), (2, True))
_KINDS = [(cluster, *kind) for cluster in CLUSTERS for kind in _KINDS_OF_SPLIT]
_KINDS += [(cluster, 1, False) for cluster in RESIDENT_CLUSTERS]
_KIND_OF_COLUMN = np.array(
    [3 * i + kind for i in range(len(CLUSTERS)) for kind in (0, 1, 1, 1, 2, 2)]
    + [3 * len(CLUSTERS) + i for i in range(len(RESIDENT_CLUSTERS))]
)


class Clusters(NamedTuple):
    """Clusters of the grid. The first ``splittable`` of them have six columns each, the others one:
    they are for work tiles that are resident all at once. ``any_tile``: small tiles, too, may use
    a cluster that does not cover D along M or N.
    """

    m: Column
    n: Column
    splittable: int
    any_tile: bool = False

    def columns(self) -> list[tuple[int, int, bool]]:
        """(M, N, whether the split is of the tail wave) of each column of the grid."""
        pairs = list(zip(self.m.tolist(), self.n.tolist(), strict=True))
        split = [(*pair, tail) for pair in pairs[: self.splittable] for tail in _IS_TAIL]
        return split + [(*pair, False) for pair in pairs[self.splittable :]]


_IS_TAIL = (False, False, False, False, True, True)
ALL_CLUSTERS = Clusters(
    np.array([m for m, _ in CLUSTERS + RESIDENT_CLUSTERS]),
    np.array([n for _, n in CLUSTERS + RESIDENT_CLUSTERS]),
    len(CLUSTERS),
)

_Warpgroups = tuple[int, int, bool, bool]  # tile M, consumer warpgroups, pingpong; and swap


class _Catalog(NamedTuple):
    """Tiles with all kinds of schedule; ``configs``, ``costs`` and ``fits`` have len(_KINDS) rows
    for each tile.
    """

    indices: dict[_Warpgroups, dict[int, list[int]]]  # by tile N, with one or two k-tiles
    tiles: Column  # (6, tiles): M, N, K, consumers, pingpong, swap
    configs: TmaColumns
    costs: TileCosts
    fits: Column


def candidates(problem: Problem, device: DeviceSpec) -> tuple[TmaColumns, TileCosts]:
    """The candidates that fit problem and device, and their costs."""
    catalog = _catalog(traits(relayout_problem(problem)), device)
    tiles = np.array(_tiles(problem, device, catalog), np.int64)
    row, column, split = schedules(problem, catalog.tiles[:, tiles], ALL_CLUSTERS, device)
    index = tiles[row] * len(_KINDS) + _KIND_OF_COLUMN[column]
    fitting = catalog.fits[index]
    index = index[fitting]
    configs = replace(catalog.configs.take(index), split=split[fitting])
    return configs, catalog.costs.take(index)


@lru_cache(maxsize=32)
def _catalog(relaid: Traits, device: DeviceSpec) -> _Catalog:
    """The catalog for problems whose traits after relayout are ``relaid``."""
    problem = problem_with(relaid)
    tiles: list[tuple[int, ...]] = []
    indices: dict[_Warpgroups, dict[int, list[int]]] = {}
    k_tile = PROMOTION_K if problem.promoted else 8 * SWIZZLE_BYTES // problem.input.bits
    for (bm, consumers, pingpong), swap in product(TILES, (False, True)):
        by_width = indices[bm, consumers, pingpong, swap] = {}
        table = TILES[bm, consumers, pingpong]
        for bn in range(min(table), max(table) + 1, 8 if swap else 16):
            k_tiles = (k_tile, 2 * k_tile) if bm * bn < LARGE_TILE else (k_tile,)
            by_width[bn] = [len(tiles) + i for i in range(len(k_tiles))]
            tiles += [(bm, bn, bk, consumers, pingpong, swap) for bk in k_tiles]
    configs = _configs(problem, tiles)
    np.minimum(configs.max_stages(problem, device), MAX_STAGES, out=configs.stages)
    fitting = fits(problem, configs, device) & (configs.stages >= MIN_STAGES)
    columns = np.array(tiles, np.int64).T
    return _Catalog(indices, columns, configs, tile_costs(problem, configs, device), fitting)


def _configs(problem: Problem, tiles: Sequence[tuple[int, ...]]) -> TmaColumns:
    """Each tile with each kind of schedule."""
    bm, bn, bk, consumers, pingpong, swap = np.repeat(np.array(tiles), len(_KINDS), axis=0).T
    rows = len(bm)
    (cm, cn), split, tail = (
        np.tile(np.array(column).T, len(tiles)) for column in zip(*_KINDS, strict=True)
    )
    group = np.full(rows, rasterization_group(problem))
    stages, dynamic = np.zeros(rows, np.int64), np.zeros(rows, bool)
    return TmaColumns(
        (bm, bn, bk), consumers, stages, (cm, cn), pingpong != 0, split, tail, group, swap != 0,
        dynamic,
    )  # fmt: skip


def tiles(problem: Problem, device: DeviceSpec) -> Column:
    """The candidate tiles for a problem: (6, tiles) of M, N, K, consumers, pingpong, swap."""
    catalog = _catalog(traits(relayout_problem(problem)), device)
    return catalog.tiles[:, _tiles(problem, device, catalog)]


def rasterization_group(problem: Problem) -> int:
    """Rows of tiles per rasterization group."""
    return GROUP_OF_8_BITS if problem.input.bits == 8 else GROUP


def _tiles(problem: Problem, device: DeviceSpec, catalog: _Catalog) -> list[int]:
    """The tiles for this problem, by their index; those of twice the problem's size are left
    out.
    """
    found: list[int] = []
    for warpgroups, by_width in catalog.indices.items():
        bm, *_, swap = warpgroups
        rows, columns = (problem.n, problem.m) if swap else (problem.m, problem.n)
        if bm < 2 * rows or bm <= 64:
            for bn in _widths(problem, device, warpgroups):
                if bn < 2 * columns or bn <= 16:
                    found += by_width[bn]
    return found


def _widths(problem: Problem, device: DeviceSpec, warpgroups: _Warpgroups) -> Iterable[int]:
    """Candidates of tile N: the table's; narrower ones that need as many tiles; tile sizes fitted
    to the problem, so that the tiles fill whole waves. Only the table's where the epilogue needs
    accumulator registers: with a C, or where D is not stored by tensor copies.
    """
    bm, consumers, pingpong, swap = warpgroups
    table = TILES[bm, consumers, pingpong]
    if problem.with_c or relayout_problem(problem).align_d < 16:
        return table
    rows, columns = (problem.n, problem.m) if swap else (problem.m, problem.n)
    right = problem.a_major if swap else problem.b_major
    eights = swap and right == "k" and problem.accumulator_type != "s32"
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


def schedules(
    problem: Problem, tiles: Column, clusters: Clusters, device: DeviceSpec
) -> tuple[Column, Column, Column]:
    """Rows and columns in the grid of tiles and schedules, row by row, and the split of each."""
    bm, bn, bk, _, _, swap = tiles[:, :, None]
    down = -(-np.where(swap, problem.n, problem.m) // bm)
    across = -(-np.where(swap, problem.m, problem.n) // bn)
    few, (all_m, all_n) = clusters.splittable, clusters[:2]
    work_tiles = tile_count(problem, -(-down // all_m), -(-across // all_n))
    resident = resident_clusters(all_m * all_n, device)
    split, valid = _splits(work_tiles[:, :few, None], resident[:few, None])
    valid &= (split <= np.minimum(MAX_SPLIT, problem.k // (2 * bk))[:, :, None]) | (split == 1)
    if not clusters.any_tile:
        # Clusters of small tiles only where one covers D along M or N, so that each operand tile on
        # the other side is read once.
        cm, cn = all_m[:few], all_n[:few]
        covered = np.where(cm > 1, down == cm, across == cn)
        valid &= ((bm * bn >= LARGE_TILE) | (cm * cn == 1) | covered)[:, :, None]
    cm, cn = all_m[few:], all_n[few:]
    more = (cm <= down) & (cn <= across) & (work_tiles[:, few:] <= resident[few:])
    row, column = np.nonzero(np.hstack((valid.reshape(tiles.shape[1], -1), more)))
    splits = np.hstack((split.reshape(tiles.shape[1], -1), np.ones(more.shape, np.int64)))
    return row, column, splits[row, column]


def _splits(work_tiles: Column, resident: Column) -> tuple[Column, Column]:
    """The split of each schedule in the grid (tile, cluster, schedule), and whether its parts are
    all resident at once: of all tiles, or of those in the tail wave.
    """
    full = resident // np.maximum(work_tiles, 1)
    shape = *work_tiles.shape[:2], _SCHEDULES
    split, valid = np.ones(shape, np.int64), np.ones(shape, bool)
    split[:, :, 1], split[:, :, 2:3], split[:, :, 3:4] = 2, full // 2, full
    split[:, :, _TAIL] = 2, 3
    valid[:, :, _SPLIT] = work_tiles * split[:, :, _SPLIT] <= resident
    valid[:, :, 2:4] &= split[:, :, 2:4] > 2
    tail = work_tiles % resident * split[:, :, _TAIL] <= resident
    valid[:, :, _TAIL] = tail & (work_tiles > resident)
    return split, valid
