"""``tilewright gemm``: multiply random matrices, check the result against float64, and time it."""

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
from ..gemm_options import (
    add_config_option,
    add_problem_options,
    add_size_arguments,
    int_at_least,
    plan_from_options,
)
from ..product_check import GemmOperands, check_product
from ..random_inputs import normal


def add(commands: Any) -> None:
    """Add the subcommand to the parser."""
    command = commands.add_parser(
        "gemm",
        help="multiply random matrices, check the result, report error and time",
        description="D = alpha A B + beta C of random matrices, checked against float64",
    )
    add_size_arguments(command)
    add_problem_options(command)
    add_config_option(command)
    command.add_argument("--alpha", type=_finite, default=1.0)
    command.add_argument("--beta", type=_finite, default=0.0, help="if not 0, C is an operand")
    command.add_argument(
        "--seed", type=int_at_least(0), default=0, help="seed of the random numbers (0)"
    )
    command.add_argument(
        "--repeat", type=int_at_least(1), default=3, help="number of timed runs (default: 3)"
    )
    command.set_defaults(run=run)


def _finite(text: str) -> float:
    """An argparse type: a finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be a finite number, got {text!r}")
    return value


def run(options: argparse.Namespace) -> int:
    """Multiply, check and time; 1 if the result is wrong."""
    plan = plan_from_options(options, options.sizes, with_c=options.beta != 0)
    console.row("problem", _title(plan, options))
    console.row("device", _device(plan))
    console.row("kernel", f"{plan.traced.name}, configuration {plan.config}")
    operands = _random_operands(plan, options)
    times = _multiply(plan, operands, options.repeat)
    _report_time(plan, times)
    console.row("bits", f"{hashlib.sha256(operands.d.tobytes()).hexdigest()[:16]} (SHA-256 of D)")
    return _report_check(plan, operands)


# --- problem and operands ----------------------------------------------------------------------


def _title(plan: Plan, options: argparse.Namespace) -> str:
    c = f", alpha {options.alpha:g}" if options.alpha != 1 else ""
    return f"{plan.problem}{c}" + (f", beta {options.beta:g}" if options.beta else "")


def _device(plan: Plan) -> str:
    on = plan.device
    if isinstance(on, CudaDevice):
        return f"{on.name}, {on.gpu.name} ({on.gpu.arch})"
    like = f"{on.target.name} ({on.target.target})"
    why = f"; {cuda.why_not()}" if cuda.why_not() else ""
    return f"{on.name}, the virtual machine on this CPU, as {like}{why}"


def _random_operands(plan: Plan, options: argparse.Namespace) -> GemmOperands:
    """Normally distributed operands, the same for each device and layout."""
    rng = np.random.default_rng(options.seed)
    m, n, k = options.sizes

    def matrix(rows: int, columns: int, type_: str, row_major: bool = True) -> Any:
        t = dtypes.dtype("f32" if type_ == "tf32" else type_)
        numbers = normal(rng, (rows, columns), t)
        return numbers.astype(t.numpy, order="C" if row_major else "F")

    p = plan.problem
    a, b = matrix(m, k, p.a, p.a_major == "k"), matrix(k, n, p.b, p.b_major == "n")
    c = matrix(m, n, p.d) if p.with_c else None
    d = np.empty((m, n), dtypes.dtype(p.d).numpy)
    return GemmOperands(a, b, d, c, options.alpha, options.beta, p.a == "tf32")


# --- timing ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Times:
    """Seconds of the first run, including compilation, and of each later run."""

    first: float
    runs: tuple[float, ...]


def _multiply(plan: Plan, operands: GemmOperands, repeat: int) -> Times:
    if not operands.d.size:
        return Times(0.0, (0.0,))
    scales = {"alpha": operands.alpha, "beta": operands.beta}
    with (
        plan.upload(operands.a, operands.b, c=operands.c, out=operands.d, **scales) as launch,
        _progress(plan),
    ):
        first = _seconds(launch.start, plan.device.wait)
        if isinstance(plan.device, CudaDevice):
            timing = cuda.time_us(launch.start, owner=plan.device.gpu, replays=repeat)
            runs = tuple(us * 1e-6 for us in timing.samples)
        else:
            runs = tuple(_seconds(launch.start) for _ in range(repeat))
        launch.download()
    return Times(first, runs)


def _seconds(*work: Callable[[], object]) -> float:
    start = time.perf_counter()
    for step in work:
        step()
    return time.perf_counter() - start


@contextmanager
def _progress(plan: Plan) -> Iterator[None]:
    """Show a progress bar for runs of the virtual machine."""
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
    first = f"the first, with compiling, {console.format_seconds(times.first)}"
    console.row("time", f"{console.format_seconds(best)} ({runs}; {first})")
    if best > 0:
        rate = plan.problem.flops / best / 1e9
        rated = f"{rate / 1e3:.4g} TFLOP/s" if rate >= 100 else f"{rate:.3g} GFLOP/s"
        roofline = plan.roofline if isinstance(plan.device, CudaDevice) else None
        share = f", {roofline.seconds / best:.0%} of the roofline" if roofline else ""
        console.row("rate", f"{rated}{share}")


# --- check -------------------------------------------------------------------------------------


def _report_check(plan: Plan, operands: GemmOperands) -> int:
    result = check_product(operands, plan.problem.d, np.random.default_rng(1))
    console.row("checked", f"{result.checked_elements}, against float64")
    console.row("error", f"{result.error:.3g} at most, {result.bound:.3g} allowed there")
    if result.passed:
        console.row(
            "result", f"right (at most {result.worst_ratio:.0%} of what is allowed)", "green"
        )
        return 0
    row, column = result.location
    where = f"row {row}, column {column}"
    console.row(
        "result", f"WRONG: {result.worst_ratio:.3g} times what is allowed at {where}", "bold red"
    )
    return 1
