"""Times of many configurations of one problem and of torch, on the GPU."""

from __future__ import annotations

import math
import statistics
from typing import Any

import torch

from .peers import Case, graph, prepare, rough_seconds, sustained
from .precompile import row_plan
from .report import ERROR_FACTOR
from .rows import Row
from .stats import Sampling, calls

TINY = 1e-30  # of |A| |B|, which are zeros with ``zeros``


def measure(
    row: Row, configs: list[str], sampling: Sampling, zeros: bool = False
) -> tuple[float, list[Any]]:
    """Microseconds of torch, and of each configuration, or why it has none: an exception, or a
    wrong result. ``zeros``: of matrices of zeros, whose products take little power.
    """
    prepare(row.type)
    case, products = Case(row), list[Any]()
    for matrix in (x for s in case.sets for x in s[:2] if zeros):
        matrix.zero_()
    for config in configs:
        try:
            products.append(case.plan_call(row_plan(row, config, "cuda")))
            products[-1](0)
        except Exception as error:  # one configuration must not end the sweep
            products.append(f"{type(error).__name__}: {error}".splitlines()[0])
    valid = [case.torch_call, *(x for x in products if callable(x))]
    count = max(calls(rough_seconds(case.torch_call), sampling.replay), len(case.sets))
    graphs = [graph(call, count) for call in valid]
    times = sustained(graphs, sampling.pairs, sampling.warm_up)
    torch_us, *us = (1e6 * statistics.median(t) / count for t in times)
    most, *errors = _errors(case, graphs)
    measured = iter(
        t if error <= ERROR_FACTOR * most else f"error {error:.1e}, torch {most:.1e}"
        for t, error in zip(us, errors, strict=True)
    )
    return torch_us, [next(measured) if callable(x) else x for x in products]


def _errors(case: Case, graphs: list[torch.cuda.CUDAGraph]) -> list[float]:
    """The largest |error| / (|A| |B|) of each graph in some rows of the first D, which held NaN
    before.
    """
    a, b, d = case[0]
    left, right = a.double()[case.checked], b.double()
    exact, scale = left @ right, left.abs() @ right.abs()
    found = []
    for replay in graphs:
        d.fill_(math.nan if d.is_floating_point() else torch.iinfo(d.dtype).min)
        replay.replay()
        error = (d.double()[case.checked] - exact).abs() / scale.clamp(min=TINY)
        found.append(float(error.nan_to_num(nan=math.inf, posinf=math.inf).max()))
    return found


def peer_kernels(row: Row) -> list[str]:
    """The names of the kernels that torch's product launches; cuBLAS's have tile and cluster."""
    prepare(row.type)
    case = Case(row)
    case.torch_call(0)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        case.torch_call(0)
        torch.cuda.synchronize()
    device = torch.autograd.DeviceType.CUDA
    return [event.name for event in profile.events() if event.device_type == device]
