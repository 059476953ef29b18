"""Coefficients of the cost model of kernel ``tma``, fitted to measurements on an H200.

``PRODUCTS`` are of plain products of 16-bit types that the L2 limits, by their sizes: 3,500 times
of 210 problems, measured as by ``benchmarks/cost_sweep.py``. ``OTHERS`` are of all others: 7,000
times of 230 older problems, without the terms that the fit to the newer ones added (0 or 1 there).
``benchmarks/NOTES.md`` has both.
"""

from __future__ import annotations

from typing import NamedTuple

from ...problem import Problem

MIDDLE, LONGER = (193, 256), 768  # the smaller of M and N; the larger, at least


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
    distinct_request: float  # of a request for a row that no other SM of the GPC requests
    distinct_of_cluster: float
    distinct_later: float
    zero_fill: float  # bytes per cycle that TMA fills with zeros
    launch: float  # seconds
    cluster: dict[int, float]  # seconds, by its CTAs
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
    saved: float  # of the seconds that the rule of launches expects of an order


OTHERS = Coefficients(
    k_block=39, k_block_alone=39, cluster_sync=18, wgmma=1.1, shared_read=1.45, shared_write=0.0,
    promotion=0.5, load_latency=1330, stage_latency=0.0, loaded_bytes=71, l2_request=1.41,
    straddle={128: 1.0, 64: 1.33, 32: 1.8, 16: 2.8}, multicast=1.0, relief=0.0,
    relief_of_cluster=0.0, memory_request=0.0, memory_request_later=0.0, distinct_request=0.0,
    distinct_of_cluster=0.0, distinct_later=0.0, zero_fill=11, launch=0.28e-6,
    cluster={1: 0.0, 2: 0.8e-6, 4: 0.5e-6, 8: 1.8e-6}, epilogue=0.42e-6,
    epilogue_element=1.66e-6 / (128 * 256), epilogue_tile=0.09e-6, narrow_stores=2.9,
    stored_byte=0.0, pingpong=0.2, narrow_pingpong=0.5, lone_pingpong=2.0, power_limited=1.08,
    power_pingpong=1.0, power_one_wave=1.08, sustained=0.76, load_power=0.0, reduction=1.4e-6,
    reduction_split=0.07e-6, reduction_byte=1 / 4.7e12, bandwidth_sms=0.94, reread=0.42,
    reread_in_one_wave=0.4, saved=0.0,
)  # fmt: skip

PRODUCTS = Coefficients(
    k_block=15.76, k_block_alone=16.37, cluster_sync=5.695, wgmma=1.165, shared_read=0.757,
    shared_write=0.7312, promotion=0.6592, load_latency=1301, stage_latency=0.4019,
    loaded_bytes=82.32, l2_request=1.344, straddle={128: 1, 64: 1.755, 32: 1.935, 16: 3.11},
    multicast=1.184, relief=0.4729, relief_of_cluster=0.6344, memory_request=0.07354,
    memory_request_later=0.1023, distinct_request=0.09512, distinct_of_cluster=0.1206,
    distinct_later=0.01767, zero_fill=21.79, launch=1.19e-6,
    cluster={1: 0, 2: 2.842e-7, 4: 1.005e-7, 8: 3.25e-7}, epilogue=2.409e-7,
    epilogue_element=1.582e-11, epilogue_tile=7.595e-8, narrow_stores=0.9991,
    stored_byte=1.083e-11, pingpong=0.5113, narrow_pingpong=0.607, lone_pingpong=1.043,
    power_limited=1.1, power_pingpong=1.058, power_one_wave=1.042, sustained=0.983,
    load_power=10.86, reduction=1.663e-6, reduction_split=1.007e-8, reduction_byte=1.55e-13,
    bandwidth_sms=0.397, reread=0.0301, reread_in_one_wave=0.2525, saved=0.5955,
)  # fmt: skip


def coefficients(problem: Problem) -> Coefficients:
    """The coefficients of a problem."""
    more = problem.weights, problem.scaling, problem.epilogue, problem.groups
    plain = all(x is None for x in more) and not problem.sparse and problem.input.bits == 16
    (least, most), sizes = MIDDLE, sorted((problem.m, problem.n))
    fitted = least <= sizes[0] <= most and sizes[1] >= LONGER
    return PRODUCTS if plain and fitted else OTHERS
