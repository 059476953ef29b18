"""Measure many different candidates of many problems, to fit the cost model of kernel ``tma``.

    python benchmarks/cost_sweep.py --csv FILE               layers and random multiples of 8 and 64
    python benchmarks/cost_sweep.py --csv FILE --seed 8      other problems
    python benchmarks/cost_sweep.py --csv FILE --seconds 60  as many problems as fit into a minute
    python benchmarks/cost_sweep.py --dry-run                what would be measured; no GPU

Of each problem the heuristic's best candidates and the best of other structures (clusters, k-tiles,
rows of a tile, schedules, split-K) are timed with torch, by interleaved replays of CUDA graphs on
a busy GPU, while other processes compile the kernels of the next ones. A line of the file has M, N,
K, the type, torch's microseconds, a configuration, and its microseconds.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from compare.precompile import compile_row
from compare.rows import Row
from compare.stats import Sampling
from compare.sweep import candidates, shapes
from compare.worker import CallFailure, Worker
from gemm import ROW_SECONDS, close_if_broken

SAMPLING = Sampling(pairs=10, burst_pairs=0, warm_up=0.06, replay=5e-4)
PROCESSES = max(1, len(os.sched_getaffinity(0)) - 2)  # that compile during the measurement
Sweep = list[tuple[Row, list[str]]]
Compiled = dict[object, Future[Any]]  # by ``kernel_key``


def main() -> int:
    options = parse_options()
    begin = time.perf_counter()
    rows = list(shapes(options.seed, options.random))
    random.Random(0).shuffle(rows)  # so that a time limit leaves some of each group
    sweep = [(row, [str(c) for c in candidates(row, options.best, options.others)]) for row in rows]
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
        measure(sweep, compiled, options.csv, begin + options.seconds)
        pool.shutdown(cancel_futures=True)
    print(f"done after {time.perf_counter() - begin:.1f} s")
    return 0


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


def measure(sweep: Sweep, compiled: Compiled, path: Path, end: float) -> None:
    """Write the times of each problem to the file when its kernels are compiled, until ``end``."""
    with Worker() as worker, path.open("w", encoding="utf-8") as file:
        for number, (row, configs) in enumerate(sweep):
            if time.perf_counter() > end:
                print(f"time for {number} of {len(sweep)} problems")
                break
            wait([compiled[kernel_key(row, config)] for config in configs])
            arguments = row, configs, SAMPLING
            figures = worker.call("compare.sweep_times:measure", *arguments, seconds=ROW_SECONDS)
            if isinstance(figures, CallFailure):
                print(row, figures, flush=True)
                close_if_broken(worker)
                continue
            torch_us, us = figures
            problem = f"{row.m},{row.n},{row.k},{row.type}{'+' * row.fast},{torch_us:.3f}"
            for config, each in zip(configs, us, strict=True):
                value = f"{each:.3f}" if isinstance(each, float) else each.replace(",", ";")
                file.write(f"{problem},{config},{value}\n")
            file.flush()


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--csv", type=Path, default=Path("sweep.csv"), metavar="FILE")
    add("--seed", type=int, default=7, help="of the problems (default: 7)")
    add("--random", type=int, default=32, metavar="N", help="random multiples of 8 (default: 32)")
    add("--best", type=int, default=12, help="candidates of the heuristic (default: 12)")
    add("--others", type=int, default=16, help="candidates of other structures (default: 16)")
    add("--seconds", type=float, default=1e9, help="time limit (default: none)")
    add("--dry-run", action="store_true", help="print what would be measured")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
