"""Compare tilewright's GEMM with torch's on an NVIDIA GPU.

    python benchmarks/gemm.py                                 the table: all groups but surveys
    python benchmarks/gemm.py --rows headline,fp8 --json FILE --html FILE
    python benchmarks/gemm.py --rows layers,multiples-of-8,multiples-of-64 --quick
    python benchmarks/gemm.py --rows layers --tokens 1,16,4096 --quick
    python benchmarks/gemm.py --rows layers,multiples-of-64 --quick --match 2112x7168 --sample 30
    python benchmarks/gemm.py --rows random --random 50 --seed 1
    python benchmarks/gemm.py --shapes 4096x4096x4096,300x200x100 --types bf16,f16 --layouts tn,tt
    python benchmarks/gemm.py --shapes 4096x4096x4096 --configs chosen,128x128x64:2x2:3/2@8
    python benchmarks/gemm.py --json before.jsonl             then, with another version:
    python benchmarks/gemm.py --baseline before.jsonl
    python benchmarks/gemm.py --hosts                         only host time and first calls

The ratio of a row is torch's time over ours: the median over pairs of CUDA-graph replays, one of
each in immediate succession, with random normal data and inputs rotated past the L2. It is measured
twice: on a busy GPU, and in bursts with a pause before each replay. A row reaches its figure if the
lower 95 % bound is at most 0.01 below it. A row also shows registers, spills, the assembler's
warnings, and the largest |error| / (|A| |B|) against float64 on 64 rows that held NaN before.
Unsupported rows are marked; a row that fails prints its error, and the next one follows.

--quick measures a row in about a second: fewer and shorter replays, no bursts, and all kernels are
compiled first, in parallel. --baseline compares the ratios with those of an earlier run and lists
rows below 0.995 of them. Needs PyTorch.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from compare.baseline import baseline_lines, read_baseline
from compare.model_layers import TOKENS
from compare.page import page
from compare.precompile import compile_rows
from compare.report import (
    CHOSEN,
    JsonLog,
    hosts_lines,
    layouts_line,
    make_record,
    row_line,
    summary,
)
from compare.rows import ALL_GROUPS, GROUPS, HALVES, SQUARES, Row, rows_of
from compare.start import NAMES
from compare.stats import QUICK, Sampling
from compare.worker import CallFailure, Worker

from tilewright import gemm
from tilewright.run.tuning.median_interval import MIN_SAMPLES

ROW_SECONDS = 90.0  # time limit of a row


def main() -> int:
    options = parse_options()
    run = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    log, records = JsonLog(options.json, run), []
    with Worker() as worker:
        machine = start(worker, log, run)
        if machine is None:
            return 2
        if options.quick:
            precompile(options)
        for record in measure_rows(worker, options):
            print(row_line(record), flush=True)
            log.add("row", record)
            records.append(record)
        if "layouts" in options.groups:
            compare_layouts(worker, options, log)
        if options.hosts:
            measure_hosts(worker, log)
    print(summary(records))
    if options.baseline:
        print("\n".join(baseline_lines(records, options.baseline)))
    if options.html:
        options.html.write_text(page(records, machine), encoding="utf-8")
    return int(any(r["state"] in ("wrong", "failed") for r in records))


def start(worker: Worker, log: JsonLog, run: str) -> dict[str, Any] | None:
    """Import torch in the worker; print and log the machine; return None without a GPU."""
    machine = worker.call("compare.peers:machine", seconds=4 * ROW_SECONDS)
    if isinstance(machine, CallFailure):
        print(f"this benchmark needs an NVIDIA GPU and PyTorch: {machine}", file=sys.stderr)
        return None
    print(", ".join(f"{name} {value}" for name, value in machine.items()), run, flush=True)
    log.add("machine", machine)
    return machine


def precompile(options: argparse.Namespace) -> None:
    """Compile the kernels of all rows into the compile cache."""
    begin = time.perf_counter()
    results = compile_rows(list(product(options.row_list, options.configs)))
    kernels = sum(result for result in results if isinstance(result, int))
    failures = sum(isinstance(result, str) for result in results)
    seconds = time.perf_counter() - begin
    print(f"compiled {kernels} kernels in {seconds:.1f} s, {failures} rows failed", flush=True)


def measure_rows(worker: Worker, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The record of each row with each configuration."""
    for row, config in product(options.row_list, options.configs):
        figures = worker.call(
            "compare.peers:measure", row, config, options.sampling, seconds=ROW_SECONDS
        )
        if isinstance(figures, CallFailure):
            close_if_broken(worker)
        yield make_record(row, config, figures)


def close_if_broken(worker: Worker) -> None:
    """End the worker's process if its GPU context is destroyed."""
    if isinstance(worker.call("compare.peers:check_context", seconds=20), CallFailure):
        worker.close()


def compare_layouts(worker: Worker, options: argparse.Namespace, log: JsonLog) -> None:
    """Print our times of the four layouts, relative to each other."""
    pairs = options.sampling.pairs
    for type_, (size, _, _), config in product(HALVES, SQUARES, options.configs):
        function = "compare.peers:layouts"
        figures = worker.call(function, type_, size, config, pairs, seconds=ROW_SECONDS)
        print(layouts_line(figures), flush=True)
        if isinstance(figures, CallFailure):
            close_if_broken(worker)
        else:
            log.add("layouts", figures | {"requested": config or CHOSEN})


