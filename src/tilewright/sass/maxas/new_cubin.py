"""A cubin for sm_52 with one assembled kernel, written from nothing: no other compiler is needed.

maxas inserts a kernel into a cubin that nvcc made; ``new_cubin`` writes what such a shell has:
sections for code, parameters and shared memory, attributes for the driver, and a symbol.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ...errors import CubinError
from ..cubin_file import CubinFile
from ..elf_file import MACHINE_CUDA, NOBITS
from ..elf_tables import FUNCTION, SECTION_SYMBOL, SYMTAB
from ..nv_info import (
    EXIT_OFFSETS,
    HALF,
    MAXREG_COUNT,
    NO_VALUE,
    REGISTER_COUNT,
    S2R_CTAID_OFFSETS,
    SIZED,
    InfoAttribute,
    pack_attributes,
)
from .maxas_assembler import AssembledKernel

_PARAMETERS = 0x140  # where they begin in constant bank 0 of sm_5x
_IDENT = b"\x7fELF\x02\x01\x013\x07" + bytes(7)
_FLAGS = 0x340534  # sm_52, 64-bit addresses
_CTAID_Z, _MAX_THREADS, _PARAM_CBANK, _FRAME, _MIN_STACK = 0x04, 0x05, 0x0A, 0x11, 0x12
_PARAM, _PARAM_SIZE = 0x17, 0x19
_STRINGS, _PROGBITS, _INFO = 3, 1, 0x70000000
_WRITE, _ALLOC, _EXECUTE, _LINK = 1, 2, 4, 0x40
_LIMIT = 0x1000  # bytes of parameters
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


def new_cubin(
    kernel: AssembledKernel, parameters: Sequence[int], *, shared_bytes: int = 0, threads: int
) -> CubinFile:
    """The cubin of a kernel that was assembled for sm_52.

    ``parameters`` are sizes in bytes (4 or 8), aligned to themselves; ``threads`` is the largest
    block. Raises CubinError for other sizes, and for a kernel without a name.
    """
    if not kernel.name.isidentifier():
        raise CubinError(f"a kernel's name must be an identifier, got {kernel.name!r}")
    if any(size not in (4, 8) for size in parameters):
        raise CubinError(f"a parameter must have 4 or 8 bytes, got {list(parameters)}")
    if not 1 <= threads <= 1024 or not 0 <= shared_bytes <= 48 << 10:
        raise CubinError(
            f"a CTA must have 1 to 1024 threads and at most 48 KiB of shared memory, got {threads} "
            f"and {shared_bytes} bytes"
        )
    return CubinFile.parse(_NewCubin(kernel, _offsets(parameters), shared_bytes, threads).build())


def _offsets(parameters: Sequence[int]) -> list[tuple[int, int]]:
    """(offset, size) of each parameter."""
    found, at = [], 0
    for size in parameters:
        at = -(-at // size) * size
        found.append((at, size))
        at += size
    if at > _LIMIT:
        raise CubinError(f"parameters must have at most {_LIMIT} bytes, got {at}")
    return found


class _NewCubin:
    """Collects sections; ``build`` lays them out one behind the other."""

    def __init__(
        self, kernel: AssembledKernel, parameters: list[tuple[int, int]], shared: int, threads: int
    ) -> None:
        self.kernel = kernel
        self.parameters = parameters
        self.size = max((at + size for at, size in parameters), default=0)
        self.shared = shared
        self.threads = threads
        name = kernel.name
        self.names = ["", ".shstrtab", ".strtab", ".symtab", ".nv.info", f".nv.info.{name}",
                      f".nv.constant0.{name}", f".text.{name}"]  # fmt: skip
        self.names += [f".nv.shared.{name}"] if shared else []
        self.text = self.names.index(f".text.{name}")

    def build(self) -> bytes:
        """The file's bytes."""
        strings, offsets = _table(self.names)
        symbols, symbol_strings = self._symbols()
        data = [b"", strings, symbol_strings, symbols, self._info(), self._kernel_info(),
                bytes(_PARAMETERS + self.size), self.kernel.code]  # fmt: skip
        heads, body, at = [], b"", _HEADER.size
        for i, (kind, flags, link, info, alignment, entry) in enumerate(self._kinds()):
            content = data[i] if i < len(data) else b""
            padding = -at % max(1, alignment)
            body += bytes(padding) + content
            at += padding
            size = len(content) if i < len(data) else self.shared
            place = at if i else 0
            heads.append((offsets[i], kind, flags, 0, place, size, link, info, alignment, entry))
            at += len(content)
        tables = at + -at % 8
        body += bytes(tables - at) + b"".join(_SECTION.pack(*h) for h in heads)
        programs = tables + len(heads) * _SECTION.size
        segments = self._segments(heads, programs)
        header = _HEADER.pack(
            _IDENT, 2, MACHINE_CUDA, 0x80, 0, programs, tables, _FLAGS, _HEADER.size,
            _SEGMENT.size, len(segments), _SECTION.size, len(heads), 1,
        )  # fmt: skip
        return header + body + b"".join(_SEGMENT.pack(*s) for s in segments)

    def _kinds(self) -> list[tuple[int, int, int, int, int, int]]:
        """(type, flags, link, info, alignment, entry size) of each section."""
        kernel, text = self.kernel, self.text
        symbol = len(self._sections_with_symbols()) + 1
        code = _ALLOC | _EXECUTE | kernel.barriers << 20
        found = [
            (0, 0, 0, 0, 0, 0), (_STRINGS, 0, 0, 0, 1, 0), (_STRINGS, 0, 0, 0, 1, 0),
            (SYMTAB, 0, 2, symbol, 8, _SYMBOL.size), (_INFO, 0, 3, 0, 4, 0),
            (_INFO, _LINK, 3, text, 4, 0), (_PROGBITS, _ALLOC | _LINK, 0, text, 4, 0),
            (_PROGBITS, code, 3, symbol | kernel.registers << 24, 32, 0),
        ]  # fmt: skip
        shared = (NOBITS, _WRITE | _ALLOC | _LINK, 0, text, 16, 0)
        return [*found, shared] if self.shared else found

    def _sections_with_symbols(self) -> list[int]:
        return [i for i, n in enumerate(self.names) if n.startswith((".text", ".nv.c", ".nv.s"))]

    def _symbols(self) -> tuple[bytes, bytes]:
        """The symbol table, and its strings: sections, then the kernel."""
        places = self._sections_with_symbols()
        strings, offsets = _table(["", *(self.names[i] for i in places), self.kernel.name])
        found = [_SYMBOL.pack(0, 0, 0, 0, 0, 0)]
        found += [
            _SYMBOL.pack(name, SECTION_SYMBOL, 0, place, 0, 0)
            for name, place in zip(offsets[1:], places, strict=False)
        ]
        size = len(self.kernel.code)
        found.append(_SYMBOL.pack(offsets[-1], 0x10 | FUNCTION, 0x10, self.text, 0, size))
        return b"".join(found), strings

    def _info(self) -> bytes:
        symbol = len(self._sections_with_symbols()) + 1
        values = ((REGISTER_COUNT, self.kernel.registers), (_FRAME, 0), (_MIN_STACK, 0))
        return pack_attributes([_words(code, symbol, value) for code, value in values])

    def _kernel_info(self) -> bytes:
        kernel = self.kernel
        constants = 1  # the symbol of the first section that has one
        found = [
            _words(_PARAM_CBANK, constants, self.size << 16 | _PARAMETERS),
            InfoAttribute(HALF, _PARAM_SIZE, self.size),
        ]
        for i, (at, size) in reversed(list(enumerate(self.parameters))):
            found.append(_words(_PARAM, 0, at << 16 | i, size << 18 | 0x1F000))
        found.append(InfoAttribute(HALF, MAXREG_COUNT, 255))
        found.append(_words(EXIT_OFFSETS, *kernel.exits))
        if kernel.ctaid_reads:
            found.append(_words(S2R_CTAID_OFFSETS, *kernel.ctaid_reads))
        if kernel.reads_ctaid_z:
            found.append(InfoAttribute(NO_VALUE, _CTAID_Z, 0))
        return pack_attributes([*found, _words(_MAX_THREADS, self.threads, 1, 1)])

    def _segments(
        self, heads: Sequence[tuple[int, ...]], programs: int
    ) -> list[tuple[int, int, int, int, int, int, int, int]]:
        """The table of segments itself, constants with code, and shared memory."""
        count = 4 if self.shared else 3
        table = programs, 0, 0, count * _SEGMENT.size, count * _SEGMENT.size, 8
        first, last = heads[self.text - 1][4], heads[self.text][4] + heads[self.text][5]
        found = [(6, 5, *table), (1, 5, first, 0, 0, last - first, last - first, 8)]
        if self.shared:
            found.append((1, 6, heads[-1][4], 0, 0, 0, self.shared, 8))
        return [*found, (1, 5, *table)]


def _table(names: Sequence[str]) -> tuple[bytes, list[int]]:
    """A string table and the offset of each string."""
    data, offsets = b"", []
    for name in names:
        offsets.append(len(data))
        data += name.encode() + b"\0"
    return data, offsets


def _words(code: int, *words: int) -> InfoAttribute:
    return InfoAttribute(SIZED, code, 0, struct.pack(f"<{len(words)}I", *words))
