"""A finding about machine code: the rule that it breaks, where, and what to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class SassFinding:
    """``address`` is the instruction's offset in its function, ``text`` the instruction with its
    control code, ``message`` what is wrong, ``advice`` what to do.
    """

    address: int
    rule: str
    text: str
    message: str
    advice: str

    def __str__(self) -> str:
        return f"{self.address:#06x} {self.rule}: {self.message}; {self.advice}\n    {self.text}"
