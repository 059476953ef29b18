"""Launch of kernel ``tma``: the grid, and how its CTAs get to SMs.

In one wave what counts is how often CTAs on SMs of one GPC ask for the same rows at a time, for the
L2 answers them once. CTAs of a grid that starts when all SMs are free get the SMs of GPC after GPC.
A grid that starts before the grids ahead have ended, which hides its launch, gets SMs as they
become free. Clusters keep neighbours together then, even if their CTAs share nothing else.
"""

from __future__ import annotations

from typing import Any

from ....target import DeviceSpec
from ...columns import N, larger, select
from ...kernel_launch import LaunchShape
from ...problem import Problem
from ..grouped.grouped_tile_scheduler import launch_clusters
from ..stream_k.partial_exchange import shares_tiles
from ..tma_config import TmaConfig
from ..tma_geometry import SWIZZLE_BYTES, WGMMA_ROWS, TmaGeometry, resident_clusters
from .row_pitch import pitch_divisor

# Of a k-block of 128 bytes: seconds that an order saves for each request to the L2 that another CTA
# makes too, beyond HIDDEN of the cycles of wgmma, for MOST_REQUESTS at most; and seconds of a
# launch after the grids ahead.
ORDERED_REQUEST, HIDDEN, MOST_REQUESTS, LATE_START = 0.4e-9, 0.6, 50.0, 0.9e-6
STRADDLING = {128: 1, 64: 1.4, 32: 1.8, 16: 2.8}  # requests of a row, by what divides the pitch
PAIR = 2


def launch_shape(problem: Problem, config: TmaConfig, device: DeviceSpec) -> LaunchShape:
    """A cluster for each work tile, but not more than are co-resident on the device. In one wave
    without clusters, neighbours start in pairs, or all CTAs in their order.
    """
    tiles = config.cluster_tiles(problem)
    if config.split > 1:
        full = config.unsplit_tiles(problem, device)
        tiles = full + (tiles - full) * config.split
    clusters, ctas = min(tiles, config.resident_clusters(device)), config.ctas
    if shares_tiles(problem, config, device):
        clusters = config.resident_clusters(device)
    if config.in_cluster:
        ctas = config.split
        clusters = min(tiles, resident_clusters(ctas, device))
    shares = tiles == clusters and shares_rows(problem, config)
    if problem.groups is not None:
        clusters, shares = launch_clusters(problem, config, device), False
    ordered = shares and saved_by_order(problem, config) > LATE_START
    if shares and not ordered and device.sms % PAIR == 0:
        clusters, ctas = -(-clusters // PAIR), PAIR
    cluster = (ctas, 1, 1) if ctas > 1 else None
    grid = clusters * ctas, 1, 1
    return LaunchShape(grid, (config.threads, 1, 1), cluster, programmatic=not ordered)


def shares_rows(problem: Problem, config: TmaGeometry[N]) -> Any:
    """Whether CTAs without clusters share rows of both A and B of a plain product."""
    plain = problem.weights is None and problem.scaling is None and not problem.sparse
    down, across = config.tile_grid(problem)
    alone = (config.ctas == 1) & (config.split == 1)
    alone &= select(config.dynamic | (config.stream_k > 0), False, True)
    return select(alone & (down > 1) & (across > 1), plain, False)


def saved_by_order(problem: Problem, config: TmaGeometry[N]) -> Any:
    """Seconds that CTAs save which start in their order, in one wave."""
    bm, bn, _ = config.tile
    a, b = (STRADDLING[pitch_divisor(problem, name)] for name in "ab")
    requests = bm * select(config.swap, b, a) + bn * select(config.swap, a, b)
    wgmma = bm // WGMMA_ROWS * (SWIZZLE_BYTES // 32) * bn / 2
    shared = larger(requests - HIDDEN * wgmma, 0)
    shared = select(shared > MOST_REQUESTS, MOST_REQUESTS, shared)
    k_blocks = problem.k * problem.input.bits / (8 * SWIZZLE_BYTES)
    return k_blocks * shared * ORDERED_REQUEST
