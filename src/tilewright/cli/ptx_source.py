"""PTX that the command reads: from text files, and out of CUDA programs."""

from __future__ import annotations

import sys
from pathlib import Path

from .. import ptx
from ..cudart import best_ptx, in_program
from ..errors import PtxError

_PROGRAM = b"\x7fELF"


def read(name: str) -> ptx.Module:
    """The module of a file (-: stdin); of a program that nvcc made, all of its modules as one. Of
    the PTX for several architectures it is that for the highest.

    OSError, PtxSyntaxError with the place, PtxError for a program without PTX.
    """
    given = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    if not given.startswith(_PROGRAM):
        return ptx.parse(given.decode(errors="replace"), name)
    found = [entries for entries in in_program(given) if any(e.is_ptx for e in entries)]
    if not found:
        raise PtxError(f"{name} is a program without PTX", hint="nvcc -arch=sm_90a puts it in")
    return ptx.link([ptx.parse(best_ptx(entries), name) for entries in found])
