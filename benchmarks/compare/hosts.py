"""Host time per call: loops over small tensors, whose kernels are shorter than their launch."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import tilewright

from .stats import round_order

Call = Callable[[Any, Any, Any], object]

TENSORS, SIZE = 64, 64
PASSES, ROUNDS = 4, 30  # over all tensors without synchronization; measurements


def costs() -> dict[str, float]:
    """Microseconds per call, the medians of interleaved rounds."""
    calls = _calls()
    times: list[list[float]] = [[] for _ in calls]
    for number in range(ROUNDS + 1):
        for i in round_order(number, len(calls)):
            times[i].append(_microseconds(calls[i][1]))
    medians = [statistics.median(one[1:]) for one in times]  # the first round is the warm-up
    return {name: us for (name, _), us in zip(calls, medians, strict=True)}


def _calls() -> list[tuple[str, Call]]:
    a, b, d = _tensors()[0]
    plan = tilewright.plan(a, b, out=d)
    return [
        ("tilewright.matmul(a, b)", lambda a, b, d: tilewright.matmul(a, b)),
        ("torch.mm(a, b)", lambda a, b, d: torch.mm(a, b)),
        ("tilewright.matmul(a, b, out=d)", lambda a, b, d: tilewright.matmul(a, b, out=d)),
        ("torch.mm(a, b, out=d)", lambda a, b, d: torch.mm(a, b, out=d)),
        ("plan.run(a, b, out=d)", lambda a, b, d: plan.run(a, b, out=d)),
    ]


def _tensors() -> list[list[torch.Tensor]]:
    def one() -> torch.Tensor:
        return torch.randn(SIZE, SIZE, device="cuda").bfloat16()

    return [[one(), one(), one()] for _ in range(TENSORS)]


def _microseconds(call: Call) -> float:
    tensors = _tensors() * PASSES
    torch.cuda.synchronize()
    start = time.perf_counter()
    for a, b, d in tensors:
        call(a, b, d)
    return (time.perf_counter() - start) / len(tensors) * 1e6
