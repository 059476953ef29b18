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
    return [*_plain(a, b, d), *_with_epilogues(a, b, d)]


def _plain(a: torch.Tensor, b: torch.Tensor, d: torch.Tensor) -> list[tuple[str, Call]]:
    plan = tilewright.plan(a, b, out=d)
    return [
        ("tilewright.matmul(a, b)", lambda a, b, d: tilewright.matmul(a, b)),
        ("torch.mm(a, b)", lambda a, b, d: torch.mm(a, b)),
        ("tilewright.matmul(a, b, out=d)", lambda a, b, d: tilewright.matmul(a, b, out=d)),
        ("torch.mm(a, b, out=d)", lambda a, b, d: torch.mm(a, b, out=d)),
        ("plan.run(a, b, out=d)", lambda a, b, d: plan.run(a, b, out=d)),
    ]


def _with_epilogues(a: torch.Tensor, b: torch.Tensor, d: torch.Tensor) -> list[tuple[str, Call]]:
    """Epilogues of one and two operands, as lambdas that are created at each call, and layers."""
    matmul, linear, layer = tilewright.matmul, tilewright.linear, torch.nn.functional
    bias, r = torch.randn(SIZE, device="cuda").bfloat16(), torch.randn_like(d)

    @tilewright.epilogue
    def bias_residual(acc, bias, r):
        return tilewright.gelu(acc + bias) + r

    plan = tilewright.plan(a, b, epilogue=bias_residual, bias=bias, r=r, out=d)
    return [
        ("matmul, lambda of a bias",
         lambda a, b, d: matmul(a, b, epilogue=lambda acc, bias: acc + bias, bias=bias)),
        ("torch.addmm(bias, a, b)", lambda a, b, d: torch.addmm(bias, a, b)),
        ("matmul, lambda of bias and residual",
         lambda a, b, d: matmul(
             a, b, epilogue=lambda acc, bias, r: tilewright.gelu(acc + bias) + r, bias=bias, r=r)),
        ("matmul, function of both", lambda a, b, d: matmul(
            a, b, epilogue=bias_residual, bias=bias, r=r)),
        ("torch: gelu(addmm(bias, a, b)) + r",
         lambda a, b, d: layer.gelu(torch.addmm(bias, a, b)) + r),
        ("plan.run, function of both, out=d",
         lambda a, b, d: plan.run(a, b, bias=bias, r=r, out=d)),
        ("linear(a, b, bias, 'gelu')", lambda a, b, d: linear(a, b, bias, activation="gelu")),
        ("torch: gelu(linear(a, b, bias))", lambda a, b, d: layer.gelu(layer.linear(a, b, bias))),
        ("linear(a, b, gate=d, 'silu')", lambda a, b, d: linear(a, b, gate=d, activation="silu")),
        ("torch: silu(linear) * linear",
         lambda a, b, d: layer.silu(layer.linear(a, d)) * layer.linear(a, b)),
    ]  # fmt: skip


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
