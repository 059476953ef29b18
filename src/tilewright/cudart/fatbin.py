"""Fatbinaries: the device code that nvcc puts into programs, and the PTX in it.

A fatbinary is a header and entries, each PTX or machine code for one architecture, plain or
compressed: nvcc up to 12 does it by LZ4, since 13 by Zstandard. In a program they lie in section
``.nv_fatbin``. The layout of the headers is what nvcc 12 and 13 were seen to write.
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
_HEADER = struct.Struct("<IHHQ")  # magic, version, its own size, bytes of entries
_ENTRY = struct.Struct("<HHIQI8xI8xQ8xQ")  # kind, …, sizes, architecture, flags, size of the text
_PTX, _CODE = 1, 2  # kinds
_LZ4, _ZSTD = 0x2000, 0x8000  # flags
_TARGET = re.compile(r"^\s*\.target\s+(sm_\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FatbinEntry:
    """One of a fatbinary's entries; ``data`` is as it stands there."""

    kind: int
    number: int  # of the architecture: 90
    flags: int
    size: int  # of what compressed data becomes
    data: bytes

    @property
    def is_ptx(self) -> bool:
        return self.kind == _PTX

    def text(self) -> str:
        """The PTX. PtxError where it can't be unpacked."""
        raw = self.data
        if self.flags & _LZ4:
            raw = unpack_lz4(raw, self.size)
        elif self.flags & _ZSTD:
            raw = unpack_zstd(raw, self.size)
        return raw.rstrip(b"\0").decode(errors="replace")

    def __str__(self) -> str:
        return f"{'PTX' if self.is_ptx else 'machine code'} for sm_{self.number}"


def entries(data: bytes) -> Iterator[list[FatbinEntry]]:
    """The entries of each of the fatbinaries that follow one another. PtxError for other bytes."""
    at = 0
    while at < len(data):
        if data[at : at + 1] == b"\0":  # between two of them
            at += 1
            continue
        try:
            magic, _, header, size = _HEADER.unpack_from(data, at)
        except struct.error:
            magic = header = size = 0
        if magic != MAGIC or at + header + size > len(data):
            raise PtxError(f"no fatbinary at byte {at} of {len(data)}")
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


def best_ptx(found: list[FatbinEntry], target: Target | None = None) -> str:
    """The PTX for the highest architecture, of those that the target runs where there is one.
    TargetError where there is none such, which says what there is.
    """
    texts = [entry.text() for entry in found if entry.is_ptx]
    named = [(t[1], text) for text in texts if (t := _TARGET.search(text))]
    known = [(Target.parse(name), text) for name, text in named if name in FIRST_VERSION]
    runs = [(of, text) for of, text in known if target is None or target.runs(of)]
    if not runs:
        there = [f"PTX for {name}" for name, _ in named] + [str(e) for e in found if not e.is_ptx]
        raise TargetError(
            f"no PTX that {target or 'anything'} runs; there is {', '.join(there) or 'nothing'}",
            hint="nvcc -arch=sm_90a or -gencode arch=compute_80,code=compute_80 puts PTX in",
        )
    return max(runs, key=lambda pair: pair[0])[1]


# --- compression -------------------------------------------------------------------------------


def unpack_lz4(data: bytes, size: int) -> bytes:
    """An LZ4 block of ``size`` bytes: each sequence is literals, then a copy of what came before.

    PtxError for what is none.
    """
    out = bytearray()
    at = 0
    try:
        while at < len(data):
            token = data[at]
            count, at = _length(data, at + 1, token >> 4)
            out += data[at : at + count]
            at += count
            if at >= len(data):  # the last has literals only
                break
            distance = data[at] | data[at + 1] << 8
            count, at = _length(data, at + 2, token & 15)
            _repeat(out, distance, count + 4)
    except IndexError:
        raise PtxError("a fatbinary's LZ4 data ends too early") from None
    if len(out) != size:
        raise PtxError(f"a fatbinary's LZ4 data has {len(out)} bytes, not {size}")
    return bytes(out)


def _length(data: bytes, at: int, count: int) -> tuple[int, int]:
    """A length of 15 goes on in further bytes, up to one that is not 255."""
    if count == 15:
        while data[at] == 255:
            count, at = count + 255, at + 1
        count, at = count + data[at], at + 1
    return count, at


def _repeat(out: bytearray, distance: int, count: int) -> None:
    """Copy from ``distance`` back; what is copied may include itself."""
    start = len(out) - distance
    if distance == 0 or start < 0:
        raise PtxError(f"a fatbinary's LZ4 data reaches {distance} bytes back, of {len(out)}")
    piece = bytes(out[start : start + count])
    while len(piece) < count:
        piece += piece
    out += piece[:count]


def unpack_zstd(data: bytes, size: int) -> bytes:
    """A Zstandard frame of ``size`` bytes, by the system's libzstd. PtxError where there is none or
    the data is damaged.
    """
    library = ctypes.util.find_library("zstd")
    if library is None:
        raise PtxError(
            "the PTX is compressed by Zstandard, and this system has no libzstd",
            hint="nvcc --compress-mode=speed takes LZ4, which needs none; or install libzstd1",
        )
    unpack = ctypes.CDLL(library).ZSTD_decompress
    unpack.restype = ctypes.c_size_t
    unpack.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t]
    out = ctypes.create_string_buffer(size)
    if unpack(out, size, ctypes.c_char_p(data), len(data)) != size:
        raise PtxError("a fatbinary's Zstandard data is damaged")
    return out.raw
