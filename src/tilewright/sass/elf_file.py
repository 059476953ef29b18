"""An ELF64 file as a value: sections, segments, and the bytes between them.

``ElfFile.parse`` keeps every byte, so ``build`` returns the same file where nothing is edited. A
section that grows or shrinks moves what follows as far as each section's own alignment asks for,
so that code stays without holes; section headers, program headers and the file header follow.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from ..errors import CubinError

MACHINE_CUDA = 190
NOBITS = 8
# Memory of relocatable objects (nvcc -rdc=true): SHT_CUDA_GLOBAL, _LOCAL and _SHARED, which the
# linker makes NOBITS.
_CUDA_MEMORY = (0x70000007, 0x70000009, 0x7000000A)
_MEMORY_ONLY = (0, NOBITS, *_CUDA_MEMORY)  # types of sections without file bytes
_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little endian
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_LARGEST_ALIGNMENT = 1 << 16
_HEADER_ALIGNMENT = 8  # of the tables of section and program headers


@dataclass(frozen=True, slots=True)
class ElfSection:
    """A section: its header's fields, and its ``data`` (empty where ``in_file`` is false).

    ``offset`` and ``extent`` say where it lies in the file that was parsed, in bytes; ``size`` is
    the header's field, which is memory where ``in_file`` is false.
    """

    name: str
    name_offset: int
    type: int
    flags: int
    address: int
    offset: int
    extent: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int
    data: bytes

    @property
    def in_file(self) -> bool:
        """Whether its bytes are in the file: not those of NOBITS."""
        return self.type not in _MEMORY_ONLY

    def with_data(self, data: bytes) -> ElfSection:
        """The section with other contents. Raises CubinError for a section without file bytes."""
        if not self.in_file:
            raise CubinError(f"section {self.name} must have bytes in the file, got memory alone")
        return replace(self, data=data, size=len(data))


@dataclass(frozen=True, slots=True)
class ElfSegment:
    """A program header; offsets and sizes are in bytes of the file that was parsed."""

    type: int
    flags: int
    offset: int
    address: int
    physical_address: int
    file_size: int
    memory_size: int
    alignment: int


@dataclass(frozen=True, slots=True)
class _Piece:
    """A run of bytes of the parsed file: where it began, how long it was, and what it is now."""

    offset: int
    extent: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ElfFile:
    """A parsed ELF file; ``header`` holds the fields of Elf64_Ehdr, ``gaps`` the (offset, bytes)
    that belong to no section and no table.
    """

    header: tuple[bytes | int, ...]
    sections: tuple[ElfSection, ...]
    segments: tuple[ElfSegment, ...]
    gaps: tuple[tuple[int, bytes], ...]

    @classmethod
    def parse(cls, data: bytes) -> ElfFile:
        """Read a CUDA ELF file. Raises CubinError for anything malformed or truncated."""
        data = _as_bytes(data)
        header = _header(data)
        _, _, _, _, _, programs, tables, _, _, _, count, _, number, names = header[:14]
        segments = tuple(
            ElfSegment(*_SEGMENT.unpack_from(_slice(data, programs + i * _SEGMENT.size, 56)))
            for i in range(count)
        )
        heads = [
            _SECTION.unpack_from(_slice(data, tables + i * _SECTION.size, 64))
            for i in range(number)
        ]
        if names >= number:
            raise CubinError(f"the index of section names must be under {number}, got {names}")
        strings = _slice(data, heads[names][4], heads[names][5])
        sections = tuple(_section(data, head, strings) for head in heads)
        bare = cls(header, sections, segments, ())
        return replace(bare, gaps=tuple(_gaps(data, bare._pieces())))

    def build(self) -> bytes:
        """The file's bytes: the parsed bytes if no section was edited."""
        pieces = self._pieces()
        moves = _Moves(pieces, self._alignments())
        sections = b"".join(_pack_section(s, moves.start(s.offset)) for s in self.sections)
        segments = b"".join(_pack_segment(s, moves) for s in self.segments)
        out = bytearray(moves.end(max((p.offset + p.extent for p in pieces), default=0)))
        for piece in pieces:
            at = moves.start(piece.offset)
            out[at : at + len(piece.data)] = piece.data
        programs, tables = moves.start(self._programs), moves.start(self._tables)
        header = _HEADER.pack(*self.header[:5], programs, tables, *self.header[7:])
        out[: _HEADER.size] = header
        if self.segments:
            out[programs : programs + len(segments)] = segments
        out[tables : tables + len(sections)] = sections
        return bytes(out)

    def with_section(self, index: int, section: ElfSection) -> ElfFile:
        """The file with section number ``index`` replaced."""
        changed = [*self.sections[:index], section, *self.sections[index + 1 :]]
        return replace(self, sections=tuple(changed))

    @property
    def _programs(self) -> int:
        return int(self.header[5])

    @property
    def _tables(self) -> int:
        return int(self.header[6])

    def _alignments(self) -> dict[int, int]:
        """The alignment of each header, table and section, by its file offset."""
        found = {0: 1, self._tables: _HEADER_ALIGNMENT, self._programs: _HEADER_ALIGNMENT}
        for section in self.sections:
            if section.extent:
                found[section.offset] = max(1, section.alignment, found.get(section.offset, 1))
        return found

    def _pieces(self) -> list[_Piece]:
        """All runs of bytes in file order. Raises CubinError where two overlap."""
        found = [_Piece(0, _HEADER.size, bytes(_HEADER.size))]
        if self.segments:
            size = len(self.segments) * _SEGMENT.size
            found.append(_Piece(self._programs, size, bytes(size)))
        size = len(self.sections) * _SECTION.size
        found.append(_Piece(self._tables, size, bytes(size)))
        found += [_Piece(s.offset, s.extent, s.data) for s in self.sections if s.in_file]
        found += [_Piece(at, len(data), data) for at, data in self.gaps]
        # two sections of sm_120 may name the same bytes
        found = list(dict.fromkeys(p for p in found if p.extent or p.data))
        found.sort(key=lambda p: (p.offset, p.extent))
        for a, b in pairwise(found):
            if a.offset + a.extent > b.offset:
                raise CubinError(f"sections must not overlap, got two at file offset {b.offset:#x}")
        return found


