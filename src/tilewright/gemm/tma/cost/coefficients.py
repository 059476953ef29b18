"""Coefficients of the cost model of kernel ``tma``, fitted to measurements on an H200.

``PRODUCTS`` are of plain products of 16-bit types that power does not limit: 3,900 times of 400
problems, measured as by ``benchmarks/cost_sweep.py``. ``FAST_PRODUCTS`` are of plain products of
8-bit floats with fast accumulation: the former, but for what clusters and requests cost, fitted to
1,180 times of 223 such problems.
``OTHERS`` are of all others: 7,000 times of 230 older problems, without the terms that the fit to
the newer ones added (0 or 1 there). ``benchmarks/NOTES.md`` has both.
"""

from __future__ import annotations

from typing import NamedTuple

from ...problem import Problem

LARGE, NARROW = 2.5e10, 256  # operations that power limits, but not with so few rows or columns
LARGE_FAST = 3e11  # of 8-bit floats: more than those measured


class Coefficients(NamedTuple):
    """Cycles are of an SM and a k-block, where nothing else is said."""

    k_block: float  # overhead, of several warpgroups
    k_block_alone: float  # of one
    cluster_sync: float  # for each doubling of the cluster
    wgmma: float  # of the cycles at the tensor cores' peak rate
    shared_read: float  # of the cycles at 128 bytes per cycle
    shared_write: float  # the same, of the copies into shared memory
    promotion: float  # of the cycles that accumulator promotion takes alone
    load_latency: float  # cycles
    stage_latency: float  # besides, of the cycles of a stage's copies at 128 bytes per cycle
    loaded_bytes: float  # per cycle that an SM loads
    l2_request: float  # of a request to the L2
    straddle: dict[int, float]  # times that, by what divides the pitch of rows: 128 to 16 bytes
    multicast: float  # times that, of rows that several CTAs receive
    relief: float  # fraction of the requests of idle SMs that is not waited for
    relief_of_cluster: float
    memory_request: float  # of a request, times the matrix's share of all rows: in one wave
    memory_request_later: float  # in several
    memory_shared: float  # times that, of rows that several CTAs of one warpgroup receive
    lockstep: float  # cycles that CTAs of a cluster with one warpgroup wait for one another
    distinct_request: float  # of a request for a row that no other SM of the GPC requests
    distinct_of_cluster: float
    distinct_later: float
    zero_fill: float  # bytes per cycle that TMA fills with zeros
    launch: float  # seconds
    cluster: dict[int, float]  # seconds, by its CTAs
    few_clusters: float  # of these, not spent where at most half of the clusters that fit run
    epilogue: float  # seconds of a tile
    epilogue_element: float  # seconds
    epilogue_tile: float  # seconds
    narrow_stores: float  # times an epilogue whose rows are 32 bytes
    stored_byte: float  # seconds, of an f32 accumulator where all SMs store at the same time
    pingpong: float  # of an epilogue that the other warpgroup's wgmma overlap
    narrow_pingpong: float  # of one whose tile N is not a multiple of 64
    lone_pingpong: float  # times the epilogue of a CTA's only tile
    power_limited: float  # times a mainloop on a full device: of several tiles
    power_pingpong: float  # with pingpong
    power_one_wave: float  # of one tile
    sustained: float  # of the tensor cores' peak, which power allows in the long run
    load_power: float  # times 1 / tile M + 1 / tile N: power of the loads, of that of the products
    reduction: float  # seconds of split-K
    reduction_split: float
    reduction_byte: float
    bandwidth_sms: float  # fraction of the SMs that reaches the memory bandwidth
    reread: float  # fraction of repeated reads that misses the L2
    reread_in_one_wave: float  # of that
    reread_beside: float  # and of that, of columns that consecutive CTAs without clusters share
    short_burst: float  # times the memory traffic of several waves: k-tiles of 128 bytes
    saved: float  # of the seconds that the rule of launches expects of an order


