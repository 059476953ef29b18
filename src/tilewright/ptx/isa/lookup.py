"""From an opcode to the form of an instruction, and the suggestions where no row has it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from ...errors import UnknownInstruction
from ...mma.nearest_form import closest_opcodes, mismatch_reason
from .nearest_opcode import UNSUPPORTED_MNEMONICS, shortest_opcodes, similar_opcodes
from .operand_spec import parse_signatures
from .row import ROWS, Form, ListedRow


@cache
def find(opcode: str) -> Form | None:
    """The form of an opcode, or None where no row has it."""
    for candidate in _candidates(opcode):
        if not _violation(candidate):
            return with_signatures(candidate)
    return None


def form(opcode: str) -> Form:
    """The form of an opcode such as ``fma.rn.f32``.

    Raises UnknownInstruction, with the reason and the nearest forms, where no row has it.
    """
    found = find(opcode)
    if found is None:
        reasons = dict.fromkeys(f": {why}" for why in _reasons(opcode))
        message = f"no instruction {opcode!r}{''.join(reasons)}"
        raise UnknownInstruction(message, hint=_suggestion(opcode))
    return found


def with_signatures(candidate: Form) -> Form:
    """The form with its row's operands parsed."""
    row = candidate.row
    text = row.operands(candidate) if callable(row.operands) else row.operands
    choices = dict.fromkeys((slot.name for slot in row.slots), "") | dict(candidate.chosen)
    return replace(candidate, signatures=parse_signatures(text, choices))


def _candidates(opcode: str) -> Iterator[Form]:
    """The forms of all rows that match an opcode; those in the row's order of modifiers first."""
    for ordered in (True, False):
        for row in ROWS.get(opcode.split(".")[0], ()):
            if (candidate := row.form(opcode, ordered)) is not None:
                yield candidate


def _violation(candidate: Form) -> str:
    """Why the row's constraint rejects a form, or an empty string."""
    constraint = candidate.row.constraint
    return constraint(candidate) if constraint else ""


def _reasons(opcode: str) -> Iterator[str]:
    for candidate in _candidates(opcode):
        if candidate.row.constraint:
            yield _violation(candidate)
    if known := _listed_opcodes(opcode):
        yield mismatch_reason(opcode, known)
    if why := UNSUPPORTED_MNEMONICS.get(opcode.split(".")[0]):
        yield why


def _listed_opcodes(opcode: str) -> list[str]:
    """The opcodes that listed rows have for this mnemonic."""
    rows = [r for r in ROWS.get(opcode.split(".")[0], ()) if isinstance(r, ListedRow)]
    return [known for r in rows for known in r.opcodes()]


def _suggestion(opcode: str) -> str:
    mnemonic = opcode.split(".")[0]
    rows = ROWS.get(mnemonic, [])
    if known := _listed_opcodes(opcode) or [o for o in similar_opcodes(opcode, rows) if find(o)]:
        return f"nearest are {', '.join(closest_opcodes(opcode, known))}"
    if shortest := [o for o in shortest_opcodes(mnemonic, rows) if find(o) and o != mnemonic]:
        close = difflib.get_close_matches(opcode, shortest, n=3, cutoff=0)
        return f"nearest are {', '.join(close)}"
    if rows:
        return "its forms are " + ", ".join(dict.fromkeys(r.syntax for r in rows))
    mnemonics = () if mnemonic in UNSUPPORTED_MNEMONICS else ROWS
    close = difflib.get_close_matches(mnemonic, mnemonics, n=3)
    return "did you mean " + " or ".join(close) + "?" if close else ""
