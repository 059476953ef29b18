"""What an epilogue function may return, but not compute with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .foreign_functions import OnlyOutput


@dataclass(frozen=True)
class TracedReduction(OnlyOutput):
    """A reduction of a value over dimensions of D, or a bitmask: an output, not an operand."""

    value: Any  # a TracedValue
    reduction: str
    reduced: str

    def __repr__(self) -> str:
        return f"the {self.reduction} of {self.value!r}"
