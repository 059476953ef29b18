"""Call frame information (``.debug_frame``) after code has moved: ranges and advances of the
location counter are rewritten in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import CubinError
from .code_motion import CodeMotion
from .dwarf_bytes import DwarfCursor

# The motion and the old start of the code of a frame, by the offset of its location in the
# section and the value there; None for code that did not move.
FrameLookup = Callable[[int, int], "tuple[CodeMotion, int] | None"]

# The operands of each operation: u an LEB128 number, b a block, 8 an address.
_OPERANDS = {
    0x00: "", 0x01: "8", 0x05: "uu", 0x06: "u", 0x07: "u", 0x08: "u", 0x09: "uu", 0x0A: "",
    0x0B: "", 0x0C: "uu", 0x0D: "u", 0x0E: "u", 0x0F: "b", 0x10: "ub", 0x11: "uu", 0x12: "uu",
    0x13: "u", 0x14: "uu", 0x15: "uu", 0x16: "ub",
}  # fmt: skip
_ADVANCES = {0x02: 1, 0x03: 2, 0x04: 4}  # bytes of the operand of DW_CFA_advance_loc1, 2, 4
_WRAP = 1 << 32  # ptxas also writes advances backwards, as numbers modulo 2^32
_SET_LOC, _ADVANCE, _OFFSET, _RESTORE = 0x01, 0x40, 0x80, 0xC0


@dataclass(frozen=True, slots=True)
class _Frame:
    """The code of a frame, before and after."""

    motion: CodeMotion
    start: int
    alignment: int  # bytes of a unit of the location counter

    def at(self, offset: int) -> int:
        """The new offset of an old one, both relative to the start."""
        moved = self.motion.address(self.start + offset) - self.motion.address(self.start)
        if moved < 0:
            raise CubinError(f"a call frame's code must keep its order, got {moved} bytes")
        return moved


def move_frame_section(data: bytes, lookup: FrameLookup) -> bytes:
    """The section for moved code, of the same size. A frame that names no CIE has the one before
    it: nvJitLink removes padding between frames and leaves the offsets of CIEs as they were.

    Raises CubinError for malformed data, and where an advance does not fit into its operand.
    """
    out = bytearray(data)
    alignments: dict[int, int] = {}
    latest: int | None = None
    cursor = DwarfCursor(data)
    while cursor.left:
        start = cursor.at
        length, width = cursor.unit_length()
        entry = DwarfCursor(data, cursor.at, cursor.at + length)
        cursor.at += length
        if not length:
            continue
        owner = entry.number(width)
        if owner == (1 << 8 * width) - 1:
            alignments[start] = latest = _alignment(entry)
            continue
        location = entry.at
        code = lookup(location, entry.number(8))
        if code is None:
            continue
        alignment = alignments.get(owner, latest)
        if alignment is None:
            raise CubinError(f"a frame must name its CIE, got offset {owner:#x}")
        _move_frame(out, entry, _Frame(*code, alignment))
    return bytes(out)


def _alignment(entry: DwarfCursor) -> int:
    """The code alignment factor of a CIE."""
    version = entry.number(1)
    entry.text()  # augmentation
    if version >= 4:
        entry.take(2)  # sizes of addresses and segments
    return entry.uleb() or 1


def _move_frame(out: bytearray, entry: DwarfCursor, frame: _Frame) -> None:
    at = entry.at
    size = entry.number(8)
    out[at : at + 8] = frame.at(size).to_bytes(8, "little")
    old = new = 0
    while entry.left:
        at = entry.at
        opcode = entry.number(1)
        high = opcode & 0xC0
        width = _ADVANCES.get(opcode, 0)
        if high == _ADVANCE or width:
            step = entry.number(width) if width else opcode & 0x3F
            old = (old + step * frame.alignment) % _WRAP
            moved = frame.at(old)
            _patch(out, at, width, (moved - new) % _WRAP // frame.alignment)
            new = moved
        elif high in (_OFFSET, _RESTORE):
            entry.take(0) if high == _RESTORE else entry.uleb()
        else:
            _skip(entry, opcode)


def _patch(out: bytearray, at: int, width: int, step: int) -> None:
    """Write an advance of ``step`` units at the operation's offset."""
    if not 0 <= step < (1 << 8 * width if width else 0x40):
        raise CubinError(f"an advance of a call frame must fit into {width or 1} bytes, got {step}")
    if width:
        out[at + 1 : at + 1 + width] = step.to_bytes(width, "little")
    else:
        out[at] = _ADVANCE | step


def _skip(entry: DwarfCursor, opcode: int) -> None:
    if opcode not in _OPERANDS or opcode == _SET_LOC:
        raise CubinError(f"operation {opcode:#x} of a call frame is not supported in moved code")
    for kind in _OPERANDS[opcode]:
        value = entry.uleb()
        if kind == "b":
            entry.take(value)
