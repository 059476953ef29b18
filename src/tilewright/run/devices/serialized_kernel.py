"""Serialized kernels: machine code and what a launch needs besides, in the cache and in files.

The key of a cache entry is what determines the kernel: problem, configuration, architecture, and
this package's source code. So a cached kernel is loaded without being traced, and without running
an assembler. ``tilewright build`` writes kernels to a file, for machines without an assembler.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import cuda, gemm
from ...errors import DeviceError, MissingPackage
from ...lazy_imports import deferred
from ...source_key import source_key
from ...version import __version__

if TYPE_CHECKING:
    from ...builder import Traced

_FFMA_KERNELS, _FLOAT8_KERNELS = "simt_", ("gemm_tma_e4m3", "gemm_tma_e5m2")
scheduler = deferred("...sass.schedule.ffma_loop.rescheduled_code", __package__)
kept_operands = deferred("...sass.schedule.kept_operands", __package__)


@dataclass(frozen=True)
class SerializedKernel:
    """A kernel: its ``entry`` in the ``cubin``, and ``shared``, bytes of dynamic shared memory."""

    entry: str
    shared: int
    cubin: cuda.Cubin

    def pack(self) -> bytes:
        """The kernel as bytes; ``SerializedKernel.unpack`` is the inverse."""
        head = json.dumps([self.entry, self.shared]).encode()
        return len(head).to_bytes(4, "little") + head + self.cubin.pack()

    @classmethod
    def unpack(cls, data: bytes) -> SerializedKernel:
        """The inverse of ``pack``. Raises LookupError, TypeError or ValueError for other bytes."""
        end = 4 + int.from_bytes(data[:4], "little")
        entry, shared = json.loads(data[4:end])
        if type(entry) is not str or type(shared) is not int or shared < 0:
            raise ValueError(
                f"expected a kernel's name and bytes, got {entry!r:.40}, {shared!r:.40}"
            )
        return cls(entry, shared, cuda.Cubin.unpack(data[end:]))


def build(kernel: gemm.GemmKernel, arch: str) -> SerializedKernel:
    """Trace and assemble a kernel. Raises MissingPackage if only the driver could assemble it."""
    traced = kernel.trace()
    return SerializedKernel(traced.name, traced.dynamic_shared, assembled(traced, arch))


def assembled(traced: Traced, arch: str) -> cuda.Cubin:
    """A kernel's machine code. Raises MissingPackage if only the driver could assemble it."""
    cubin = cuda.compile(traced.ptx, arch)
    if cubin.is_ptx:
        raise MissingPackage("this kernel must be assembled by ptxas", hint=cuda.ptxas.HINT)
    return rescheduled(cubin, traced.name)


def rescheduled(cubin: cuda.Cubin, name: str) -> cuda.Cubin:
    """The machine code of kernel ``name``; where it is of FFMAs, with a loop that tilewright
    scheduled; where FFMAs promote products of 8-bit floats, with operands that they keep.
    """
    if cubin.is_ptx:
        return cubin
    if name.startswith(_FFMA_KERNELS):
        return replace(cubin, code=scheduler.rescheduled_code(cubin.code, name))
    if name.startswith(_FLOAT8_KERNELS):
        return replace(cubin, code=kept_operands.with_kept_operands(cubin.code, name))
    return cubin


# --- files --------------------------------------------------------------------------------------

Kernels = dict[tuple[str, str], SerializedKernel]  # by architecture and the kernel's text

_MAGIC = b"tilewright kernels 1\n"
_loaded: Kernels = {}


def pack(kernels: Kernels) -> bytes:
    """The contents of a file for ``load``."""
    packed = [kernel.pack() for kernel in kernels.values()]
    entries = [[*name, len(data)] for name, data in zip(kernels, packed, strict=True)]
    head = json.dumps({"version": __version__, "kernels": entries}).encode() + b"\n"
    body = head + b"".join(packed)
    return _MAGIC + hashlib.sha256(body).digest() + body


def read(path: str | os.PathLike[str]) -> Kernels:
    """The kernels of a file that ``pack`` made. Raises DeviceError if it can't be read, is damaged,
    or was made by another version.
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
        raise DeviceError(f"{path} is not a complete file of kernels", hint="tilewright build")
    line, _, rest = body.partition(b"\n")
    try:
        version, entries = _head(line)
        if version == __version__:
            return _kernels(entries, rest)
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        what = f"{path} has an invalid header: {error}"
        raise DeviceError(what, hint="build it again") from error
    what = f"{path} must be built by tilewright {__version__}, got version {version}"
    raise DeviceError(what, hint="build it again")


def _head(line: bytes) -> tuple[str, list[Any]]:
    """The version and the entries. Raises LookupError, TypeError or ValueError for other data."""
    head = json.loads(line)
    version, entries = head["version"], head["kernels"]
    if not (isinstance(version, str) and isinstance(entries, list)):
        raise ValueError(f"got version {version!r:.40}, kernels {entries!r:.40}")
    return version, entries


def _kernels(entries: list[Any], rest: bytes) -> Kernels:
    """The kernels that the entries describe, stored back to back. Raises as ``_head``."""
    kernels: Kernels = {}
    for entry in entries:
        arch, name, size = entry
        typed = type(arch) is type(name) is str and type(size) is int
        if not typed or not 0 <= size <= len(rest):
            raise ValueError(f"got entry {entry!r:.80}")
        kernels[arch, name], rest = SerializedKernel.unpack(rest[:size]), rest[size:]
    if rest:
        raise ValueError(f"{len(rest)} bytes after the last entry")
    return kernels


def load(path: str | os.PathLike[str]) -> int:
    """Load a file that ``tilewright build`` made, for calls to use; returns its number of kernels.

    A call that needs another kernel compiles it. The file contains machine code that will be
    executed: load only files that you trust. Raises DeviceError for another file or another
    version's.
    """
    kernels = read(path)
    _loaded.update(kernels)
    return len(kernels)


def loaded(arch: str, kernel: str) -> SerializedKernel | None:
    """The kernel with this text, if a loaded file has it."""
    return _loaded.get((arch, kernel)) if _loaded else None


# --- the cache's key ----------------------------------------------------------------------------


# With their imports: the code that determines a kernel.
SOURCE = (
    "gemm", "cuda.assembler", "sass.schedule.ffma_loop.rescheduled_code",
    "sass.schedule.kept_operands",
)  # fmt: skip


def source() -> str:
    """A key for this package's version and the source code that determines a kernel."""
    return f"{__version__} {source_key(*SOURCE)}"
