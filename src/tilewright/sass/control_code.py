"""Scheduling control of an instruction: stall, yield, barriers, in maxas' notation ``WW:R:W:Y:S``.

WW are the barriers to wait for (a mask in hex), R the barrier that signals that operands were
read, W that results were written (1 to 6), Y a yield hint, S the cycles to stall in hex.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import SassError

_NO_BARRIER = 7
_LARGEST = {"stall": 15, "write": 6, "read": 6, "wait": 63, "reuse": 15}
_TEXT = re.compile(r"(--|[0-9a-fA-F]{2}):([-1-6]):([-1-6]):([-Y]):([0-9a-fA-F])")


@dataclass(frozen=True, slots=True)
class ControlCode:
    """``wait`` is a mask of barriers 1 to 6 (bit 0 is barrier 1); ``read`` and ``write`` are 1 to
    6, or 0 for none; ``stall`` is in cycles, 0 to 15; ``reuse`` is the operand cache's mask.
    """

    stall: int = 1
    yields: bool = False
    write: int = 0
    read: int = 0
    wait: int = 0
    reuse: int = 0

    @classmethod
    def from_bits(cls, bits: int) -> ControlCode | None:
        """From the 21 control bits; None for barrier number 6, which no notation has."""
        write, read = bits >> 5 & 7, bits >> 8 & 7
        if _NO_BARRIER - 1 in (write, read):
            return None
        barriers = (write + 1) % 8, (read + 1) % 8
        return cls(bits & 15, not bits >> 4 & 1, *barriers, bits >> 11 & 63, bits >> 17 & 15)

    @property
    def bits(self) -> int:
        """The 21 control bits. Raises SassError for a number that does not fit its field."""
        for name, most in _LARGEST.items():
            if not 0 <= (number := getattr(self, name)) <= most:
                raise SassError(f"{name} of a control code must be 0 to {most}, got {number}")
        write, read = (self.write - 1) % 8, (self.read - 1) % 8
        low = self.stall | (not self.yields) << 4 | write << 5 | read << 8
        return low | self.wait << 11 | self.reuse << 17

    @classmethod
    def parse(cls, text: str) -> ControlCode:
        """Read ``WW:R:W:Y:S``. Raises SassError for anything else."""
        found = _TEXT.fullmatch(text)
        wait = int(found[1].replace("--", "0"), 16) if found else 64
        if found is None or wait > 63:
            raise SassError(f"a control code must be like --:-:-:-:1 or 01:2:-:Y:f, got {text!r}")
        read, write = (int(found[i].replace("-", "0")) for i in (2, 3))
        return cls(int(found[5], 16), found[4] == "Y", write, read, wait)

    def __str__(self) -> str:
        wait = f"{self.wait:02x}" if self.wait else "--"
        flag = "Y" if self.yields else "-"
        return f"{wait}:{self.read or '-'}:{self.write or '-'}:{flag}:{self.stall:x}"
