"""Our GEMM beside torch in one process: ratios of CUDA-graph replays, with their 95 % bounds.

    python benchmarks/gemm.py                                 all groups, 50 random shapes
    python benchmarks/gemm.py --rows headline,fp8 --json FILE --html FILE
    python benchmarks/gemm.py --rows random --random 50 --seed 1
    python benchmarks/gemm.py --shapes 4096x4096x4096,300x200x100 --types bf16,f16 --layouts tn,tt
    python benchmarks/gemm.py --shapes 4096x4096x4096 --configs chosen,128x128x64:2x2:3/2@8
    python benchmarks/gemm.py --hosts                         host costs and first calls alone

A row's statistic is the median over pairs of replays, one of ours and one of torch's in immediate
succession, with random normal data and inputs rotated past the L2: once on a chip that is busy all
the time, and once in bursts, with a pause before each. It is reliable if the lower bound of torch's
time over ours is at most 0.01 below the median. A row also has registers, spills, the assembler's
warnings, and the largest |error| / (|A| |B|) against float64 on 64 rows that were NaN before.
Unsupported rows are marked; a row that fails prints its error, and the others follow. Needs an
NVIDIA GPU and PyTorch.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from compare.page import page
from compare.report import Kept, hosts_lines, layouts_line, line_of, record_of, summary
from compare.rows import GROUPS, HALVES, SQUARES, Row, rows_of
from compare.start import NAMES
from compare.worker import Failure, Worker

from tilewright import gemm
from tilewright.run.tuning.median_interval import MIN_SAMPLES

SECONDS = 90.0  # a row may take


def main() -> int:
    given = parsed()
    start = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    kept, records = Kept(given.json, start), []
    with Worker() as worker:
        about = worker.ask("compare.peers:about", seconds=4 * SECONDS)  # imports torch
        if isinstance(about, Failure):
            print(f"nothing to measure with: {about}", file=sys.stderr)
            return 2
        print(", ".join(f"{name} {said}" for name, said in about.items()), start, flush=True)
        kept.add("about", about)
        for record in measured(worker, given):
            print(line_of(record), flush=True)
            kept.add("row", record)
            records.append(record)
        if "layouts" in given.groups:
            compare_layouts(worker, given, kept)
        if given.hosts:
            measure_hosts(worker, kept)
    print(summary(records))
    if given.html:
        given.html.write_text(page(records, about), encoding="utf-8")
    return int(any(r["state"] in ("wrong", "failed") for r in records))


def measured(worker: Worker, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The record of each row with each configuration."""
    for row, config in product(given.asked, given.configs):
        found = worker.ask("compare.peers:measure", row, config, given.pairs, seconds=SECONDS)
        if isinstance(found, Failure):
            sound(worker)
        yield record_of(row, config, found)


def sound(worker: Worker) -> None:
    """End the worker's process if its GPU context is broken."""
    if isinstance(worker.ask("compare.peers:alive", seconds=20), Failure):
        worker.close()


def compare_layouts(worker: Worker, given: argparse.Namespace, kept: Kept) -> None:
    asked = "compare.peers:layouts"
    for type_, (size, _, _), config in product(HALVES, SQUARES, given.configs):
        found = worker.ask(asked, type_, size, config, given.pairs, seconds=SECONDS)
        print(layouts_line(found), flush=True)
        if isinstance(found, Failure):
            sound(worker)
        else:
            kept.add("layouts", found | {"asked": config or "chosen"})


def measure_hosts(worker: Worker, kept: Kept) -> None:
    costs = worker.ask("compare.hosts:costs", seconds=SECONDS)
    starts = worker.ask("compare.start:starts", seconds=4 * SECONDS)
    print("\n".join(hosts_lines(costs, starts, NAMES)), flush=True)
    for kind, found in (("host costs", costs), ("starts", starts)):
        if not isinstance(found, Failure):
            kept.add(kind, found)


# --- what is asked ------------------------------------------------------------------------------


def parsed(words: list[str] | None = None) -> argparse.Namespace:
    """The options; ``groups``, ``asked`` (rows) and ``configs`` (None: the chosen one) follow."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rows", type=groups_of, metavar="GROUPS", help=", ".join(GROUPS))
    add("--random", type=int, default=50, metavar="N", help="random shapes (default: 50)")
    add("--seed", type=int, default=0, help="of the random shapes")
    add("--shapes", type=shapes_of, metavar="MxNxK,…", help="these instead of groups")
    add("--types", type=words_of, default=["bf16"], help="with --shapes (default: bf16)")
    add("--layouts", type=words_of, default=["tn"], help="with --shapes (default: tn)")
    add("--configs", type=configs_of, default=[None], help="chosen, table, or configurations")
    add("--pairs", type=pairs_of, default=40, help="of replays, a row (default: 40)")
    add("--hosts", action="store_true", help="host costs; without --rows or --shapes, alone")
    add("--json", type=Path, metavar="FILE", help="append all figures, a line each")
    add("--html", type=Path, metavar="FILE", help="write the roofline")
    given = parser.parse_args(words)
    alone = given.hosts or given.shapes
    given.groups = (list(GROUPS) if not alone else []) if given.rows is None else given.rows
    given.asked = [r for g in given.groups for r in rows_of(g, given.random, given.seed)]
    own = product(given.shapes or (), given.types, given.layouts)
    given.asked += [Row("shapes", *shape, type_, layout) for shape, type_, layout in own]
    return given


def words_of(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def groups_of(text: str) -> list[str]:
    unknown = [word for word in words_of(text) if word not in GROUPS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no rows {unknown[0]!r}; there are {', '.join(GROUPS)}")
    return words_of(text)


def shapes_of(text: str) -> list[tuple[int, int, int]]:
    found = [shape.split("x") for shape in words_of(text)]
    if any(len(sizes) != 3 or not all(map(str.isdecimal, sizes)) for sizes in found):
        raise argparse.ArgumentTypeError(f"{text!r}: a shape is three sizes, 4096x4096x4096")
    return [(int(m), int(n), int(k)) for m, n, k in found]


def configs_of(text: str) -> list[str | None]:
    """The configurations of the list; ``table`` expands to all built-in ones."""
    names = [n for word in words_of(text) for n in (gemm.TABLE if word == "table" else [word])]
    return [None if name == "chosen" else str(name) for name in names]


def pairs_of(text: str) -> int:
    pairs = int(text)
    if pairs < MIN_SAMPLES:
        raise argparse.ArgumentTypeError(f"at least {MIN_SAMPLES} pairs have bounds")
    return pairs


if __name__ == "__main__":
    sys.exit(main())
