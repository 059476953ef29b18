"""Line number programs (``.debug_line``) after code has moved.

Only operations that advance the address are rewritten, everything else is copied: the same rows
in the same order, each at its instruction's new offset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import CubinError
from .code_motion import CodeMotion
from .dwarf_bytes import DwarfCursor, sleb, uleb

COPY, ADVANCE_PC, ADVANCE_LINE, SET_FILE, CONST_ADD_PC, FIXED_ADVANCE_PC = 1, 2, 3, 4, 8, 9
END_SEQUENCE, SET_ADDRESS = 1, 2

# The motion and the old start of the code that a set_address operand refers to, by the operand's
# offset in the section and its value; None for code that did not move.
Lookup = Callable[[int, int], "tuple[CodeMotion, int] | None"]


@dataclass(frozen=True, slots=True)
class LineHeader:
    """What a program's operations mean; ``tables`` are the directories and file names."""

    minimum: int  # bytes of the shortest instruction
    line_base: int
    line_range: int
    opcode_base: int
    lengths: bytes  # operands of each standard opcode
    tables: bytes = b""

    def special(self, opcode: int) -> tuple[int, int]:
        """(bytes, lines) by which a special opcode advances."""
        value = opcode - self.opcode_base
        return value // self.line_range * self.minimum, self.line_base + value % self.line_range


def move_line_section(data: bytes, lookup: Lookup) -> tuple[bytes, dict[int, int]]:
    """The section for moved code, and the new offset of each set_address operand by its old one.

    Raises CubinError for malformed data, and where instructions changed their order.
    """
    out = bytearray()
    operands: dict[int, int] = {}
    cursor = DwarfCursor(data)
    while cursor.left:
        start = cursor.at
        length, width = cursor.unit_length()
        end = cursor.at + length
        head = cursor.at - start
        unit = DwarfCursor(data, cursor.at, end)
        header = line_header(unit, width)
        program = _Program(unit, header, lookup, len(out) - start)
        body = data[start + head : unit.at] + program.moved()
        operands |= program.operands
        size = len(body).to_bytes(width, "little")
        out += data[start : start + head - width] + size + body
        cursor.at = end
    return bytes(out), operands


def line_header(unit: DwarfCursor, width: int) -> LineHeader:
    """Read a header of version 2 to 4; the cursor is then at the program."""
    version = unit.number(2)
    if version not in (2, 3, 4):
        raise CubinError(f"the version of a line table must be 2 to 4, got {version}")
    length = unit.number(width)
    program = unit.at + length
    minimum = unit.number(1)
    if version == 4:
        unit.number(1)  # operations per instruction
    unit.number(1)  # default is_stmt
    base = int.from_bytes(unit.take(1), "little", signed=True)
    line_range, opcode_base = unit.number(1), unit.number(1)
    if not line_range or not opcode_base or program > unit.end:
        raise CubinError("a line table's header must have a line range and end inside its unit")
    lengths = unit.take(opcode_base - 1)
    tables = unit.take(max(0, program - unit.at))
    unit.at = program
    return LineHeader(minimum, base, line_range, opcode_base, lengths, tables)


class _Program:
    """Rewrites one line number program; ``shift`` is how far the unit itself moved."""

    def __init__(self, unit: DwarfCursor, header: LineHeader, lookup: Lookup, shift: int) -> None:
        self.unit = unit
        self.header = header
        self.lookup = lookup
        self.operands: dict[int, int] = {}
        self.out = bytearray()
        self.moved_to = unit.at + shift  # where out begins in the new section
        self.code: tuple[CodeMotion, int] | None = None
        self.old = self.new = 0  # addresses, relative to the start of the sequence

    def moved(self) -> bytes:
        """The new program."""
        while self.unit.left:
            start = self.unit.at
            opcode = self.unit.number(1)
            if opcode >= self.header.opcode_base:
                self._advance(start, *self.header.special(opcode), row=True)
            elif opcode == 0:
                self._extended(start)
            else:
                self._standard(start, opcode)
        return bytes(self.out)

    def _keep(self, start: int) -> None:
        self.out += self.unit.data[start : self.unit.at]

    def _standard(self, start: int, opcode: int) -> None:
        if opcode == ADVANCE_PC:
            return self._advance(start, self.unit.uleb() * self.header.minimum, 0)
        if opcode == CONST_ADD_PC:
            return self._advance(start, self.header.special(255)[0], 0)
        if opcode == FIXED_ADVANCE_PC:
            return self._advance(start, self.unit.number(2), 0)
        for _ in range(self.header.lengths[opcode - 1]):
            self.unit.uleb()
        self._keep(start)

    def _extended(self, start: int) -> None:
        length = self.unit.uleb()
        first = self.unit.at
        contents = self.unit.take(length)
        if contents[:1] == bytes([SET_ADDRESS]):
            operand = first + 1
            self.code = self.lookup(operand, int.from_bytes(contents[1:], "little"))
            self.old = self.new = 0
            self.operands[operand] = self.moved_to + len(self.out) + operand - start
            if self.code and not self.code[0].keeps_order:
                raise CubinError(
                    "a line table can't follow instructions that changed their order",
                    hint="assemble the kernel without -lineinfo",
                )
        elif contents[:1] == bytes([END_SEQUENCE]):
            self.code = None
        self._keep(start)

    def _advance(self, start: int, size: int, lines: int, row: bool = False) -> None:
        """Replace an operation that advances by ``size`` bytes and ``lines``; ``row``: it also
        appends a row.
        """
        self.old += size
        target = self.old
        if self.code:
            motion, origin = self.code
            target = motion.address(origin + self.old) - motion.address(origin)
        if target - self.new == size:
            self._keep(start)
        else:
            self._emit(target - self.new, lines, row)
        self.new = target

    def _emit(self, size: int, lines: int, row: bool) -> None:
        unit = max(1, self.header.minimum)
        if size < 0 or size % unit:
            raise CubinError(f"a line table must advance by multiples of {unit}, got {size} bytes")
        if size:
            self.out += bytes([ADVANCE_PC]) + uleb(size // unit)
        if lines:
            self.out += bytes([ADVANCE_LINE]) + sleb(lines)
        if row:
            self.out.append(COPY)
