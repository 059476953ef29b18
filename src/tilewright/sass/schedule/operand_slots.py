"""Which register an instruction reads through which of its three operand slots.

Too many registers of one bank that an instruction reads through its slots cost a cycle
(``sass.lint.register_banks``), unless they come from the reuse cache: each slot
keeps the operand of the instruction whose ``.reuse`` flag is set. The slots are those that
nvdisasm shows: of FADD and HADD2 the second operand is in the third slot, where maxas takes the
second.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ..encoding_table import EncodingTable
from ..machine.instruction_properties import instruction_properties
from ..sass_text import SassOperand, SassText

_RZ = 255
_SLOT_BITS = {8: 0, 20: 1, 39: 2}, {24: 0, 32: 1, 64: 2}  # the lowest bit of a slot's number
_REUSING = {"x32", "x64", "shift", "compare", "fma", "fma_heavy", "alu", "fp64", "tensor"}


@dataclass(frozen=True, slots=True)
class OperandSlots:
    """``operands`` has the operand's index for each slot, None where a slot reads no register;
    ``reuses`` whether the instruction takes ``.reuse``.
    """

    operands: tuple[int | None, int | None, int | None]
    reuses: bool

    def registers(self, text: SassText) -> list[tuple[int, int]]:
        """(slot, register) of each register that is read through a slot, RZ left out."""
        found = []
        for slot, index in enumerate(self.operands):
            if index is not None:
                number = int(text.operands[index].numbers[0])
                if number != _RZ:
                    found.append((slot, number))
        return found


def operand_slots(table: EncodingTable, text: SassText) -> OperandSlots:
    """The slots of an instruction's operands, from the fields of its encoding."""
    return _of_form(table, text.form)


@lru_cache(1 << 12)
def _of_form(table: EncodingTable, form: tuple[str, ...]) -> OperandSlots:
    found: list[int | None] = [None, None, None]
    entries = table.encodings(SassText(form[0], tuple(SassOperand(kind) for kind in form[1:])))
    properties = instruction_properties(table.sm, form[0])
    if entries:
        at = 0
        for index, kind in enumerate(form[1:]):
            fields = entries[-1].numbers[at : at + kind.count("#")]
            at += kind.count("#")
            if not fields or not kind.startswith(("R#", "[R#")) or not fields[0].bits:
                continue
            slot = _SLOT_BITS[table.sm >= 70].get(min(bit for bit, _ in fields[0].bits))
            if slot is not None:
                found[slot] = index
        for operand, bit in entries[-1].reuse:
            if bit < 3 and form[1 + operand] == "R#":
                found = [None if x == operand else x for x in found]
                found[bit] = operand
    reuses = bool(entries and entries[-1].reuse) and properties.pipe in _REUSING
    return OperandSlots((found[0], found[1], found[2]), reuses)
