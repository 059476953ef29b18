"""Cost model of kernel ``tma``: estimated seconds of candidates, as columns.

``TileCosts`` has the terms that do not depend on the problem's sizes, computed once for a type and
a device; ``estimates`` adds the sizes. The coefficients are fitted to 7,000 measurements of 230
problems on an H200 (``benchmarks/NOTES.md``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...dtypes import dtype
from ...target import DeviceSpec
from ..block_scaling import BLOCK
from ..columns import Column, power_of_two_divisor, select
from ..epilogue_costs import epilogue_cost, tma_function_seconds
from ..problem import SUPPORTED_TYPES, Problem
from ..shared_costs import CYCLE, L2_BYTES, MEMORY_BYTE, relayout_seconds
from .launch.row_pitch import pitch_divisor
from .mixed_input.mixed_input_cost import with_conversion
from .tma_columns import TmaColumns
from .tma_config import relayout_problem
from .tma_geometry import SWIZZLE_BYTES, WGMMA_ROWS, swizzle_bytes
from .tma_operand import matrix_operands

# Cycles of an SM:
K_BLOCK = 39  # overhead of a k-block
CLUSTER_SYNC = 18  # of a k-block, for each doubling of the cluster
WGMMA = 1.1  # of the cycles at the tensor cores' peak rate
SHARED_READ = 1.45  # of the cycles at 128 bytes per cycle
PROMOTION = 0.5  # of the cycles that accumulator promotion takes alone, as wgmma overlaps with it
SCALE_UNIT = {64: 10, 32: 45, 16: 45, 8: 45}  # of a k-block, for each unit of these columns but one
SCALE_COLUMN = 1.8  # of a k-block and a warpgroup, for each column that has block scales of its own
LOAD_LATENCY = 1330
L2_REQUEST = 1.41  # of a request to the L2; times these where rows straddle multiples of 128 bytes:
STRADDLE = {128: 1.0, 64: 1.33, 32: 1.8, 16: 2.8}  # by the power of two that divides the pitch
ZERO_FILL = 11  # bytes per cycle that TMA fills with zeros
# Seconds:
LAUNCH = 0.28e-6
CLUSTER = {1: 0.0, 2: 0.8e-6, 4: 0.5e-6, 8: 1.8e-6}  # to synchronize a cluster at begin and end
EPILOGUE, EPILOGUE_ELEMENT = 0.42e-6, 1.66e-6 / (128 * 256)
EPILOGUE_TILE = 0.09e-6
PINGPONG, NARROW_PINGPONG = 0.2, 0.5  # of an epilogue, where the other warpgroup's wgmma overlap it
NARROW_STORES = 2.9  # times an epilogue whose rows are 32 bytes
POWER_LIMITED = 1.08  # times a mainloop on a full device, where epilogues do not interrupt wgmma
REDUCTION, REDUCTION_SPLIT, REDUCTION_BYTE = 1.4e-6, 0.07e-6, 1 / 4.7e12  # of split-K
SMS_FOR_BANDWIDTH = 0.94  # fraction of the SMs that reaches the memory bandwidth
SHORT_BURST = 1.006  # times the memory traffic where a k-tile is one row of 128 bytes, not two
REREAD, REREAD_IN_ONE_WAVE = 0.42, 0.4  # fraction of repeated reads that misses the L2; of that
SUSTAINED = 0.76  # of the tensor cores' peak, which power allows in the long run


class TileCosts(NamedTuple):
    """Columns that do not depend on the problem's sizes. Cycles are of an SM, per k-block."""

    wgmma: Column  # cycles
    shared_reads: Column  # cycles
    l2_bytes: Column  # cycles of the stage's bytes from the L2
    latency: Column  # cycles: a load's latency, by the stages in flight while two are multiplied
    overhead: Column  # cycles
    k_tile: Column
    k_bytes: Column  # of a row of a k-tile
    epilogue: Column  # seconds, of a CTA with more than one tile
    only_epilogue: Column  # seconds, of a CTA's only tile
    function: Column  # seconds of the epilogue function, where another tile follows
    only_function: Column  # seconds of the epilogue function, of a CTA's last tile
    reduction_bytes: Column  # inputs of the epilogue function, per byte of a tile's f32 accumulator
    cluster: Column  # seconds
    first_stage: Column  # seconds
    bursts: Column  # factor of memory traffic
    partial_bytes: Column  # of a tile's f32 accumulator
    resident: Column  # resident clusters
    a: _OperandCosts
    b: _OperandCosts

    def take(self, index: Column) -> TileCosts:
        """The costs of these candidates."""
        *columns, a, b = self
        taken: list[Any] = [column[index] for column in columns]
        return TileCosts(*taken, *(_OperandCosts(*(x[index] for x in y)) for y in (a, b)))


