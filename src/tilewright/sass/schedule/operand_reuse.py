"""Reuse flags set automatically, as maxas sets them, and counts of bank conflicts.

A flag belongs on a read of a register if the same slot reads it again before it is written and
before control flow. A slot is tracked for at most three registers, the least recent is dropped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..encoding_table import EncodingTable
from ..lint.register_banks import BANKS
from ..machine.instruction_properties import instruction_properties
from ..machine.register_effects import output_count, register_effects
from ..sass_text import SassText
from .operand_slots import operand_slots

_TRACKED = 3  # registers of a slot
_TRANSFERS = {"BRA", "SSY", "CAL", "PBK", "PCNT", "JCAL", "RET", "BRX", "JMP", "JMX", "BRK", "CONT",
              "SYNC", "PRET", "BSSY", "BSYNC", "CALL", "WARPSYNC"}  # fmt: skip


def with_reuse(table: EncodingTable, texts: Sequence[SassText]) -> list[SassText]:
    """The instructions with the flags that their order allows, and no others on instructions that
    take flags.
    """
    flags = [0 if operand_slots(table, t).reuses else t.reuse for t in texts]
    last: list[dict[int, int]] = [{}, {}, {}]  # register: index of its last read, for each slot
    for i, text in enumerate(texts):
        writes = {n for file, n in register_effects(table.sm, text).writes if file == "R"}
        slots = operand_slots(table, text)
        for seen in last:
            for number in writes & seen.keys():
                del seen[number]
            if text.opcode.split(".")[0] in _TRANSFERS:
                seen.clear()
        if not slots.reuses:
            continue
        first = _first_result(table.sm, text)
        for slot, number in slots.registers(text):
            if number == first:  # written by the instruction itself
                continue
            seen = last[slot]
            if number in seen:
                earlier = texts[seen[number]]
                operand = operand_slots(table, earlier).operands[slot]
                assert operand is not None
                flags[seen[number]] |= 1 << operand
            elif len(seen) >= _TRACKED:
                del seen[min(seen, key=lambda n: seen[n])]
            seen[number] = i
    return [replace(t, reuse=f) for t, f in zip(texts, flags, strict=True)]


def _first_result(sm: int, text: SassText) -> int | None:
    """The first register that an instruction writes."""
    outputs = output_count(instruction_properties(sm, text.opcode), text)
    found = (int(x.numbers[0]) for x in text.operands[:outputs] if x.kind == "R#")
    return next(found, None)


@dataclass(frozen=True, slots=True)
class RegisterReads:
    """Registers read through slots: all, those from the reuse cache, and bank conflicts with the
    indexes of their instructions.
    """

    total: int
    reused: int
    conflicts: int
    conflicting: tuple[int, ...]


def register_reads(table: EncodingTable, texts: Sequence[SassText]) -> RegisterReads:
    """Count reads of arithmetic instructions, as maxas does: a conflict is a register that a bank
    can't read in the same cycle as those before it.
    """
    banks, width = BANKS[table.sm]
    cached: list[set[int]] = [set(), set(), set()]
    total = reused = 0
    conflicting: list[int] = []
    for i, text in enumerate(texts):
        slots = operand_slots(table, text)
        if not slots.reuses:
            continue
        used: dict[int, list[int]] = defaultdict(list)
        for slot, number in slots.registers(text):
            total += 1
            if number in cached[slot]:
                reused += 1
            else:
                together = used[number % banks]
                if number not in together and len(together) >= width:
                    conflicting.append(i)
                together.append(number)
            flagged = text.reuse >> (slots.operands[slot] or 0) & 1
            (cached[slot].add if flagged else cached[slot].discard)(number)
    return RegisterReads(total, reused, len(conflicting), tuple(conflicting))
