"""``tilewright isa``: the instructions, listed, counted, explained and drawn."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ...errors import LayoutError, TargetError, TilewrightError, UnknownInstruction
from ...mma import MmaInstruction
from ...ptx.isa import ROWS, Form, Row, form
from ...ptx.isa.row import ListedRow
from ...view import draw_fragment, draw_instruction
from ...view.instruction_text import PUBLISHED
from .. import console
from ..form_search import Wanted, counted, forms, is_name, mnemonics, named, nearest, on, rows_of
from ..form_text import explained, facts, needs_of, said_by
from ..output_files import write
from ..text_table import table

OPERANDS = ("a", "b", "c", "d", "metadata", "scale_a", "scale_b")
EXAMPLE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"

_ABOUT = """\
Without a name: the families of matrix instructions and how many forms each has. With the name of
an instruction or a family (mma, mma.sp, wgmma, cvt, …) or the first words of an opcode: its forms.
With an opcode, its modifiers in any order: what it is, needs and computes to the bit."""


def add(commands: Any) -> None:
    """Add the command to the grammar."""
    command = commands.add_parser(
        "isa", help="list, count, explain and draw instructions", description=_ABOUT
    )
    command.add_argument("name", nargs="?", default="", metavar="NAME | OPCODE")
    command.add_argument("--target", default="", help="what this target has: sm_90a, …")
    command.add_argument("--version", default="", help="what this PTX version has: 8.4, …")
    command.add_argument(
        "--type", action="append", default=[], help="forms of this type; may be repeated"
    )
    command.add_argument("--shape", default="", help="forms of this shape: m16n8k32, …")
    command.add_argument("--kind", default="", help="forms of this kind: f8f6f4, mxf4nvf4, …")
    command.add_argument("--count", action="store_true", help="how many forms there are")
    command.add_argument("--json", action="store_true", help="for programs")
    command.add_argument("--draw", metavar="FILE", help="draw the opcode's fragments: SVG")
    command.add_argument("--operand", choices=OPERANDS, help="draw only this one")
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """List, count, explain or draw. UnknownInstruction where there is none such."""
    wanted = Wanted(given.target, given.version, tuple(given.type), given.shape, given.kind)
    if given.operand and given.draw is None:
        raise TilewrightError("--operand says what --draw draws", hint="add --draw FILE")
    if given.name and not is_name(given.name):
        found = _one(given.name, wanted)
        return _explain(found, given) if given.draw is None else _draw(found, given)
    if given.draw is not None:
        raise UnknownInstruction(
            f"{given.name or 'nothing'!r} is no opcode to draw",
            hint=f"tilewright isa {EXAMPLE} --draw {given.draw}",
        )
    if given.count:
        return _count(given, wanted)
    if not given.name and not wanted and not given.json:
        return _overview()
    if given.name in ROWS and not any(isinstance(row, ListedRow) for row in ROWS[given.name]):
        return _rows(given, wanted)
    return _forms(given, wanted)


# --- one ---------------------------------------------------------------------------------------


def _one(opcode: str, wanted: Wanted) -> Form:
    """The form of an opcode, its matrix instruction computing as the target that is asked for."""
    try:
        found = form(opcode)
    except UnknownInstruction as error:
        near = nearest(opcode)
        raise UnknownInstruction(error.message, hint=near or error.hint) from None
    reason = wanted.why_not(found)
    if reason:
        raise TargetError(reason)
    return on(found, wanted.target)


def _explain(found: Form, given: argparse.Namespace) -> int:
    if given.json:
        print(json.dumps(facts(found, full=True), indent=2, ensure_ascii=False))
        return 0
    previous = ""
    for name, text in explained(found):
        console.row(name if name != previous else "", text, width=12)
        previous = name
    return 0


def _draw(found: Form, given: argparse.Namespace) -> int:
    write(given.draw, picture := _picture(found, given.operand))
    if given.draw != "-":
        console.row("drawn", f"{given.draw}, {len(picture.encode()) / 1000:.0f} kB")
    return 0


def _picture(found: Form, operand: str | None) -> str:
    """The SVG of a form: of all of a matrix instruction, or of one operand."""
    i = found.entry
    if i is None:
        raise LayoutError(f"{found.opcode} has no fragments to draw", hint=f"{EXAMPLE} has")
    if isinstance(i, MmaInstruction):
        if not operand:
            return draw_instruction(i)
        return draw_fragment(i.fragment(operand), i.opcode, name=operand)
    if operand not in (None, i.operand):
        raise LayoutError(f"{found.opcode} moves one operand", hint="leave --operand out")
    return draw_fragment(i.fragment, i.opcode, name=i.operand)


# --- many --------------------------------------------------------------------------------------


def _overview() -> int:
    numbers = counted(named("", Wanted()))
    others = [name for name in ROWS if name not in mnemonics()]
    table(("family", "forms"), [(name, str(n)) for name, n in numbers.items()])
    print(f"\n{len(others)} other instructions: {' '.join(sorted(others))}")
    return 0


def _count(given: argparse.Namespace, wanted: Wanted) -> int:
    if given.name in ROWS and given.name not in mnemonics():
        found = [f for f in forms(given.name).values() if wanted.has(f)]
    else:
        found = named(given.name, wanted)
    numbers = counted(found)
    if given.json:
        print(json.dumps({**numbers, "all": len(found)}, indent=2))
        return 0
    for name, count in numbers.items():
        console.row(name, f"{count:>6}", width=20)
    console.row("all", f"{len(found):>6}", "bold", width=20)
    return 0


def _forms(given: argparse.Namespace, wanted: Wanted) -> int:
    found = [on(form, wanted.target) for form in named(given.name, wanted)]
    if not found:
        _nothing(given)
    if given.json:
        print(json.dumps([facts(form) for form in found], ensure_ascii=False))
        return 0
    lines = [(form.opcode, *needs_of(form, wanted.target), _bits(form)) for form in found]
    table(("form", "PTX", "target", "bits"), lines)
    return 0


def _bits(found: Form) -> str:
    if found.entry is None:
        return ""
    return "verified" if found.entry.verified else PUBLISHED


def _nothing(given: argparse.Namespace) -> None:
    """Say what there is of the name."""
    entries = [f.entry for f in named(given.name, Wanted()) if isinstance(f.entry, MmaInstruction)]
    there_are = {
        "shapes": {i.shape for i in entries if not i.asynchronous},
        "types": {t for i in entries for t in (i.a, i.b, i.c, i.d)},
        "kinds": {i.kind for i in entries},
        "targets": {target for i in entries for _, target in i.needs},
    }
    said = [f"{what} are {', '.join(sorted(filter(None, x)))}" for what, x in there_are.items()]
    hint = "; ".join(text for text in said if not text.endswith("are "))
    raise UnknownInstruction(f"no {given.name or 'matrix instruction'} is as asked", hint=hint)


def _rows(given: argparse.Namespace, wanted: Wanted) -> int:
    found = rows_of(given.name, wanted)
    if not found:
        raise UnknownInstruction(f"no {given.name} is as asked")
    if given.json:
        print(json.dumps([_row_facts(row) for row in found], ensure_ascii=False))
        return 0
    table(("row", "PTX", "target", "with"), [_row_line(row) for row in found])
    return 0


def _row_line(row: Row) -> tuple[str, ...]:
    """A row as its table has it; last what its slots may be, and what some choices need."""
    choices = {choice for slot in row.slots for choice in slot.choices}
    slots = [f"{slot.name}: {' '.join(slot.choices)}" for slot in row.slots if not slot.literal]
    more = [
        f"{name} needs {ptx} {target}"
        for name, (ptx, target) in row.needs.items()
        if name.partition("=")[2] in choices or name in choices
    ]
    return row.syntax, row.ptx, row.target, "; ".join([*slots, *more])


def _row_facts(row: Row) -> dict[str, Any]:
    choices = {slot.name: slot.choices for slot in row.slots if not slot.literal}
    made = {"row": row.syntax, "ptx": row.ptx, "target": row.target, "choices": choices}
    return {**made, "does": said_by(row)}
