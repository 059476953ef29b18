"""``tilewright vm``: whether the virtual machine runs what PTX files need; and CUDA programs on it
(``cudart``).
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
    """Add the command to the grammar."""
    command = commands.add_parser(
        "vm",
        help="which instructions PTX files need, and whether the virtual machine runs them; or run "
        "a CUDA program",
        description="list the instructions of PTX files, how often each stands there, and whether "
        "the virtual machine runs it (1 where it does not run all); or run a CUDA program",
        allow_abbrev=False,  # a program's --c=3 is not short for --checked
    )
    ways = command.add_mutually_exclusive_group(required=True)
    ways.add_argument("--coverage", nargs="+", metavar="FILE", help="- is stdin")
    command.add_argument("--linked", action="store_true", help="the files are parts of one program")
    cudart.add(command, ways)
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Do what is asked for."""
    return _list(given) if given.coverage else cudart.run(given)


def _list(given: argparse.Namespace) -> int:
    """List what all files need; 1 where something is refused, 2 where a file can't be read."""
    needs: dict[str, InstructionUse] = {}
    others: list[PtxError] = []
    code = 0
    for names in [given.coverage] if given.linked else [[name] for name in given.coverage]:
        try:
            found = coverage(link([read(name) for name in names]))
        except (PtxError, OSError) as error:
            console.error(console.reason(error))
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
    rows = [(need.opcode, str(need.count), *_runs(need)) for need in needs]
    table(("form", "count", "runs", "refused at"), rows)
    for error in (*others, *(need.refused[0] for need in needs if need.refused)):
        console.error(str(error))
    forms = sum(not need.refused for need in needs)
    count = sum(need.count - len(need.refused) for need in needs)
    of = f"{forms} of {len(needs)} forms, {count} of {sum(n.count for n in needs)} instructions"
    console.row("runs", of, "red" if others or forms < len(needs) else "green")


def _runs(need: InstructionUse) -> tuple[str, str]:
    """Whether it runs, and the first line of those where it does not."""
    if not need.refused:
        return "yes", ""
    some = f"{need.count - len(need.refused)} of {need.count}"
    place = need.refused[0].place
    return "no" if len(need.refused) == need.count else some, str(place or "")