class _OperandCosts(NamedTuple):
    """Of A or B."""

    extent: Column
    share: Column  # rows of the extent that this CTA loads
    sharers: Column
    edge_map: Column  # whether copies load only rows that exist
    row_bytes: Column  # contiguous bytes of a copy
    rows: Column  # of these rows, per stage and CTA


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


def sparse_wgmma_cycles(n: Any) -> tuple[Any, Any]:
    """Cycles of the tensor core, and of the read port of shared memory, of a 64×n wgmma.sp: it
    reads 2 KB of A and 64 bytes for each column of B, 128 bytes in a cycle.
    """
    return n / 2, 16 + n / 2


def tile_costs(problem: Problem, configs: TmaColumns, device: DeviceSpec) -> TileCosts:
    """The terms that do not depend on sizes; ``problem`` is after relayout."""
    bits, (bm, bn, bk), ctas = problem.input.bits, configs.tile, configs.ctas
    promotion = PROMOTION * bm * bn / 128 if problem.promoted else 0.0
    sparse = 2 if problem.sparse else 1  # a wgmma of sparse A has twice the K
    wgmmas = bm // WGMMA_ROWS * bk * bits // (8 * 32 * sparse)  # of 32 bytes of K each
    k_bytes, log2_ctas = bk * bits / 8, np.frexp(ctas)[1] - 1
    wgmma = wgmmas * WGMMA * bn / 2 + promotion
    port = sparse_wgmma_cycles(bn)[1] if problem.sparse else 16 + bn / 4
    reads = wgmmas * SHARED_READ * port + promotion
    if problem.weights is not None:
        reads = wgmmas * SHARED_READ * bn / 4
        wgmma = with_conversion(problem.weights, configs, wgmma)
    epilogue, cost = _epilogue_seconds(problem, configs), epilogue_cost(problem)
    function = tma_function_seconds(problem, configs, PINGPONG)
    a, b = (_operand_costs(operand) for operand in matrix_operands(problem, configs))
    return TileCosts(
        wgmma=wgmma,
        shared_reads=reads,
        l2_bytes=configs.stage_bytes(problem) / L2_BYTES,
        latency=LOAD_LATENCY / np.maximum(_useful_stages(problem, configs, device) - 2, 0.5),
        overhead=K_BLOCK + CLUSTER_SYNC * log2_ctas + _scale_reads(problem, configs),
        k_tile=bk,
        k_bytes=k_bytes,
        epilogue=epilogue[0],
        only_epilogue=epilogue[1],
        function=function[0],
        only_function=function[1],
        reduction_bytes=np.full(len(configs), cost.input_bytes / 4) / configs.split,
        cluster=np.array([CLUSTER.get(n, CLUSTER[8]) for n in ctas.tolist()]),
        first_stage=configs.stage_bytes(problem) / L2_BYTES * CYCLE,
        bursts=np.where(bk * bits <= 8 * SWIZZLE_BYTES, SHORT_BURST, 1.0),
        partial_bytes=bm * bn * 4,
        resident=configs.resident_clusters(device),
        a=a,
        b=b,
    )


