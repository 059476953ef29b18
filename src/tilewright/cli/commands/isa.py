"""``tilewright isa``: list, count, explain and draw instructions."""

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
from ...view.output.picture_output import encoded
from .. import console
from ..form_search import (
    FormFilter,
    count_by_family,
    find_forms,
    for_target,
    forms,
    mnemonics,
    names_several_forms,
    nearest_hint,
    rows_of,
)
from ..form_text import description_rows, facts, requirements_summary, row_description
from ..output_files import write
from ..text_table import table

OPERANDS = ("a", "b", "c", "d", "metadata", "scale_a", "scale_b")
EXAMPLE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"

_ABOUT = """\
Without a name, list the families of matrix instructions and their numbers of forms. With the name
of an instruction or family (mma, mma.sp, wgmma, cvt, …) or an opcode prefix, list its forms. With
an opcode, modifiers in any order, explain its requirements, fragments and bit-exact arithmetic."""


def add(commands: Any) -> None:
    """Add the subcommand to the parser."""
    command = commands.add_parser(
        "isa", help="list, count, explain and draw instructions", description=_ABOUT
    )
    command.add_argument("name", nargs="?", default="", metavar="NAME | OPCODE")
    command.add_argument(
        "--target", default="", help="only forms that this target supports: sm_90a, …"
    )
    command.add_argument("--version", default="", help="only forms of this PTX version: 8.4, …")
    command.add_argument(
        "--type", action="append", default=[], help="only forms with this type; may be repeated"
    )
    command.add_argument("--shape", default="", help="only forms of this shape: m16n8k32, …")
    command.add_argument("--kind", default="", help="only forms of this kind: f8f6f4, mxf4nvf4, …")
    command.add_argument("--count", action="store_true", help="print numbers of forms")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.add_argument(
        "--draw", metavar="FILE", help="draw the opcode's fragments: .svg, .png, .pdf"
    )
    command.add_argument("--operand", choices=OPERANDS, help="draw only this operand")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """List, count, explain or draw. Raises UnknownInstruction if no form matches."""
    form_filter = FormFilter(
        options.target, options.version, tuple(options.type), options.shape, options.kind
    )
    if options.operand and options.draw is None:
        raise TilewrightError("--operand requires --draw", hint="add --draw FILE")
    if options.name and not names_several_forms(options.name):
        found = _one(options.name, form_filter)
        return _explain(found, options) if options.draw is None else _draw(found, options)
    if options.draw is not None:
        raise UnknownInstruction(
            f"--draw requires an opcode, got {options.name!r}",
            hint=f"tilewright isa {EXAMPLE} --draw {options.draw}",
        )
    if options.count:
        return _count(options, form_filter)
    if not options.name and not form_filter and not options.json:
        return _overview()
    if options.name in ROWS and not any(isinstance(row, ListedRow) for row in ROWS[options.name]):
        return _rows(options, form_filter)
    return _forms(options, form_filter)


# --- one form ----------------------------------------------------------------------------------


def _one(opcode: str, form_filter: FormFilter) -> Form:
    """The form of an opcode, as the selected target executes it."""
    try:
        found = form(opcode)
    except UnknownInstruction as error:
        hint = nearest_hint(opcode) or error.hint
        raise UnknownInstruction(error.message, hint=hint) from None
    reason = form_filter.unsupported_reason(found)
    if reason:
        raise TargetError(reason)
    return for_target(found, form_filter.target)


def _explain(found: Form, options: argparse.Namespace) -> int:
    if options.json:
        print(json.dumps(facts(found, full=True), indent=2, ensure_ascii=False))
        return 0
    previous = ""
    for name, text in description_rows(found):
        console.row(name if name != previous else "", text, width=12)
        previous = name
    return 0


def _draw(found: Form, options: argparse.Namespace) -> int:
    picture: str | bytes = _picture(found, options.operand)
    if options.draw.endswith((".png", ".pdf")):
        picture = encoded(str(picture), options.draw)
    write(options.draw, picture)
    if options.draw != "-":
        size = len(picture.encode() if isinstance(picture, str) else picture)
        console.row("drawn", f"{options.draw}, {size / 1000:.0f} kB")
    return 0