class _Moves:
    """Where an offset of the parsed file lies in the new one. ``alignments`` are of what begins at
    an offset, padding not included: it moves by a multiple of its alignment, by 0 where nothing
    grew before it.
    """

    def __init__(self, pieces: list[_Piece], alignments: dict[int, int]) -> None:
        self._starts: dict[int, int] = {}  # a piece's offset: how far it moves
        self._ends: list[tuple[int, int]] = [(0, 0)]  # a piece's end: how far that moves
        by = slack = 0
        for piece in pieces:
            if piece.offset not in alignments and not any(piece.data):
                slack += piece.extent  # padding that what moves may take
                continue
            alignment = alignments.get(piece.offset, 1)
            by = -(-max(by - slack, min(by, 0)) // alignment) * alignment
            self._starts.setdefault(piece.offset, by)
            by += len(piece.data) - piece.extent
            self._ends.append((piece.offset + piece.extent, by))
            slack = 0

    def start(self, offset: int) -> int:
        """The new offset of what began at ``offset``."""
        return offset + self._starts[offset] if offset in self._starts else self.end(offset)

    def end(self, offset: int) -> int:
        """The new offset of what ended at ``offset``."""
        return offset + next(by for end, by in reversed(self._ends) if end <= offset)


def _as_bytes(data: object) -> bytes:
    if not isinstance(data, bytes | bytearray | memoryview):
        kind = type(data).__name__
        raise CubinError(f"a cubin must be bytes, got {kind}", hint="Path(name).read_bytes()")
    return bytes(data)


def _header(data: bytes) -> tuple[int, ...]:
    """The fields of the file header (the first is bytes), checked as far as parsing needs them."""
    if not data.startswith(_MAGIC) or len(data) < _HEADER.size:
        raise CubinError(f"a cubin must be a 64-bit ELF file, got {data[:6]!r} ({len(data)} bytes)")
    fields = _HEADER.unpack_from(data)
    machine, header_size = fields[2], fields[8]
    if machine != MACHINE_CUDA or header_size != _HEADER.size:
        raise CubinError(f"a cubin's ELF machine must be {MACHINE_CUDA}, got {machine}")
    sizes = fields[9] if fields[10] else _SEGMENT.size, fields[11]
    if sizes != (_SEGMENT.size, _SECTION.size) or not fields[12]:
        raise CubinError(f"header sizes must be {_SEGMENT.size} and {_SECTION.size}, got {sizes}")
    return fields


def _slice(data: bytes, offset: int, size: int) -> bytes:
    if offset + size > len(data):
        raise CubinError(
            f"the file is truncated: {len(data)} bytes, must have {offset + size}",
            hint="read the whole cubin",
        )
    return data[offset : offset + size]


def _section(data: bytes, head: tuple[int, ...], strings: bytes) -> ElfSection:
    name, kind, flags, address, offset, size, link, info, alignment, entry = head
    end = strings.find(b"\0", name)
    if end < 0:
        raise CubinError(f"a section's name must lie in the string table, got offset {name:#x}")
    try:
        text = strings[name:end].decode()
    except UnicodeDecodeError:
        raise CubinError(f"a section's name must be UTF-8, got {strings[name:end]!r:.80}") from None
    if alignment & (alignment - 1) or alignment > _LARGEST_ALIGNMENT:
        raise CubinError(f"the alignment of {text} must be a power of 2, got {alignment}")
    contents = b"" if kind in _MEMORY_ONLY else _slice(data, offset, size)
    extent = len(contents)
    at = offset, extent, size
    return ElfSection(text, name, kind, flags, address, *at, link, info, alignment, entry, contents)


def _gaps(data: bytes, pieces: list[_Piece]) -> Iterator[tuple[int, bytes]]:
    at = 0
    for piece in pieces:
        if piece.offset > at:
            yield at, data[at : piece.offset]
        at = piece.offset + piece.extent
    if at < len(data):
        yield at, data[at:]


def _pack_section(s: ElfSection, offset: int) -> bytes:
    fields = s.name_offset, s.type, s.flags, s.address, offset, s.size
    return _packed(_SECTION, *fields, s.link, s.info, s.alignment, s.entry_size)


def _pack_segment(s: ElfSegment, moves: _Moves) -> bytes:
    start, end = moves.start(s.offset), moves.end(s.offset + s.file_size)
    size = end - start if s.file_size else 0
    memory = s.memory_size + size - s.file_size
    where = start, s.address, s.physical_address
    return _packed(_SEGMENT, s.type, s.flags, *where, size, memory, s.alignment)


def _packed(layout: struct.Struct, *values: int) -> bytes:
    """A header. Raises CubinError for a number that does not fit its field."""
    try:
        return layout.pack(*values)
    except struct.error as error:
        raise CubinError(f"a header's numbers must fit their fields, got {values}") from error
