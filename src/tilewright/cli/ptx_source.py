"""Reads PTX from text files and from CUDA executables."""

from __future__ import annotations

import sys
from pathlib import Path

from .. import ptx
from ..cudart import best_ptx, in_program
from ..errors import PtxError

_PROGRAM = b"\x7fELF"


def read(name: str) -> ptx.Module:
    """Read the module in a file (``-``: stdin). The modules of an executable are linked to one; of
    PTX for several architectures, that of the highest architecture is taken.

    Raises OSError, PtxSyntaxError with the location, and PtxError for an executable without PTX.
    """
    data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    if not data.startswith(_PROGRAM):
        return ptx.parse(data.decode(errors="replace"), name)
    found = [entries for entries in in_program(data) if any(e.is_ptx for e in entries)]
    if not found:
        raise PtxError(
            f"{name} is an executable without PTX", hint="compile it with nvcc -arch=sm_90a"
        )
    return ptx.link([ptx.parse(best_ptx(entries), name) for entries in found])
