"""Kernels as they are kept: machine code, and what a launch must know besides.

An entry of the cache is found by what decides a kernel: problem, configuration, architecture, and
this package's own source, which makes the one from the other. So a kernel that was built before is
loaded without being traced, and without asking an assembler for its version.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from pathlib import Path

from .. import __version__, cuda

_ROOT = Path(__file__).parents[1]
_MAKERS = "layout", "mma", "ptx", "build", "gemm", "cuda"


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


@cache
def source() -> str:
    """Stands for this package's version and the files that decide what a kernel is, by their names,
    sizes and times of change.
    """
    found = [__version__]
    folders = islice(os.walk(_ROOT), 1), *(os.walk(_ROOT / maker) for maker in _MAKERS)
    for folder, _, names in sorted(chain(*folders)):
        for name in sorted(names):
            if name.endswith(".py"):
                state = os.stat(os.path.join(folder, name))
                found.append(f"{folder} {name} {state.st_size} {state.st_mtime_ns}")
    return hashlib.sha256("\n".join(found).encode()).hexdigest()
