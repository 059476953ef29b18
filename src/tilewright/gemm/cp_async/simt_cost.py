"""Cost model of kernel ``simt``: estimated seconds of candidates, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...target import DeviceSpec
from ..columns import Column, tile_count
from ..epilogue_costs import epilogue_cost
from ..problem import Problem
from ..shared_costs import CP_ASYNC_LAUNCH, CYCLE, L2_BYTES, MEMORY_BYTE
from .simt_config import VECTOR, SimtConfig

LANES = {80: 64}  # FMAs of f32 of an SM per cycle, by compute capability; of all others:
OTHER_LANES = 128
K_TILE = 40  # instructions of a thread per k-tile besides FMAs, loads and copies
FULL_WARPS = 8  # of an SM that hide latencies
PROLOGUE_AND_EPILOGUE = 3000  # cycles of a tile


class SimtCosts(NamedTuple):
    """Columns that do not depend on the problem's sizes."""

    tile_m: Column
    tile_n: Column
    resident: Column  # CTAs per SM
    threads: Column
    instructions: Column  # of a thread for each k
    function: Column  # seconds of the epilogue function for a tile


def simt_costs(problem: Problem, configs: Sequence[SimtConfig], device: DeviceSpec) -> SimtCosts:
    """The columns of configurations; of the problem, only layouts and alignments matter."""
    return SimtCosts(
        np.array([c.tile[0] for c in configs]),
        np.array([c.tile[1] for c in configs]),
        np.array([c.resident(device.limits) for c in configs]),
        np.array([c.threads for c in configs]),
        np.array([_instructions(problem, c) for c in configs]),
        epilogue_cost(problem).tile_seconds(np.array([c.tile[0] * c.tile[1] for c in configs])),
    )


def estimates(problem: Problem, costs: SimtCosts, device: DeviceSpec) -> Column:
    """Estimated seconds of each candidate: waves of CTAs, or the memory traffic."""
    found = terms(problem, costs, device)
    busy = np.maximum(found["instructions"], found["L2 bytes"])
    busy = busy + found["prologues and epilogues"] + found["epilogue functions"]
    seconds: Column = found["launch"] + np.maximum(busy, found["memory"])
    return seconds


def terms(problem: Problem, costs: SimtCosts, device: DeviceSpec) -> dict[str, Any]:
    """The terms of the estimates: seconds that each would take alone. A CTA takes as long as its
    instructions or its bytes from the L2.
    """
    tiles = tile_count(problem, -(-problem.m // costs.tile_m), -(-problem.n // costs.tile_n))
    resident = np.minimum(costs.resident, np.maximum(1, -(-tiles // device.sms))).astype(np.int64)
    waves = (-(-tiles // (device.sms * resident))).astype(np.float64)
    threads = costs.threads * resident
    lanes = LANES.get(device.target.number, OTHER_LANES)
    rate = lanes * np.sqrt(np.minimum(1.0, threads / 32 / FULL_WARPS))
    loads = resident * 4 * (costs.tile_m + costs.tile_n) / L2_BYTES
    return {
        "instructions": waves * problem.k * costs.instructions * threads / rate * CYCLE,
        "L2 bytes": waves * problem.k * loads * CYCLE,
        "prologues and epilogues": waves * PROLOGUE_AND_EPILOGUE * CYCLE,
        "epilogue functions": waves * resident * costs.function,
        "memory": problem.bytes * MEMORY_BYTE,
        "launch": CP_ASYNC_LAUNCH,
    }


def _instructions(problem: Problem, config: SimtConfig) -> float:
    """Instructions of a thread for each k; a copy takes two, one of them for its address."""
    (bm, bn, bk), (rows, columns) = config.tile, config.thread_tile
    a = 1 if problem.a_major == "k" else problem.align_a // 4
    b = 1 if problem.b_major == "k" else problem.align_b // 4
    copies = 2 * (bm / a + bn / b) / config.threads
    return rows * columns + (rows + columns) / VECTOR + copies + K_TILE / bk
