"""Kernels as they are kept: machine code, and what a launch must know besides.

An entry of the cache is found by what decides a kernel: problem, configuration, architecture, and
this package's own source, which makes the one from the other. So a kernel that was built before is
loaded without being traced, and without asking an assembler for its version. The same goes to a
file (``tilewright build``), for machines that have no assembler.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ... import cuda, gemm
from ...errors import DeviceError, MissingPackage
from ...source_key import source_key
from ...version import __version__


@dataclass(frozen=True)
class SerializedKernel:
    """A kernel: its ``entry`` in the ``cubin``, and the bytes of ``shared`` memory of a launch."""

    entry: str
    shared: int
    cubin: cuda.Cubin

    def pack(self) -> bytes:
        """All of it as bytes; ``SerializedKernel.unpack`` is the inverse."""
        head = json.dumps([self.entry, self.shared]).encode()
        return len(head).to_bytes(4, "little") + head + self.cubin.pack()

    @classmethod
    def unpack(cls, data: bytes) -> SerializedKernel:
        """LookupError, TypeError or ValueError for bytes that ``pack`` does not make."""
        end = 4 + int.from_bytes(data[:4], "little")
        entry, shared = json.loads(data[4:end])
        if type(entry) is not str or type(shared) is not int or shared < 0:
            raise ValueError(f"a kernel named {entry!r:.40} of {shared!r:.40} bytes")
        return cls(entry, shared, cuda.Cubin.unpack(data[end:]))


def build(kernel: gemm.GemmKernel, arch: str) -> SerializedKernel:
    """Trace and assemble a kernel. MissingPackage where there is no assembler but the driver's."""
    traced = kernel.trace()
    cubin = cuda.compile(traced.ptx, arch)
    if cubin.is_ptx:
        why = "only the driver could assemble this kernel here"
        raise MissingPackage(why, hint=cuda.ptxas.HINT)
    return SerializedKernel(traced.name, traced.dynamic_shared, cubin)


# --- files --------------------------------------------------------------------------------------

Kernels = dict[tuple[str, str], SerializedKernel]  # by architecture and the kernel's text

_MAGIC = b"tilewright kernels 1\n"
_loaded: Kernels = {}


def pack(kernels: Kernels) -> bytes:
    """The file that ``load`` takes."""
    packed = [built.pack() for built in kernels.values()]
    entries = [[*name, len(data)] for name, data in zip(kernels, packed, strict=True)]
    head = json.dumps({"version": __version__, "kernels": entries}).encode() + b"\n"
    body = head + b"".join(packed)
    return _MAGIC + hashlib.sha256(body).digest() + body


def read(path: str | os.PathLike[str]) -> Kernels:
    """The kernels of a file. DeviceError where it can't be read, is no such file, or another
    version's.
    """
    if not isinstance(path, str | os.PathLike):
        raise DeviceError(f"a file of kernels must be a path, got {path!r:.80}")
    try:
        data, start = Path(path).read_bytes(), len(_MAGIC) + 32
    except (OSError, ValueError) as error:  # a name with a null byte
        reason = getattr(error, "strerror", None) or error
        raise DeviceError(f"{path!s} can't be read: {reason}", hint="tilewright build") from error
    digest, body = data[len(_MAGIC) : start], data[start:]
    if not data.startswith(_MAGIC) or hashlib.sha256(body).digest() != digest:
        raise DeviceError(f"{path} is not a whole file of kernels", hint="tilewright build")
    line, _, rest = body.partition(b"\n")
    try:
        version, entries = _head(line)
        if version == __version__:
            return _kernels(entries, rest)
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        what = f"{path} has a header that tilewright build does not write: {error}"
        raise DeviceError(what, hint="build it again") from error
    what = f"{path} was built by tilewright {version}, this is {__version__}"
    raise DeviceError(what, hint="build it again")


def _head(line: bytes) -> tuple[str, list[Any]]:
    """Version and entries. What json, or a missing name, raises for what is no header."""
    head = json.loads(line)
    version, entries = head["version"], head["kernels"]
    if not (isinstance(version, str) and isinstance(entries, list)):
        raise ValueError(f"version {version!r:.40}, kernels {entries!r:.40}")
    return version, entries


def _kernels(entries: list[Any], rest: bytes) -> Kernels:
    """The kernels that follow one another as the entries say. ValueError, or as for ``_head``."""
    found: Kernels = {}
    for entry in entries:
        arch, name, size = entry
        known = type(arch) is type(name) is str and type(size) is int
        if not known or not 0 <= size <= len(rest):
            raise ValueError(f"the entry {entry!r:.80}")
        found[arch, name], rest = SerializedKernel.unpack(rest[:size]), rest[size:]
    if rest:
        raise ValueError(f"{len(rest)} bytes of no entry")
    return found


def load(path: str | os.PathLike[str]) -> int:
    """Let calls take their kernels from a file that ``tilewright build`` made; how many it has.

    A call that needs another kernel builds it as ever. The file holds machine code that will run:
    load only what you trust. Raises DeviceError for what is no such file or another version's.
    """
    found = read(path)
    _loaded.update(found)
    return len(found)


def loaded(arch: str, kernel: str) -> SerializedKernel | None:
    """The kernel of this text from a file that was loaded, if one had it."""
    return _loaded.get((arch, kernel)) if _loaded else None


# --- the cache's key ----------------------------------------------------------------------------


SOURCE = "gemm", "cuda.assembler"  # with what they import: all that makes a kernel


def source() -> str:
    """Stands for this package's version and the source code that decides what a kernel is."""
    return f"{__version__} {source_key(*SOURCE)}"
