"""Measure a row on the GPU: tilewright and torch in one process, in alternation.

Each side is a CUDA graph of enough calls that host time does not matter. An idle GPU starts at its
highest clock until, within some 0.1 s, the power limit lowers it, and which side is faster may
depend on that. So there are two measurements: sustained, where after a warm-up all replays are
queued with only events between them; and bursts, with a pause before each replay. Inputs are random
and rotate past the L2. The checked result is that of a replay.
"""

from __future__ import annotations

import math
import platform
import re
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

import tilewright
from tilewright.cuda import driver

from .precompile import row_plan
from .rows import LAYOUTS, Row
from .stats import Ratio, Sampling, calls, round_order, spread

Times = list[list[float]]  # seconds, [graph][round]

TYPES = {
    "f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32, "f32": torch.float32,
    "f64": torch.float64, "e4m3": torch.float8_e4m3fn, "s8": torch.int8, "s32": torch.int32,
}  # fmt: skip
MAX_SETS = 256  # of inputs
PAUSE = 0.01  # seconds before a burst
CHECKED_ROWS = 64  # of D, the first and the last among them
WARNING = re.compile(r"warning|performance loss|serializ", re.I)


def machine() -> dict[str, Any]:
    """Name and size of the GPU; versions of torch, the driver, tilewright and Python."""
    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "sms": properties.multi_processor_count,
        "torch": torch.__version__,
        "driver": "CUDA {}.{}".format(*driver.version()),
        "tilewright": tilewright.__version__,
        "python": platform.python_version(),
    }


def check_context() -> None:
    """Raise where an earlier kernel has destroyed the GPU's context."""
    torch.cuda.synchronize()
    torch.ones(1, device="cuda").item()


class Operands(NamedTuple):
    a: torch.Tensor
    b: torch.Tensor
    d: torch.Tensor


class Case:
    """A row's operands on the GPU; enough sets of them to fill three L2 caches."""

    def __init__(self, row: Row) -> None:
        torch.manual_seed(0)
        self.row, self.one = row, torch.ones((), device="cuda")
        first = self._operands()
        room = 3 * torch.cuda.get_device_properties(0).L2_cache_size
        count = min(MAX_SETS, room // sum(x.nbytes for x in first) + 1)
        self.sets = [first, *(self._operands() for _ in range(count - 1))]
        ends = torch.tensor([0, row.m - 1], device="cuda")
        inner = torch.randint(row.m, (CHECKED_ROWS - 2,), device="cuda")
        self.checked = torch.cat([ends, inner]).unique()

    def _operands(self) -> Operands:
        row = self.row
        a = _random((row.m, row.k), row.type, row.layout[0])
        b = _random((row.k, row.n), row.type, row.layout[1])
        return Operands(a, b, torch.empty((row.m, row.n), dtype=TYPES[row.result], device="cuda"))

    def plan_call(self, plan: tilewright.Plan) -> Callable[[int], object]:
        """The product of set i by a plan."""
        return lambda i: plan.run(self[i].a, self[i].b, out=self[i].d)

    def torch_call(self, i: int) -> None:
        """The product of set i by torch."""
        a, b, d = self[i]
        if self.row.type == "s8":
            torch._int_mm(a, b, out=d)
        elif self.row.type == "e4m3":
            torch._scaled_mm(
                a, b, scale_a=self.one, scale_b=self.one, out_dtype=d.dtype,
                use_fast_accum=self.row.fast, out=d,
            )  # fmt: skip
        else:
            torch.mm(a, b, out=d)

    def __getitem__(self, i: int) -> Operands:
        return self.sets[i % len(self.sets)]

    def error_of(self, replay: Callable[[], object]) -> float:
        """The largest |error| / (|A| |B|) of a replay in the first and the last D, which held NaN
        before; infinite for elements that it does not write.
        """
        for s in self.sets:
            s.d.fill_(math.nan if s.d.is_floating_point() else torch.iinfo(s.d.dtype).min)
        replay()
        return max(self._error(s) for s in {id(s): s for s in (self[0], self[-1])}.values())

    def _error(self, s: Operands) -> float:
        a, b = s.a.double()[self.checked], s.b.double()
        error = (s.d.double()[self.checked] - a @ b).abs() / (a.abs() @ b.abs())
        return float(error.nan_to_num(nan=math.inf, posinf=math.inf).max())


def _random(shape: tuple[int, int], type_: str, letter: str) -> torch.Tensor:
    """Row-major for ``t``, column-major for ``n``."""
    if letter == "n":
        return _random(shape[::-1], type_, "t").t()
    if type_ == "s8":
        return torch.randint(-128, 128, shape, dtype=torch.int8, device="cuda")
    wide = torch.float64 if type_ == "f64" else torch.float32
    return torch.randn(shape, dtype=wide, device="cuda").to(TYPES[type_])


# --- timing -------------------------------------------------------------------------------------


def graph(call: Callable[[int], object], count: int) -> torch.cuda.CUDAGraph:
    """A CUDA graph of ``count`` calls."""
    call(0)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        for i in range(count):
            call(i)
    return captured


def rough_seconds(call: Callable[[int], object], count: int = 5) -> float:
    """The time of a call, host time included."""
    call(0)
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for i in range(count):
        call(i)
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last) / 1e3 / count


