"""Machine code to SASS text and back: ``disassemble`` and ``assemble`` are inverse.

    .L_0:
    --:-:1:-:2      LDG.E R4, desc[UR4][R2.64] ;
    01:-:-:Y:5  @P0 BRA `(.L_0) ;

A line has a control code in maxas' notation and an instruction in nvdisasm's syntax, or
``.word 0x…``: the bits of an instruction that the table does not have, and its reuse mask. The
word's own control bits count only where no notation has them (barrier number 6).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..errors import SassError, SourceLocation
from .control_code import ControlCode
from .encoding import VOLTA
from .encoding_table import EncodingTable
from .sass_instruction import (
    SassInstruction,
    control_mask,
    decode_instruction,
    encode_instruction,
)
from .sass_text import SassOperand, parse_instruction

_LABEL = re.compile(r"(\.L_\w+):")
_REFERENCE = re.compile(r"`\((\.L_\w+)\)")
_LINE = re.compile(r"(\S+)\s+(.*)", re.DOTALL)
_WORD = re.compile(r"\.word\s+(0x[0-9a-fA-F]+)(?:,\s*(0x[0-9a-fA-F]))?\s*;?")
_COMMENT = re.compile(r"//.*|^\s*#.*")
_BUNDLE = 32  # bytes of a control word and its three instructions, up to sm_6x


def decode_code(table: EncodingTable, code: bytes) -> list[tuple[int, SassInstruction]]:
    """(offset, instruction) of each instruction in a function's code.

    Raises SassError if the code is not whole instructions, and for arguments of other types.
    """
    _check_code_types(table, code)
    if len(code) % (16 if table.coding is VOLTA else _BUNDLE):
        raise SassError(f"code must be whole instructions, got {len(code)} bytes")
    return list(_decoded(table, code))


def _check_code_types(table: object, code: object) -> None:
    if not isinstance(table, EncodingTable) or not isinstance(code, bytes | bytearray):
        kinds = type(table).__name__, type(code).__name__
        raise SassError(f"code must be a table and bytes, got {kinds[0]} and {kinds[1]}")


def _decoded(table: EncodingTable, code: bytes) -> Iterator[tuple[int, SassInstruction]]:
    if table.coding is VOLTA:
        for at in range(0, len(code), 16):
            word = int.from_bytes(code[at : at + 16], "little")
            yield at, decode_instruction(table, word, control_mask(word >> 105), at + 16)
        return
    for start in range(0, len(code), _BUNDLE):
        control = int.from_bytes(code[start : start + 8], "little")
        for i in range(3):
            at = start + 8 * (i + 1)
            word = int.from_bytes(code[at : at + 8], "little")
            bits = control_mask(control >> 21 * i)
            yield at, decode_instruction(table, word, bits, at + 8)


def encode_code(table: EncodingTable, instructions: Sequence[SassInstruction]) -> bytes:
    """A function's code; the inverse of ``decode_code``. Raises SassError for a part of a bundle,
    or where an instruction of sm_5x or sm_6x has no control code.
    """
    if table.coding is VOLTA:
        return b"".join(x.raw.to_bytes(16, "little") for x in instructions)
    if len(instructions) % 3:
        raise SassError(f"instructions must be a multiple of 3, got {len(instructions)}")
    out = bytearray()
    for i in range(0, len(instructions), 3):
        three = instructions[i : i + 3]
        if any(x.control is None for x in three):
            raise SassError(f"instructions {i} to {i + 2} must have control codes, got none")
        control = sum(x.control.bits << 21 * k for k, x in enumerate(three) if x.control)
        out += control.to_bytes(8, "little")
        out += b"".join(x.raw.to_bytes(8, "little") for x in three)
    return bytes(out)


def disassemble(table: EncodingTable, code: bytes) -> str:
    """The SASS text of a function's code, one instruction a line."""
    decoded = decode_code(table, code)
    inside = {at for at, _ in decoded}
    targets = sorted({t for _, x in decoded if (t := _target_of(x)) in inside and t is not None})
    labels = {target: f".L_{i}" for i, target in enumerate(targets)}
    lines = []
    for at, instruction in decoded:
        if at in labels:
            lines.append(f"{labels[at]}:")
        lines.append(_line(instruction, labels, table.coding.width // 4))
    return "\n".join(lines) + "\n"


def _target_of(instruction: SassInstruction) -> int | None:
    """The instruction that a branch goes to; none for ``RET.REL R2 0x0`` and ``CALL.REL R2 0x0``,
    whose 0 is the function's start, to which the register's value is added.
    """
    if instruction.text is None or instruction.target is None:
        return None
    operand = instruction.text.operands[instruction.target]
    return None if operand.kind in ("R# #", "UR# #") else int(operand.numbers[-1])


def _line(instruction: SassInstruction, labels: dict[int, str], digits: int) -> str:
    if instruction.text is None:
        control = instruction.control or ControlCode()
        reuse = f", {control.reuse:#x}" if control.reuse else ""
        return f"{control}      .word 0x{instruction.raw:0{digits}x}{reuse} ;"
    shown = str(instruction.text)
    target = _target_of(instruction)
    if target in labels and instruction.target is not None:
        operands = list(instruction.text.operands)
        operand = operands[instruction.target]
        operands[instruction.target] = _with_label(operand, labels[target])
        shown = str(replace(instruction.text, operands=tuple(operands)))
    guard, _, rest = shown.partition(" ") if shown.startswith("@") else ("", "", shown)
    return f"{instruction.control} {guard:>4} {rest} ;"


def _with_label(operand: SassOperand, label: str) -> SassOperand:
    """The operand with its last number, the target, as a label."""
    before, _, after = operand.kind.rpartition("#")
    return SassOperand(f"{before}`({label}){after}", operand.numbers[:-1], operand.marks)


def assemble(table: EncodingTable, text: str, file: str = "<sass>") -> bytes:
    """The code of SASS text. Raises SassError with the line of what can't be encoded, and for
    arguments of other types, such as text in the table's place.
    """
    check_source_types("assemble", table, text)
    lines, labels = _instruction_lines(table, text, file)
    made = []
    for number, at, line in lines:
        try:
            made.append(_instruction(table, line, labels, at + table.coding.width // 8))
        except SassError as error:
            place = SourceLocation(file, number, 1, line, len(line))
            raise SassError(error.message, location=place, hint=error.hint) from error
    return encode_code(table, made)


def check_source_types(function: str, table: object, text: object) -> None:
    """Raise SassError unless a function got an encoding table and a text, in this order."""
    if not isinstance(table, EncodingTable) or not isinstance(text, str):
        kinds = type(table).__name__, type(text).__name__
        raise SassError(
            f"{function} must get an encoding table and a text, got {kinds[0]} and {kinds[1]}",
            hint=f"{function}(encoding_table(90), text)",
        )


def _offset(table: EncodingTable, index: int) -> int:
    return 16 * index if table.coding is VOLTA else _BUNDLE * (index // 3) + 8 * (index % 3 + 1)


def _instruction_lines(
    table: EncodingTable, text: str, file: str
) -> tuple[list[tuple[int, int, str]], dict[str, int]]:
    """(line number, offset, text) of each instruction, and the labels' offsets."""
    lines: list[tuple[int, int, str]] = []
    labels: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        body = _COMMENT.sub("", line).strip()
        at = _offset(table, len(lines))
        if label := _LABEL.fullmatch(body):
            if label[1] in labels:
                place = SourceLocation(file, number, 1, line)
                raise SassError(f"a label must be defined once, got {label[1]}", location=place)
            labels[label[1]] = at
        elif body:
            lines.append((number, at, body))
    return lines, labels


def _instruction(
    table: EncodingTable, line: str, labels: dict[str, int], next_offset: int
) -> SassInstruction:
    found = _LINE.fullmatch(line)
    if found is None:
        raise SassError(f"a line must be a control code and an instruction, got {line!r:.80}")
    control = ControlCode.parse(found[1])
    if word := _WORD.fullmatch(found[2].strip()):
        return _raw(table, int(word[1], 16), replace(control, reuse=int(word[2] or "0", 16)))

    def resolve(match: re.Match[str]) -> str:
        if match[1] not in labels:
            raise SassError(f"a label must be defined, got {match[1]}")
        return f"{labels[match[1]]:#x}"

    text = parse_instruction(_REFERENCE.sub(resolve, found[2]))
    return encode_instruction(table, text, control, next_offset)


def _raw(table: EncodingTable, word: int, control: ControlCode) -> SassInstruction:
    if word >> table.coding.width:
        raise SassError(f"a word must have {table.coding.width} bits, got {word:#x}")
    at = table.coding.control
    if at is not None and ControlCode.from_bits(control_mask(word >> at)) is not None:
        word = word & ~(control_mask(-1) << at) | control.bits << at
    return SassInstruction(word, control, None)