def _scale_reads(problem: Problem, configs: TmaColumns) -> Any:
    """Cycles of a k-block in which math warps read block scales: of units of columns, which surely
    lie in one block, or of columns. If both sides have single scales, all tiles read alike.
    """
    scaling, bn = problem.scaling, configs.tile[1]
    if scaling is None or scaling.rows == scaling.columns == 1:
        return 0.0
    single = select(configs.swap, scaling.rows == 1, scaling.columns == 1)
    unit = power_of_two_divisor(bn, BLOCK)
    each = sum(np.where(unit == size, cost, 0) for size, cost in SCALE_UNIT.items())
    warpgroups = np.where(configs.pingpong, 1, configs.consumers)
    return np.where(single, SCALE_COLUMN * bn * warpgroups, each * (bn // unit - 1))


def _operand_costs(operand: Any) -> _OperandCosts:
    """Of a ``TmaOperand`` with columns."""
    extent, sharers = operand.extent, operand.sharers
    row = (
        np.full_like(extent, SWIZZLE_BYTES)
        if operand.major == "K"
        else swizzle_bytes(extent, 8 * operand.size)
    )
    edge_map = np.broadcast_to(operand.has_edge_map, len(extent))
    return _OperandCosts(
        extent, extent / sharers, sharers, edge_map, row, operand.bytes / sharers / row
    )


def _useful_stages(problem: Problem, configs: TmaColumns, device: DeviceSpec) -> Column:
    """The stages that hide latency. The narrow epilogue tiles of an epilogue function often leave
    room for one stage more than a plain product has, which was no faster.
    """
    if problem.epilogue is None:
        return configs.stages
    return np.minimum(configs.stages, configs.max_stages(_plain(problem), device))


def _plain(problem: Problem) -> Problem:
    """The problem without its epilogue function, with D of the default type, which is aligned at
    least to its elements.
    """
    d = SUPPORTED_TYPES[problem.a][1][0]
    least = dtype(d).bits // 8
    align_c, align_d = max(problem.align_c, least), max(problem.align_d, least)
    return replace(problem, epilogue=None, d=d, pair=False, align_c=align_c, align_d=align_d)


def _epilogue_seconds(problem: Problem, configs: TmaColumns) -> tuple[Column, Column]:
    """Seconds of the epilogue of one of several tiles of a CTA, and of its only tile."""
    bn = configs.tile[1]
    # Partial accumulators have 32 bits; most types of D have 16.
    factor = 1 + configs.stores_partial
    factor = factor * select(configs.swap, 1.0, np.where(bn % 32, NARROW_STORES, 1.0))
    # With pingpong one warpgroup does it, while the other one's mainloop runs if it has a tile.
    overlapped = np.where(bn % 64, NARROW_PINGPONG, PINGPONG)
    tensors = 1 if problem.epilogue is None else len(problem.epilogue.output_bytes)
    d_rows, d_columns = configs.d_tile(problem)
    elements = d_rows * d_columns * tensors
    seconds = EPILOGUE_ELEMENT * elements + EPILOGUE_TILE * configs.epilogue_tiles(16)
    return (
        EPILOGUE + seconds * (factor * np.where(configs.pingpong, overlapped, 1.0)),
        EPILOGUE + seconds * (factor * np.where(configs.pingpong, 2.0, 1.0)),
    )


def estimates(
    problem: Problem, configs: TmaColumns, costs: TileCosts, device: DeviceSpec
) -> Column:
    """Estimated seconds of each candidate: the mainloops and epilogues of the busiest SM, or the
    memory traffic.
    """
    problem = problem.balanced
    work = _work(problem, configs, costs)
    mainloop = work.k_blocks * _k_block_cycles(_k_block(problem, costs), costs) * CYCLE
    mainloop = mainloop * _power_factor(problem, configs, costs, work)
    busy = np.maximum(mainloop, _power_limit(problem, device, mainloop))
    busy = busy + (_epilogues(costs, work) + costs.cluster)
    both = np.sqrt(np.sqrt(_power4(busy) + _power4(_memory(problem, configs, costs, work))))
    seconds: Column = (
        both
        + relayout_seconds(problem, relayout_problem(problem))
        + _last_function(costs, work)
        + _launches(configs, costs, work)
    )
    return seconds


def terms(
    problem: Problem, configs: TmaColumns, costs: TileCosts, device: DeviceSpec
) -> dict[str, Any]:
    """The terms of the estimates: seconds that each would take alone."""
    problem = problem.balanced
    work, k_block = _work(problem, configs, costs), _k_block(problem, costs)
    power = _power_factor(problem, configs, costs, work)
    wgmma, reads, l2_bytes, l2_requests, latency = (
        cycles * work.k_blocks * CYCLE for cycles in k_block
    )
    mainloop = work.k_blocks * _k_block_cycles(k_block, costs) * CYCLE * power
    return {
        "wgmma": wgmma * power,
        "shared memory reads": reads,
        "L2 bytes": l2_bytes,
        "L2 requests": l2_requests,
        "load latency": latency,
        "memory": _memory(problem, configs, costs, work),
        "power": _power_limit(problem, device, mainloop),
        "epilogues": _epilogues(costs, work) + _last_function(costs, work),
        "cluster synchronization": costs.cluster,
        "relayout": relayout_seconds(problem, relayout_problem(problem)),
        "launches": _launches(configs, costs, work),
    }


def _work(problem: Problem, configs: TmaColumns, costs: TileCosts) -> _Work:
    split, tiles, resident = configs.split, configs.cluster_tiles(problem), costs.resident
    k_blocks = np.maximum(1, -(-problem.k // configs.tile[2]))
    whole_waves = tiles // resident * configs.tail
    parts = (tiles - whole_waves * resident) * split
    waves = -(-parts // resident)
    counts = (
        whole_waves + waves,
        whole_waves + waves * (split == 1),
        whole_waves * k_blocks + waves * -(-k_blocks // split),
        tiles * split,
        parts * configs.ctas * (split > 1),
    )
    return _Work(*(count.astype(np.float64) for count in counts))


def _k_block(problem: Problem, costs: TileCosts) -> tuple[Any, ...]:
    """Cycles of a k-block's wgmma, shared memory reads, bytes and requests from the L2, latency."""
    a = problem.m, costs.a, pitch_divisor(problem, "a")
    b = problem.n, costs.b, pitch_divisor(problem, "b")
    rest = -problem.k % costs.k_tile
    beyond_k = rest / np.maximum(1, problem.k + rest)
    zeros = sum(_zero_filled_rows(rows, operand, beyond_k) for rows, operand, _ in (a, b))
    requests = sum(_requests(operand, pitch) for _, operand, pitch in (a, b))
    l2_bytes = costs.l2_bytes + zeros * costs.k_bytes / ZERO_FILL
    return costs.wgmma, costs.shared_reads, l2_bytes, L2_REQUEST * requests, costs.latency


def _k_block_cycles(k_block: tuple[Any, ...], costs: TileCosts) -> Column:
    """Cycles of a k-block: about the largest of its terms."""
    wgmma, reads, l2_bytes, l2_requests, latency = k_block
    others = _power6(l2_bytes) + _power6(l2_requests) + _power6(latency)
    largest = np.cbrt(np.sqrt(_power6(np.maximum(wgmma, reads)) + others))
    cycles: Column = costs.overhead + largest
    return cycles


def _zero_filled_rows(rows: int, operand: _OperandCosts, beyond_k: Column) -> Any:
    """Rows that a CTA's copies fill with zeros in a k-block, on average over tiles and k-blocks:
    beyond the last row, except where the last tile has a tensor map of its own; and beyond K.
    """
    tiles = np.maximum(1, -(-rows // operand.extent))
    filled = -rows % operand.extent / operand.sharers / tiles
    filled = np.where(operand.edge_map, 0.0, filled)
    return filled + (operand.share - filled) * beyond_k


def _requests(operand: _OperandCosts, pitch: int) -> Any:
    """Requests to the L2 of a CTA's copies in a k-block: one for each row of a copy; more where
    rows straddle multiples of 128 bytes.
    """
    if pitch >= SWIZZLE_BYTES:
        return operand.rows
    straddling = np.maximum(0, operand.row_bytes - pitch) / (SWIZZLE_BYTES - pitch)
    return operand.rows * (1 + (STRADDLE[pitch] - 1) * straddling)


def _epilogues(costs: TileCosts, work: _Work) -> Any:
    """Seconds of the epilogues of a CTA, of epilogue functions those of all tiles but the last."""
    functions = np.maximum(0, work.functions - 1) * costs.function
    epilogue = np.where(work.epilogues == 1, costs.only_epilogue, costs.epilogue)
    return work.epilogues * epilogue + functions


def _last_function(costs: TileCosts, work: _Work) -> Column:
    """Seconds of the epilogue function of a CTA's last tile, which nothing overlaps."""
    return np.where(work.functions > 0, costs.only_function, 0.0)


def _power_factor(problem: Problem, configs: TmaColumns, costs: TileCosts, work: _Work) -> Column:
    """The factor of a mainloop where all SMs are busy, and power limits them. Products of a sparse
    matrix are limited alike on all schedules.
    """
    if problem.sparse:
        return np.ones(len(configs))
    spread = configs.pingpong & (work.epilogues > 1) | (work.work_tiles < costs.resident * 0.9)
    return np.where(spread, 1.0, POWER_LIMITED)


def _power_limit(problem: Problem, device: DeviceSpec, mainloop: Column) -> Column:
    """Seconds of the products at the rate that power allows in the long run. Of what a faster
    mainloop would gain, half is lost: the clock falls, and the voltage with it.
    """
    peak = 2 * 32 * 1024 / problem.input.bits * device.sms / CYCLE * (1 + bool(problem.sparse))
    sustained = problem.flops / (peak * SUSTAINED)
    return np.minimum(sustained, np.sqrt(mainloop * sustained))


def _memory(problem: Problem, configs: TmaColumns, costs: TileCosts, work: _Work) -> Any:
    """Seconds of the memory traffic: matrices, split-K workspace, and some of the repeated reads.
    Few SMs do not reach the full bandwidth.
    """
    down, across = configs.tile_grid(problem)
    m, n = select(configs.swap, problem.n, problem.m), select(configs.swap, problem.m, problem.n)
    narrow = problem.b_bits / problem.input.bits  # rows are prepared weights, or as wide as columns
    repeated = m * narrow * (across > 1) + n * (down > 1)
    read = REREAD * repeated * problem.k * problem.input.bits / 8 * problem.batch
    read = read * np.where(work.work_tiles <= costs.resident, REREAD_IN_ONE_WAVE, 1.0)
    moved = (float(problem.bytes) + read) * costs.bursts + work.partial_tiles * costs.partial_bytes
    idle = SMS_FOR_BANDWIDTH * costs.resident / np.maximum(1, work.work_tiles)
    return moved * (MEMORY_BYTE * np.maximum(1.0, idle))


def _launches(configs: TmaColumns, costs: TileCosts, work: _Work) -> Any:
    """Seconds of the launch, the first stage, and the split-K reduction."""
    reduction = REDUCTION + REDUCTION_SPLIT * configs.split
    moved = work.partial_tiles * costs.partial_bytes
    reduction = reduction + moved * REDUCTION_BYTE * (1 + costs.reduction_bytes)
    return LAUNCH + costs.first_stage + np.where(work.partial_tiles > 0, reduction, 0.0)


def _power4(x: Column) -> Any:
    square = x * x
    return square * square


def _power6(x: Column) -> Any:
    square = x * x
    return square * square * square
