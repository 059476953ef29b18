"""An instruction as a value, and its way from bits to text and back through a table.

What a table does not have stays raw: its word is kept, its text is ``.word 0x…``, and no text is
ever encoded by a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import zip_longest

from ..errors import SassError
from .control_code import ControlCode
from .encoding import REUSE, SassEncoding, Unencodable
from .encoding_table import EncodingTable
from .sass_text import ALWAYS, SassText

_CONTROL_MASK = (1 << 21) - 1
_NEAREST = 40  # forms that are compared letter by letter
_NO_MARKS, _SHOWN_MARKS = "(none)", 12


@dataclass(frozen=True, slots=True)
class SassInstruction:
    """``raw`` holds the instruction's bits and, on sm_70 and later, its control bits; ``text`` is
    None where the table has no such encoding. ``target`` is the operand number that is a branch
    target, else None.
    """

    raw: int
    control: ControlCode | None
    text: SassText | None
    target: int | None = None


def decode_instruction(
    table: EncodingTable, word: int, control_bits: int, next_offset: int
) -> SassInstruction:
    """The instruction of a word (sm_70 and later: 128 bits, control included; ``control_bits``
    are the same 21 bits) whose successor lies at ``next_offset``. Never raises for unknown words.
    """
    control = ControlCode.from_bits(control_bits)
    core = word & ~table.coding.outside
    guard = word >> table.coding.guard & 15
    for entry in table.candidates(core) if control else ():
        assert control is not None
        text = _decode(entry, core, guard, control.reuse, next_offset)
        if text is not None and _encoded(table, text, next_offset) == core:
            return SassInstruction(word, control, text, _target(entry))
    return SassInstruction(word, control, None)


def _decode(
    entry: SassEncoding, core: int, guard: int, reuse: int, next_offset: int
) -> SassText | None:
    reused = entry.reused(reuse) if entry.matches(core) else None
    if reused is None or (guard and not entry.guarded):
        return None
    guard = guard if entry.guarded else ALWAYS
    try:
        opcode = entry.opcode(core)
        operands = entry.decode(core, next_offset)
    except Unencodable:
        return None
    uniform = entry.uniform and guard != ALWAYS
    hidden = entry.hidden(core) | reuse << REUSE & entry.silent
    return SassText(opcode, operands, guard & 7, bool(guard >> 3), uniform, reused, hidden)


def _target(entry: SassEncoding) -> int | None:
    """The operand that is a branch target."""
    at = 0
    for i, kind in enumerate(entry.shape[1:]):
        count = kind.count("#")
        if any(n.kind == "t" for n in entry.numbers[at : at + count]):
            return i
        at += count
    return None


def _encoded(table: EncodingTable, text: SassText, next_offset: int) -> int | None:
    try:
        return _encode(table, text, next_offset)[1]
    except SassError:
        return None


def _encode(table: EncodingTable, text: SassText, next_offset: int) -> tuple[SassEncoding, int]:
    entries = table.encodings(text)
    if not entries:
        raise SassError(
            f"{_shown(text.form)} must be an instruction of {table.arch}, got an unknown form",
            hint="nearest known: " + "; ".join(nearest_forms(table, text)),
        )
    reason: Unencodable | None = None
    for entry in entries:
        try:
            return entry, entry.encode(text, next_offset)
        except Unencodable as error:
            reason = reason or error  # of the encoding with the most variable bits
    assert reason is not None
    _check_marks(entries, text)
    raise SassError(f"{text}: {reason.message}", hint=reason.hint) from reason


def _check_marks(entries: Sequence[SassEncoding], text: SassText) -> None:
    """Raise SassError for an operand whose marks none of the encodings has."""
    for i, marks in enumerate(text.marks):
        known = {name or _NO_MARKS for entry in entries for name in entry.marks[i].bits}
        wanted = marks or _NO_MARKS
        if wanted not in known:
            near = get_close_matches(wanted, sorted(known), _SHOWN_MARKS, 0.0)
            shown = " ".join(sorted(near) + ["…"] * (len(known) > len(near)))
            raise SassError(f"{text}: an operand's marks must be one of {shown}, got {wanted}")


def encode_instruction(
    table: EncodingTable, text: SassText, control: ControlCode, next_offset: int
) -> SassInstruction:
    """The instruction of a text; its control code takes the operands' ``.reuse``.

    Raises SassError for a form, number or marks that the table does not have.
    """
    entry, word = _encode(table, text, next_offset)
    if not 0 <= text.guard <= ALWAYS:
        raise SassError(f"a guard must be P0 to P6 or PT, got P{text.guard}")
    if not entry.guarded and (text.guard != ALWAYS or text.negated):
        raise SassError(f"{text.opcode} must have no guard, got {text}")
    if text.guard != ALWAYS and text.uniform != entry.uniform:
        kind = "uniform predicate" if entry.uniform else "predicate"
        raise SassError(f"the guard of {text.opcode} must be a {kind}, got {text}")
    control = replace(control, reuse=entry.reuse_bits(text.reuse, text.hidden))
    if entry.guarded:
        word |= (text.guard | text.negated << 3) << table.coding.guard
    if table.coding.control is not None:
        word |= control.bits << table.coding.control
    return SassInstruction(word, control, text, _target(entry))


def nearest_forms(table: EncodingTable, text: SassText, count: int = 3) -> list[str]:
    """The known forms most like a text's, as ``OPCODE kind, kind``."""
    name = text.shape[0]
    if name not in table.by_mnemonic:
        name = next(iter(get_close_matches(name, list(table.by_mnemonic), 1, 0.0)), "")
    known = {_nearest_form(e, text) for e in table.by_mnemonic.get(name, ())}
    forms = sorted(known, key=lambda f: (_distance(f, text.form), f))
    return get_close_matches(_shown(text.form), [_shown(f) for f in forms[:_NEAREST]], count, 0.0)


def _nearest_form(entry: SassEncoding, text: SassText) -> tuple[str, ...]:
    """The opcode and kinds of an encoding whose modifiers are most like a text's."""
    wanted = set(text.modifiers.split("."))
    names = [
        min(field.bits, key=lambda name: len(set(name.split(".")) ^ wanted))
        for field in entry.modifiers
    ]
    return (entry.shape[0] + "".join(names), *entry.shape[1:])


def _distance(form: tuple[str, ...], wanted: tuple[str, ...]) -> int:
    """The number of modifiers and operands that differ."""
    modifiers = set(form[0].split(".")) ^ set(wanted[0].split("."))
    operands: int = sum(a != b for a, b in zip_longest(form[1:], wanted[1:]))
    return len(modifiers) + operands


def _shown(form: tuple[str, ...]) -> str:
    return f"{form[0]} {', '.join(form[1:])}".strip()


def control_mask(bits: int) -> int:
    """The 21 control bits of a number."""
    return bits & _CONTROL_MASK
