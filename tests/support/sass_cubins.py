"""Cubins that ptxas makes of our own PTX: for sm_90a and sm_80, and for sm_52 where it can; code
from SASS text.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from ptxas import assemble, ptxas
from tilewright.errors import SassError
from tilewright.sass import assemble as assemble_sass
from tilewright.sass import decode_code, encoding_table
from tilewright.sass.machine.code_paths import SassCode

CORPUS = Path(__file__).parents[1] / "corpus"
# Jump tables, calls, divisions by subroutine, shuffles; line tables; cp.async and mma.sync.
QUICK = ("clang/plain", "language_debug", "matmul", "networks")
ARCHITECTURES = ("sm_90a", "sm_80")
TYPED = (SassError,)


def names() -> list[str]:
    """All PTX files of the corpus, without their suffix."""
    return sorted(str(p.relative_to(CORPUS).with_suffix("")) for p in CORPUS.rglob("*.ptx"))


@cache
def cubin(name: str, arch: str) -> bytes | None:
    """The cubin of a file of the corpus; None where ptxas does not take it for that target."""
    if ptxas() is None:
        return None
    text = (CORPUS / f"{name}.ptx").read_text(encoding="utf-8")
    try:
        return assemble(re.sub(r"(?m)^\.target .*$", f".target {arch}", text, count=1), arch).code
    except AssertionError:
        return None


def code_of(text: str, sm: int = 90) -> SassCode:
    """The decoded code of SASS text; on sm_5x bundles are filled with NOP."""
    lines = text.strip().splitlines()
    while sm < 70 and len(lines) % 3:
        lines.append("--:-:-:-:f NOP")
    table = encoding_table(sm)
    return SassCode.of(sm, decode_code(table, assemble_sass(table, "\n".join(lines))))
