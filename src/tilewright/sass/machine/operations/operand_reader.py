"""Source operands as functions of a group of threads: registers, immediates, constants, addresses.

A source is read as 32-bit words; ``-``, ``~`` and ``|`` are applied by ``integer_source`` and
``float_source``, ``.H0`` and ``.H1`` of 16-bit operands by the operations that have them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ....errors import SassError
from ...sass_text import SassOperand
from ..thread_state import ThreadGroup

Array = npt.NDArray[Any]
Reader = Callable[[ThreadGroup], Array]
_SIGN, _MAGNITUDE = np.uint32(0x80000000), np.uint32(0x7FFFFFFF)
_FILES = {"R#": "R", "UR#": "UR", "P#": "P", "UP#": "UP"}


def word_source(operand: SassOperand, offset: int = 0) -> Reader:
    """The 32 bits of an operand; ``offset`` selects a later register, or word, of a vector.

    Raises SassError for a kind that has no value.
    """
    kind = operand.kind
    if kind in _FILES:
        file, number = _FILES[kind], int(operand.numbers[0])
        none = {"R": 255, "UR": 63}.get(file)
        if number != none:
            number += offset
        return lambda group: group.read(file, number)
    if kind == "#":
        word = np.full((1, 1), _immediate(operand, offset), np.uint32)
        return lambda group: word
    if kind.replace(" ", "").startswith("c["):
        return _constant(operand, offset)
    raise SassError(f"an operand must be a register, immediate or constant, got {operand}")


def _immediate(operand: SassOperand, offset: int) -> int:
    number = operand.numbers[0]
    if isinstance(number, float):
        return int(struct.unpack("<I", struct.pack("<f", number))[0]) if not offset else 0
    return (int(number) >> 32 * offset) & 0xFFFFFFFF


def _constant(operand: SassOperand, offset: int) -> Reader:
    """``c[bank][byte]`` or ``c[bank][R + byte]``."""
    bank, address = int(operand.numbers[0]), constant_address(operand)

    def read(group: ThreadGroup) -> Array:
        words = group.cta.constant(bank)
        found = np.asarray(words[np.clip((address(group) >> 2) + offset, 0, len(words) - 1)])
        return found.astype(np.uint32)

    return read


def constant_address(operand: SassOperand) -> Reader:
    """The byte of ``c[bank][byte]`` or ``c[bank][R + byte]`` as int64."""
    inner = operand.kind.replace(" ", "").split("][")[1]
    file = "UR" if "UR#" in inner else "R" if "R#" in inner else ""
    rest = [int(n) for n in operand.numbers[1:]]
    register = rest.pop(0) if file else 0
    byte = np.full((1, 1), rest[0] if rest else 0, np.int64)
    if not file:
        return lambda group: byte
    return lambda group: group.read(file, register).astype(np.int64) + byte


def integer_source(operand: SassOperand) -> Reader:
    """The operand with ``-`` (two's complement), ``~`` and ``|`` applied."""
    read = word_source(operand)
    if operand.kind == "#" and "-" in operand.marks:
        return lambda group: ~read(group) + np.uint32(1)
    if "~" in operand.marks:
        return lambda group: ~read(group)
    if "|" in operand.marks:
        negative = "-" in operand.marks

        def absolute(group: ThreadGroup) -> Array:
            value = np.abs(read(group).view(np.int32)).view(np.uint32)
            return ~value + np.uint32(1) if negative else value

        return absolute
    if "-" in operand.marks:
        return lambda group: ~read(group) + np.uint32(1)
    return read


def float_source(operand: SassOperand) -> Reader:
    """The operand as f32 bits, its sign changed as ``-`` and ``|`` say."""
    read = word_source(operand)
    absolute, negative = "|" in operand.marks, "-" in operand.marks.split(".")[0]
    if absolute and negative:
        return lambda group: read(group) | _SIGN
    if absolute:
        return lambda group: read(group) & _MAGNITUDE
    if negative:
        return lambda group: read(group) ^ _SIGN
    return read


def predicate_source(operand: SassOperand) -> Reader:
    """A predicate, negated by ``!``."""
    read = word_source(operand)
    return (lambda group: ~read(group)) if "!" in operand.marks else read


def address_source(operand: SassOperand) -> Reader:
    """The sum of an address's parts as int64: ``[R2.64+0x10]``, ``[R5.X4+UR4]``,
    ``desc[UR4][R2.64]``.

    A descriptor is not part of the address.
    """
    kind, numbers = operand.kind, list(operand.numbers)
    if kind.startswith("desc["):
        kind, numbers = kind[kind.index("]") + 1 :], numbers[1:]
    parts: list[Reader] = []
    for part in kind.strip("[]").split("+"):
        if part:
            own = [int(numbers.pop(0)) for _ in range(part.count("#"))]
            parts.append(_address_part(part, *(own or [0])))
    return lambda group: sum((p(group) for p in parts), np.zeros((1, 1), np.int64))


def _address_part(part: str, number: int, scale: int = 1) -> Reader:
    if part == "#":
        constant = np.full((1, 1), number, np.int64)
        return lambda group: constant
    file = "UR" if part.startswith("UR") else "R"
    if ".64" in part and number != (63 if file == "UR" else 255):
        return lambda group: (
            group.read(file, number).astype(np.int64)
            | group.read(file, number + 1).astype(np.int64) << 32
        )
    return lambda group: group.read(file, number).astype(np.int64) * scale
