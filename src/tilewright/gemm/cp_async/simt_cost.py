"""Cost model of kernel ``simt``: estimated seconds of candidates, as columns.

The busiest SM computes its CTAs in waves: as many as are resident, then the rest; CTAs of an SM may
end together, so that some SMs have a whole wave once more, others nothing. A k-tile takes
the time in which the SM's busiest scheduler issues the instructions of all resident warps, or that
in which its shared memory serves them; and what a warp waits at barriers and for loads, which other
warps of its scheduler hide. Or the time of its bytes from the L2; or that of a copy's latency,
where few stages are in flight. The epilogue takes the time of the sectors that its stores reach,
each warp's and those of all warps of a scheduler; resident CTAs hide it but for the first wave's.
``benchmarks/NOTES.md`` has the measurements that the coefficients were fitted to; what they leave
is corrected (``simt_correction``). Loops that the instruction cache does not hold, of more than
2048 instructions, take longer: no candidate has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...target import DeviceSpec
from ..columns import Column, tile_count
from ..epilogue_costs import epilogue_cost
from ..problem import Problem
from ..shared_costs import CYCLE, MEMORY_BYTE
from .simt_config import FLOAT, VECTOR, WARP, SimtConfig
from .simt_correction import LaunchGrid, coefficients_of, corrected
from .simt_edges import is_staged, store_width
from .simt_launch import PROGRAMMATIC_TARGET

FMAS = {80: 64}  # of f32, of an SM per cycle, by compute capability; of all others:
OTHER_FMAS = 128
SCHEDULERS = 4  # of an SM
SECTORS = 32 * 4 / 32  # of 32 bytes, that hold an element of each of a warp's threads
OVERLAP = 4  # exponent of the sum of issue slots and of shared memory's, of which most is hidden


# By tile and threads the times, over the model's, of a k-tile and of the rest of a CTA, measured:
# machine code differs in how well its loop hides loads and copies.
RATES = {
    "128x256x8:16x16": (0.656, 1.41), "256x128x8:32x8": (0.704, 1.5),
    "128x192x8:16x16": (0.66, 1.05), "192x128x8:16x16": (0.666, 1.66),
    "128x128x16:16x8x2": (0.7, 0.793), "96x128x8:8x16": (0.65, 1.1),
    "64x192x16:8x16": (0.69, 1.53), "80x128x16:4x16x2": (0.779, 1.07),
    "64x160x16:8x8x2": (0.706, 1.08), "128x80x16:16x4x2": (0.871, 0.988),
    "64x128x32:8x8x4": (0.697, 0.961), "64x128x8:8x16": (0.58, 1.06),
    "64x96x16:8x8x2": (0.654, 1.19), "64x96x8:8x8": (0.794, 0.697),
    "48x128x16:4x16x2": (0.676, 0.832), "64x80x16:8x4x2": (0.757, 1.79),
    "128x32x8:16x8": (0.558, 1.17), "64x64x32:8x8x4": (0.622, 1.05),
    "64x64x16:8x8x2": (0.697, 0.938), "64x64x8:8x8": (0.643, 1.05),
    "32x128x16:4x16x2": (0.596, 1.1), "32x128x8:4x16": (0.58, 1),
    "32x96x16:4x8x2": (0.746, 1.24), "32x64x32:4x8x4": (0.73, 1.05),
    "32x64x16:4x8x2": (0.586, 1.44), "16x96x32:4x8x4": (0.576, 1.3),
    "32x32x32:4x8x4": (0.547, 1.22), "16x32x32:4x8x4": (0.585, 1.32),
    "16x32x16:4x8": (0.601, 1.38),
}  # fmt: skip
OTHER_RATES = 0.73, 1.1  # of tiles that were not measured


class SimtCoefficients(NamedTuple):
    """Cycles, but where something else is said."""

    load: float = 1.0  # issue slots of a load of 16 bytes from shared memory
    copy: float = 4.55  # of a copy with its address, of a thread
    k_tile: float = 0.1  # of all else in a k-tile
    shared_load: float = 23.9  # of shared memory's time for a load, as a scheduler's share
    shared_copy: float = 15  # for a copy
    waits: float = 252  # of a warp in a k-tile; over the warps of a scheduler, squared
    latency: float = 908  # of a copy
    l2_bytes: float = 40.0  # per cycle that an SM loads from the L2
    prologue: float = 1300.0  # of a CTA, with the first copies; most of the launch is in it, too
    issued: float = 461  # issue slots of a warp outside of k-tiles, but for stores
    start: float = 1000.0  # of a grid that starts when the one ahead has ended: 0.6 µs, not fitted
    cluster: float = 6.0  # of the barriers of a cluster, beyond ``remote``
    exchange: float = 52.1  # of a line of 4 elements that slices add up, for each warp
    remote: float = 227  # more, of one that the CTAs of a cluster add up
    sector: float = 3.4  # of a sector of D that a warp stores, for each warp
    first_sector: float = 6.24  # of one, however many warps there are
    packed: float = 0.212  # of what a whole wave takes more than the last one, which adds to it
    launch: float = 0.02e-6  # seconds, of what no CTA's prologue has
    reduction: float = 1.5e-06  # more seconds, of the split-K reduction:
    partial_bytes: float = 5.0e12  # per second, of partial accumulators written and read
    memory_byte: float = MEMORY_BYTE  # seconds


COEFFICIENTS = SimtCoefficients()


class SimtCosts(NamedTuple):
    """Columns that do not depend on the problem's sizes."""

    tile: tuple[Column, Column, Column]
    resident: Column  # CTAs per SM
    threads: Column
    stages: Column
    split: Column  # parts of K
    in_cluster: Column  # whether they are a cluster
    products: Column  # FMAs of a thread in a k-tile
    loads: Column  # from shared memory
    copies: Column
    sectors: Column  # of D that a warp's stores reach
    exchanged: Column  # lines of 4 elements that a thread shares with slices or CTAs
    rates: tuple[Column, Column]  # of a k-tile, of the rest
    corrections: Column  # coefficients of ``simt_correction``, a row each
    function: Column  # seconds of the epilogue function for a tile


