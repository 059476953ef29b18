"""Compare rules of thumb for CUTLASS configurations with the choices of our cost model.

    python benchmarks/heuristics_table.py --dry-run              only choices: no GPU, no torch
    python benchmarks/heuristics_table.py --dry-run --update     and write them into docs/gemm.md
    python benchmarks/heuristics_table.py                        also times, on an NVIDIA GPU
    python benchmarks/heuristics_table.py --update --json FILE   and write them into docs/gemm.md

The rules and their problems are in ``compare/heuristic_rules.py``. A line of the Markdown tables
has the rule, the rule as a configuration of ours, and our choice for each device. All are measured
in one process by interleaved CUDA-graph replays, with random inputs rotated past the L2; a ratio
above 1 means that our choice is faster. With --dry-run, --update keeps the times of rules whose
configurations have not changed.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from compare import heuristic_rules as rules
from compare.report import JsonLog
from compare.stats import QUICK, Sampling
from compare.worker import CallFailure, Worker
from gemm import ROW_SECONDS, close_if_broken, start

DOCS = Path(__file__).parents[1] / "docs" / "gemm.md"

Measured = dict[str, list[str]]  # cells by a rule's case


def main(words: list[str] | None = None) -> int:
    options = parse_options(words)
    tables: list[Measured] = [{} for _ in rules.TABLES]
    failures = 0
    if not options.dry_run:
        run = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        log = JsonLog(options.json, run)
        with Worker() as worker:
            if start(worker, log, run) is None:
                return 2
            for table, measured in zip(rules.TABLES, tables, strict=True):
                failures += measure(worker, table, measured, log, options.sampling)
    for table, measured in zip(rules.TABLES, tables, strict=True):
        empty = "\n".join(rules.head(table))
        print(rules.update(empty, table, measured))
    if options.update:
        text = DOCS.read_text(encoding="utf-8")
        for table, measured in zip(rules.TABLES, tables, strict=True):
            text = rules.update(text, table, measured)
        DOCS.write_text(text, encoding="utf-8")
    return int(failures > 0)


def measure(
    worker: Worker, table: rules.RuleTable, measured: Measured, log: JsonLog, sampling: Sampling
) -> int:
    """Measure the rules of a table; returns the number of failures, which are printed."""
    failures = 0
    for rule in table.rules:
        configs = rules.configs(rule, table)
        result = worker.call(
            "compare.heuristic_times:measure", rule, configs, sampling, seconds=ROW_SECONDS
        )
        if isinstance(result, CallFailure):
            print(f"{table.title}: {rule.case}: {result}", file=sys.stderr)
            close_if_broken(worker)
            failures += 1
            continue
        us, ratio = result
        measured[rule.case] = rules.figures(us, ratio)
        figures = {"us": us, "ratio": ratio, "configs": configs}
        log.add("rule", {"table": table.title, "case": rule.case, "problem": rule.name} | figures)
    return failures


def parse_options(words: list[str] | None = None) -> argparse.Namespace:
    """The options, with ``sampling``."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--dry-run", action="store_true", help="print the choices, measure nothing")
    add("--update", action="store_true", help="write the tables into docs/gemm.md")
    add("--quick", action="store_true", help="fewer and shorter replays")
    add("--json", type=Path, metavar="FILE", help="append all figures to a log, a line each")
    options = parser.parse_args(words)
    options.sampling = QUICK if options.quick else Sampling()
    return options


if __name__ == "__main__":
    sys.exit(main())
