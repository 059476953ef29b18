"""A cubin: machine code for one architecture, with its assembler's report.

Registers, spills and warnings are parsed from the report, ``log``. ``pack`` serializes the report
too, so that a cached cubin keeps it.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import CudaError, SourceLocation

# In .nv.info: the format of an entry with a sized value (EIFMT_SVAL); EIATTR_PARAM_CBANK, offset
# and size of all parameters; EIATTR_KPARAM_INFO, one parameter: its index, its ordinal and offset,
# its size in the upper 14 bits.
_SIZED, _PARAM_BANK, _PARAM = 4, 10, 0x17
_ELF = b"\x7fELF"
_ENTRY = re.compile(r"(?:Compiling entry function|Function properties for) '([^']+)'")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"[Uu]sed (\d+) registers(?:.* (\d+) bytes lmem)?")
_WARNING = re.compile(r"(?:warning\s*:\s*|info\s*:\s*(?=.*Potential Performance Loss))(.+)")
_ERROR = re.compile(r"line (\d+)(?:, \w+ \d+)?; (?:error|fatal)\s*:\s*(.+)")
_FATAL = re.compile(r"(?:fatal|error)\s*:\s*(.+)")


@dataclass(frozen=True, slots=True)
class KernelUsage:
    """A kernel's registers per thread, and bytes per thread of stack and spill traffic."""

    entry: str
    registers: int
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0


@dataclass(frozen=True, slots=True)
class Cubin:
    """Machine code (``code``, an ELF file) for ``arch``; ``log`` is the report of ``compiler``.

    If only the driver can assemble it, ``code`` is the PTX, and there is no log until it is loaded.
    """

    code: bytes
    arch: str
    log: str = ""
    compiler: str = ""

    @property
    def is_ptx(self) -> bool:
        """Whether there is no machine code yet."""
        return not self.code.startswith(_ELF)

    @property
    def usage(self) -> tuple[KernelUsage, ...]:
        """One record for each kernel in the log."""
        return tuple(_usages(self.log))

    @property
    def registers(self) -> int:
        """The most registers per thread of any kernel (0 if the log reports none)."""
        return max((u.registers for u in self.usage), default=0)

    @property
    def spills(self) -> int:
        """Bytes per thread of spill stores and loads, all kernels together."""
        return sum(u.spill_stores + u.spill_loads for u in self.usage)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The assembler's performance warnings: ``(C7504) Potential Performance Loss: …``."""
        return tuple(dict.fromkeys(text.strip() for text in _WARNING.findall(self.log)))

    def pack(self) -> bytes:
        """The cubin as bytes; ``Cubin.unpack`` is the inverse."""
        head = json.dumps([self.arch, self.compiler, self.log]).encode()
        return len(head).to_bytes(4, "little") + head + self.code

    @classmethod
    def unpack(cls, data: bytes) -> Cubin:
        end = 4 + int.from_bytes(data[:4], "little")
        arch, compiler, log = json.loads(data[4:end])
        if not all(isinstance(word, str) for word in (arch, compiler, log)):
            raise ValueError(f"expected a cubin's header, got {arch!r:.40}, {compiler!r:.40}")
        return cls(bytes(data[end:]), arch, log, compiler)


def _usages(log: str) -> list[KernelUsage]:
    usages: list[KernelUsage] = []
    entry, frame = "", (0, 0, 0)
    for line in log.splitlines():
        if m := _ENTRY.search(line):
            entry, frame = m[1], (0, 0, 0)
        elif (m := _SPILLS.search(line)) and entry:
            frame = (int(m[1]), int(m[2]), int(m[3]))
        elif (m := _REGISTERS.search(line)) and entry:
            local = int(m[2] or 0)  # a short report has no separate stack and spills
            usages.append(KernelUsage(entry, int(m[1]), max(frame[0], local), *frame[1:]))
            entry = ""
    return usages


def text_of(log: bytearray) -> str:
    """The zero-terminated text in a log buffer."""
    return bytes(log).split(b"\0", 1)[0].decode(errors="replace")


def assembler_error(log: str, ptx: str, file: str, *, code: int = 0, name: str = "") -> CudaError:
    """The CudaError for an assembler's log: its first error, located in the PTX.

    The whole log becomes the error's note, so that a traceback shows it.
    """
    located = [(int(line), text) for line, text in _ERROR.findall(log)]
    others = len(located) - 1
    if located:
        message, location = located[0][1], _location(ptx, located[0][0], file)
    else:
        fatal = _FATAL.search(log)
        message, location = (fatal[1] if fatal else name or "the assembler failed"), None
    more = f" (and {others} more)" if others > 0 else ""
    error = CudaError(f"ptxas: {message.strip()}{more}", code=code, name=name, location=location)
    if log.strip():
        error.add_note(log.strip())
    return error


def _location(ptx: str, line: int, file: str) -> SourceLocation:
    """The place of a whole line of PTX, without its indentation."""
    lines = ptx.splitlines()
    text = lines[line - 1].expandtabs() if 0 < line <= len(lines) else ""
    body = text.strip()
    return SourceLocation(
        file, line, len(text) - len(text.lstrip()) + 1, text.rstrip(), max(1, len(body))
    )


def param_layout(code: bytes, entry: str) -> list[tuple[int, int]] | None:
    """The (offset, size) of each parameter in a kernel's parameter block, or of all as one, from
    its ``.nv.info`` section; None without that section.

    Parameters are aligned by their address in the constant bank, where the block starts at a
    multiple of 16 bytes. So the padding before a tensor map, which is aligned to 64 bytes, may
    differ from the padding in a block that starts at 0.
    """
    try:
        info = dict(sections(code)).get(f".nv.info.{entry}", b"")
        attributes = list(_attributes(info))
    except struct.error:
        return None
    params = {
        w[1] & 0xFFFF: (w[1] >> 16, w[2] >> 18) for a, w in attributes if a == _PARAM and w[2:]
    }
    if params:
        return [params[i] for i in sorted(params)]
    bank = (w[1] >> 16 for a, w in attributes if a == _PARAM_BANK)
    return next(([(0, size)] for size in bank), None)


def extent(params: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The least offset of parameters, given as (offset, size), and the bytes from there on."""
    first = min((offset for offset, _ in params), default=0)
    return first, max((offset + size for offset, size in params), default=0) - first


def is_whole(code: bytes) -> bool:
    """Whether it is an ELF file that contains both its header tables, so is not truncated."""
    if not code.startswith(_ELF) or len(code) < 0x40:
        return False
    programs, sections = struct.unpack_from("<QQ", code, 0x20)
    size, count, each, number = struct.unpack_from("<HHHH", code, 0x36)
    end: int = max(programs + size * count, sections + each * number)
    return end <= len(code)


def sections(code: bytes) -> Iterator[tuple[str, bytes]]:
    """An ELF file's sections by name."""
    (start,) = struct.unpack_from("<Q", code, 0x28)
    size, count, names = struct.unpack_from("<HHH", code, 0x3A)
    heads = [struct.unpack_from("<IIQQQQ", code, start + i * size) for i in range(count)]
    for name, _, _, _, offset, length in heads:
        at = heads[names][4] + name
        yield code[at : code.index(b"\0", at)].decode(), code[offset : offset + length]


def _attributes(info: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(attribute, the words of its value) of each entry with at least two words."""
    at = 0
    while at + 4 <= len(info):
        layout, attribute, size = struct.unpack_from("<BBH", info, at)
        if layout == _SIZED and size >= 8:
            yield attribute, struct.unpack_from(f"<{size // 4}I", info, at + 4)
        at += 4 + (size if layout == _SIZED else 0)
