"""``tilewright plan``: what would run, in words.

``tilewright ptx``: the kernel as text, or a file of PTX checked.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ... import ptx
from ...errors import ProblemError
from .. import console
from ..gemm_options import add_config, add_problem, add_sizes, plan_of
from ..ptx_source import read


def add(commands: Any) -> None:
    """Add both commands to the grammar."""
    explained = commands.add_parser("plan", help="what would run for a problem, and why")
    add_sizes(explained)
    add_problem(explained)
    add_config(explained)
    explained.set_defaults(run=_plan)
    text = commands.add_parser(
        "ptx",
        help="print a GEMM's kernel, or check a PTX file",
        description="print the kernel of an M×N×K GEMM, or check a file of PTX (-: stdin)",
    )
    text.add_argument("what", nargs="+", metavar="M N K | FILE")
    add_problem(text)
    add_config(text)
    text.set_defaults(run=_ptx)


def _plan(given: argparse.Namespace) -> int:
    print(plan_of(given, given.sizes).explain())
    return 0


def _ptx(given: argparse.Namespace) -> int:
    if len(given.what) == 1 and not given.what[0].isdecimal():
        return _check(given.what[0])
    if len(given.what) != 3 or not all(word.isdecimal() for word in given.what):
        raise ProblemError(
            f"three sizes or one file, not {' '.join(given.what)!r}",
            hint="tilewright ptx 512 512 512, or tilewright ptx kernel.ptx",
        )
    print(plan_of(given, [int(word) for word in given.what]).ptx, end="")
    sys.stdout.flush()
    return 0


def _check(name: str) -> int:
    """Parse and check a file; each error with its line and a caret."""
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