def simt_costs(problem: Problem, configs: Sequence[SimtConfig], device: DeviceSpec) -> SimtCosts:
    """The columns of configurations; of the problem, only layouts and alignments matter."""
    bm, bn, bk = np.array([c.tile for c in configs]).T
    rows, columns = np.array([c.thread_tile for c in configs]).T
    slices, threads = (np.array([getattr(c, x) for c in configs]) for x in ("slices", "threads"))
    a = 1 if problem.a_major == "k" else problem.align_a // FLOAT
    b = 1 if problem.b_major == "k" else problem.align_b // FLOAT
    split = np.array([c.split for c in configs])
    in_cluster = np.array([c.in_cluster for c in configs])
    depth = bk // slices
    stored = np.array([_sectors_of_element(problem, c) for c in configs])
    sharing = slices * np.where(in_cluster, split, 1)
    names = [tile_and_threads(c) for c in configs]
    return SimtCosts(
        (bm, bn, bk),
        np.array([c.resident(device.limits) for c in configs]),
        threads,
        np.array([c.stages for c in configs]),
        split,
        in_cluster,
        rows * columns * depth,
        (rows + columns) // VECTOR * depth,
        (bm / a + bn / b) * bk / threads,
        rows * columns / sharing * stored,
        np.where(sharing > 1, rows * columns / VECTOR, 0),
        rates_of(names),
        coefficients_of(names),
        epilogue_cost(problem).tile_seconds(bm * bn),
    )


def rates_of(names: Sequence[str]) -> tuple[Column, Column]:
    """The columns of the rates of tiles with these names."""
    loops, ends = np.array([RATES.get(name, OTHER_RATES) for name in names]).reshape(-1, 2).T
    return loops, ends


def tile_and_threads(config: SimtConfig) -> str:
    """What of a configuration decides its main loop, as in its notation."""
    return ":".join(str(config).split(":")[1:3])


def _sectors_of_element(problem: Problem, config: SimtConfig) -> float:
    """Sectors that a warp's stores reach for an element of each of its threads."""
    width = VECTOR if config.has_partials else store_width(problem)
    if width == VECTOR:
        return SECTORS
    if is_staged(problem, config):  # neighbours, which may begin anywhere in a sector
        return SECTORS + 1 / width
    return SECTORS * VECTOR / width


def estimates(problem: Problem, costs: SimtCosts, device: DeviceSpec) -> Column:
    """Estimated seconds of each candidate: waves of CTAs, or the memory traffic, corrected."""
    grid = launch_grid(problem, costs, device)
    seconds = uncorrected(problem, costs, device, grid)
    return corrected(seconds, problem, grid, costs.corrections)


def uncorrected(problem: Problem, costs: SimtCosts, device: DeviceSpec, grid: LaunchGrid) -> Column:
    """The estimates of the model alone."""
    return _combined(_terms(problem, costs, device, grid))


