"""``tilewright tune``: measure the fastest configuration of a GEMM on this GPU and store it, so
that calls with the same problem use it; export and import stored results.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ... import cuda, gemm
from ...errors import CudaError, ProblemError, ResultError, TilewrightError
from ...run.tuning.autotuner import TuningOutcome, tune
from ...run.tuning.config_benchmark import ConfigBenchmark
from ...run.tuning.search_space import candidates
from ...run.tuning.tuning_database import TuningDatabase, tuning_database
from ...run.tuning.tuning_result import TuningResult, from_json, to_json
from .. import console
from ..gemm_options import (
    add_problem_options,
    add_size_arguments,
    add_sparse_option,
    plan_from_options,
)
from ..output_files import write
from ..text_table import table

_MAX_ROWS = 10  # of the printed table
_STOPPED = 130


def add(commands: Any) -> None:
    """Add the subcommand to the parser."""
    command = commands.add_parser(
        "tune",
        help="measure the fastest configuration on this GPU and store it",
        description="measure the fastest configuration of a GEMM on this GPU and store it",
    )
    command.add_argument("sizes", nargs="*", type=int, metavar="M N K")
    _add_problem_variants(command)
    option = command.add_argument
    option(
        "--shapes",
        metavar="FILE",
        help="file of problems, one a line: M N K and options; - is stdin",
    )
    option(
        "--budget",
        type=_seconds,
        default=60.0,
        metavar="SECONDS",
        help="time for each problem (60)",
    )
    option("--configs", metavar="LIST", help="only these, for example tma:128x128x64:2p:5,…")
    option("--force", action="store_true", help="measure again if a result exists")
    option("--results", metavar="FILE", help="the database (default: the one that calls use)")
    option("--export", metavar="FILE", help="write all results as JSON and exit; - is stdout")
    option(
        "--import", metavar="FILE", dest="import_file", help="store the results of a file and exit"
    )
    command.set_defaults(run=run)


def _add_problem_variants(to: argparse.ArgumentParser) -> None:
    add_problem_options(to)
    add_sparse_option(to)
    to.add_argument("--c", action="store_true", help="C is an operand")
    to.add_argument("--batch", type=int, default=None, metavar="N", help="batch size")
    to.add_argument("--fast", action="store_true", help="fast accumulation of 8-bit floats")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number of seconds, got {text!r}")
    return value


def run(options: argparse.Namespace) -> int:
    """Tune the problems in order. 130 after Ctrl-C, 2 if a problem failed; a fatal CUDA error ends
    the command.
    """
    path = options.results or tuning_database().path
    results = TuningDatabase(path, None)  # without the shipped results
    if options.export:
        write(options.export, to_json(results))
        return 0
    if results.path is None:
        raise ResultError("TILEWRIGHT_TUNED is off", hint="set the database with --results FILE")
    if options.import_file:
        return _import(options.import_file, results)
    code = 0
    for case in list(tuning_problems(options)):
        try:
            plan = plan_from_options(
                case, case.sizes, with_c=case.c, batch=case.batch, fast_accum=case.fast
            )
            assert plan.request is not None  # it was planned from sizes
            ended = measure(ConfigBenchmark(plan.request, plan.device), case, results)
        except TilewrightError as error:
            console.error(str(error))
            if isinstance(error, CudaError) and error.fatal:
                return 2
            code = 2
            continue
        if ended == "stopped":
            return _STOPPED
    return code


def _import(name: str, results: TuningDatabase) -> int:
    found = from_json(_text(name), name)
    if not results.put(*found):
        return 2
    console.row(name, f"{len(found)} results, stored in {results.path}")
    return 0


def _text(name: str) -> str:
    """The text of a file; ``-`` is standard input. Raises ProblemError if it is not UTF-8."""
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ProblemError(f"{name} must be UTF-8 text: {error}") from None


def tuning_problems(options: argparse.Namespace) -> Iterator[argparse.Namespace]:
    """The problems to tune: that of the command line, or one for each line of a file. A line
    inherits the options of the command line. Raises ProblemError.
    """
    if bool(options.sizes) is bool(options.shapes) or len(options.sizes) not in (0, 3):
        raise ProblemError("tune takes either M, N and K, or --shapes FILE")
    if options.sizes:
        yield options
        return
    file = options.shapes
    for number, line in enumerate(_text(file).splitlines(), 1):
        if words := _split_line(line, f"{file}:{number}"):
            parser = argparse.ArgumentParser(f"{file}:{number}", add_help=False)
            add_size_arguments(parser)
            _add_problem_variants(parser)
            yield parser.parse_args(words, argparse.Namespace(**vars(options) | {"sizes": None}))


def _split_line(line: str, where: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError as error:
        raise ProblemError(f"{where}: {error}") from None


def measure(bench: ConfigBenchmark, options: argparse.Namespace, results: TuningDatabase) -> str:
    """Tune a problem and return why the search ended."""
    problem, target = bench.problem, bench.device.target
    console.row("problem", str(problem))
    known = results.find(problem, target)
    if known is not None and not options.force:
        console.row("known", f"{_result_text(known)}; --force measures again")
        return "known"
    configs = candidates(problem, target)
    if options.configs:
        given = (gemm.complete(x, problem, target) for x in options.configs.split(","))
        configs = [bench.heuristic, *given]
    with bench, console.progress("") as watch:
        found = tune(bench, configs, options.budget, watch=watch)
    results.put(found.result(problem, target, _driver()))
    report(found, problem)
    return found.ended


def _driver() -> str:
    return "CUDA {}.{}".format(*cuda.version()) if cuda.available() else "none"


def _result_text(known: TuningResult) -> str:
    return f"{known.config}, {known.us:.4g} ± {known.margin:.2g} µs, measured {known.date[:10]}"


def report(found: TuningOutcome, problem: gemm.Problem) -> None:
    """Print the candidates, the failures, the chosen configuration and its speedup."""
    gain, usual = found.gain, found.heuristic
    rows = [
        (str(s.config), f"{s.us.median:.2f}", f"{s.us.margin:.2f}", f"{s.ratio.median:.3f}",
         f"{problem.flops / s.us.median / 1e6:.1f}")
        for s in found.timings[:_MAX_ROWS]
    ]  # fmt: skip
    table(("configuration", "µs", "±", "of the chosen's time", "TFLOP/s"), rows)
    count = f"{len(found.timings)} measured in {found.seconds:.1f} s"
    console.row("ended", f"{found.ended}; {count}, {len(found.failed)} failed")
    for config, why in found.failed:
        console.row("failed", f"{config}: {why.splitlines()[0]}", "yellow")
    if found.chosen.config == usual.config:
        console.row(
            "chosen", f"{usual.config}, the heuristic's choice: none is significantly faster"
        )
        return
    console.row("chosen", str(found.chosen.config), "green")
    bounds = f"{gain.median:.3f} times ({gain.low:.3f} to {gain.high:.3f})"
    console.row("gain", f"{bounds} as fast as the heuristic's choice, {usual.config}")
