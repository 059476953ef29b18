"""Which line of the source and of the PTX each instruction comes from (``ptxas -lineinfo``).

``.debug_line`` has the lines of ``.loc``, ``.nv_debug_line_sass`` those of the PTX, whose text is
in ``.nv_debug_ptx_txt``.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from pathlib import PurePosixPath

from .cubin_file import TEXT, CubinFile
from .dwarf_bytes import DwarfCursor
from .elf_tables import REL, RELA, Relocation
from .line_program import (
    ADVANCE_LINE,
    ADVANCE_PC,
    CONST_ADD_PC,
    COPY,
    END_SEQUENCE,
    FIXED_ADVANCE_PC,
    SET_ADDRESS,
    SET_FILE,
    LineHeader,
    line_header,
)

_PTX_TEXT = ".nv_debug_ptx_txt"
Row = tuple[int, int, int]  # offset of an instruction, file number, line


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """``file`` and ``line`` of the source, ``ptx_line`` (from 1) and the PTX instruction; "" and 0
    where they are not known.
    """

    file: str = ""
    line: int = 0
    ptx_line: int = 0
    ptx: str = ""


def source_places(cubin: CubinFile, name: str, offsets: tuple[int, ...]) -> list[SourcePlace]:
    """The place of each instruction of a function, by its offset. Raises CubinError for a malformed
    line table.
    """
    rows, files = _rows(cubin, name, ".debug_line")
    ptx_rows, _ = _rows(cubin, name, ".nv_debug_line_sass")
    section = cubin.index(_PTX_TEXT)
    data = b"" if section is None else cubin.elf.sections[section].data
    text = [x.decode(errors="replace").strip() for x in data.split(b"\0")]
    found = []
    for offset in offsets:
        _, file, line = _at(rows, offset)
        ptx_line = _at(ptx_rows, offset)[2]
        shown = text[ptx_line - 1] if 0 < ptx_line <= len(text) else ""
        path = files[file - 1] if 0 < file <= len(files) else ""
        found.append(SourcePlace(path, line if path else 0, ptx_line, shown))
    return found


def _at(rows: list[Row], offset: int) -> Row:
    """The row that an offset belongs to."""
    at = bisect_right(rows, offset, key=lambda row: row[0])
    return rows[at - 1] if at else (0, 0, 0)


def _rows(cubin: CubinFile, name: str, section: str) -> tuple[list[Row], list[str]]:
    """A function's rows by offset, and the file names of its unit."""
    index = cubin.index(section)
    if index is None:
        return [], []
    mine = {r.offset for r in _relocations(cubin, index) if _is_in(cubin, r.symbol, name)}
    data = cubin.elf.sections[index].data
    cursor = DwarfCursor(data)
    while cursor.left:
        length, width = cursor.unit_length()
        end = cursor.at + length
        unit = DwarfCursor(data, cursor.at, end)
        header = line_header(unit, width)
        found = _LineReader(unit, header, mine).rows()
        if found:
            return sorted(found), _files(header.tables)
        cursor.at = end
    return [], []


def _relocations(cubin: CubinFile, index: int) -> list[Relocation]:
    sections = cubin.elf.sections
    tables = [i for i, s in enumerate(sections) if s.type in (REL, RELA) and s.info == index]
    return [r for i in tables for r in cubin.relocations(i)]


def _is_in(cubin: CubinFile, symbol: int, name: str) -> bool:
    return cubin.symbols[symbol].section == cubin.index(TEXT + name)


def _files(tables: bytes) -> list[str]:
    """The paths of a header's files."""
    cursor = DwarfCursor(tables)
    folders, files = [""], []
    while cursor.left and (folder := cursor.text()):
        folders.append(folder.decode(errors="replace"))
    while cursor.left and (file := cursor.text()):
        number = cursor.uleb()
        cursor.uleb(), cursor.uleb()  # time, size
        inside = folders[number] if number < len(folders) else ""
        files.append(str(PurePosixPath(inside, file.decode(errors="replace"))))
    return files


class _LineReader:
    """Runs one line number program; keeps the rows of sequences whose start is in ``mine``."""

    def __init__(self, unit: DwarfCursor, header: LineHeader, mine: set[int]) -> None:
        self.unit = unit
        self.header = header
        self.mine = mine
        self.found: list[Row] = []
        self.reset()

    def reset(self) -> None:
        self.address, self.file, self.line, self.kept = 0, 1, 1, False

    def rows(self) -> list[Row]:
        """The rows in the order of the program."""
        while self.unit.left:
            opcode = self.unit.number(1)
            if opcode >= self.header.opcode_base:
                size, lines = self.header.special(opcode)
                self.address += size
                self.line += lines
                self._row()
            elif opcode == 0:
                self._extended()
            else:
                self._standard(opcode)
        return self.found

    def _row(self) -> None:
        if self.kept:
            self.found.append((self.address, self.file, self.line))

    def _standard(self, opcode: int) -> None:
        if opcode == COPY:
            self._row()
        elif opcode == ADVANCE_PC:
            self.address += self.unit.uleb() * self.header.minimum
        elif opcode == ADVANCE_LINE:
            self.line += self.unit.sleb()
        elif opcode == SET_FILE:
            self.file = self.unit.uleb()
        elif opcode == CONST_ADD_PC:
            self.address += self.header.special(255)[0]
        elif opcode == FIXED_ADVANCE_PC:
            self.address += self.unit.number(2)
        else:
            for _ in range(self.header.lengths[opcode - 1]):
                self.unit.uleb()

    def _extended(self) -> None:
        length = self.unit.uleb()
        first = self.unit.at
        contents = self.unit.take(length)
        if contents[:1] == bytes([SET_ADDRESS]):
            self.address = 0
            self.kept = first + 1 in self.mine
        elif contents[:1] == bytes([END_SEQUENCE]):
            self.reset()
