"""On the GPU: a row's product by us and by torch, in one process, turn by turn.

Each side is a CUDA graph of so many calls that the host does not count. A chip that has rested runs
at its highest clock until, within some 0.1 s, power limits it; who is faster may depend on that. So
there are two measurements: sustained, where after a while the replays of both are queued one behind
the other with nothing between them but events; and in bursts, a rest before each. Inputs are random
and rotate past the L2, and what is checked is what a replay has written.
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

from .rows import LAYOUTS, Row
from .stats import Ratio, calls, spread, turn

Times = list[list[float]]  # seconds of each graph's calls, round by round

TYPES = {
    "f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32, "f32": torch.float32,
    "f64": torch.float64, "e4m3": torch.float8_e4m3fn, "s8": torch.int8, "s32": torch.int32,
}  # fmt: skip
SETS = 256  # of inputs, at most
WARM = 0.4  # seconds of replays before those that count: then the clock is what power allows
REST = 0.01  # seconds before a burst
SAMPLED = 64  # rows of D that are checked, the first and the last among them
COMPLAINT = re.compile(r"warning|performance loss|serializ", re.I)


def about() -> dict[str, Any]:
    """The machine and the versions."""
    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "sms": properties.multi_processor_count,
        "torch": torch.__version__,
        "driver": "CUDA {}.{}".format(*driver.version()),
        "tilewright": tilewright.__version__,
        "python": platform.python_version(),
    }


def alive() -> None:
    """Raises where an earlier kernel has broken the GPU's context."""
    torch.cuda.synchronize()
    torch.ones(1, device="cuda").item()


class Operands(NamedTuple):
    a: torch.Tensor
    b: torch.Tensor
    d: torch.Tensor


class Case:
    """A row's operands on the GPU, as many sets as three L2 caches hold."""

    def __init__(self, row: Row) -> None:
        torch.manual_seed(0)
        self.row, self.one = row, torch.ones((), device="cuda")
        first = self._operands()
        room = 3 * torch.cuda.get_device_properties(0).L2_cache_size
        count = min(SETS, room // sum(x.nbytes for x in first) + 1)
        self.sets = [first, *(self._operands() for _ in range(count - 1))]
        ends = torch.tensor([0, row.m - 1], device="cuda")
        inner = torch.randint(row.m, (SAMPLED - 2,), device="cuda")
        self.sampled = torch.cat([ends, inner]).unique()

    def _operands(self) -> Operands:
        row = self.row
        a = _random((row.m, row.k), row.type, row.layout[0])
        b = _random((row.k, row.n), row.type, row.layout[1])
        return Operands(a, b, torch.empty((row.m, row.n), dtype=TYPES[row.result], device="cuda"))

    def ours(self, plan: tilewright.Plan) -> Callable[[int], object]:
        return lambda i: plan.run(self[i].a, self[i].b, out=self[i].d)

    def theirs(self, i: int) -> None:
        """What a user would call instead."""
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

    def error_of(self, work: Callable[[], object]) -> float:
        """The largest |error| / (|A| |B|) in the first and the last D that ``work`` writes over
        NaN; infinite where it does not.
        """
        for s in self.sets:
            s.d.fill_(math.nan if s.d.is_floating_point() else torch.iinfo(s.d.dtype).min)
        work()
        return max(self._error(s) for s in {id(s): s for s in (self[0], self[-1])}.values())

    def _error(self, s: Operands) -> float:
        a, b = s.a.double()[self.sampled], s.b.double()
        error = (s.d.double()[self.sampled] - a @ b).abs() / (a.abs() @ b.abs())
        return float(error.nan_to_num(nan=math.inf, posinf=math.inf).max())


def _random(shape: tuple[int, int], type_: str, letter: str) -> torch.Tensor:
    """Row-major for ``t``, column-major for ``n``."""
    if letter == "n":
        return _random(shape[::-1], type_, "t").t()
    if type_ == "s8":
        return torch.randint(-128, 128, shape, dtype=torch.int8, device="cuda")
    wide = torch.float64 if type_ == "f64" else torch.float32
    return torch.randn(shape, dtype=wide, device="cuda").to(TYPES[type_])


# --- in turn ------------------------------------------------------------------------------------


def graph(call: Callable[[int], object], count: int) -> torch.cuda.CUDAGraph:
    """``count`` calls, captured."""
    call(0)
    torch.cuda.synchronize()
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        for i in range(count):
            call(i)
    return made


def roughly(call: Callable[[int], object], count: int = 5) -> float:
    """Seconds that a call takes with the host's part in it."""
    call(0)
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for i in range(count):
        call(i)
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last) / 1e3 / count


