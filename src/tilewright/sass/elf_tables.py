"""Symbol tables and relocations of a cubin as values.

A relocation's ``addend`` is None in sections of type REL, which keep it in the patched bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import CubinError
from .elf_file import ElfSection

SYMTAB, RELA, REL = 2, 4, 9
FUNCTION, SECTION_SYMBOL = 2, 3  # symbol types
_SYMBOL = struct.Struct("<IBBHQQ")
_REL = struct.Struct("<QQ")
_RELA = struct.Struct("<QQq")


@dataclass(frozen=True, slots=True)
class ElfSymbol:
    """A symbol: ``value`` is an offset in section number ``section``, ``size`` bytes long.

    ``info`` holds the binding (upper 4 bits) and the type, ``other`` the visibility and NVIDIA's
    flags.
    """

    name: str
    name_offset: int
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def type(self) -> int:
        """FUNCTION, SECTION_SYMBOL, …"""
        return self.info & 15


@dataclass(frozen=True, slots=True)
class Relocation:
    """Patch the bytes at ``offset`` with the address of symbol number ``symbol``."""

    offset: int
    symbol: int
    type: int
    addend: int | None


def parse_symbols(table: ElfSection, strings: bytes) -> tuple[ElfSymbol, ...]:
    """The symbols of a SYMTAB section. Raises CubinError for a ragged table or a bad name."""
    _check_size(table, _SYMBOL.size)
    return tuple(
        ElfSymbol(_name(strings, name), name, info, other, section, value, size)
        for name, info, other, section, value, size in _SYMBOL.iter_unpack(table.data)
    )


def pack_symbols(symbols: Sequence[ElfSymbol]) -> bytes:
    """The bytes of a SYMTAB section."""
    return b"".join(
        _SYMBOL.pack(s.name_offset, s.info, s.other, s.section, s.value, s.size) for s in symbols
    )


def parse_relocations(table: ElfSection) -> tuple[Relocation, ...]:
    """The entries of a REL or RELA section. Raises CubinError for a ragged table."""
    if table.type == REL:
        _check_size(table, _REL.size)
        rows = [(*row, None) for row in _REL.iter_unpack(table.data)]
    else:
        _check_size(table, _RELA.size)
        rows = [*_RELA.iter_unpack(table.data)]
    return tuple(Relocation(at, info >> 32, info & 0xFFFFFFFF, add) for at, info, add in rows)


def pack_relocations(relocations: Sequence[Relocation]) -> bytes:
    """The bytes of a REL section, or of a RELA section where addends are given."""
    return b"".join(
        _REL.pack(r.offset, r.symbol << 32 | r.type)
        if r.addend is None
        else _RELA.pack(r.offset, r.symbol << 32 | r.type, r.addend)
        for r in relocations
    )


def _check_size(table: ElfSection, entry: int) -> None:
    if len(table.data) % entry:
        raise CubinError(
            f"the size of {table.name} must be a multiple of {entry}, got {len(table.data)}"
        )


def _name(strings: bytes, offset: int) -> str:
    end = strings.find(b"\0", offset)
    if end < 0:
        raise CubinError(f"a symbol's name must lie in the string table, got offset {offset:#x}")
    try:
        return strings[offset:end].decode()
    except UnicodeDecodeError:
        got = strings[offset:end]
        raise CubinError(f"a symbol's name must be UTF-8, got {got!r:.80}") from None