def _combined(found: dict[str, Any]) -> Column:
    busy = found["mainloops"] + found["prologues and epilogues"] + found["epilogue functions"]
    seconds: Column = np.maximum(busy, found["memory"]) + found["split-K reduction"]
    seconds += found["launch"]
    return seconds


def launch_grid(problem: Problem, costs: SimtCosts, device: DeviceSpec) -> LaunchGrid:
    """How the CTAs of each candidate fill the SMs."""
    bm, bn, bk = costs.tile
    ctas = tile_count(problem, -(-problem.m // bm), -(-problem.n // bn)) * costs.split
    sms = np.where(costs.in_cluster & (costs.split > 2), device.sms * 10 // 11, device.sms)
    blocks = -(-problem.k // bk)
    k_tiles = (-(-blocks // costs.split)).astype(np.float64)
    return LaunchGrid(
        ctas, -(-ctas // sms), costs.resident, k_tiles, costs.split, costs.in_cluster, bn
    )


def terms(problem: Problem, costs: SimtCosts, device: DeviceSpec) -> dict[str, Any]:
    """The terms of the estimates, in seconds, that each would take alone, and what measured
    products correct, which may be negative.
    """
    found = _terms(problem, costs, device, launch_grid(problem, costs, device))
    difference = estimates(problem, costs, device) - _combined(found)
    return found | {"correction by measured products": difference}


def _terms(
    problem: Problem, costs: SimtCosts, device: DeviceSpec, grid: LaunchGrid
) -> dict[str, Any]:
    c, each, (bm, bn, _) = COEFFICIENTS, grid.each, costs.tile
    # np.divmod has no columns of Python's integers
    waves, rest = (x.astype(np.float64) for x in (each // costs.resident, each % costs.resident))
    fmas = FMAS.get(device.target.number, OTHER_FMAS)
    whole, last = (_wave(costs, n, fmas) for n in (costs.resident, rest))
    packed = c.packed * (waves > 0) * (whole[0] - last[0])
    loops = waves * whole[0] + np.where(rest > 0, last[0] + packed, 0)
    first = np.where(waves > 0, whole[1], last[1])
    ends = waves * whole[1] + np.where(rest > 0, last[1], 0)
    ends = first + (ends - first) / costs.resident
    if not device.target.runs(PROGRAMMATIC_TARGET):
        ends = ends + c.start
    partials = 8 * (grid.ctas * bm * bn).astype(np.float64) / c.partial_bytes
    is_split = (costs.split > 1) & ~costs.in_cluster
    return {
        "mainloops": grid.k_tiles * loops * CYCLE,
        "prologues and epilogues": ends * CYCLE,
        "epilogue functions": np.where(is_split, 0.0, each.astype(np.float64) * costs.function),
        "memory": problem.bytes * c.memory_byte,
        "split-K reduction": np.where(is_split, c.reduction + partials, 0.0),
        "launch": c.launch,
    }


def _wave(costs: SimtCosts, resident: Column, fmas: int) -> tuple[Column, Column]:
    """Cycles of a k-tile, and of the rest, with a number of CTAs resident on an SM."""
    c, (bm, bn, bk) = COEFFICIENTS, costs.tile
    warps = resident * costs.threads / fmas  # of a scheduler, by the cycles of an FMA
    shared = np.maximum(warps, 1.0)
    threads = SCHEDULERS * WARP
    busiest = np.ceil(resident * costs.threads / threads) * threads / fmas
    slots = costs.products + c.load * costs.loads + c.copy * costs.copies + c.k_tile
    memory = c.shared_load * costs.loads + c.shared_copy * costs.copies
    issued, served = busiest * slots, shared * memory
    loop = (issued**OVERLAP + served**OVERLAP) ** (1 / OVERLAP) + c.waits / shared**2
    from_l2 = resident * 4 * (bm + bn) * bk / c.l2_bytes
    in_flight = c.latency / np.maximum(costs.stages - 1, 1)
    exchange = c.exchange + c.remote * costs.in_cluster
    stores = c.sector * costs.sectors + exchange * costs.exchanged
    ends = c.prologue + shared * (c.issued + stores) + c.first_sector * costs.sectors
    ends += c.cluster * costs.in_cluster
    loop = np.maximum(np.maximum(costs.rates[0] * loop, from_l2), in_flight)
    return loop, costs.rates[1] * ends
