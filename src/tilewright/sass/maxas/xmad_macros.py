"""Macros of XMAD, the 16-bit multiply-add of sm_5x, inside a SCHEDULE_BLOCK.

XMAD.LO d, a, b, c, x;   d = a·b + c modulo 2³², 3 instructions; x is a temporary
XMAD.LO2 d, a, b, c;     b has 16 bits: 2 instructions
XMAD.LO2C d, a, b, c;    a has 16 bits, b may be a constant: 2 instructions
"""

from __future__ import annotations

import re

from .source_line import SourceLine

_MACRO = re.compile(r"XMAD(\.[SU]16\.[SU]16)?\.(LO2C|LO2|LO)\s+(.*)")
_OPERANDS = {"LO": 5, "LO2": 4, "LO2C": 4}


def is_xmad_macro(body: str) -> bool:
    """Whether an instruction (without guard) is a macro."""
    return _MACRO.fullmatch(body.rstrip("; ")) is not None


def expand_xmad(body: str, line: SourceLine) -> list[str]:
    """The instructions that a macro stands for; any other instruction as it is.

    Raises SassError for a wrong number of operands, and where d is a (it is written before a is
    read for the last time).
    """
    found = _MACRO.fullmatch(body.rstrip("; "))
    if found is None:
        return [body]
    types, name = found[1] or "", found[2]
    operands = [x.strip() for x in found[3].split(",")]
    if len(operands) != _OPERANDS[name]:
        wanted = _OPERANDS[name]
        raise line.error(f"XMAD.{name} must have {wanted} operands, got {len(operands)}")
    d, a, b, c = operands[:4]
    if d == a:
        raise line.error(f"the result of XMAD.{name} must differ from its first operand, got {d}")
    if name == "LO":
        if types:
            raise line.error(f"XMAD.LO must be without types, got {types}")
        x = operands[4]
        return [
            f"XMAD.MRG {x}, {a}, {b}.H1, RZ",
            f"XMAD {d}, {a}, {b}, {c}",
            f"XMAD.PSL.CBCC {d}, {a}.H1, {x}.H1, {d}",
        ]
    second = f"{a}.H1, {b}" if name == "LO2" else f"{a}, {b}.H1"
    return [f"XMAD{types} {d}, {a}, {b}, {c}", f"XMAD{types}.PSL {d}, {second}, {d}"]