OTHERS = Coefficients(
    k_block=39, k_block_alone=39, cluster_sync=18, wgmma=1.1, shared_read=1.45, shared_write=0.0,
    promotion=0.5, load_latency=1330, stage_latency=0.0, loaded_bytes=71, l2_request=1.41,
    straddle={128: 1.0, 64: 1.33, 32: 1.8, 16: 2.8}, multicast=1.0, relief=0.0,
    relief_of_cluster=0.0, memory_request=0.0, memory_request_later=0.0, memory_shared=1.0,
    lockstep=0.0, distinct_request=0.0, distinct_of_cluster=0.0, distinct_later=0.0, zero_fill=11,
    launch=0.28e-6, cluster={1: 0.0, 2: 0.8e-6, 4: 0.5e-6, 8: 1.8e-6}, few_clusters=0.0,
    epilogue=0.42e-6,
    epilogue_element=1.66e-6 / (128 * 256), epilogue_tile=0.09e-6, narrow_stores=2.9,
    stored_byte=0.0, pingpong=0.2, narrow_pingpong=0.5, lone_pingpong=2.0, power_limited=1.08,
    power_pingpong=1.0, power_one_wave=1.08, sustained=0.76, load_power=0.0, reduction=1.4e-6,
    reduction_split=0.07e-6, reduction_byte=1 / 4.7e12, bandwidth_sms=0.94, reread=0.42,
    reread_in_one_wave=0.4, reread_beside=1.0, short_burst=1.006,
    saved=0.0,
)  # fmt: skip

PRODUCTS = Coefficients(
    k_block=22.69, k_block_alone=17.68, cluster_sync=19.08, wgmma=1.351, shared_read=1.059,
    shared_write=0.5932, promotion=0.5825, load_latency=1749, stage_latency=0.04802,
    loaded_bytes=90.78, l2_request=1.39, straddle={128: 1, 64: 1.145, 32: 1.973, 16: 3.141},
    multicast=1.222, relief=0.356, relief_of_cluster=1.162, memory_request=0.3226,
    memory_request_later=0.08932, memory_shared=1.0, lockstep=0.0, distinct_request=0.05832,
    distinct_of_cluster=0.2204, distinct_later=0.04658, zero_fill=10.72, launch=4.496e-7,
    cluster={1: 0, 2: 7.716e-7, 4: 8.26e-8, 8: 1.819e-7}, few_clusters=0.0, epilogue=2.782e-7,
    epilogue_element=1.062e-11, epilogue_tile=1.472e-7, narrow_stores=1.432,
    stored_byte=1.166e-11, pingpong=0.3806, narrow_pingpong=0.5359, lone_pingpong=1.145,
    power_limited=1.19, power_pingpong=1.049, power_one_wave=0.9999, sustained=1.222,
    load_power=11.17, reduction=1.185e-6, reduction_split=6.823e-8, reduction_byte=2.753e-13,
    bandwidth_sms=0.9299, reread=0.6017, reread_in_one_wave=0.7243, reread_beside=0.007474,
    short_burst=1.02, saved=1.047,
)  # fmt: skip

FAST_PRODUCTS = PRODUCTS._replace(
    cluster={1: 0, 2: 3.5e-7, 4: 2.5e-7, 8: 3.5e-7}, few_clusters=3e-7, lockstep=22,
    memory_shared=0.3, distinct_request=0.38, reduction=1.28e-6,
)  # fmt: skip

COEFFICIENTS = {"others": OTHERS, "products": PRODUCTS, "fast products": FAST_PRODUCTS}


def coefficients(problem: Problem) -> Coefficients:
    """The coefficients of a problem."""
    return COEFFICIENTS[fitted_to(problem)]


def deciding(problem: Problem) -> list[str]:
    """The names of the coefficients of a problem, and of those that decide between candidates whose
    estimates are close: of fast products those of others, since both miss by more than that.
    """
    own = fitted_to(problem)
    return [own, _of_others(problem)] if own == "fast products" else [own]


def fitted_to(problem: Problem) -> str:
    """The name of the coefficients of a problem, by what they were fitted to."""
    more = problem.weights, problem.scaling, problem.epilogue, problem.groups
    plain = all(x is None for x in more) and not problem.sparse and problem.batch == 1
    aligned = problem.align_a == problem.align_b == problem.align_d == 16
    if not (plain and aligned):
        return "others"
    if problem.input.bits == 8 and problem.fast and problem.flops < LARGE_FAST:
        return "fast products"
    return _of_others(problem) if problem.input.bits == 16 else "others"


def _of_others(problem: Problem) -> str:
    """The name of the coefficients of plain products without a set of their own."""
    small = problem.flops < LARGE or min(problem.m, problem.n) <= NARROW
    return "products" if small else "others"
