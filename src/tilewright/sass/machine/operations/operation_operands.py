"""What a builder of an operation gets: an instruction's results, sources and modifiers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ...sass_text import SassText
from ..instruction_properties import instruction_properties
from ..register_effects import output_count
from ..thread_state import ThreadGroup
from .operand_reader import Reader, integer_source, predicate_source

Array = npt.NDArray[Any]
Operation = Callable[[ThreadGroup], list[Array]]
_WORD = np.uint64(0xFFFFFFFF)


class OperationOperands:
    """An instruction's result operands, its sources, and its modifiers."""

    def __init__(self, sm: int, text: SassText) -> None:
        self.sm, self.text, self.opcode = sm, text, text.opcode
        count = output_count(instruction_properties(sm, text.opcode), text)
        self.outputs = text.operands[:count]
        self.sources = text.operands[count:]
        self.carries = sum(x.kind in ("P#", "UP#") for x in self.outputs)
        self.modifiers = set(text.opcode.split(".")[1:])

    def has(self, modifier: str) -> bool:
        """Whether the opcode has a modifier."""
        return modifier in self.modifiers

    def integers(self, count: int) -> list[Reader]:
        """Readers of the first sources as integers."""
        return [integer_source(x) for x in self.sources[:count]]

    def predicates(self) -> list[Reader]:
        """Readers of all predicate sources."""
        return [predicate_source(x) for x in self.sources if x.kind in ("P#", "UP#")]


def signed(value: Array) -> Array:
    """uint32 as int64 of its two's complement."""
    return value.astype(np.uint32).view(np.int32).astype(np.int64)


def wide(value: Array) -> Array:
    """uint32 as uint64."""
    return value.astype(np.uint64)


def word(value: Array) -> Array:
    """The low 32 bits."""
    return (value.astype(np.uint64) & _WORD).astype(np.uint32)
