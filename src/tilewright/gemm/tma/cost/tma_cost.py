"""Cost model of kernel ``tma``: estimated seconds of candidates, as columns.

``TileCosts`` has the terms that do not depend on the problem's sizes, computed once for a type and
a device; ``estimates`` adds the sizes. ``coefficients`` has the numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ....target import DeviceSpec
from ...columns import Column, power4, power6, select, tile_count
from ...epilogue_costs import epilogue_cost, tma_function_seconds
from ...problem import Problem
from ...shared_costs import CYCLE, MEMORY_BYTE, relayout_seconds
from ..launch.row_pitch import pitch_divisor
from ..launch.tma_launch import LATE_START, saved_by_order, shares_rows
from ..mixed_input.mixed_input_cost import (
    handover_seconds,
    joined_seconds,
    saved_by_multicast,
    with_conversion,
)
from ..tma_columns import TmaColumns
from ..tma_config import relayout_problem
from ..tma_geometry import SWIZZLE_BYTES, WGMMA_ROWS
from ..tma_operand import matrix_operands
from .coefficients import OTHERS, Coefficients
from .group_costs import group_loads, waits_apart
from .operand_requests import OperandCosts, distinct_requests, lockstep, memory_waits
from .scale_reads import scale_reads
from .sparse_costs import SPARSE_PINGPONG, cluster_seconds, cluster_sync, sparse_wgmma_cycles
from .stream_k_cost import exchange_seconds, tail_blocks, with_margin
from .useful_stages import useful_stages

SHARED_BYTES = 128  # of shared memory per cycle
SHORT_BURST = 1.006  # times the memory traffic of one wave by k-tiles of 128 bytes, not 256
FULL = 0.9  # fraction of the resident clusters that have a work tile on a full device
CROWDED = 0.25  # share of crowded groups in the estimate of a grouped product


class TileCosts(NamedTuple):
    """Columns that do not depend on the problem's sizes. Cycles are of an SM, per k-block."""

    wgmma: Column  # cycles
    shared: Column  # cycles of accesses to shared memory
    loads: Column  # cycles of the stage's bytes into shared memory
    latency: Column  # cycles: a load's latency, by the stages in flight while two are multiplied
    overhead: Column  # cycles
    apart: Column  # cycles that loads of CTAs wait, of groups of several waves
    received: Column  # cycles that loads wait less from the second wave on, because of multicast
    k_tile: Column
    k_bytes: Column  # of a row of a k-tile
    epilogue: Column  # seconds, of a CTA with more than one tile
    only_epilogue: Column  # seconds, of a CTA's only tile
    function: Column  # seconds of the epilogue function, where another tile follows
    only_function: Column  # seconds of the epilogue function, of a CTA's last tile
    reduction_bytes: Column  # inputs of the epilogue function, per byte of a tile's f32 accumulator
    cluster: Column  # seconds
    first_stage: Column  # seconds
    power: Column  # factor of the products' power, with the loads
    short: Column  # whether a row of a k-tile is one line of memory
    partial_bytes: Column  # of a tile's f32 accumulator
    resident: Column  # resident clusters
    a: OperandCosts
    b: OperandCosts
    coefficients: Coefficients

    def take(self, index: Column) -> TileCosts:
        """The costs of these candidates."""
        *columns, a, b, c = self
        taken: list[Any] = [column[index] for column in columns]
        taken += [a.take(index), b.take(index), c]
        return TileCosts(*taken)


class _Work(NamedTuple):
    """The busiest SM's work tiles (or split-K parts of them), those of them whose epilogue function
    this kernel computes, and k-blocks; and of the whole device all work tiles, and the tiles with
    partial accumulators, of all CTAs.
    """

    epilogues: Column
    functions: Column
    k_blocks: Column
    work_tiles: Column
    partial_tiles: Column
    grid: tuple[Column, Column]  # work tiles along the tile's M and N