def measure_hosts(worker: Worker, log: JsonLog) -> None:
    """Print host time per call, and the time of a process's first calls."""
    costs = worker.call("compare.hosts:costs", seconds=ROW_SECONDS)
    starts = worker.call("compare.start:starts", seconds=4 * ROW_SECONDS)
    print("\n".join(hosts_lines(costs, starts, NAMES)), flush=True)
    for kind, figures in (("host costs", costs), ("starts", starts)):
        if not isinstance(figures, CallFailure):
            log.add(kind, figures)


# --- options ------------------------------------------------------------------------------------


def parse_options(words: list[str] | None = None) -> argparse.Namespace:
    """The options, with ``groups``, ``row_list``, ``configs`` (None: the heuristic's choice) and
    ``sampling``.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rows", type=groups_of, metavar="GROUPS", help=", ".join(ALL_GROUPS))
    add("--random", type=int, default=50, metavar="N",
        help="number of random shapes in a group (default: 50)")  # fmt: skip
    add("--seed", type=int, default=0, help="seed of the random shapes (default: 0)")
    add("--tokens", type=tokens_of, metavar="M,…",
        help=f"sizes M of layers (default: three of {','.join(map(str, TOKENS))} for each layer)"
    )  # fmt: skip
    add("--match", type=split_words, metavar="TEXT,…", help="of the groups, rows that contain one")
    add("--sample", type=int, metavar="N", help="of the groups, N evenly spaced rows, besides")
    add("--shapes", type=shapes_of, metavar="MxNxK,…", help="measure these shapes, not groups")
    add("--types", type=split_words, default=["bf16"], help="types of --shapes (default: bf16)")
    add("--layouts", type=split_words, default=["tn"], help="layouts of --shapes (default: tn)")
    add("--configs", type=configs_of, default=[None], help="chosen, table, or configurations")
    add("--pairs", type=pairs_of, metavar="N",
        help=f"pairs of replays per row (default: {Sampling().pairs}, quick {QUICK.pairs})"
    )  # fmt: skip
    add("--quick", action="store_true", help="fewer and shorter replays, no bursts")
    add("--baseline", type=baseline_of, metavar="JSON", help="log of the run to compare with")
    add("--hosts", action="store_true", help="host time; without --rows or --shapes, nothing else")
    add("--json", type=Path, metavar="FILE", help="append all figures to a log, a line each")
    add("--html", type=Path, metavar="FILE", help="write a roofline plot")
    options = parser.parse_args(words)
    options.sampling = QUICK if options.quick else Sampling()
    if options.pairs:
        options.sampling = options.sampling._replace(
            pairs=options.pairs, burst_pairs=0 if options.quick else options.pairs
        )
    alone = options.hosts or options.shapes
    options.groups = (list(GROUPS) if not alone else []) if options.rows is None else options.rows
    random = options.random, options.seed, options.tokens
    options.row_list = [row for group in options.groups for row in rows_of(group, *random)]
    if options.match is not None or options.sample is not None:
        options.row_list = selected(options.row_list, options.match or [], options.sample or 0)
    own = product(options.shapes or (), options.types, options.layouts)
    options.row_list += [Row("shapes", *shape, type_, layout) for shape, type_, layout in own]
    return options


def selected(rows: list[Row], texts: list[str], count: int) -> list[Row]:
    """The rows that contain one of the texts, and ``count`` evenly spaced ones of the others."""
    texts = [text.replace("×", "x") for text in texts]
    matching = [r for r in rows if any(text in str(r).replace("×", "x") for text in texts)]
    others = [row for row in rows if row not in matching]
    return matching + [others[i * len(others) // count] for i in range(min(count, len(others)))]


def split_words(text: str) -> list[str]:
    """The words of a list with commas."""
    return [word for word in text.split(",") if word]


def groups_of(text: str) -> list[str]:
    """Names of groups. Raises ArgumentTypeError for an unknown one, as the functions below do."""
    unknown = [word for word in split_words(text) if word not in ALL_GROUPS]
    if unknown:
        names = ", ".join(ALL_GROUPS)
        raise argparse.ArgumentTypeError(f"groups must be of {names}, got {unknown[0]!r}")
    return split_words(text)


def tokens_of(text: str) -> tuple[int, ...]:
    """Positive integers."""
    words = split_words(text)
    if not words or not all(word.isdecimal() and int(word) for word in words):
        raise argparse.ArgumentTypeError(f"tokens must be positive integers, got {text!r}")
    return tuple(map(int, words))


def shapes_of(text: str) -> list[tuple[int, int, int]]:
    """Shapes M×N×K."""
    shapes = [shape.split("x") for shape in split_words(text)]
    if any(len(sizes) != 3 or not all(map(str.isdecimal, sizes)) for sizes in shapes):
        raise argparse.ArgumentTypeError(f"a shape must be MxNxK, got {text!r}")
    return [(int(m), int(n), int(k)) for m, n, k in shapes]


def configs_of(text: str) -> list[str | None]:
    """Configurations; ``table`` expands to all of kernel ``multistage``, None is ``chosen``."""
    words = split_words(text)
    names = [n for word in words for n in (gemm.TABLE if word == "table" else [word])]
    return [None if name == CHOSEN else str(name) for name in names]


def pairs_of(text: str) -> int:
    """A number of pairs with a 95 % interval."""
    if not text.isdecimal() or int(text) < MIN_SAMPLES:
        raise argparse.ArgumentTypeError(f"pairs must be at least {MIN_SAMPLES}, got {text}")
    return int(text)


def baseline_of(text: str) -> dict[Any, dict[str, Any]]:
    """The measured rows of a log."""
    try:
        return read_baseline(Path(text))
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from error


if __name__ == "__main__":
    sys.exit(main())