def sustained(graphs: list[torch.cuda.CUDAGraph], rounds: int, warm_up: float = 0.4) -> Times:
    """Times of replays on a busy GPU, in rounds of alternating order, after ``warm_up`` seconds."""
    once = sum(map(sum, bursts(graphs, 1, pause=0.0)))
    warm_rounds = math.ceil(warm_up / once)
    queue = [(n, g) for n in range(warm_rounds + rounds) for g in round_order(n, len(graphs))]
    events = [torch.cuda.Event(enable_timing=True) for _ in range(len(queue) + 1)]
    events[0].record()
    for (_, g), event in zip(queue, events[1:], strict=True):
        graphs[g].replay()
        event.record()
    torch.cuda.synchronize()
    times: Times = [[] for _ in graphs]
    for (n, g), first, last in zip(queue, events, events[1:], strict=False):
        if n >= warm_rounds:
            times[g].append(first.elapsed_time(last) / 1e3)
    return times


def bursts(graphs: list[torch.cuda.CUDAGraph], rounds: int, pause: float = PAUSE) -> Times:
    """Times of replays with a pause before each."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times: Times = [[] for _ in graphs]
    for number in range(rounds):
        for g in round_order(number, len(graphs)):
            time.sleep(pause)
            first.record()
            graphs[g].replay()
            last.record()
            torch.cuda.synchronize()
            times[g].append(first.elapsed_time(last) / 1e3)
    return times


# --- a row --------------------------------------------------------------------------------------


def measure(row: Row, config: str | None, sampling: Sampling) -> dict[str, Any]:
    """All figures of a row; with None the configuration is chosen."""
    prepare(row.type)
    plan = row_plan(row, config, "cuda")
    case = Case(row)
    count = max(calls(rough_seconds(case.torch_call), sampling.replay), len(case.sets))
    graphs = [graph(call, count) for call in (case.plan_call(plan), case.torch_call)]
    figures = _ratio(sustained(graphs, sampling.pairs, sampling.warm_up), count)
    if sampling.burst_pairs:
        figures["bursts"] = _ratio(bursts(graphs, sampling.burst_pairs), count)
    error, torch_error = (case.error_of(g.replay) for g in graphs)
    return {
        "config": str(plan.config), **compiled(plan), **_roofline(plan, row), **figures,
        "error": error, "torch_error": torch_error, "calls": count, "sets": len(case.sets),
    }  # fmt: skip


def _ratio(times: Times, count: int) -> dict[str, Any]:
    """Medians of both sides and of the ratios of their pairs; a replay has ``count`` calls."""
    ours, torch_times = ([t / count for t in side] for side in times)
    ratio = Ratio.of([t / o for o, t in zip(ours, torch_times, strict=True)])
    return {
        "us": 1e6 * statistics.median(ours), "torch_us": 1e6 * statistics.median(torch_times),
        "ratio": ratio.median, "low": ratio.low, "high": ratio.high,
        "all_us": [round(1e6 * t, 3) for t in ours],
        "all_torch_us": [round(1e6 * t, 3) for t in torch_times],
    }  # fmt: skip


def layouts(type_: str, size: int, config: str | None, rounds: int) -> dict[str, Any]:
    """Our times for the four layouts of a square product: shares of their mean, and spread."""
    prepare(type_)
    rows = [Row("layouts", size, size, size, type_, layout) for layout in LAYOUTS]
    cases = [Case(row) for row in rows]
    products = [c.plan_call(row_plan(c.row, config, "cuda")) for c in cases]
    count = calls(rough_seconds(products[0]))
    times = sustained([graph(call, count) for call in products], rounds)
    shares, wide = spread(times)
    return {"type": type_, "size": size, "shares": shares, "spread": wide}


def prepare(type_: str) -> None:
    """Free cached memory; f32 matrices are multiplied as tf32 by torch where they stand for it."""
    torch.cuda.empty_cache()
    torch.backends.cuda.matmul.allow_tf32 = type_ == "tf32"


def compiled(plan: tilewright.Plan) -> dict[str, Any]:
    """Registers, bytes of spills and the assembler's warnings of our kernel."""
    cubin = plan.device.assemble(plan.traced)
    warnings = sorted({line.strip() for line in cubin.log.splitlines() if WARNING.search(line)})
    return {"registers": cubin.registers, "spills": cubin.spills, "warnings": warnings}


def _roofline(plan: tilewright.Plan, row: Row) -> dict[str, Any]:
    """Operations per byte, and the device's peak rates in TFLOP/s and TB/s where they are known."""
    bound, problem = plan.roofline, plan.problem
    intensity = {"intensity": problem.flops / problem.bytes}
    if bound is None:
        return intensity
    ceiling, bandwidth = row.flops / bound.compute / 1e12, problem.bytes / bound.memory / 1e12
    return intensity | {"ceiling": ceiling, "bandwidth": bandwidth}