def tile_costs(
    problem: Problem, configs: TmaColumns, device: DeviceSpec, c: Coefficients
) -> TileCosts:
    """The terms that do not depend on sizes; ``problem`` is after relayout."""
    bits, (bm, bn, bk) = problem.input.bits, configs.tile
    promotion = c.promotion * bm * bn / 128 if problem.promoted else 0.0
    sparse = 2 if problem.has_sparse_wgmma else 1  # a wgmma of sparse A has twice the K
    wgmmas = bm // WGMMA_ROWS * bk * bits // (8 * 32 * sparse)  # of 32 bytes of K each
    stored_share = 1 + bool(problem.sparse)  # half of the k-tile of a sparse matrix is stored
    k_bytes = bk * bits / 8
    wgmma = wgmmas * c.wgmma * bn / 2 + promotion
    port = sparse_wgmma_cycles(bn)[1] if problem.sparse else 16 + bn / 4
    shared = wgmmas * c.shared_read * port + promotion
    if problem.weights is not None:
        wgmma, products = with_conversion(problem.weights, configs, wgmma)
        shared = wgmmas * c.shared_read * bn / 4 * sparse * products
    epilogue, cost = _epilogue_seconds(problem, configs, c), epilogue_cost(problem)
    function = tma_function_seconds(problem, configs, OTHERS.pingpong)
    a, b = (OperandCosts.of(operand) for operand in matrix_operands(problem, configs))
    stage = configs.stage_bytes(problem)
    latency = c.load_latency + c.stage_latency * stage / SHARED_BYTES
    k_block = np.where(configs.consumers > 1, c.k_block, c.k_block_alone)
    return TileCosts(
        wgmma=wgmma,
        shared=shared + c.shared_write * stage / SHARED_BYTES,
        loads=stage / c.loaded_bytes,
        latency=latency / np.maximum(useful_stages(problem, configs, device) - 2, 0.5),
        overhead=k_block + cluster_sync(problem, configs, c) + scale_reads(problem, configs),
        apart=waits_apart(problem, configs),
        received=saved_by_multicast(problem, configs, (a.rows, b.rows)),
        k_tile=bk,
        k_bytes=k_bytes,
        epilogue=epilogue[0],
        only_epilogue=epilogue[1],
        function=function[0],
        only_function=function[1],
        reduction_bytes=np.full(len(configs), cost.input_bytes / 4) / configs.split,
        cluster=cluster_seconds(problem, configs, c),
        first_stage=stage / c.loaded_bytes * CYCLE,
        power=1 + c.load_power * (1 / bm + 1 / bn),
        short=k_bytes <= SWIZZLE_BYTES * stored_share,
        partial_bytes=bm * bn * 4,
        resident=configs.resident_clusters(device),
        a=a,
        b=b,
        coefficients=c,
    )


def _epilogue_seconds(
    problem: Problem, configs: TmaColumns, c: Coefficients
) -> tuple[Column, Column]:
    """Seconds of the epilogue of one of several tiles of a CTA, and of its only tile."""
    joined, configs = joined_seconds(configs), configs.stored
    bn = configs.tile[1]
    # Partial accumulators have 32 bits; most types of D have 16.
    factor = 1 + configs.stores_partial
    factor = factor * select(configs.swap, 1.0, np.where(bn % 32, c.narrow_stores, 1.0))
    # With pingpong one warpgroup does it, while the other one's mainloop runs if it has a tile.
    overlapped = np.where(bn % 64, c.narrow_pingpong, c.pingpong)
    tensors = 1 if problem.epilogue is None else len(problem.epilogue.output_bytes)
    d_rows, d_columns = configs.d_tile(problem)
    elements = d_rows * d_columns * tensors
    seconds = c.epilogue_element * elements + c.epilogue_tile * configs.epilogue_tiles(16)
    each = c.epilogue + handover_seconds(problem, configs) + joined
    return (
        each + seconds * (factor * np.where(configs.pingpong, overlapped, 1.0)),
        each + seconds * (factor * np.where(configs.pingpong, c.lone_pingpong, 1.0)),
    )


