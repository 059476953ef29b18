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

from .. import __version__, cuda, gemm
from ..errors import DeviceError, MissingPackage
from ..sources import source_key


@dataclass(frozen=True)
class Built:
    """A kernel: its ``entry`` in the ``cubin``, and the bytes of ``shared`` memory of a launch."""

    entry: str
    shared: int
    cubin: cuda.Cubin

    def pack(self) -> bytes:
        """All of it as bytes; ``Built.unpack`` is the inverse."""
        head = json.dumps([self.entry, self.shared]).encode()
        return len(head).to_bytes(4, "little") + head + self.cubin.pack()

    @classmethod
    def unpack(cls, data: bytes) -> Built:
        end = 4 + int.from_bytes(data[:4], "little")
        entry, shared = json.loads(data[4:end])
        return cls(entry, shared, cuda.Cubin.unpack(data[end:]))


def build(kernel: gemm.Kernel, arch: str) -> Built:
    """Trace and assemble a kernel. MissingPackage where there is no assembler but the driver's."""
    traced = kernel.trace()
    cubin = cuda.compile(traced.ptx, arch)
    if cubin.is_ptx:
        why = "only the driver could assemble this kernel here"
        raise MissingPackage(why, hint=cuda.ptxas.HINT)
    return Built(traced.name, traced.dynamic_shared, cubin)


# --- files --------------------------------------------------------------------------------------

Kernels = dict[tuple[str, str], Built]  # by architecture and the kernel's text

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
    """The kernels of a file. DeviceError where it is no such file, or another version's."""
    data, start = Path(path).read_bytes(), len(_MAGIC) + 32
    digest, body = data[len(_MAGIC) : start], data[start:]
    if not data.startswith(_MAGIC) or hashlib.sha256(body).digest() != digest:
        raise DeviceError(f"{path} is not a whole file of kernels", hint="tilewright build")
    line, _, rest = body.partition(b"\n")
    head = json.loads(line)
    if head["version"] != __version__:
        what = f"{path} was built by tilewright {head['version']}, this is {__version__}"
        raise DeviceError(what, hint="build it again")
    found: Kernels = {}
    for arch, name, size in head["kernels"]:
        found[arch, name], rest = Built.unpack(rest[:size]), rest[size:]
    return found


def load(path: str | os.PathLike[str]) -> int:
    """Let calls take their kernels from a file that ``tilewright build`` made; how many it has.

    A call that needs another kernel builds it as ever. The file holds machine code that will run:
    load only what you trust. Raises DeviceError for what is no such file or another version's.
    """
    found = read(path)
    _loaded.update(found)
    return len(found)


def loaded(arch: str, kernel: str) -> Built | None:
    """The kernel of this text from a file that was loaded, if one had it."""
    return _loaded.get((arch, kernel)) if _loaded else None


# --- the cache's key ----------------------------------------------------------------------------


SOURCE = "gemm", "cuda.assembler"  # with what they import: all that makes a kernel


def source() -> str:
    """Stands for this package's version and the source code that decides what a kernel is."""
    return f"{__version__} {source_key(*SOURCE)}"
