"""What a call costs the host: loops over small tensors, so that the GPU is never waited for."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import tilewright

from .stats import turn

Work = Callable[[Any, Any, Any], object]

TENSORS, SIZE = 64, 64
PASSES, ROUNDS = 4, 30  # over all tensors, without waiting; times that this is measured


def costs() -> dict[str, float]:
    """Microseconds a call takes, the medians of rounds in turn."""
    works = _works()
    times: list[list[float]] = [[] for _ in works]
    for number in range(ROUNDS + 1):
        for who in turn(number, len(works)):
            times[who].append(_once(works[who][1]))
    medians = [statistics.median(own[1:]) for own in times]  # the first is to warm up
    return {name: us for (name, _), us in zip(works, medians, strict=True)}


def _works() -> list[tuple[str, Work]]:
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


def _once(work: Work) -> float:
    given = _tensors() * PASSES
    torch.cuda.synchronize()
    start = time.perf_counter()
    for a, b, d in given:
        work(a, b, d)
    return (time.perf_counter() - start) / len(given) * 1e6
