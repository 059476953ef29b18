"""Fused epilogues beside our plain product and torch, in one process.

    python benchmarks/fused_epilogues.py                          all epilogues, all shapes
    python benchmarks/fused_epilogues.py --vm --json FILE         and bits against the VM's
    python benchmarks/fused_epilogues.py --epilogues swiglu --shapes 4096x14336x4096
    python benchmarks/fused_epilogues.py --candidates 10 --epilogues silu_residual
    python benchmarks/fused_epilogues.py --dry-run                plans alone: no GPU, no torch
    python benchmarks/fused_epilogues.py --dry-run --assemble     and registers and spills

A line of the table, in Markdown, has medians over CUDA-graph replays of the fused kernel, of our
product without an epilogue, of torch's, and of the whole computation by torch: eager, compiled,
compiled with max-autotune. All replays are interleaved, inputs are random and rotate past the L2.
Ratios are of neighbours in time, with their 95 % bounds; once on a chip that is busy all the time,
and once in bursts. First the result is compared with f64 on 64 rows that held NaN before, and with
--vm, for a few tiles of the same configuration, with the virtual machine's bits.

--candidates times the best configurations of the ranking instead, ours alone: what the cost model
of epilogues is fitted to. A row that fails prints its error, and the others follow. Needs an NVIDIA
GPU and PyTorch, except for --dry-run.
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
    line_of,
    plan_lines,
    record_of,
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
from compare.report import Kept
from compare.worker import Failure, Worker
from gemm import SECONDS, pairs_of, shapes_of, sound, words_of

from tilewright import cuda

MODES = ("eager", "compile", "max-autotune")
AUTOTUNE_SECONDS = 240.0  # that max-autotune may take for a row


def main(words: list[str] | None = None) -> int:
    given = parsed(words)
    asked = rows(given.epilogues, given.shapes)
    if given.dry_run:
        for row in asked:
            dry_run(row, given)
        return 0
    start = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    kept, states = Kept(given.json, start), list[str]()
    with Worker() as worker:
        about = worker.ask("compare.peers:about", seconds=4 * SECONDS)  # imports torch
        if isinstance(about, Failure):
            print(f"nothing to measure with: {about}", file=sys.stderr)
            return 2
        print(", ".join(f"{name} {said}" for name, said in about.items()), start, flush=True)
        kept.add("about", about)
        found = by_candidate if given.candidates else by_row
        for record, line in found(worker, given, asked):
            print(line, flush=True)
            kept.add("epilogue", record)
            states.append(record["state"])
    return int(any(state != "measured" for state in states))


def dry_run(row: EpilogueRow, given: argparse.Namespace) -> None:
    """Print a row's plans and its best candidates, assembled if asked."""
    ranking = candidates(row, "vm", given.candidates or 3)
    plans = {config: fused_plan(row, "vm", config) for _, config in ranking}
    target = plain_plan(row, "vm").device.target
    assembled = {
        config: cuda.compile(plan.traced.ptx, str(target.target))
        for config, plan in plans.items()
        if given.assemble
    }
    print(plan_lines(row, plans[ranking[0][1]], plain_plan(row, "vm"), ranking, assembled))


def by_row(
    worker: Worker, given: argparse.Namespace, asked: list[EpilogueRow]
) -> Iterator[tuple[dict[str, Any], str]]:
    """The record and the line of each row, with the chosen configuration."""
    print("\n".join(HEAD))
    for row in asked:
        record = record_of(row, None, measured(worker, given, row, None, given.modes, given.vm))
        yield record, line_of(record)


def by_candidate(
    worker: Worker, given: argparse.Namespace, asked: list[EpilogueRow]
) -> Iterator[tuple[dict[str, Any], str]]:
    """The record and the line of each row's candidates."""
    for row in asked:
        ranking = worker.ask(
            "compare.epilogue_rows:candidates", row, "cuda", given.candidates, seconds=SECONDS
        )
        if isinstance(ranking, Failure):
            print(f"{row}: {ranking}")
            sound(worker)
            continue
        print(f"\n{row}\n\n" + "\n".join(CANDIDATE_HEAD))
        for estimated, config in ranking:
            found = measured(worker, given, row, config, (), given.vm)
            record = record_of(row, config, found, estimated)
            yield record, candidate_line(record)


def measured(
    worker: Worker, given: argparse.Namespace, row: EpilogueRow, config: str | None,
    modes: tuple[str, ...], vm: bool,
) -> Any:  # fmt: skip
    seconds = SECONDS + AUTOTUNE_SECONDS * ("max-autotune" in modes)
    found = worker.ask(
        "compare.epilogue_peers:measure", row, config, given.pairs, modes, vm, seconds=seconds
    )
    if isinstance(found, Failure):
        sound(worker)
    return found


# --- what is asked ------------------------------------------------------------------------------


def parsed(words: list[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--epilogues", type=kinds_of, default=list(KINDS), metavar="NAMES", help=", ".join(KINDS))
    add("--shapes", type=shapes_of, default=list(SHAPES), metavar="MxNxK,…", help="of D and K")
    add("--modes", type=modes_of, default=MODES, help=f"of torch (default: {','.join(MODES)})")
    add("--pairs", type=pairs_of, default=40, help="rounds of replays, a row (default: 40)")
    add("--candidates", type=int, default=0, metavar="N", help="time the N best configurations")
    add("--vm", action="store_true", help="compare bits with the virtual machine's")
    add("--dry-run", action="store_true", help="print configurations and plans, run nothing")
    add("--assemble", action="store_true", help="with --dry-run: registers and spills, by ptxas")
    add("--json", type=Path, metavar="FILE", help="append all figures, a line each")
    return parser.parse_args(words)


def kinds_of(text: str) -> list[str]:
    return known(text, KINDS)


def modes_of(text: str) -> tuple[str, ...]:
    return tuple(known(text, MODES))


def known(text: str, names: Any) -> list[str]:
    """The words of a list, which must be among ``names``."""
    unknown = [word for word in words_of(text) if word not in names]
    if unknown:
        raise argparse.ArgumentTypeError(f"must be of {', '.join(names)}, got {unknown[0]!r}")
    return words_of(text)


if __name__ == "__main__":
    sys.exit(main())
