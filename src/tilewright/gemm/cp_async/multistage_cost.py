"""Cost model of kernel ``multistage``: estimated seconds of candidates, as columns.

The coefficients are fitted to measurements of f16 on an H200 (``benchmarks/NOTES.md``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...target import DeviceSpec
from ..columns import Column, tile_count
from ..problem import Problem
from ..roofline import f64_per_cycle
from .multistage_config import Config

CLOCK = 1.6e9  # Hz, where this was fitted
RATE = 1024 * CLOCK  # multiply-adds of an SM per second by mma.sync
LAUNCH = 2.5e-6  # seconds
UNALIGNED = {16: 1.2, 8: 1.5, 4: 3.0, 2: 6.0}  # times as long, by the bytes of a cp.async copy
# A warp tile reaches 1 / (1 + SHARED_READ · (1/M + 1/N)) of the tensor cores' rate, because it
# reads its operands from shared memory.
SHARED_READ = 30.0
F64_SHARED_READ = 2.0  # the same for f64; not fitted
BARRIER = 40_000  # multiply-adds of an SM in the time of a k-tile's barrier
PROLOGUE_AND_EPILOGUE = 3_000_000  # and in the time of a tile's prologue and epilogue


class MultistageCosts(NamedTuple):
    """Columns that do not depend on the problem's sizes."""

    tile: tuple[Column, Column, Column]
    resident: Column  # CTAs per SM
    threads: Column
    warp_rate: Column  # fraction of the tensor cores' rate that the warp tile reaches


def multistage_costs(
    problem: Problem, configs: Sequence[Config], device: DeviceSpec
) -> MultistageCosts:
    """The columns of configurations; of the problem, only its types matter."""
    resident = [c.resident(problem.input.bits, device.limits) for c in configs]
    wm, wn = np.array([c.warp_tile for c in configs]).T
    reads = F64_SHARED_READ if problem.is_f64 else SHARED_READ
    bm, bn, bk = np.array([c.tile for c in configs]).T
    return MultistageCosts(
        (bm, bn, bk),
        np.array(resident),
        np.array([c.threads for c in configs]),
        1 + reads * (1 / wm + 1 / wn),
    )


def terms(problem: Problem, costs: MultistageCosts, device: DeviceSpec) -> dict[str, Any]:
    """The terms of the estimates, in seconds, of which an estimate is the sum: waves of CTAs; a
    wave takes the time of its mma.sync, barriers, prologue and epilogue.
    """
    (bm, bn, bk), double = costs.tile, problem.is_f64
    tiles = tile_count(problem, -(-problem.m // bm), -(-problem.n // bn))
    resident = np.minimum(costs.resident, np.maximum(1, -(-tiles // device.sms)))
    waves = -(-tiles // (device.sms * resident))
    busy = np.minimum(1.0, costs.threads * resident / 256)  # each of four schedulers wants 2 warps
    k_tiles = waves * -(-problem.k // bk)
    factor = 1.0 if double else UNALIGNED[min(problem.align_a, problem.align_b)]
    peak = f64_per_cycle(device) / 2 * CLOCK if double else RATE
    return {
        "mma": factor * k_tiles * bm * bn * bk * resident / (busy / costs.warp_rate * peak),
        "barriers": factor * k_tiles * BARRIER / RATE,
        "prologues and epilogues": factor * waves * PROLOGUE_AND_EPILOGUE / RATE,
        "launch": LAUNCH,
    }
