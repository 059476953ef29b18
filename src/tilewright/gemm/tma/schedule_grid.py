"""Schedules of kernel ``tma`` for a problem: a grid of tiles and of (cluster, split).

The rows of the grid are tiles. Its columns are clusters, and for most clusters six kinds of split:
unsplit; split-K by 2, by half of what fills the device once, by all of that; split-K of the tail
wave by 2 and by 3. The last columns are stream-K of the first cluster, in groups of several sizes.
Conditions over the whole grid select the candidates.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...target import DeviceSpec
from ..columns import Column, tile_count
from ..config_checks import MAX_SPLIT
from ..problem import Problem
from .cost.coefficients import fitted_to
from .launch.row_pitch import straddles
from .stream_k.stream_k_tile_scheduler import tiles_of_group
from .tma_geometry import resident_clusters

CLUSTERS = ((1, 1), (2, 1), (1, 2))
RESIDENT_CLUSTERS = ((2, 2), (4, 1), (1, 4), (4, 2), (2, 4))  # only where all of them are resident
LARGE_TILE = 128 * 128  # elements

_SPLIT, _TAIL, _KINDS = slice(1, 4), slice(4, 6), 6  # columns of a cluster
STREAM_K = (2, 3, 4, 5)  # clusters of a group
# Of stream-K: waves at most, k-blocks of a tile at least, and tiles of a group at most: of more its
# CTAs are out of step.
STREAM_K_WAVES, STREAM_K_BLOCKS, STREAM_K_TILES = 8, 16, 2


class Clusters(NamedTuple):
    """Clusters of the grid. The first ``splittable`` of them have six columns each, the others one:
    those are candidates only where all work tiles are resident at once. ``any_tile``: small tiles
    may also use a cluster that does not cover D along M or N.
    """

    m: Column
    n: Column
    splittable: int
    any_tile: bool = False

    def columns(self) -> list[tuple[int, int, bool, bool, int]]:
        """(M, N, whether it is split along K, whether only in the tail wave, stream-K) of each
        column.
        """
        found, pairs = [], list(zip(self.m.tolist(), self.n.tolist(), strict=True))
        for i, pair in enumerate(pairs):
            for kind in range(_KINDS if i < self.splittable else 1):
                found.append((*pair, kind > 0, kind in range(_KINDS)[_TAIL], 0))
        return found + [(*pairs[0], False, False, clusters) for clusters in STREAM_K]


ALL_CLUSTERS = Clusters(
    np.array([m for m, _ in CLUSTERS + RESIDENT_CLUSTERS]),
    np.array([n for _, n in CLUSTERS + RESIDENT_CLUSTERS]),
    len(CLUSTERS),
)


def schedules(
    problem: Problem, tiles: Column, clusters: Clusters, device: DeviceSpec
) -> tuple[Column, Column, Column]:
    """Rows and columns in the grid of tiles and schedules, row by row, and the split of each."""
    bm, bn, bk, _, _, swap = tiles[:, :, None]
    down = -(-np.where(swap, problem.n, problem.m) // bm)
    across = -(-np.where(swap, problem.m, problem.n) // bn)
    count, (all_m, all_n) = clusters.splittable, clusters[:2]
    work_tiles = tile_count(problem, -(-down // all_m), -(-across // all_n))
    resident = resident_clusters(all_m * all_n, device)
    by_requests = fitted_to(problem) != "others"
    split, valid = _splits(work_tiles[:, :count, None], resident[:count, None])
    valid &= (split <= np.minimum(MAX_SPLIT, problem.k // (2 * bk))[:, :, None]) | (split == 1)
    if not clusters.any_tile and problem.weights is None:
        # Clusters of small tiles only where one covers D along M or N, so that each operand tile on
        # the other side is read once; or unsplit in one wave, where the cost model knows them.
        cm, cn = all_m[:count], all_n[:count]
        covered = np.where(cm > 1, down == cm, across == cn)
        any_kind = (bm * bn >= LARGE_TILE) | (cm * cn == 1) | covered
        valid[:, :, 0] &= any_kind | (by_requests & (work_tiles[:, :count] <= resident[:count]))
        valid[:, :, 1:] &= any_kind[:, :, None]
    cm, cn = all_m[count:], all_n[count:]
    more = (cm <= down) & (cn <= across) & (work_tiles[:, count:] <= resident[count:])
    if not by_requests:
        more &= (cm == 1) | (cn == 1) | (cm * cn > 4)
    elif straddles(problem):  # clusters save requests in several waves, too
        more |= (cm <= down) & (cn <= across) & (cm * cn == 4)
    stream_k = _stream_k(work_tiles[:, :1], resident[:1], -(-problem.k // bk))
    stream_k &= (tiles[4] != 0)[:, None] & _may_stream_k(problem)
    more = np.hstack((more, stream_k))
    row, column = np.nonzero(np.hstack((valid.reshape(tiles.shape[1], -1), more)))
    splits = np.hstack((split.reshape(tiles.shape[1], -1), np.ones(more.shape, np.int64)))
    return row, column, splits[row, column]


def _may_stream_k(problem: Problem) -> bool:
    """Whether stream-K is a candidate, with pingpong: of plain products, which were measured."""
    more = problem.epilogue, problem.weights, problem.scaling, problem.groups
    plain = all(x is None for x in more) and not problem.sparse and not problem.loads_c
    return plain and problem.input.bits == 16 and problem.batch == 1


def _stream_k(work_tiles: Column, resident: Column, k_blocks: Column) -> Column:
    """Where groups of each size are candidates: the tail wave becomes shorter."""
    groups = np.array(STREAM_K)
    tail = tiles_of_group(work_tiles, resident, groups)
    some = (work_tiles > resident) & (work_tiles < STREAM_K_WAVES * resident)
    shorter: Column = (tail > 0) & (tail < groups) & (tail <= STREAM_K_TILES)
    return shorter & some & (groups <= resident) & (k_blocks >= STREAM_K_BLOCKS)


def _splits(work_tiles: Column, resident: Column) -> tuple[Column, Column]:
    """The split in each cell of the grid (tile, cluster, kind of split), and whether all CTAs that
    work on split tiles are resident at once.
    """
    full = resident // np.maximum(work_tiles, 1)
    shape = *work_tiles.shape[:2], _KINDS
    split, valid = np.ones(shape, np.int64), np.ones(shape, bool)
    split[:, :, 1], split[:, :, 2:3], split[:, :, 3:4] = 2, full // 2, full
    split[:, :, _TAIL] = 2, 3
    valid[:, :, _SPLIT] = work_tiles * split[:, :, _SPLIT] <= resident
    valid[:, :, 2:4] &= split[:, :, 2:4] > 2
    tail = work_tiles % resident * split[:, :, _TAIL] <= resident
    valid[:, :, _TAIL] = tail & (work_tiles > resident)
    return split, valid
