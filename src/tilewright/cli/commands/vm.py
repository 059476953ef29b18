"""``tilewright vm``: report whether the virtual machine supports PTX files, or run a CUDA program
on it (``cudart``).
"""

from __future__ import annotations

import argparse
from typing import Any

from ...errors import PtxError
from ...ptx import link
from ...vm.program.coverage import InstructionUse, coverage
from .. import console
from ..ptx_source import read
from ..text_table import table
from . import cudart


def add(commands: Any) -> None:
    """Add the subcommand to the parser."""
    command = commands.add_parser(
        "vm",
        help="list the instructions of PTX files that the virtual machine supports; or run a CUDA "
        "program",
        description="list the instructions of PTX files, their counts, and whether the virtual "
        "machine supports them (exit code 1 if not all); or run a CUDA program",
        allow_abbrev=False,  # the option --c=3 of a program is not --checked
    )
    modes = command.add_mutually_exclusive_group(required=True)
    modes.add_argument("--coverage", nargs="+", metavar="FILE", help="- is stdin")
    command.add_argument("--linked", action="store_true", help="the files are parts of one program")
    cudart.add(command, modes)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Report coverage, or run a program."""
    return _coverage(options) if options.coverage else cudart.run(options)


def _coverage(options: argparse.Namespace) -> int:
    """Print the coverage of all files; 1 if something is unsupported, 2 if a file can't be read."""
    needs: dict[str, InstructionUse] = {}
    others: list[PtxError] = []
    code = 0
    for names in [options.coverage] if options.linked else [[name] for name in options.coverage]:
        try:
            found = coverage(link([read(name) for name in names]))
        except (PtxError, OSError) as error:
            console.error(console.error_text(error))
            code = 2
            continue
        others += found.others
        for need in found.needs:
            known = needs.get(need.opcode, InstructionUse(need.opcode, 0))
            refused = known.refused + need.refused
            needs[need.opcode] = InstructionUse(need.opcode, known.count + need.count, refused)
    _report([needs[opcode] for opcode in sorted(needs)], others)
    return code or int(bool(others) or any(need.refused for need in needs.values()))


def _report(needs: list[InstructionUse], others: list[PtxError]) -> None:
    rows = [(need.opcode, str(need.count), *_support(need)) for need in needs]
    table(("form", "count", "runs", "refused at"), rows)
    for error in (*others, *(need.refused[0] for need in needs if need.refused)):
        console.error(str(error))
    forms = sum(not need.refused for need in needs)
    count = sum(need.count - len(need.refused) for need in needs)
    of = f"{forms} of {len(needs)} forms, {count} of {sum(n.count for n in needs)} instructions"
    console.row("runs", of, "red" if others or forms < len(needs) else "green")


def _support(need: InstructionUse) -> tuple[str, str]:
    """Whether a form is supported, and the first location where it is not."""
    if not need.refused:
        return "yes", ""
    some = f"{need.count - len(need.refused)} of {need.count}"
    location = need.refused[0].location
    return "no" if len(need.refused) == need.count else some, str(location or "")
