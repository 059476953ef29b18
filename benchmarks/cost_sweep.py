r"""Measure many different candidates of many problems, to fit the cost model of kernel ``tma``.

    python benchmarks/cost_sweep.py                        layers, random multiples of 8 and 64
    python benchmarks/cost_sweep.py --seed 8 --json FILE   other problems
    python benchmarks/cost_sweep.py --seconds 60           as many problems as fit into a minute
    python benchmarks/cost_sweep.py --sets narrow,skinny   e4m3 of few waves; few tokens
    python benchmarks/cost_sweep.py --sets layers,multiples-of-64 --seed 0 --random 50 \
        --best 1 --others 0                                choices for the rows of gemm.py, quickly
    python benchmarks/cost_sweep.py --file benchmarks/cost_candidates.txt --sets ""
    python benchmarks/cost_sweep.py --file benchmarks/cost_fresh.txt --sets "" --times-only \
        --listed-best 2                                earlier choices and those of now
    python benchmarks/cost_sweep.py --dry-run              what would be measured; no GPU

Of each problem the heuristic's best candidates and the best of other structures (clusters, k-tiles,
rows of a tile, schedules, split-K) are timed with torch, by interleaved replays of CUDA graphs on
a busy GPU, while other processes compile the kernels of the next ones. Problems of a file come
first, with the configurations that it lists after the choice; at the end they are timed with zeros,
too, and torch's kernels are named. A line of the log is an object: ``row``, ``torch`` microseconds,
``us`` by configuration (or why it has none, a wrong result among the reasons). The table has
torch's time over that of the heuristic's choice and of the best. ``cost_fit.py`` reads the log.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TextIO

from compare.precompile import compile_row
from compare.rows import SURVEYS, Row, rows_of
from compare.stats import Sampling, geomean
from compare.sweep import Numbers, candidates
from compare.sweep_problems import SETS, name_of, read_problems
from compare.worker import CallFailure, Worker
from gemm import close_if_broken

SAMPLING = Sampling(pairs=10, burst_pairs=0, warm_up=0.06, replay=5e-4)
PROCESSES = max(1, len(os.sched_getaffinity(0)) - 2)  # that compile during the measurement
PROBLEM_SECONDS, PEER_SECONDS = 45.0, 20.0  # time limits of a problem, and of its profile
SLOWER = 0.995  # of the time of an earlier choice
Sweep = list[tuple[Row, list[str]]]
Compiled = dict[object, Future[Any]]  # by ``kernel_key``


def main() -> int:
    begin = time.perf_counter()
    options = parse_options()
    sweep = problems(options)
    kernels = distinct_kernels(sweep)
    print(f"{len(sweep)} problems, {sum(len(c) for _, c in sweep)} times, {len(kernels)} kernels")
    if options.dry_run:
        for row, configs in sweep:
            print(row, *configs)
        return 0
    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as pool:
        compiled = {
            kernel: pool.submit(compile_row, row, config, "cuda")
            for kernel, (row, config) in kernels.items()
        }
        with Worker() as worker, options.json.open("w", encoding="utf-8") as log:
            measure(worker, sweep, compiled, log, begin + options.seconds)
            if options.file and not options.times_only:
                explain(worker, sweep[: len(read_problems(options.file))], log)
        pool.shutdown(cancel_futures=True)
    if options.file:
        print_earlier(read_problems(options.file), options.json)
    print(f"done after {time.perf_counter() - begin:.1f} s")
    return 0


def problems(options: argparse.Namespace) -> Sweep:
    """The problems of the file, then those of the sets in random order, so that a time limit leaves
    some of each.
    """
    listed = read_problems(options.file) if options.file else []
    first = Numbers(options.listed_best, 0)
    sweep = [
        (row, list(dict.fromkeys([*map(str, candidates(row, first)), *more])))
        for row, more in listed
    ]
    rows = [row for name in options.sets for row in rows_of_set(name, options)]
    random.Random(0).shuffle(rows)
    numbers = Numbers(options.best, options.others, options.rivals, options.extras)
    found = {name_of(row) for row, _ in listed}
    for row in rows:
        if name_of(row) not in found:
            found.add(name_of(row))
            sweep.append((row, list(map(str, candidates(row, numbers)))))
    return sweep


def rows_of_set(name: str, options: argparse.Namespace) -> Iterable[Row]:
    """The rows of a set, or of a survey of ``gemm.py``."""
    if name in SURVEYS:
        return rows_of(name, options.random, options.seed)
    return SETS[name](options.seed, options.random)


def kernel_key(row: Row, config: str) -> object:
    """What a kernel depends on: not on sizes, but on their alignment."""
    return row.type, row.fast, row.n % 8 == 0, config


def distinct_kernels(sweep: Sweep) -> dict[object, tuple[Row, str]]:
    """The kernels, each with a row, in the order in which they are needed."""
    found: dict[object, tuple[Row, str]] = {}
    for row, configs in sweep:
        for config in configs:
            found.setdefault(kernel_key(row, config), (row, config))
    return found


def measure(worker: Worker, sweep: Sweep, compiled: Compiled, log: TextIO, end: float) -> None:
    """Log the times of each problem when its kernels are compiled, until the time limit."""
    ratios = defaultdict[str, list[tuple[float, float]]](list)
    for number, (row, configs) in enumerate(sweep):
        if time.perf_counter() > end:
            print(f"time for {number} of {len(sweep)} problems")
            break
        wait([compiled[kernel_key(row, config)] for config in configs])
        arguments = row, configs, SAMPLING
        figures = worker.call("compare.sweep_times:measure", *arguments, seconds=PROBLEM_SECONDS)
        if isinstance(figures, CallFailure):
            print(row, figures, flush=True)
            close_if_broken(worker)
            continue
        us = dict(zip(configs, figures[1], strict=True))
        ratios[row.group].append(report(row, us, figures[0], log))
    for group, pairs in ratios.items():
        chosen, best = zip(*pairs, strict=True)
        figures = f"{geomean(chosen):.3f}, least {min(chosen):.3f}; best {geomean(best):.3f}"
        print(f"{group}: {len(pairs)} problems, torch / chosen {figures}, least {min(best):.3f}")


def report(
    row: Row, us: dict[str, float | str], torch_us: float, log: TextIO, kind: str = "us"
) -> tuple[float, float]:
    """Print and log a problem; torch's time over that of the choice (listed first) and of the best,
    each 1 where there is none.
    """
    rounded = {c: round(t, 3) if isinstance(t, float) else t for c, t in us.items()}
    write(log, {"row": name_of(row), "torch": round(torch_us, 3), kind: rounded})
    times = {config: t for config, t in us.items() if isinstance(t, float)}
    first, best = next(iter(us)), min(times, key=times.__getitem__, default="")
    ratios = torch_us / times.get(first, torch_us), torch_us / times.get(best, torch_us)
    failed = [f"{config}: {t}" for config, t in us.items() if isinstance(t, str)]
    print(
        f"{name_of(row):28} torch {torch_us:8.2f} {kind:5}   {first:32} {ratios[0]:.3f}   "
        f"{best:32} {ratios[1]:.3f}", *failed, sep="\n    ", flush=True,
    )  # fmt: skip
    return ratios


def explain(worker: Worker, listed: Sweep, log: TextIO) -> None:
    """Print and log, for the problems of the file, the times with matrices of zeros, which power
    does not limit, and the names of torch's kernels.
    """
    for row, configs in listed:
        arguments = row, configs, SAMPLING, True
        found = worker.call("compare.sweep_times:measure", *arguments, seconds=PROBLEM_SECONDS)
        if not isinstance(found, CallFailure):
            report(row, dict(zip(configs, found[1], strict=True)), found[0], log, "zeros")
    for row, _ in listed:
        names = worker.call("compare.sweep_times:peer_kernels", row, seconds=PEER_SECONDS)
        text = str(names) if isinstance(names, CallFailure) else names
        print(f"{name_of(row):28} {text}", flush=True)
        write(log, {"row": name_of(row), "kernels": text})


def print_earlier(listed: Sweep, path: Path) -> None:
    """Of problems with two configurations, the choices of two earlier versions: their times over
    that of the choice.
    """
    found = {name: us for name, _, us in read_log(path)}
    pairs = [(name_of(row), configs) for row, configs in listed if len(configs) == 2]
    for version, title in enumerate(("the first", "the second")):
        ratios = {}
        for name, configs in pairs:
            us = found.get(name, {})
            if configs[version] in us and configs[version] != next(iter(us)):
                ratios[name] = us[configs[version]] / next(iter(us.values()))
        if ratios:
            slower = sorted((ratio, name) for name, ratio in ratios.items() if ratio < SLOWER)
            print(
                f"{title} listed / chosen, where they differ: {len(ratios)} problems, "
                f"{geomean(ratios.values()):.3f}, least {min(ratios.values()):.3f}; {len(slower)} "
                f"under {SLOWER}:", *(f"{name.split()[1]} {ratio:.3f}" for ratio, name in slower),
            )  # fmt: skip


def write(log: TextIO, record: dict[str, Any]) -> None:
    print(json.dumps(record, separators=(",", ":")), file=log, flush=True)


def read_log(path: Path) -> Iterator[tuple[str, float, dict[str, float]]]:
    """The problems of a log: their names, torch's microseconds, those of each configuration."""
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if "us" in record:
            us = {c: t for c, t in record["us"].items() if isinstance(t, float)}
            yield record["row"], record["torch"], us


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--json", type=Path, default=Path("sweep.jsonl"), metavar="FILE", help="the log")
    names = ", ".join((*SETS, *SURVEYS))
    add("--sets", type=sets_of, default=["general"], help=f"of {names}; default: general")
    add("--file", type=Path, help="problems with configurations, which come first")
    add("--seed", type=int, default=7, help="of the problems (default: 7)")
    add("--random", type=int, default=32, metavar="N", help="random problems (default: 32)")
    add("--best", type=int, default=12, help="candidates of the heuristic (default: 12)")
    add("--others", type=int, default=16, help="candidates of other structures (default: 16)")
    add("--rivals", type=int, default=0, help="of the other coefficients (default: 0)")
    add("--extras", type=int, default=0, help="of tiles of 192 and 256 rows (default: 0)")
    add("--listed-best", type=int, default=1, metavar="N",
        help="candidates of the heuristic for problems of the file (default: 1)")  # fmt: skip
    add("--seconds", type=float, default=1e9, help="time limit (default: none)")
    add("--times-only", action="store_true", help="no zeros and no names of torch's kernels")
    add("--dry-run", action="store_true", help="print what would be measured")
    return parser.parse_args()


def sets_of(text: str) -> list[str]:
    """Names of sets. Raises ArgumentTypeError for an unknown one."""
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in SETS | SURVEYS:
            known = ", ".join((*SETS, *SURVEYS))
            raise argparse.ArgumentTypeError(f"sets must be of {known}, got {name!r}")
    return names


if __name__ == "__main__":
    sys.exit(main())
