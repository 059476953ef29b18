"""``insert_text``: the listing of ``tilewright sass disassemble``, edited, back into its cubin.

A function begins with ``# name:``. Instructions that move take along what refers to them: symbols,
attributes and relocations of the cubin (``with_code``), and the return addresses of subroutines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ...errors import CubinError, SassError
from ..code_listing import assemble, decode_code
from ..code_motion import CodeMotion
from ..cubin_edit import with_code
from ..cubin_file import TEXT, CubinFile, check_cubin
from ..edited_code import Decoded, motion_between
from ..encoding import VOLTA
from ..encoding_table import EncodingTable, encoding_table
from ..machine.register_effects import registers_needed
from ..sass_instruction import control_mask, decode_instruction, encode_instruction
from ..sass_text import SassOperand, SassText

_PADDING = "--:-:-:Y:0 NOP"
_MOVES = ("MOV", "IMAD.U32")  # with an immediate, ptxas uses both
_HEADING = re.compile(r"^# ([^\s:]+): sm_(\d+), .*$", re.MULTILINE)


def insert_text(cubin: CubinFile, text: str, file: str = "<sass>") -> CubinFile:
    """The cubin with each function of a listing assembled and replaced.

    The number of registers grows to what the code needs. Raises SassError with the line of an
    instruction that can't be encoded, CubinError for a listing without functions, for one of a
    different architecture, and for a function that the cubin does not have.
    """
    check_cubin(cubin)
    if not isinstance(text, str):
        raise SassError(f"a listing must be a string, got {type(text).__name__}")
    found = list(_HEADING.finditer(text))
    if not found:
        raise CubinError(
            "a listing must have a line `# name: sm_…` for each function, got none",
            hint="begin with the output of tilewright sass disassemble",
        )
    ends = [m.start() for m in found[1:]] + [len(text)]
    for match, end in zip(found, ends, strict=True):
        if int(match[2]) != cubin.sm:
            raise CubinError(
                f"a listing must be of the cubin's sm_{cubin.sm}, got {match[1]} of sm_{match[2]}"
            )
        # blank lines keep the line numbers of errors
        body = "\n" * text[: match.start()].count("\n") + text[match.start() : end]
        cubin = _replaced(cubin, match[1], body, file)
    return cubin


def _replaced(cubin: CubinFile, name: str, text: str, file: str) -> CubinFile:
    table = encoding_table(cubin.sm)
    before = cubin.code(name)
    code = assemble(table, text, file)
    if len(code) != len(before):
        code = padded(table, code, cubin.section(TEXT + name).alignment)
    old, new = decode_code(table, before), decode_code(table, code)
    motion = motion_between(old, new, (len(before), len(code)))
    if not motion.is_identity:
        _check_branches(table, name, old)
    if table.coding is VOLTA and not motion.is_identity:
        code = with_return_addresses(table, code, old, motion)
        code = with_table_branches(table, code, old, motion)
    exits = [at for at, x in new if x.text is not None and x.text.opcode == "EXIT"]
    edited = with_code(cubin, name, code, motion, exits)
    needed = registers_needed(cubin.sm, [x.text for _, x in new if x.text is not None])
    return edited.with_registers(name, needed) if needed > cubin.registers(name) else edited


def _check_branches(table: EncodingTable, name: str, old: Sequence[Decoded]) -> None:
    """Raise CubinError for a word without an encoding that may hold the distance to a target."""
    for at, instruction in old:
        if instruction.text is None and table.may_branch(instruction.raw):
            raise CubinError(
                f"code of {name} can't move: the word at {at:#x}, {instruction.raw:#x}, may be a "
                "branch and has no known encoding",
                hint="keep each instruction at its offset",
            )


def padded(table: EncodingTable, code: bytes, alignment: int) -> bytes:
    """Code with NOPs up to a multiple of the alignment, as ptxas pads a function."""
    size = table.coding.width // 8
    missing = -len(code) % max(1, alignment) // size
    if table.coding is not VOLTA:
        missing = missing * 3 // 4  # one word of four holds control codes
    return code + assemble(table, f"{_PADDING}\n" * missing)


def with_return_addresses(
    table: EncodingTable, code: bytes, old: Sequence[Decoded], motion: CodeMotion
) -> bytes:
    """The code in which subroutines return to where the instruction after their call went. A
    return address is an immediate, ``MOV R2, 0xa0`` in the block that ends in CALL.REL; one that
    was edited is kept.
    """
    out = bytearray(code)
    for number, (call, instruction) in enumerate(old):
        text, back = instruction.text, call + 16
        if text is None or not text.opcode.startswith("CALL.REL"):
            continue
        found = _return_address(old[:number], back)
        place = None if found is None else motion.instruction(found[0])
        if found is None or place is None:
            continue
        last = replace(found[1].operands[-1], numbers=(motion.address(back),))
        _replace_operand(table, out, place, found[1], last)
    return bytes(out)


def with_table_branches(
    table: EncodingTable, code: bytes, old: Sequence[Decoded], motion: CodeMotion
) -> bytes:
    """The code in which BRX goes where its jump table says: to the sum of a register, its number
    and the offset of the next instruction, so that ``BRX R2 -0x280`` at 0x270 goes to R2. A number
    that was edited is kept.
    """
    out = bytearray(code)
    for at, instruction in old:
        text, place = instruction.text, motion.instruction(at)
        if text is None or place is None or not text.opcode.startswith("BRX"):
            continue
        *registers, number = text.operands[-1].numbers
        last = replace(text.operands[-1], numbers=(*registers, number - (place - at)))
        _replace_operand(table, out, place, text, last)
    return bytes(out)


def _replace_operand(
    table: EncodingTable, code: bytearray, place: int, text: SassText, last: SassOperand
) -> None:
    """Write the last operand of the instruction at ``place``, if it is still ``text``."""
    word = int.from_bytes(code[place : place + 16], "little")
    now = decode_instruction(table, word, control_mask(word >> 105), place + 16)
    if now.text == text and now.control is not None:
        moved = replace(text, operands=(*text.operands[:-1], last))
        encoded = encode_instruction(table, moved, now.control, place + 16)
        code[place : place + 16] = encoded.raw.to_bytes(16, "little")


def _return_address(before: Sequence[Decoded], back: int) -> tuple[int, SassText] | None:
    """The instruction before a call that loads ``back``: (offset, text)."""
    for at, instruction in reversed(before):
        text = instruction.text
        if text is None or instruction.target is not None:
            return None
        if text.opcode in _MOVES and text.operands[-1] == SassOperand("#", (back,)):
            return at, text
    return None