def estimates(
    problem: Problem, configs: TmaColumns, costs: TileCosts, device: DeviceSpec
) -> Column:
    """Estimated seconds of each candidate: the mainloops and epilogues of the busiest SM, or the
    memory traffic. Of groups, the average of those of equal size and of crowded ones.
    """
    if not problem.has_row_groups:
        return _terms(problem.balanced, configs, costs, device)[1]
    balanced, crowded = (
        _terms(x, configs, costs, device, group_loads(x, configs))[1]
        for x in (problem.balanced, problem.crowded)
    )
    return (1 - CROWDED) * balanced + CROWDED * crowded


def terms(
    problem: Problem, configs: TmaColumns, costs: TileCosts, device: DeviceSpec
) -> dict[str, Any]:
    """The terms of the estimates: seconds that each would take alone."""
    return _terms(problem.balanced, configs, costs, device)[0]()


def _terms(
    problem: Problem, configs: TmaColumns, costs: TileCosts, device: DeviceSpec,
    loads_of_groups: Any = 0.0,
) -> tuple[Callable[[], dict[str, Any]], Column]:  # fmt: skip
    """A function that returns the terms, and the estimates."""
    c = costs.coefficients
    work = _work(problem, configs, costs)
    k_block = _k_block(problem, configs, costs, work, c)
    mainloop = work.k_blocks * _k_block_cycles(k_block, costs) * CYCLE
    power = _power_factor(problem, configs, costs, work, c)
    limit = _power_limit(problem, configs, device, costs, work, mainloop * power)
    epilogues, last = _epilogues(costs, work, c), _last_function(costs, work)
    memory = _memory(problem, configs, costs, work, c) + loads_of_groups
    launches = _launches(configs, costs, work, c) + exchange_seconds(problem, configs, costs)
    relayout = relayout_seconds(problem, relayout_problem(problem))
    few = (configs.ctas > 1) & (2 * work.work_tiles <= costs.resident)
    cluster = costs.cluster - c.few_clusters * few
    busy = np.maximum(mainloop * power, limit) + (epilogues + cluster)
    both = np.sqrt(np.sqrt(power4(busy) + power4(memory)))
    saved = _saved_by_order(problem, configs, costs, work, c)
    total = with_margin(configs, both + relayout + last + launches - saved)

    def by_name() -> dict[str, Any]:
        wgmma, shared, loads, requests, waits, latency = (
            cycles * work.k_blocks * CYCLE for cycles in k_block
        )
        return {
            "wgmma": wgmma * power,
            "shared memory": shared,
            "loads": loads,
            "L2 requests": requests,
            "waits for memory": waits,
            "load latency": latency,
            "memory": memory,
            "power": limit,
            "epilogues": epilogues + last,
            "cluster synchronization": cluster,
            "relayout": relayout,
            "launches": launches,
        }

    return by_name, total


