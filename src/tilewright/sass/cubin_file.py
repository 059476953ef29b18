"""A cubin's machine code and what belongs to it: kernels, attributes, symbols, relocations.

    cubin = CubinFile.parse(data)
    for name in cubin.functions:
        cubin.registers(name), cubin.code(name)
    cubin.with_registers("kernel", 64).build()

``build`` returns the parsed bytes where nothing was edited. ``cubin_edit.with_code`` replaces code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ..errors import CubinError
from .elf_file import ElfFile, ElfSection
from .elf_tables import (
    REL,
    RELA,
    SYMTAB,
    ElfSymbol,
    Relocation,
    pack_relocations,
    pack_symbols,
    parse_relocations,
    parse_symbols,
)
from .encoding_table import encoded_as
from .nv_info import (
    BARRIER_COUNT,
    BYTE,
    MAXREG_COUNT,
    REGISTER_COUNT,
    InfoAttribute,
    pack_attributes,
    parse_attributes,
)

TEXT = ".text."
_INFO = ".nv.info"
_NEW_ABI = 8  # EI_ABIVERSION of ptxas 13, and of 12.8 from sm_100 on
_FIRST_128_BIT = 70  # the first architecture whose instructions have 128 bits
_BARRIER_FLAGS = 20  # bits 20 to 24 of sh_flags: barriers, before attribute NUM_BARRIERS
MAX_REGISTERS, MAX_BARRIERS = 255, 16


@dataclass(frozen=True)
class CubinFile:
    """A parsed cubin. All ``name`` arguments are names of ``functions``."""

    elf: ElfFile

    @classmethod
    def parse(cls, data: bytes) -> CubinFile:
        """Read a cubin and check its tables. Raises CubinError for malformed data."""
        cubin = cls(ElfFile.parse(data))
        for symbol in cubin.symbols:
            if symbol.section < 0xFF00 and symbol.section >= len(cubin.elf.sections):
                raise CubinError(f"symbol {symbol.name} must be in a section, got {symbol.section}")
        for index, section in enumerate(cubin.elf.sections):
            if section.type in (REL, RELA):
                cubin.relocations(index)
            if section.name.startswith(_INFO):
                parse_attributes(section.data)
        for name in cubin.functions:
            cubin.code(name)
        return cubin

    def build(self) -> bytes:
        """The file's bytes."""
        return self.elf.build()

    @property
    def sm(self) -> int:
        """The number of the architecture whose encodings the code has: 90 for sm_90 and sm_90a,
        which the file tells apart only before CUDA 13; 52 for sm_50 to sm_53.
        """
        flags = int(self.elf.header[7])
        ident = self.elf.header[0]
        new = isinstance(ident, bytes) and ident[8] >= _NEW_ABI
        return encoded_as(flags >> 8 & 0xFF if new else flags & 0xFF)

    @property
    def instruction_size(self) -> int:
        """Bytes per instruction: 16, or 8 with a control word before each three (sm_5x, sm_6x)."""
        return 16 if self.sm >= _FIRST_128_BIT else 8

    @cached_property
    def functions(self) -> tuple[str, ...]:
        """The names of the sections with code, without ``.text.``; each kernel has one."""
        sections = self.elf.sections
        return tuple(s.name[len(TEXT) :] for s in sections if s.name.startswith(TEXT))

    def index(self, section: str) -> int | None:
        """The number of the first section of that name."""
        found = (i for i, s in enumerate(self.elf.sections) if s.name == section)
        return next(found, None)

    def section(self, name: str) -> ElfSection:
        """The first section of that name. Raises CubinError if there is none."""
        index = self.index(name)
        if index is None:
            known = ", ".join(self.functions[:8])
            raise CubinError(f"a section must exist, got {name!r}; the functions are: {known}")
        return self.elf.sections[index]

    def code(self, name: str) -> bytes:
        """A function's machine code, padding included."""
        data = self.section(TEXT + name).data
        if len(data) % self.instruction_size:
            raise CubinError(f"the code of {name} must be whole instructions, got {len(data)} B")
        return data

    # --- symbols and relocations ------------------------------------------------------------------

    @cached_property
    def _symbol_table(self) -> int | None:
        types = (i for i, s in enumerate(self.elf.sections) if s.type == SYMTAB)
        return next(types, None)

    @cached_property
    def symbols(self) -> tuple[ElfSymbol, ...]:
        """The symbol table, or nothing if the file has none."""
        if self._symbol_table is None:
            return ()
        table = self.elf.sections[self._symbol_table]
        if table.link >= len(self.elf.sections):
            raise CubinError(f"the symbols' names must be in a section, got number {table.link}")
        return parse_symbols(table, self.elf.sections[table.link].data)

    def relocations(self, index: int) -> tuple[Relocation, ...]:
        """The relocations in section number ``index``. Raises CubinError for unknown symbols."""
        found = parse_relocations(self.elf.sections[index])
        if any(r.symbol >= len(self.symbols) for r in found):
            name = self.elf.sections[index].name
            raise CubinError(f"{name} must refer to {len(self.symbols)} symbols, got a larger one")
        return found

    def with_symbols(self, symbols: Sequence[ElfSymbol]) -> CubinFile:
        """The cubin with other symbols. Raises CubinError if it has no symbol table."""
        if self._symbol_table is None:
            raise CubinError("a cubin must have a symbol table, got none")
        return self.with_data(self._symbol_table, pack_symbols(symbols))

    def with_relocations(self, index: int, relocations: Sequence[Relocation]) -> CubinFile:
        """The cubin with other relocations in section number ``index``."""
        return self.with_data(index, pack_relocations(relocations))

    def with_data(self, index: int, data: bytes) -> CubinFile:
        """The cubin with other contents of section number ``index``."""
        section = self.elf.sections[index]
        if section.data == data:
            return self
        return CubinFile(self.elf.with_section(index, section.with_data(data)))

    # --- attributes -------------------------------------------------------------------------------

    def attributes(self, name: str = "") -> tuple[InfoAttribute, ...]:
        """The attributes of a function, or of the whole cubin."""
        index = self.index(f"{_INFO}.{name}" if name else _INFO)
        return () if index is None else parse_attributes(self.elf.sections[index].data)

    def with_attributes(self, name: str, attributes: Sequence[InfoAttribute]) -> CubinFile:
        """The cubin with other attributes of a function, or of the whole cubin (name "")."""
        index = self.index(f"{_INFO}.{name}" if name else _INFO)
        if index is None:
            raise CubinError(f"{name or 'the cubin'} must have attributes, got none")
        return self.with_data(index, pack_attributes(attributes))

    def _symbol_of(self, name: str) -> int:
        """The number of a function's symbol."""
        text = self.index(TEXT + name)
        for number, symbol in enumerate(self.symbols):
            if symbol.name == name and symbol.section == text:
                return number
        raise CubinError(f"{name!r} must have a symbol, got none")

    def registers(self, name: str) -> int:
        """Registers per thread, or 0 if the file does not say."""
        number = self._symbol_of(name)
        counts = (a.words for a in self.attributes() if a.code == REGISTER_COUNT)
        return next((w[1] for w in counts if len(w) == 2 and w[0] == number), 0)

    def register_limit(self, name: str) -> int:
        """The most registers per thread that the function may have, as its launch bounds say."""
        limits = [a.value for a in self.attributes(name) if a.code == MAXREG_COUNT]
        return min([MAX_REGISTERS, *limits])

    def with_registers(self, name: str, count: int) -> CubinFile:
        """The cubin whose function has ``count`` registers per thread, 1 to 255.

        Raises CubinError for other counts, and for more than the kernel's own limit.
        """
        limit = self.register_limit(name)
        _check_count(f"registers of {name}", count, 1, limit)
        number = self._symbol_of(name)
        changed = [
            a.with_words((number, count))
            if a.code == REGISTER_COUNT and a.words[:1] == (number,)
            else a
            for a in self.attributes()
        ]
        cubin = self.with_attributes("", changed)
        return cubin if self.sm >= _FIRST_128_BIT else cubin._with_register_field(name, count)

    def _with_register_field(self, name: str, count: int) -> CubinFile:
        """Bits 24 to 31 of sh_info hold the registers up to sm_6x."""
        section = self.section(TEXT + name)
        info = section.info & 0xFFFFFF | count << 24
        return self._with_header(name, replace(section, info=info))

    def _with_header(self, name: str, section: ElfSection) -> CubinFile:
        index = self.index(TEXT + name)
        assert index is not None
        return CubinFile(self.elf.with_section(index, section))

    def barriers(self, name: str) -> int:
        """The number of named barriers (``bar.sync``) of a function, 0 to 16."""
        counts = [a.value & 0xFF for a in self.attributes(name) if a.code == BARRIER_COUNT]
        flags = self.section(TEXT + name).flags >> _BARRIER_FLAGS & 31
        return counts[0] if counts else flags

    def with_barriers(self, name: str, count: int) -> CubinFile:
        """The cubin whose function has ``count`` named barriers.

        Raises CubinError for a count outside 0 to 16.
        """
        _check_count(f"barriers of {name}", count, 0, MAX_BARRIERS)
        ident = self.elf.header[0]
        if isinstance(ident, bytes) and ident[8] < _NEW_ABI:
            section = self.section(TEXT + name)
            flags = section.flags & ~(31 << _BARRIER_FLAGS) | count << _BARRIER_FLAGS
            return self._with_header(name, replace(section, flags=flags))
        kept = [a for a in self.attributes(name) if a.code != BARRIER_COUNT]
        if count:
            kept.append(InfoAttribute(BYTE, BARRIER_COUNT, count))
        return self if count == self.barriers(name) else self.with_attributes(name, kept)


def _check_count(what: str, count: object, least: int, most: int) -> None:
    if not isinstance(count, int) or not least <= count <= most:
        raise CubinError(f"{what} must be between {least} and {most}, got {count!r}")


def check_cubin(cubin: object) -> None:
    """Raise CubinError for anything but a ``CubinFile``, such as a file's name or bytes."""
    if not isinstance(cubin, CubinFile):
        kind = type(cubin).__name__
        raise CubinError(f"a cubin must be a CubinFile, got {kind}", hint="CubinFile.parse(bytes)")
