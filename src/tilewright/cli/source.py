"""PTX files that the command reads."""

from __future__ import annotations

import sys
from pathlib import Path

from .. import ptx


def read(name: str) -> ptx.Module:
    """The module of a file (-: stdin). OSError and PtxSyntaxError, with the place."""
    given = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    return ptx.parse(given.decode(errors="replace"), name)