def _work(problem: Problem, configs: TmaColumns, costs: TileCosts) -> _Work:
    split, resident, grid = configs.split, costs.resident, configs.tile_grid(problem)
    tiles = tile_count(problem, *grid)
    k_blocks = np.maximum(1, -(-problem.k // configs.tile[2]))
    whole_waves = tiles // resident * configs.mixes_partials
    parts = (tiles - whole_waves * resident) * split
    waves = -(-parts // resident)
    tail = tail_blocks(configs, tiles, resident, k_blocks, waves * -(-k_blocks // split))
    return _Work(
        epilogues=_floats(whole_waves + waves),
        functions=_floats(whole_waves + waves * (split == 1)),
        k_blocks=_floats(whole_waves * k_blocks + tail),
        work_tiles=_floats(tiles * split),
        partial_tiles=_floats(parts * configs.ctas * ((split > 1) & ~configs.in_cluster)),
        grid=grid,
    )


def _floats(counts: Column) -> Column:
    return counts.astype(np.float64)


def _k_block(
    problem: Problem, configs: TmaColumns, costs: TileCosts, work: _Work, c: Coefficients
) -> tuple[Any, ...]:
    """Cycles of a k-block's wgmma, shared memory, loads, requests to the L2, what they wait for
    memory, and latency.
    """
    rest = -problem.k % costs.k_tile
    beyond_k = rest / np.maximum(1, problem.k + rest)
    sides = (problem.m, costs.a), (problem.n, costs.b)
    zeros = sum(operand.zero_filled_rows(rows, beyond_k) for rows, operand in sides)
    loads = costs.loads + zeros * costs.k_bytes / c.zero_fill
    requests, waits = _requests(problem, configs, costs, work, c)
    return costs.wgmma, costs.shared, loads, requests, waits, costs.latency


def _requests(
    problem: Problem, configs: TmaColumns, costs: TileCosts, work: _Work, c: Coefficients
) -> tuple[Any, Any]:
    """Cycles of a k-block's requests to the L2, and those that they wait because of memory."""
    one_wave, clustered = work.work_tiles <= costs.resident, configs.ctas > 1
    alone = one_wave & clustered & (configs.consumers == 1)
    idle = 1 - np.minimum(1.0, work.work_tiles / costs.resident)
    busy = 1 - np.where(clustered, c.relief_of_cluster, c.relief) * idle
    a = costs.a.requests(pitch_divisor(problem, "a"), c)
    b = costs.b.requests(pitch_divisor(problem, "b"), c)
    requests = busy * c.l2_request * (a + b)
    if not c.distinct_request:
        several = work.work_tiles > costs.resident * max(problem.batch, 1)
        later = 1 - 1 / np.maximum(1, work.epilogues)
        return requests, costs.apart * several - costs.received * later
    of_memory = busy * memory_waits(problem, (costs.a, costs.b), (a, b), alone, c)
    of_memory = of_memory * np.where(one_wave, c.memory_request, c.memory_request_later)
    different_a, different_b = distinct_requests(configs, work.grid, costs.resident)
    cycles = np.where(clustered, c.distinct_of_cluster, c.distinct_request)
    cycles = np.where(one_wave & (configs.split == 1), cycles, c.distinct_later)
    waits = of_memory + cycles * (a * different_a + b * different_b)
    return requests, waits + lockstep(problem, (costs.a, costs.b), alone, c)


def _k_block_cycles(k_block: tuple[Any, ...], costs: TileCosts) -> Column:
    """Cycles of a k-block: about the largest of its terms, and the waits."""
    wgmma, shared, loads, requests, waits, latency = k_block
    others = power6(loads) + power6(requests) + power6(latency)
    largest = np.cbrt(np.sqrt(power6(np.maximum(wgmma, shared)) + others))
    cycles: Column = costs.overhead + largest + waits
    return cycles


def _epilogues(costs: TileCosts, work: _Work, c: Coefficients) -> Any:
    """Seconds of the epilogues of a CTA, of epilogue functions those of all tiles but the last."""
    functions = np.maximum(0, work.functions - 1) * costs.function
    active = np.minimum(1.0, work.work_tiles / costs.resident)
    only = costs.only_epilogue + c.stored_byte * costs.partial_bytes * active
    epilogue = np.where(work.epilogues == 1, only, costs.epilogue)
    return work.epilogues * epilogue + functions


def _last_function(costs: TileCosts, work: _Work) -> Column:
    """Seconds of the epilogue function of a CTA's last tile, which nothing overlaps."""
    return np.where(work.functions > 0, costs.only_function, 0.0)


def _power_factor(
    problem: Problem, configs: TmaColumns, costs: TileCosts, work: _Work, c: Coefficients
) -> Column:
    """The factor of a mainloop where all SMs are busy, and power limits them. Products of a sparse
    matrix are limited alike by all cooperative schedules.
    """
    if problem.sparse:
        return np.where(configs.pingpong & (work.epilogues > 1), SPARSE_PINGPONG, 1.0)
    several = np.where(configs.pingpong, c.power_pingpong, c.power_limited)
    one_wave = np.where(work.work_tiles < costs.resident * FULL, 1.0, c.power_one_wave)
    return np.where(work.epilogues > 1, several, one_wave)


def _power_limit(
    problem: Problem, configs: TmaColumns, device: DeviceSpec, costs: TileCosts, work: _Work,
    mainloop: Column,
) -> Column:  # fmt: skip
    """Seconds of the products and their loads at the rate that power allows in the long run. Of
    what a faster mainloop would gain, half is lost: the clock falls, and the voltage with it.
    What tiles compute beyond the edges of D are zeros: they take time, but little power.
    """
    peak = 2 * 32 * 1024 / problem.input.bits * device.sms / CYCLE
    peak *= 1 + problem.has_sparse_wgmma
    sustained = problem.flops / (peak * costs.coefficients.sustained) * costs.power
    if problem.groups is None:
        sustained = sustained + _beyond_edges(problem, configs, work.grid) * (problem.flops / peak)
    return np.minimum(sustained, np.sqrt(mainloop * sustained))


def _beyond_edges(problem: Problem, configs: TmaColumns, grid: tuple[Column, Column]) -> Any:
    """The products that tiles compute beyond the edges of D, per product of D."""
    (down, across), (bm, bn, _), (cm, cn) = grid, configs.tile, configs.cluster
    rows, columns = _floats(down * bm * cm), _floats(across * bn * cn)
    return rows * columns / max(1, problem.m * problem.n) - 1


def _saved_by_order(
    problem: Problem, configs: TmaColumns, costs: TileCosts, work: _Work, c: Coefficients
) -> Any:
    """Seconds that a launch in the order of the CTAs saves."""
    if not c.saved:
        return 0.0
    relaid = relayout_problem(problem)
    saved = np.maximum(0.0, saved_by_order(relaid, configs) - LATE_START)
    one_wave = shares_rows(relaid, configs) & (work.work_tiles <= costs.resident)
    return np.where(one_wave, c.saved * saved, 0.0)


def _memory(
    problem: Problem, configs: TmaColumns, costs: TileCosts, work: _Work, c: Coefficients
) -> Any:
    """Seconds of the memory traffic: matrices, split-K workspace, and some of the repeated reads.
    Few SMs do not reach the full bandwidth.
    """
    down, across = work.grid
    m, n = select(configs.swap, problem.n, problem.m), select(configs.swap, problem.m, problem.n)
    narrow = problem.b_bits / problem.input.bits  # rows are prepared weights, or as wide as columns
    one_wave = work.work_tiles <= costs.resident
    beside = np.where(one_wave & (configs.ctas == 1), c.reread_beside, 1.0)
    repeated = m * narrow * (across > 1) + n * (down > 1) * beside
    read = c.reread * repeated * problem.k * problem.input.bits / 8 * problem.batch
    together = work.work_tiles <= costs.resident * max(problem.batch, 1)  # those of a product
    read = read * np.where(together, c.reread_in_one_wave, 1.0)
    bursts = np.where(costs.short, np.where(one_wave, SHORT_BURST, c.short_burst), 1.0)
    moved = (float(problem.bytes) + read) * bursts + work.partial_tiles * costs.partial_bytes
    idle = c.bandwidth_sms * costs.resident / np.maximum(1, work.work_tiles)
    return moved * (MEMORY_BYTE * np.maximum(1.0, idle))


def _launches(configs: TmaColumns, costs: TileCosts, work: _Work, c: Coefficients) -> Any:
    """Seconds of the launch, the first stage, and the split-K reduction."""
    reduction = c.reduction + c.reduction_split * configs.split
    moved = work.partial_tiles * costs.partial_bytes
    reduction = reduction + moved * c.reduction_byte * (1 + costs.reduction_bytes)
    return c.launch + costs.first_stage + np.where(work.partial_tiles > 0, reduction, 0.0)