def _picture(found: Form, operand: str | None) -> str:
    """The SVG of all fragments of a form, or of one operand."""
    i = found.entry
    if i is None:
        raise LayoutError(f"{found.opcode} has no fragments to draw", hint=f"{EXAMPLE} has")
    if isinstance(i, MmaInstruction):
        if not operand:
            return draw_instruction(i)
        return draw_fragment(i.fragment(operand), i.opcode, name=operand)
    if operand not in (None, i.operand):
        raise LayoutError(f"{found.opcode} has one fragment", hint="omit --operand")
    return draw_fragment(i.fragment, i.opcode, name=i.operand)


# --- lists -------------------------------------------------------------------------------------


def _overview() -> int:
    numbers = count_by_family(find_forms("", FormFilter()))
    others = [name for name in ROWS if name not in mnemonics()]
    table(("family", "forms"), [(name, str(n)) for name, n in numbers.items()])
    print(f"\n{len(others)} other instructions: {' '.join(sorted(others))}")
    return 0


def _count(options: argparse.Namespace, form_filter: FormFilter) -> int:
    if options.name in ROWS and options.name not in mnemonics():
        found = [f for f in forms(options.name).values() if form_filter.matches(f)]
    else:
        found = find_forms(options.name, form_filter)
    numbers = count_by_family(found)
    if options.json:
        print(json.dumps({**numbers, "all": len(found)}, indent=2))
        return 0
    for name, count in numbers.items():
        console.row(name, f"{count:>6}", width=20)
    console.row("all", f"{len(found):>6}", "bold", width=20)
    return 0


def _forms(options: argparse.Namespace, form_filter: FormFilter) -> int:
    found = [for_target(form, form_filter.target) for form in find_forms(options.name, form_filter)]
    if not found:
        _raise_no_match(options)
    if options.json:
        print(json.dumps([facts(form) for form in found], ensure_ascii=False))
        return 0
    lines = [
        (form.opcode, *requirements_summary(form, form_filter.target), _bits(form))
        for form in found
    ]
    table(("form", "PTX", "target", "bits"), lines)
    return 0


def _bits(found: Form) -> str:
    if found.entry is None:
        return ""
    return "verified" if found.entry.verified else PUBLISHED


def _raise_no_match(options: argparse.Namespace) -> None:
    """Raise UnknownInstruction with the shapes, types, kinds and targets that exist."""
    entries = [
        f.entry
        for f in find_forms(options.name, FormFilter())
        if isinstance(f.entry, MmaInstruction)
    ]
    existing = {
        "shapes": {i.shape for i in entries if not i.asynchronous},
        "types": {t for i in entries for t in (i.a, i.b, i.c, i.d)},
        "kinds": {i.kind for i in entries},
        "targets": {target for i in entries for _, target in i.needs},
    }
    texts = [f"{what} are {', '.join(sorted(filter(None, x)))}" for what, x in existing.items()]
    hint = "; ".join(text for text in texts if not text.endswith("are "))
    raise UnknownInstruction(
        f"no form of {options.name or 'a matrix instruction'} matches the options", hint=hint
    )


def _rows(options: argparse.Namespace, form_filter: FormFilter) -> int:
    found = rows_of(options.name, form_filter)
    if not found:
        raise UnknownInstruction(f"no form of {options.name} matches the options")
    if options.json:
        print(json.dumps([_row_facts(row) for row in found], ensure_ascii=False))
        return 0
    table(("row", "PTX", "target", "with"), [_row_line(row) for row in found])
    return 0


def _row_line(row: Row) -> tuple[str, ...]:
    """A row as a table line; the last cell has the choices of its slots and what they need."""
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
    result = {"row": row.syntax, "ptx": row.ptx, "target": row.target, "choices": choices}
    return {**result, "does": row_description(row)}
