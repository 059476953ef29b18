"""An instruction on its way through allocator and scheduler."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import SassError, SourceLocation
from ..control_code import ControlCode
from ..sass_text import SassText

_PLAIN = ControlCode()


@dataclass(frozen=True, slots=True)
class KernelInstruction:
    """``text`` may have virtual registers. ``label`` is the target of a jump, whose operand is 0.

    ``minimum_stall`` is what the scheduler may not go below; ``shown`` is the instruction as the
    user wrote it, ``place`` where.
    """

    text: SassText
    control: ControlCode = _PLAIN
    label: str | None = None
    minimum_stall: int = 0
    shown: str = ""
    place: SourceLocation | None = None

    def __str__(self) -> str:
        return self.shown.partition(";")[0] or str(self.text)

    def error(self, message: str, hint: str = "") -> SassError:
        """A SassError located at this instruction."""
        return SassError(message, location=self.place, hint=hint)
