"""``tilewright gemm``: random matrices, multiplied, checked against float64, and timed."""

from __future__ import annotations

import argparse
import hashlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import cuda, dtypes
from ...run import CudaDevice, Plan, VmDevice
from .. import console
from ..gemm_options import add_config, add_problem, add_sizes, plan_of, whole
from ..product_check import Case, verdict
from ..random_inputs import normal


def add(commands: Any) -> None:
    """Add the command to the grammar."""
    command = commands.add_parser(
        "gemm",
        help="multiply random matrices, check the result, report error and time",
        description="D = alpha A B + beta C of random matrices, checked against float64",
    )
    add_sizes(command)
    add_problem(command)
    add_config(command)
    command.add_argument("--alpha", type=_finite, default=1.0)
    command.add_argument("--beta", type=_finite, default=0.0, help="not 0: there is a C")
    command.add_argument("--seed", type=whole(0), default=0, help="of the random numbers (0)")
    command.add_argument("--repeat", type=whole(1), default=3, help="runs to time (default: 3)")
    command.set_defaults(run=run)


def _finite(text: str) -> float:
    """A factor whose product float64 can judge."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"a finite number, not {text!r}")
    return value


def run(given: argparse.Namespace) -> int:
    """Do it all; 1 where the result is wrong."""
    plan = plan_of(given, given.sizes, with_c=given.beta != 0)
    console.row("problem", _title(plan, given))
    console.row("device", _device(plan))
    console.row("kernel", f"{plan.traced.name}, configuration {plan.config}")
    case = _filled(plan, given)
    times = _multiply(plan, case, given.repeat)
    _report_time(plan, times)
    console.row("bits", f"{hashlib.sha256(case.d.tobytes()).hexdigest()[:16]} (SHA-256 of D)")
    return _report_check(plan, case)


# --- what --------------------------------------------------------------------------------------


def _title(plan: Plan, given: argparse.Namespace) -> str:
    c = f", alpha {given.alpha:g}" if given.alpha != 1 else ""
    return f"{plan.problem}{c}" + (f", beta {given.beta:g}" if given.beta else "")


def _device(plan: Plan) -> str:
    on = plan.device
    if isinstance(on, CudaDevice):
        return f"{on.name}, {on.gpu.name} ({on.gpu.arch})"
    like = f"{on.target.name} ({on.target.target})"
    why = f"; {cuda.why_not()}" if cuda.why_not() else ""
    return f"{on.name}, the virtual machine on this CPU, as {like}{why}"


def _filled(plan: Plan, given: argparse.Namespace) -> Case:
    """Normal random numbers, the same for each device and layout."""
    rng = np.random.default_rng(given.seed)
    m, n, k = given.sizes

    def matrix(rows: int, columns: int, type_: str, row_major: bool = True) -> Any:
        t = dtypes.dtype("f32" if type_ == "tf32" else type_)
        numbers = normal(rng, (rows, columns), t)
        return numbers.astype(t.numpy, order="C" if row_major else "F")

    p = plan.problem
    a, b = matrix(m, k, p.a, p.a_major == "k"), matrix(k, n, p.b, p.b_major == "n")
    c = matrix(m, n, p.d) if p.with_c else None
    d = np.empty((m, n), dtypes.dtype(p.d).numpy)
    return Case(a, b, d, c, given.alpha, given.beta, p.a == "tf32")


# --- how fast ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Times:
    """Seconds of the first run, with compiling, and of each run after it."""

    first: float
    runs: tuple[float, ...]


def _multiply(plan: Plan, case: Case, repeat: int) -> Times:
    if not case.d.size:
        return Times(0.0, (0.0,))
    scales = {"alpha": case.alpha, "beta": case.beta}
    with plan.upload(case.a, case.b, c=case.c, out=case.d, **scales) as there, _watched(plan):
        first = _seconds(lambda: (there.start(), plan.device.wait()))
        if isinstance(plan.device, CudaDevice):
            timing = cuda.time_us(there.start, owner=plan.device.gpu, replays=repeat)
            runs = tuple(us * 1e-6 for us in timing.samples)
        else:
            runs = tuple(_seconds(there.start) for _ in range(repeat))
        there.download()
    return Times(first, runs)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@contextmanager
def _watched(plan: Plan) -> Iterator[None]:
    """Show the progress of the virtual machine."""
    on = plan.device
    if not isinstance(on, VmDevice):
        yield
        return
    with console.progress("tiles") as update:
        on.watch = update
        try:
            yield
        finally:
            on.watch = None


def _report_time(plan: Plan, times: Times) -> None:
    best = min(times.runs)
    runs = "run" if len(times.runs) == 1 else f"best of {len(times.runs)} runs"
    first = f"the first, with compiling, {console.seconds(times.first)}"
    console.row("time", f"{console.seconds(best)} ({runs}; {first})")
    if best > 0:
        rate = plan.problem.flops / best / 1e9
        rated = f"{rate / 1e3:.4g} TFLOP/s" if rate >= 100 else f"{rate:.3g} GFLOP/s"
        floor = plan.roofline if isinstance(plan.device, CudaDevice) else None
        share = f", {floor.seconds / best:.0%} of the roofline" if floor else ""
        console.row("rate", f"{rated}{share}")


# --- how right ---------------------------------------------------------------------------------


def _report_check(plan: Plan, case: Case) -> int:
    found = verdict(case, plan.problem.d, np.random.default_rng(1))
    console.row("checked", f"{found.looked_at}, against float64")
    console.row("error", f"{found.error:.3g} at most, {found.bound:.3g} allowed there")
    if found.right:
        console.row("result", f"right (at most {found.share:.0%} of what is allowed)", "green")
        return 0
    row, column = found.where
    where = f"row {row}, column {column}"
    console.row("result", f"WRONG: {found.share:.3g} times what is allowed at {where}", "bold red")
    return 1
