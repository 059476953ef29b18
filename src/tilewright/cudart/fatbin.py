"""Fatbinaries: the device code that nvcc puts into programs, and the PTX in it.

A fatbinary is a header and entries. Each entry is PTX or machine code for one architecture, plain
or compressed: by LZ4 up to nvcc 12, by Zstandard since nvcc 13. A program has fatbinaries in its
section ``.nv_fatbin``. The layout of the headers was derived from the output of nvcc 12 and 13.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import PtxError, TargetError
from ..target import FIRST_VERSION, Target

MAGIC = 0xBA55ED50
_MAGIC = MAGIC.to_bytes(4, "little")
_HEADER = struct.Struct("<IHHQ")  # magic, version, size of the header, size of the entries
_ENTRY = struct.Struct("<HHIQI8xI8xQ8xQ")  # kind, …, sizes, architecture, flags, size of the text
_PTX, _CODE = 1, 2  # kinds
_LZ4, _ZSTD = 0x2000, 0x8000  # flags
_TARGET = re.compile(r"^\s*\.target\s+(sm_\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FatbinEntry:
    """An entry of a fatbinary; ``data`` may be compressed."""

    kind: int
    number: int  # of the architecture: 90
    flags: int
    size: int  # of the decompressed data
    data: bytes

    @property
    def is_ptx(self) -> bool:
        return self.kind == _PTX

    def text(self) -> str:
        """The PTX. Raises PtxError if it can't be decompressed."""
        raw = self.data
        if self.flags & _LZ4:
            raw = unpack_lz4(raw, self.size)
        elif self.flags & _ZSTD:
            raw = unpack_zstd(raw, self.size)
        return raw.rstrip(b"\0").decode(errors="replace")

    def __str__(self) -> str:
        return f"{'PTX' if self.is_ptx else 'machine code'} for sm_{self.number}"


def entries(data: bytes) -> Iterator[list[FatbinEntry]]:
    """The entries of each of several consecutive fatbinaries. Raises PtxError for other data."""
    at = 0
    while at < len(data):
        if data[at : at + 1] == b"\0":  # padding between two fatbinaries
            at += 1
            continue
        try:
            magic, _, header, size = _HEADER.unpack_from(data, at)
        except struct.error:
            magic = header = size = 0
        if magic != MAGIC or at + header + size > len(data):
            raise PtxError(f"expected a fatbinary at byte {at} of {len(data)}")
        yield list(_entries(data[at + header : at + header + size]))
        at += header + size


def _entries(data: bytes) -> Iterator[FatbinEntry]:
    at = 0
    while at < len(data):
        if at + _ENTRY.size > len(data):
            raise _entry_error(at, len(data))
        kind, _, header, size, packed, number, flags, full = _ENTRY.unpack_from(data, at)
        if not header or at + header + size > len(data):
            raise _entry_error(at, len(data))
        used = packed if flags & (_LZ4 | _ZSTD) else size
        yield FatbinEntry(kind, number, flags, full, data[at + header : at + header + used])
        at += header + size


def _entry_error(at: int, size: int) -> PtxError:
    return PtxError(f"a fatbinary's entry must end within its {size} bytes, got one at byte {at}")


def in_program(data: bytes) -> Iterator[list[FatbinEntry]]:
    """The entries of each fatbinary in an executable, an object or a library."""
    at = data.find(_MAGIC)
    while at >= 0:
        try:
            size = sum(_HEADER.unpack_from(data, at)[2:])
            yield from entries(data[at : at + size])
        except (struct.error, PtxError):  # these four bytes were something else
            size = len(_MAGIC)
        at = data.find(_MAGIC, at + size)


def best_ptx(entries_: list[FatbinEntry], target: Target | None = None) -> str:
    """The PTX for the highest architecture, among those that the target runs if one is given.

    Raises TargetError, which lists the entries, if there is none.
    """
    texts = [entry.text() for entry in entries_ if entry.is_ptx]
    named = [(t[1], text) for text in texts if (t := _TARGET.search(text))]
    known = [(Target.parse(name), text) for name, text in named if name in FIRST_VERSION]
    usable = [(of, text) for of, text in known if target is None or target.runs(of)]
    if not usable:
        present = [f"PTX for {name}" for name, _ in named]
        present += [str(entry) for entry in entries_ if not entry.is_ptx]
        raise TargetError(
            f"the program must have PTX that {target or 'a GPU'} runs, got "
            f"{', '.join(present) or 'nothing'}",
            hint="nvcc -arch=sm_90a or -gencode arch=compute_80,code=compute_80 embeds PTX",
        )
    return max(usable, key=lambda pair: pair[0])[1]


# --- compression -------------------------------------------------------------------------------


def unpack_lz4(data: bytes, size: int) -> bytes:
    """Decompress an LZ4 block of ``size`` bytes; each sequence is literals, then a copy of earlier
    output. Raises PtxError for invalid data.
    """
    out = bytearray()
    at = 0
    try:
        while at < len(data):
            token = data[at]
            count, at = _length(data, at + 1, token >> 4)
            out += data[at : at + count]
            at += count
            if at >= len(data):  # the last sequence has literals only
                break
            distance = data[at] | data[at + 1] << 8
            count, at = _length(data, at + 2, token & 15)
            _repeat(out, distance, count + 4)
    except IndexError:
        raise PtxError("the LZ4 data of a fatbinary is truncated") from None
    if len(out) != size:
        raise PtxError(f"the LZ4 data of a fatbinary must have {size} bytes, got {len(out)}")
    return bytes(out)


def _length(data: bytes, at: int, count: int) -> tuple[int, int]:
    """A length; 15 is continued by bytes that are added, up to one that is not 255."""
    if count == 15:
        while data[at] == 255:
            count, at = count + 255, at + 1
        count, at = count + data[at], at + 1
    return count, at


def _repeat(out: bytearray, distance: int, count: int) -> None:
    """Append ``count`` bytes from ``distance`` before the end; the ranges may overlap."""
    start = len(out) - distance
    if distance == 0 or start < 0:
        raise PtxError(f"a distance in the LZ4 data must be from 1 to {len(out)}, got {distance}")
    repeated = bytes(out[start : start + count])
    while len(repeated) < count:
        repeated += repeated
    out += repeated[:count]


def unpack_zstd(data: bytes, size: int) -> bytes:
    """Decompress a Zstandard frame of ``size`` bytes with the system's libzstd. Raises PtxError if
    there is none or the data is damaged.
    """
    library = ctypes.util.find_library("zstd")
    if library is None:
        raise PtxError(
            "the PTX is compressed with Zstandard, but libzstd is not installed",
            hint="install libzstd1, or use nvcc --compress-mode=speed, which uses LZ4",
        )
    unpack = ctypes.CDLL(library).ZSTD_decompress
    unpack.restype = ctypes.c_size_t
    unpack.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t]
    out = ctypes.create_string_buffer(size)
    if unpack(out, size, ctypes.c_char_p(data), len(data)) != size:
        raise PtxError("the Zstandard data of a fatbinary is damaged")
    return out.raw
