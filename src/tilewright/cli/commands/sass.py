"""``tilewright sass``: disassemble the machine code of a cubin."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ...errors import CubinError
from ...sass import CubinFile, disassemble, encoding_table


def add(commands: Any) -> None:
    """Add the subcommand to the parser."""
    command = commands.add_parser("sass", help="disassemble the machine code of a cubin")
    actions = command.add_subparsers(dest="action", required=True, metavar="action")
    action = actions.add_parser(
        "disassemble",
        help="print machine code with its control codes",
        description="Print each function of a cubin as SASS text: wait mask, read barrier, write "
        "barrier, yield and stall (WW:R:W:Y:S, as maxas writes them), then the instruction. "
        "Neither a GPU nor a program of NVIDIA's is needed.",
    )
    action.add_argument("file", metavar="FILE", help="a cubin")
    action.add_argument("--function", default="", metavar="NAME", help="print only this function")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the text. Raises CubinError for a malformed file, SassError for an architecture whose
    encodings are not known.
    """
    cubin = CubinFile.parse(Path(options.file).read_bytes())
    names = [n for n in cubin.functions if options.function in ("", n)]
    if not names:
        known = ", ".join(cubin.functions[:8])
        raise CubinError(f"--function must be one of {known}, got {options.function!r}")
    table = encoding_table(cubin.sm)
    for name in names:
        registers, barriers = cubin.registers(name), cubin.barriers(name)
        print(f"# {name}: sm_{cubin.sm}, {registers} registers, {barriers} barriers")
        print(disassemble(table, cubin.code(name)))
    return 0
