"""A cursor over DWARF data: fixed-size numbers, LEB128, strings; truncated data is a CubinError."""

from __future__ import annotations

from ..errors import CubinError

_LONGEST = 10  # bytes of a 64-bit LEB128


class DwarfCursor:
    """Reads ``data[at:end]`` forwards; ``at`` is the current offset."""

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.data = data
        self.at = at
        self.end = len(data) if end is None else end

    @property
    def left(self) -> bool:
        """Whether there are bytes left."""
        return self.at < self.end

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        if self.at + size > self.end:
            raise CubinError(f"debug data is truncated at {self.at:#x}, must have {size} bytes")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        """An unsigned little-endian number of ``size`` bytes."""
        return int.from_bytes(self.take(size), "little")

    def unit_length(self) -> tuple[int, int]:
        """(bytes that follow, bytes of an offset: 4 or 8): the start of a unit."""
        length = self.number(4)
        wide = length == 0xFFFFFFFF
        length = self.number(8) if wide else length
        if self.at + length > self.end:
            raise CubinError(f"a unit of debug data must have {length} bytes at {self.at:#x}")
        return length, 8 if wide else 4

    def uleb(self) -> int:
        """An unsigned LEB128 number."""
        value = 0
        for i in range(_LONGEST):
            byte = self.number(1)
            value |= (byte & 0x7F) << 7 * i
            if byte < 0x80:
                return value
        raise CubinError(f"a LEB128 number must have at most {_LONGEST} bytes, at {self.at:#x}")

    def sleb(self) -> int:
        """A signed LEB128 number."""
        start = self.at
        value = self.uleb()
        bits = 7 * (self.at - start)
        return value - (1 << bits) if value >> bits - 1 & 1 else value

    def text(self) -> bytes:
        """A zero-terminated string, without the zero."""
        stop = self.data.find(b"\0", self.at, self.end)
        if stop < 0:
            raise CubinError(f"a string of debug data must end in a zero byte, at {self.at:#x}")
        found = self.data[self.at : stop]
        self.at = stop + 1
        return found


def uleb(value: int) -> bytes:
    """An unsigned LEB128 number."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def sleb(value: int) -> bytes:
    """A signed LEB128 number."""
    out = bytearray()
    while not -64 <= value < 64:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value & 0x7F])
