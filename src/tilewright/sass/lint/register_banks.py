"""Register banks and the operand reuse cache: which reads of an instruction conflict.

sm_5x has four banks (register number modulo 4), sm_70 and later two (modulo 2), with one read a
cycle each; an instruction that occupies its pipe for two cycles has two cycles to read. Measured on
the H200: FFMA takes 1, 2 and 3 cycles where a bank is read once, twice and three times, IADD3 and
IMAD 2, 2 and 3. A register that the instruction before marked ``.reuse`` in the same operand slot
is not read from its bank; on sm_70 and later a slot keeps its register until an instruction of the
same warp reads that slot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..machine.instruction_properties import instruction_properties
from ..machine.register_effects import RZ, output_count
from ..sass_text import SassText

Slots = tuple[tuple[int, int], ...]  # (operand slot, register) of the plain register sources
BANKS = {52: (4, 1), 80: (2, 1), 90: (2, 1)}  # banks, reads of one bank in a cycle


_OVERLAP = 70  # from here on, operands are read during all cycles of the pipe


def source_slots(sm: int, text: SassText) -> Slots:
    """(slot, register) of each plain source register of an arithmetic instruction."""
    if instruction_properties(sm, text.opcode).pipe in ("tensor", "fp64"):
        return ()
    return _fixed_slots(sm, text)


def _fixed_slots(sm: int, text: SassText) -> Slots:
    """The same of each instruction of fixed latency."""
    row = instruction_properties(sm, text.opcode)
    if row.latency != "fixed":
        return ()
    first = output_count(row, text)
    return tuple(
        (i - first, int(x.numbers[0]))
        for i, x in enumerate(text.operands)
        if i >= first and x.kind == "R#" and x.numbers[0] != RZ
    )


def reused_slots(sm: int, text: SassText) -> Slots:
    """(slot, register) that an instruction keeps in the reuse cache."""
    first = output_count(instruction_properties(sm, text.opcode), text)
    return tuple(
        (i - first, int(x.numbers[0]))
        for i, x in enumerate(text.operands)
        if text.reuse >> i & 1 and x.kind == "R#"
    )


def next_cached(sm: int, text: SassText, cached: Slots) -> Slots:
    """What the reuse cache holds after an instruction."""
    new = reused_slots(sm, text)
    if sm < 70:  # a memory instruction between two arithmetic ones leaves the cache as it is
        return cached if instruction_properties(sm, text.opcode).is_variable else new
    used = {slot for slot, _ in _fixed_slots(sm, text)} | {slot for slot, _ in new}
    return (*new, *(entry for entry in cached if entry[0] not in used))


def bank_conflicts(sm: int, text: SassText, cached: Slots = ()) -> int:
    """Extra cycles to read an instruction's registers; ``cached`` is what the reuse cache holds."""
    banks, width = BANKS[sm]
    read = {register for slot, register in source_slots(sm, text) if (slot, register) not in cached}
    load = Counter(register % banks for register in read)
    cycles = max((-(-n // width) for n in load.values()), default=1)
    interval = instruction_properties(sm, text.opcode).interval if sm >= _OVERLAP else 1
    return max(0, cycles - interval)


def conflict_cycles(sm: int, texts: Sequence[SassText | None]) -> list[int]:
    """The extra cycles of each instruction of straight-line code; 0 for words without a text."""
    found: list[int] = []
    cached: Slots = ()
    for text in texts:
        if text is None:
            found.append(0)
            cached = ()
            continue
        found.append(bank_conflicts(sm, text, cached))
        cached = next_cached(sm, text, cached)
    return found
