"""``tilewright plan``: explain the plan of a GEMM.

``tilewright ptx``: print the kernel of a GEMM, or check a PTX file.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ... import ptx
from ...errors import ProblemError
from .. import console
from ..gemm_options import (
    add_config_option,
    add_problem_options,
    add_size_arguments,
    add_sparse_option,
    plan_from_options,
)
from ..ptx_source import read


def add(commands: Any) -> None:
    """Add both subcommands to the parser."""
    explained = commands.add_parser(
        "plan", help="explain the configuration and cost estimate of a GEMM"
    )
    add_size_arguments(explained)
    add_problem_options(explained)
    add_sparse_option(explained)
    add_config_option(explained)
    explained.set_defaults(run=_plan)
    text = commands.add_parser(
        "ptx",
        help="print a GEMM's kernel, or check a PTX file",
        description="print the kernel of an M×N×K GEMM, or check a PTX file (-: stdin)",
    )
    text.add_argument("what", nargs="+", metavar="M N K | FILE")
    add_problem_options(text)
    add_sparse_option(text)
    add_config_option(text)
    text.set_defaults(run=_ptx)


def _plan(options: argparse.Namespace) -> int:
    print(plan_from_options(options, options.sizes).explain())
    return 0


def _ptx(options: argparse.Namespace) -> int:
    if len(options.what) == 1 and not options.what[0].isdecimal():
        return _check(options.what[0])
    if len(options.what) != 3 or not all(word.isdecimal() for word in options.what):
        raise ProblemError(
            f"ptx takes M N K or one file, got {' '.join(options.what)!r}",
            hint="tilewright ptx 512 512 512, or tilewright ptx kernel.ptx",
        )
    print(plan_from_options(options, [int(word) for word in options.what]).ptx, end="")
    sys.stdout.flush()
    return 0


def _check(name: str) -> int:
    """Parse and check a file; print each error with its line and a caret."""
    module = read(name)
    found = list(ptx.problems(module))
    for problem in found:
        console.error(str(problem))
    if found:
        return 2
    entries = ", ".join(entry.name for entry in module.entries) or "no kernel"
    version = "{}.{}".format(*module.version)
    console.row(name, f"PTX {version} for {', '.join(module.target)}: {entries}; no errors")
    return 0
