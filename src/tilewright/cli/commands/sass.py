"""``tilewright sass``: disassemble and lint the machine code of a cubin, and further actions."""

from __future__ import annotations

import argparse
from typing import Any

from ...sass import disassemble, encoding_table
from ...sass.lint import LINT_RULES, lint_function
from ...sass.machine.hazards import function_code
from . import sass_maxas, sass_report
from .sass_report import functions, read_cubin


def add(commands: Any) -> None:
    """Add the subcommand to the parser."""
    command = commands.add_parser(
        "sass", help="disassemble, annotate, compare, lint, assemble, time machine code"
    )
    actions = command.add_subparsers(dest="action", required=True, metavar="action")
    action = actions.add_parser(
        "disassemble",
        help="print machine code with its control codes",
        description="Print each function of a cubin as SASS text: wait mask, read barrier, write "
        "barrier, yield and stall (WW:R:W:Y:S, as maxas writes them), then the instruction. "
        "Neither a GPU nor a program of NVIDIA's is needed.",
    )
    _add_file(action)
    action.set_defaults(run=run)
    action = actions.add_parser(
        "lint",
        help="find hazards and slow encodings in machine code",
        description="Check each function of a cubin against the rules of control codes; exit with "
        "1 if a rule is broken. Rules: "
        + "; ".join(f"{name}: {text}" for name, text in LINT_RULES.items()),
    )
    _add_file(action)
    action.add_argument("--speed", action="store_true", help="report bank conflicts and idle reuse")
    action.set_defaults(run=lint)
    sass_report.add(actions)
    sass_maxas.add(actions)


def _add_file(action: argparse.ArgumentParser) -> None:
    action.add_argument("file", metavar="FILE", help="a cubin")
    action.add_argument("--function", default="", metavar="NAME", help="take only this function")


def lint(options: argparse.Namespace) -> int:
    """Print the findings; 1 if there are any. Raises CubinError and SassError as ``run`` does."""
    cubin = read_cubin(options.file)
    count = 0
    for name in functions(cubin, options.function):
        found = lint_function(function_code(cubin, name), options.speed)
        count += len(found)
        print(f"# {name}: sm_{cubin.sm}, {len(found) or 'no'} findings")
        for finding in found:
            print(finding)
    return int(count > 0)


def run(options: argparse.Namespace) -> int:
    """Print the text. Raises CubinError for a malformed file, SassError for an architecture whose
    encodings are not known.
    """
    cubin = read_cubin(options.file)
    table = encoding_table(cubin.sm)
    for name in functions(cubin, options.function):
        registers, barriers = cubin.registers(name), cubin.barriers(name)
        print(f"# {name}: sm_{cubin.sm}, {registers} registers, {barriers} barriers")
        print(disassemble(table, cubin.code(name)))
    return 0