def sustained(graphs: list[torch.cuda.CUDAGraph], rounds: int) -> Times:
    """Seconds that each replay took, ``[graph][round]``, the order reversed from round to round,
    when the chip has been busy with them for a while.
    """
    once = sum(map(sum, bursts(graphs, 1, rest=0.0)))
    warm = math.ceil(WARM / once)
    queue = [(n, who) for n in range(warm + rounds) for who in turn(n, len(graphs))]
    events = [torch.cuda.Event(enable_timing=True) for _ in range(len(queue) + 1)]
    events[0].record()
    for (_, who), event in zip(queue, events[1:], strict=True):
        graphs[who].replay()
        event.record()
    torch.cuda.synchronize()
    times: Times = [[] for _ in graphs]
    for (n, who), first, last in zip(queue, events, events[1:], strict=False):
        if n >= warm:
            times[who].append(first.elapsed_time(last) / 1e3)
    return times


def bursts(graphs: list[torch.cuda.CUDAGraph], rounds: int, rest: float = REST) -> Times:
    """The same where the chip rests before each replay."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times: Times = [[] for _ in graphs]
    for number in range(rounds):
        for who in turn(number, len(graphs)):
            time.sleep(rest)
            first.record()
            graphs[who].replay()
            last.record()
            torch.cuda.synchronize()
            times[who].append(first.elapsed_time(last) / 1e3)
    return times


# --- a row --------------------------------------------------------------------------------------


def planned(row: Row, config: str | None) -> tilewright.Plan:
    """The row's plan. DtypeError where its types are not there yet."""
    fast = {"fast_accum": True} if row.fast else {}
    return tilewright.plan(
        row.m, row.n, row.k, dtype=row.type, layout=row.layout, out_dtype=row.result,
        device="cuda", config=config, **fast,
    )  # fmt: skip


def measure(row: Row, config: str | None, pairs: int) -> dict[str, Any]:
    """All figures of a row; ``config`` None is the one that is chosen for it."""
    _prepare(row.type)
    plan = planned(row, config)
    case = Case(row)
    both = case.ours(plan), case.theirs
    count = max(calls(roughly(case.theirs)), len(case.sets))
    graphs = [graph(call, count) for call in both]
    found, rested = (_ratio(way(graphs, pairs), count) for way in (sustained, bursts))
    error, their_error = (case.error_of(g.replay) for g in graphs)
    return {
        "config": str(plan.config), **compiled(plan), **_floor(plan, row), **found,
        "bursts": rested, "error": error, "torch_error": their_error,
        "calls": count, "sets": len(case.sets),
    }  # fmt: skip


def _ratio(times: Times, count: int) -> dict[str, Any]:
    """Of ours and torch's replays of so many calls, pair by pair."""
    ours, theirs = ([t / count for t in own] for own in times)
    ratio = Ratio.of([t / o for o, t in zip(ours, theirs, strict=True)])
    return {
        "us": 1e6 * statistics.median(ours), "torch_us": 1e6 * statistics.median(theirs),
        "ratio": ratio.median, "low": ratio.low, "high": ratio.high,
        "all_us": [round(1e6 * t, 3) for t in ours],
        "all_torch_us": [round(1e6 * t, 3) for t in theirs],
    }  # fmt: skip


def layouts(type_: str, size: int, config: str | None, rounds: int) -> dict[str, Any]:
    """Our times for the four layouts of a square product, all in turn: shares and spread."""
    _prepare(type_)
    rows = [Row("layouts", size, size, size, type_, layout) for layout in LAYOUTS]
    cases = [Case(row) for row in rows]
    works = [c.ours(planned(c.row, config)) for c in cases]
    count = calls(roughly(works[0]))
    times = sustained([graph(work, count) for work in works], rounds)
    shares, wide = spread(times)
    return {"type": type_, "size": size, "shares": shares, "spread": wide}


def _prepare(type_: str) -> None:
    torch.cuda.empty_cache()
    torch.backends.cuda.matmul.allow_tf32 = type_ == "tf32"


def compiled(plan: tilewright.Plan) -> dict[str, Any]:
    """What the assembler says of our kernel."""
    cubin = plan.device.assemble(plan.traced)
    warnings = sorted({line.strip() for line in cubin.log.splitlines() if COMPLAINT.search(line)})
    return {"registers": cubin.registers, "spills": cubin.spills, "warnings": warnings}


def _floor(plan: tilewright.Plan, row: Row) -> dict[str, Any]:
    """Operations a byte, and the device's ceilings in TFLOP/s and TB/s where they are known."""
    floor, problem = plan.roofline, plan.problem
    found = {"intensity": problem.flops / problem.bytes}
    if floor is None:
        return found
    ceiling, bandwidth = row.flops / floor.compute / 1e12, problem.bytes / floor.memory / 1e12
    return found | {"ceiling": ceiling, "bandwidth": bandwidth}
