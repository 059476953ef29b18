"""Which registers an instruction reads and writes, from its text.

A register is (file, number); files are R, UR, P, UP and, on sm_5x, CC. ``instruction_properties``
says which leading operands are results; widths of vectors follow from modifiers, as in nvdisasm's
syntax: IMAD.WIDE writes a pair, LDG.128 four registers, HMMA fragments by its shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from ..sass_text import ALWAYS, SassOperand, SassText
from .instruction_properties import InstructionProperties, instruction_properties
from .matrix_widths import matrix_widths
from .texture_widths import texture_widths

Register = tuple[str, int]
RZ, URZ = 255, 63
_RESERVED, _FIRST_RESERVED = 2, 70
_NONE = {"R": RZ, "UR": URZ, "P": ALWAYS, "UP": ALWAYS}
_NAMED = re.compile(r"(?<![A-Za-z])(UR|UP|R|P)#(\.64)?")
_SURFACES = ("SULD", "SUST", "SUATOM", "SURED", "SUQUERY")
_DOUBLES = {"DADD", "DMUL", "DFMA", "DSETP", "DMNMX", "DSET"}


@dataclass(frozen=True, slots=True)
class RegisterEffects:
    """``reads`` and ``writes`` of an instruction whose guard holds, RZ and PT left out;
    ``guards`` are the predicate guard (read at issue). ``addresses`` is the part of ``reads``
    that forms memory addresses, ``predicates`` the part that are predicates.
    """

    reads: frozenset[Register]
    writes: frozenset[Register]
    guards: frozenset[Register]
    addresses: frozenset[Register]


@lru_cache(1 << 15)
def register_effects(sm: int, text: SassText) -> RegisterEffects:
    """The effects of an instruction of an architecture (``sm`` is 52, 80 or 90)."""
    row = instruction_properties(sm, text.opcode)
    outputs = output_count(row, text)
    reads: set[Register] = set()
    writes: set[Register] = set()
    addresses: set[Register] = set()
    widths = _widths(sm, text, row, outputs)
    for index, operand in enumerate(text.operands):
        found = _registers(sm, text, operand, widths[index])
        if index < outputs:
            writes |= found
            continue
        reads |= found
        if "[" in operand.kind:
            addresses |= found
    _implicit(sm, text, row, reads, writes)
    guards = {("UP" if text.uniform else "P", text.guard)} - {("P", ALWAYS), ("UP", ALWAYS)}
    return RegisterEffects(*(frozenset(x) for x in (reads, writes, guards, addresses)))


def registers_needed(sm: int, texts: Iterable[SassText]) -> int:
    """The registers per thread that a cubin must say its code has: up to the highest that is used,
    and from sm_70 on the two above it, as ptxas counts (code that uses those is an illegal
    instruction on the H200).
    """
    used = [0]
    for text in texts:
        effects = register_effects(sm, text)
        used += [n + 1 for file, n in effects.reads | effects.writes if file == "R"]
    return max(used) + (_RESERVED if sm >= _FIRST_RESERVED else 0)


def output_count(row: InstructionProperties, text: SassText) -> int:
    """The number of leading operands that an instruction writes."""
    kinds = [x.kind.lstrip("+") for x in text.operands]
    if row.outputs is not None:
        found = re.match(row.outputs, _letters(kinds))
        return len(found[0]) if found else 0
    return 0


def _letters(kinds: list[str]) -> str:
    """One letter an operand: r and p for registers and predicates (uniform too), else ``.``."""
    names = {"R#": "r", "UR#": "r", "P#": "p", "UP#": "p"}
    return "".join(names.get(kind, ".") for kind in kinds)


@dataclass(frozen=True, slots=True)
class RegisterOperand:
    """``count`` registers of the file R from ``first`` on, in number ``position`` of operand
    ``index``; ``written`` tells whether they are a result.
    """

    index: int
    position: int
    first: int
    count: int
    written: bool


def register_operands(sm: int, text: SassText) -> list[RegisterOperand]:
    """The plain registers (R, without RZ) that an instruction names, in order."""
    row = instruction_properties(sm, text.opcode)
    outputs = output_count(row, text)
    found = []
    for index, width in enumerate(_widths(sm, text, row, outputs)):
        for position, file, first, count in _named(sm, text, text.operands[index], width):
            if file == "R":
                found.append(RegisterOperand(index, position, first, count, index < outputs))
    return found


def _registers(sm: int, text: SassText, operand: SassOperand, width: int) -> set[Register]:
    """The registers that an operand names; ``width`` is that of a plain register."""
    named = _named(sm, text, operand, width)
    return {(file, first + i) for _, file, first, count in named for i in range(count)}


def _named(
    sm: int, text: SassText, operand: SassOperand, width: int
) -> Iterator[tuple[int, str, int, int]]:
    """(position among the numbers, file, first register, registers in a row) of each name."""
    if "#" not in operand.kind:
        return
    places = zip(re.finditer("#", operand.kind), operand.numbers, strict=True)
    for position, (match, number) in enumerate(places):
        name = _NAMED.search(operand.kind, 0, match.end() + 3)
        while name and name.start(0) + len(name[1]) != match.start():
            name = _NAMED.search(operand.kind, name.end())
        if name is not None and int(number) != _NONE[name[1]]:
            first = int(number) + _first_of_descriptor(text, operand.kind)
            yield position, name[1], first, _count(sm, text, operand.kind, name, width)


def _first_of_descriptor(text: SassText, kind: str) -> int:
    """Where wgmma's descriptors begin after the register that is named: A's are the first two, B's
    the next two, also where A is in registers and the first two are not read.
    """
    return 2 if kind.startswith("gdesc[") and text.operands[1].kind != kind else 0


def _count(sm: int, text: SassText, kind: str, name: re.Match[str], width: int) -> int:
    """Registers in a row that one name stands for."""
    if name[1] in ("P", "UP"):
        return 1
    if "[" not in kind or text.opcode.startswith(_SURFACES):
        return width
    if kind.startswith(("desc[", "gdesc[")) and name.start() < kind.index("]"):
        return 4 if kind[0] == "g" and text.operands[1].kind == kind else 2  # of A and B, or of B
    wide = name[2] is not None or (sm < 70 and ".E" in text.opcode) or _plain_extended(text, kind)
    return 2 if wide else 1


def _plain_extended(text: SassText, kind: str) -> bool:
    """A 64-bit address without a descriptor: ``LDG.E R0, [R2]``."""
    return ".E" in text.opcode and kind.startswith("[R#") and not text.opcode.startswith("LDGSTS")


def _implicit(
    sm: int, text: SassText, row: InstructionProperties, reads: set[Register],
    writes: set[Register],
) -> None:  # fmt: skip
    """Predicate masks of P2R and R2P, and the carry flag of sm_5x."""
    name = text.opcode.split(".")[0]
    if name in ("P2R", "R2P"):
        last = text.operands[-1]
        mask = int(last.numbers[0]) if last.kind == "#" else 0x7F
        flags = {("P", i) for i in range(7) if mask >> i & 1}
        (reads if name == "P2R" else writes).update(flags)
    if sm < 70:
        if any(".CC" in x.marks for x in text.operands):
            writes.add(("CC", 0))
        if ".X" in text.opcode.removesuffix(".XOR") and ".XOR" not in text.opcode:
            reads.add(("CC", 0))
        if any(x.kind.startswith("CC") or "CC" in x.marks.split(".")[0] for x in text.operands):
            reads.add(("CC", 0))


def _widths(sm: int, text: SassText, row: InstructionProperties, outputs: int) -> list[int]:
    """Registers in a row that each plain register operand stands for."""
    count = len(text.operands)
    name = text.opcode.split(".")[0]
    if row.pipe == "tensor":
        return matrix_widths(text)
    if row.pipe == "texture" and sm >= _FIRST_RESERVED:
        return texture_widths(text, outputs)
    if text.opcode.startswith("SYNCS.ARRIVE.TRANS64"):  # the state of a barrier, one operand
        return [2 if i < outputs else 1 for i in range(count)]
    if row.is_memory or name in ("LDC", "ULDC"):
        return [_memory_width(text)] * count
    if name in _DOUBLES:
        return [1 if name == "DSET" and not i else 2 for i in range(count)]
    if name in ("IMAD", "UIMAD") and (".WIDE" in text.opcode or ".HI" in text.opcode):
        result = 2 if ".WIDE" in text.opcode else 1
        return [result if not i else 2 if i == outputs + 2 else 1 for i in range(count)]
    if (name == "UIADD3" and ".64" in text.opcode) or (name in ("LEPC", "ULEPC") and sm >= 70):
        return [2] * count
    if name == "MATCH":
        return [2 if ".U64" in text.opcode and i >= outputs else 1 for i in range(count)]
    if name == "CS2R":
        return [1 if ".32" in text.opcode or sm < 70 else 2] * count
    if name in ("F2F", "I2F", "F2I", "FRND", "I2I"):
        return _conversion_widths(text, count)
    if name in ("TLD", "TEX", "TLDS"):
        mask = int(text.operands[-1].numbers[0]) if text.operands[-1].kind == "#" else 15
        return [mask.bit_count(), *[1] * (count - 1)]
    if name == "BRX" or (name in ("CALL", "RET") and sm >= 70):
        return [2] * count
    return [1] * count


def _memory_width(text: SassText) -> int:
    if text.opcode.startswith(("LDSM", "STSM")):
        return int(text.opcode[-1]) if text.opcode[-1] in "24" else 1
    if ".128" in text.opcode:
        return 4
    if text.opcode.startswith("SYNCS.PHASECHK"):
        return 1
    if "TRANS64" in text.opcode or re.search(r"[.US]64\b", text.opcode):
        return 2
    return 1


def _conversion_widths(text: SassText, count: int) -> list[int]:
    """F2F.F64.F32 writes a pair; the modifiers are result's and operand's type, in this order."""
    name, *modifiers = text.opcode.split(".")
    types = [m for m in modifiers if re.fullmatch(r"[FUSB]F?(8|16|32|64)|TF32", m)]
    wide = [2 if t.endswith("64") else 1 for t in types]
    if name == "FRND":
        wide = [wide[0] if wide else 1] * 2
    if len(wide) == 1:
        wide = _default_types(name, types[0], wide[0])
    result, operand = wide[:2] if len(wide) >= 2 else (1, 1)
    return [result, *[operand] * (count - 1)]


def _default_types(name: str, given: str, width: int) -> list[int]:
    """The type left out is F32, or S32 for an integer: F2I.F64 and I2F.F64, I2F.U64."""
    is_float = given.startswith(("F", "B"))
    of_result = is_float if name == "I2F" else not is_float if name == "F2I" else True
    return [width, 1] if of_result else [1, width]
