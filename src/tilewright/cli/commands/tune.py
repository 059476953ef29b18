"""``tilewright tune``: which configuration is fastest on this GPU, measured and kept, so that calls
with just such matrices take it; what was kept, written to a file or read from one.
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
from ..gemm_options import add_problem, add_sizes, plan_of
from ..output_files import write
from ..text_table import table

_SHOWN = 10  # configurations, at most
_STOPPED = 130


def add(commands: Any) -> None:
    """Add the command to the grammar."""
    command = commands.add_parser(
        "tune",
        help="measure which configuration is fastest here, and keep it",
        description="measure which configuration of a GEMM is fastest on this GPU, and keep it",
    )
    command.add_argument("sizes", nargs="*", type=int, metavar="M N K")
    _add_more(command)
    option = command.add_argument
    option("--shapes", metavar="FILE", help="several: lines of M N K and options; - is stdin")
    option("--budget", type=_seconds, default=60.0, metavar="SECONDS", help="for each (60)")
    option("--configs", metavar="LIST", help="only these, as tma:128x128x64:2p:5,…")
    option("--force", action="store_true", help="also where there is a result")
    option("--results", metavar="FILE", help="the database (default: the one that calls look into)")
    option("--export", metavar="FILE", help="write all results as JSON and end; - is stdout")
    option("--import", metavar="FILE", dest="given", help="keep a file's results and end")
    command.set_defaults(run=run)


def _add_more(to: argparse.ArgumentParser) -> None:
    add_problem(to)
    to.add_argument("--c", action="store_true", help="there is a C")
    to.add_argument("--batch", type=int, default=None, metavar="N", help="so many products at once")
    to.add_argument("--fast", action="store_true", help="fast sums of 8-bit floats")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"a number of seconds above 0, not {text!r}")
    return value


def run(given: argparse.Namespace) -> int:
    """Tune one problem after another; 130 where Ctrl-C ended it, 2 where one could not be. No more
    follow where a kernel's fault has taken the GPU.
    """
    path = given.results or tuning_database().path
    results = TuningDatabase(path, None)  # without the shipped results
    if given.export:
        write(given.export, to_json(results))
        return 0
    if results.path is None:
        raise ResultError("TILEWRIGHT_TUNED is off", hint="--results FILE says what to keep")
    if given.given:
        return _import(given.given, results)
    code = 0
    for case in list(cases(given)):
        try:
            plan = plan_of(case, case.sizes, with_c=case.c, batch=case.batch, fast_accum=case.fast)
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
    console.row(name, f"{len(found)} results, kept in {results.path}")
    return 0


def _text(name: str) -> str:
    """A file's text; ``-`` is standard input. Raises ProblemError where it is none."""
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ProblemError(f"{name} is no text in UTF-8: {error}") from None


def cases(given: argparse.Namespace) -> Iterator[argparse.Namespace]:
    """What is to be tuned: the command line's problem, or each line's of a file, which takes the
    command line's options where it has none. Raises ProblemError.
    """
    if bool(given.sizes) is bool(given.shapes) or len(given.sizes) not in (0, 3):
        raise ProblemError("tune takes M, N and K, or --shapes FILE")
    if given.sizes:
        yield given
        return
    file = given.shapes
    for number, line in enumerate(_text(file).splitlines(), 1):
        if words := _words(line, f"{file}:{number}"):
            parser = argparse.ArgumentParser(f"{file}:{number}", add_help=False)
            add_sizes(parser)
            _add_more(parser)
            yield parser.parse_args(words, argparse.Namespace(**vars(given) | {"sizes": None}))


def _words(line: str, where: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError as error:
        raise ProblemError(f"{where}: {error}") from None


def measure(bench: ConfigBenchmark, given: argparse.Namespace, results: TuningDatabase) -> str:
    """Tune a problem; why it ended."""
    problem, target = bench.problem, bench.device.target
    console.row("problem", str(problem))
    known = results.find(problem, target)
    if known is not None and not given.force:
        console.row("known", f"{_said(known)}; --force measures again")
        return "known"
    configs = candidates(problem, target)
    if given.configs:
        configs = [bench.heuristic, *map(gemm.parse, given.configs.split(","))]
    with bench, console.progress("") as watch:
        found = tune(bench, configs, given.budget, watch=watch)
    results.put(found.result(problem, target, _driver()))
    report(found, problem)
    return found.ended


def _driver() -> str:
    return "CUDA {}.{}".format(*cuda.version()) if cuda.available() else "none"


def _said(known: TuningResult) -> str:
    return f"{known.config}, {known.us:.4g} ± {known.margin:.2g} µs, measured {known.date[:10]}"


def report(found: TuningOutcome, problem: gemm.Problem) -> None:
    """The table, what was chosen, how much faster it is, and what was wrong."""
    gain, usual = found.gain, found.heuristic
    rows = [
        (str(s.config), f"{s.us.median:.2f}", f"{s.us.margin:.2f}", f"{s.ratio.median:.3f}",
         f"{problem.flops / s.us.median / 1e6:.1f}")
        for s in found.standings[:_SHOWN]
    ]  # fmt: skip
    table(("configuration", "µs", "±", "of the chosen's time", "TFLOP/s"), rows)
    count = f"{len(found.standings)} measured in {found.seconds:.1f} s"
    console.row("ended", f"{found.ended}; {count}, {len(found.failed)} failed")
    for config, why in found.failed:
        console.row("failed", f"{config}: {why.splitlines()[0]}", "yellow")
    if found.chosen.config == usual.config:
        console.row("chosen", f"{usual.config}, the heuristic's choice: none is surely faster")
        return
    console.row("chosen", str(found.chosen.config), "green")
    bounds = f"{gain.median:.3f} times ({gain.low:.3f} to {gain.high:.3f})"
    console.row("gain", f"{bounds} as fast as the heuristic's choice, {usual.config}")
