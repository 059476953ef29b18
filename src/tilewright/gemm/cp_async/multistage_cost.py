"""Cost model of kernel ``multistage``: estimated seconds of candidates, as columns.

The coefficients are fitted to measurements of 16-bit types on an H200 (``benchmarks/NOTES.md``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...target import DeviceSpec
from ..columns import Column, tile_count
from ..epilogue_costs import epilogue_cost
from ..problem import Problem
from ..roofline import DEFAULT_RATES, RATES, f64_per_cycle
from ..shared_costs import CP_ASYNC_LAUNCH, relayout_seconds
from .multistage_config import Config, relayout_problem

CLOCK = 1.6e9  # Hz, where this was fitted
RATE = 1024 * CLOCK  # multiply-adds of an SM per second by mma.sync, of 16-bit types
# Of other types, by bits: the ratio of the peaks in NVIDIA's A100 whitepaper. Not fitted.
RELATIVE_RATE = {32: 0.5, 16: 1.0, 8: 2.0, 4: 4.0, 1: 16.0}
UNALIGNED = {16: 1.2, 8: 1.5, 4: 3.0, 2: 6.0}  # times as long, by the bytes of a cp.async copy
# A warp tile reaches 1 / (1 + SHARED_READ · (1/M + 1/N)) of the tensor cores' rate, because it
# reads its operands from shared memory.
SHARED_READ = 30.0
F64_SHARED_READ = 2.0  # the same for f64; not fitted
FULL_THREADS = 256  # of an SM that keep the tensor cores busy: two warps for each scheduler
BARRIER = 40_000  # multiply-adds of an SM in the time of a k-tile's barrier
PARTIAL_BYTES = 8  # of each partial accumulator, written and read; not fitted
PROLOGUE_AND_EPILOGUE = 3_000_000  # and in the time of a tile's prologue and epilogue


class MultistageCosts(NamedTuple):
    """Columns that do not depend on the problem's sizes."""

    tile: tuple[Column, Column, Column]
    resident: Column  # CTAs per SM
    threads: Column
    split: Column  # parts of K
    shared_reads: Column  # the divisor of the tensor cores' rate
    function: Column  # seconds of the epilogue function for a tile


def multistage_costs(
    problem: Problem, configs: Sequence[Config], device: DeviceSpec
) -> MultistageCosts:
    """The columns of configurations; of the problem, only types matter."""
    wm, wn = np.array([c.warp_tile for c in configs]).T
    bm, bn, bk = np.array([c.tile for c in configs]).T
    reads = F64_SHARED_READ if problem.is_f64 else SHARED_READ
    return MultistageCosts(
        (bm, bn, bk),
        np.array([c.resident(problem.input.bits, device.limits, problem.sparse) for c in configs]),
        np.array([c.threads for c in configs]),
        np.array([c.split for c in configs]),
        1 + reads * (1 / wm + 1 / wn),
        epilogue_cost(problem).tile_seconds(bm * bn),
    )


def estimates(problem: Problem, costs: MultistageCosts, device: DeviceSpec) -> Column:
    """Estimated seconds of each candidate."""
    seconds: Column = sum(terms(problem, costs, device).values())
    return seconds


def terms(problem: Problem, costs: MultistageCosts, device: DeviceSpec) -> dict[str, Any]:
    """The terms of the estimates, in seconds, which add up: waves of CTAs, of which each takes the
    time of its mma.sync, barriers, prologue and epilogue.
    """
    relaid, (bm, bn, bk), double = relayout_problem(problem), costs.tile, problem.is_f64
    tiles = tile_count(problem, -(-problem.m // bm), -(-problem.n // bn)) * costs.split
    resident = np.minimum(costs.resident, np.maximum(1, -(-tiles // device.sms)))
    waves = (-(-tiles // (device.sms * resident))).astype(np.float64)
    blocks = -(-problem.k // bk)
    k_tiles = waves * -(-blocks // costs.split)
    busy = np.minimum(1.0, costs.threads * resident.astype(np.int64) / FULL_THREADS)
    factor = 1.0 if double else UNALIGNED[min(relaid.align_a, relaid.align_b)]
    peak = RATE * RELATIVE_RATE.get(problem.input.bits, 1.0) * (2 if problem.sparse else 1)
    if double:
        peak = f64_per_cycle(device) / 2 * CLOCK
    tile_rate = busy / costs.shared_reads * peak
    _, bandwidth = RATES.get(device.name, DEFAULT_RATES)
    partials = tiles * PARTIAL_BYTES * bm * bn / (bandwidth * 1e12)
    return {
        "mma": factor * k_tiles * bm * bn * bk * resident.astype(np.int64) / tile_rate,
        "barriers": factor * k_tiles * BARRIER / RATE,
        "prologues and epilogues": factor * waves * PROLOGUE_AND_EPILOGUE / RATE,
        "epilogue functions": np.where(costs.split > 1, 0.0, waves * resident * costs.function),
        "relayout": relayout_seconds(problem, relaid),
        "split-K reduction": np.where(costs.split > 1, CP_ASYNC_LAUNCH + partials, 0.0),
        "launch": CP_ASYNC_LAUNCH,
    }
