"""Compare products with a fused epilogue with our plain product and with torch.

    python benchmarks/fused_epilogues.py                          all epilogues, all shapes
    python benchmarks/fused_epilogues.py --vm --json FILE         also compares bits with the VM
    python benchmarks/fused_epilogues.py --epilogues swiglu --shapes 4096x14336x4096
    python benchmarks/fused_epilogues.py --candidates 10 --epilogues silu_residual
    python benchmarks/fused_epilogues.py --dry-run                only plans: no GPU, no torch
    python benchmarks/fused_epilogues.py --dry-run --assemble     also registers and spills

A line of the Markdown table has median times of CUDA-graph replays: of the fused kernel, of our
product without an epilogue, of torch's product, and of the whole computation by torch, eager,
compiled, and compiled with max-autotune. Replays are interleaved; inputs are random and rotate past
the L2. Ratios are of consecutive replays, with their 95 % bounds, on a busy GPU and in bursts. The
result is compared with f64 on 64 rows that held NaN before; --vm compares a few tiles of the same
configuration with the virtual machine's bits.

--candidates measures the best configurations of the ranking, without torch; the cost model of
epilogues is fitted to these times. A row that fails prints its error, and the next one follows.
Needs an NVIDIA GPU and PyTorch, except for --dry-run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compare.epilogue_report import (
    CANDIDATE_HEAD,
    HEAD,
    candidate_line,
    make_record,
    plan_lines,
    row_line,
)
from compare.epilogue_rows import (
    KINDS,
    SHAPES,
    EpilogueRow,
    candidates,
    fused_plan,
    plain_plan,
    rows,
)
from compare.report import JsonLog
from compare.stats import Sampling
from compare.worker import CallFailure, Worker
from gemm import ROW_SECONDS, close_if_broken, pairs_of, shapes_of, split_words, start

from tilewright import cuda

MODES = ("eager", "compile", "max-autotune")
AUTOTUNE_SECONDS = 240.0  # time limit of max-autotune for a row


def main(words: list[str] | None = None) -> int:
    options = parse_options(words)
    row_list = rows(options.epilogues, options.shapes)
    if options.dry_run:
        for row in row_list:
            dry_run(row, options)
        return 0
    run = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    log, states = JsonLog(options.json, run), list[str]()
    with Worker() as worker:
        if start(worker, log, run) is None:
            return 2
        measure_all = measure_candidates if options.candidates else measure_rows
        for record, line in measure_all(worker, options, row_list):
            print(line, flush=True)
            log.add("epilogue", record)
            states.append(record["state"])
    return int(any(state != "measured" for state in states))


def dry_run(row: EpilogueRow, options: argparse.Namespace) -> None:
    """Print a row's plans and its best candidates; with --assemble also registers and spills."""
    ranking = candidates(row, "vm", options.candidates or 3)
    plans = {config: fused_plan(row, "vm", config) for _, config in ranking}
    target = plain_plan(row, "vm").device.target
    assembled = {
        config: cuda.compile(plan.traced.ptx, str(target.target))
        for config, plan in plans.items()
        if options.assemble
    }
    print(plan_lines(row, plans[ranking[0][1]], plain_plan(row, "vm"), ranking, assembled))


def measure_rows(
    worker: Worker, options: argparse.Namespace, row_list: list[EpilogueRow]
) -> Iterator[tuple[dict[str, Any], str]]:
    """The record and the line of each row, with the chosen configuration."""
    print("\n".join(HEAD))
    for row in row_list:
        record = make_record(
            row, None, measure(worker, options, row, None, options.modes, options.vm)
        )
        yield record, row_line(record)


def measure_candidates(
    worker: Worker, options: argparse.Namespace, row_list: list[EpilogueRow]
) -> Iterator[tuple[dict[str, Any], str]]:
    """The record and the line of each row's candidates."""
    for row in row_list:
        ranking = worker.call(
            "compare.epilogue_rows:candidates", row, "cuda", options.candidates, seconds=ROW_SECONDS
        )
        if isinstance(ranking, CallFailure):
            print(f"{row}: {ranking}")
            close_if_broken(worker)
            continue
        print(f"\n{row}\n\n" + "\n".join(CANDIDATE_HEAD))
        for estimated, config in ranking:
            figures = measure(worker, options, row, config, (), options.vm)
            record = make_record(row, config, figures, estimated)
            yield record, candidate_line(record)


def measure(
    worker: Worker, options: argparse.Namespace, row: EpilogueRow, config: str | None,
    modes: tuple[str, ...], vm: bool,
) -> Any:  # fmt: skip
    seconds = ROW_SECONDS + AUTOTUNE_SECONDS * ("max-autotune" in modes)
    figures = worker.call(
        "compare.epilogue_peers:measure", row, config, options.pairs, modes, vm, seconds=seconds
    )
    if isinstance(figures, CallFailure):
        close_if_broken(worker)
    return figures


# --- options ------------------------------------------------------------------------------------


def parse_options(words: list[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--epilogues", type=kinds_of, default=list(KINDS), metavar="NAMES", help=", ".join(KINDS))
    add(
        "--shapes",
        type=shapes_of,
        default=list(SHAPES),
        metavar="MxNxK,…",
        help="shapes of D and K",
    )
    add(
        "--modes", type=modes_of, default=MODES, help=f"modes of torch (default: {','.join(MODES)})"
    )
    add(
        "--pairs",
        type=pairs_of,
        default=Sampling().pairs,
        help="rounds of replays per row (default: 40)",
    )
    add("--candidates", type=int, default=0, metavar="N", help="measure the N best configurations")
    add("--vm", action="store_true", help="compare bits with the virtual machine's")
    add("--dry-run", action="store_true", help="print configurations and plans, run nothing")
    add("--assemble", action="store_true", help="with --dry-run: print registers and spills")
    add("--json", type=Path, metavar="FILE", help="append all figures to a log, a line each")
    return parser.parse_args(words)


def kinds_of(text: str) -> list[str]:
    return known(text, KINDS)


def modes_of(text: str) -> tuple[str, ...]:
    return tuple(known(text, MODES))


def known(text: str, names: Any) -> list[str]:
    """The words of a list, which must be among ``names``."""
    unknown = [word for word in split_words(text) if word not in names]
    if unknown:
        raise argparse.ArgumentTypeError(f"must be of {', '.join(names)}, got {unknown[0]!r}")
    return split_words(text)


if __name__ == "__main__":
    sys.exit(main())
