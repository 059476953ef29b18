"""Immediates: the bits of Python numbers in a format, and the values that an operand accepts."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

from ...dtypes import DTYPES, DType
from ...number_conversion import encode
from ...ptx import tree
from ..opcode_signature import OperandSlot
from ..source_location import kernel_error
from .registers import is_integer


def encode_float(t: DType, value: Any) -> int:
    """The bits of a number in a float format, in both lanes of a packed one; it must fit."""
    try:
        number = float(value)
    except OverflowError:
        raise kernel_error(
            f"an integer of {value.bit_length()} bits does not fit {t.name}"
        ) from None
    bits = _encoded(t.name, struct.pack("<d", number))
    finite = number - number == 0
    if finite and t.kind == "float" and (bits & ((1 << (t.bits - 1)) - 1)) > t.max_finite:
        raise kernel_error(f"{value!r} does not fit {t.name}")
    return bits


@lru_cache(maxsize=4096)
def _encoded(t: str, double: bytes) -> int:
    """The bits of a double given as bytes: as cache keys, −0.0 and 0.0 would be equal."""
    (number,) = struct.unpack("<d", double)
    return int(encode(t, [number] * 2 if DTYPES[t].kind == "packed" else number))


def wrap_integer(t: DType, value: int) -> int:
    """An integer as an immediate of a type; a negative one wraps for unsigned and bit types."""
    low, high = -(1 << (t.bits - 1)), (1 << (t.bits - (t.kind == "int"))) - 1
    if not low <= value <= high:
        raise kernel_error(
            f"{value} does not fit {t.name}",
            f"its range is {low if t.kind == 'int' else 0} to {high}",
        )
    return value & high if value < 0 and t.kind != "int" else value


def check_immediates(opcode: str, slot: OperandSlot, operand: tree.Operand, given: Any) -> None:
    """Check that the instruction accepts the numbers, as given and not wrapped."""
    items = operand.items if isinstance(operand, tree.Vector) else (operand,)
    for item, allowed in zip(items, slot.allowed, strict=False):
        if not isinstance(item, tree.Imm):
            continue
        if (given.__index__() if is_integer(given) else item.value) not in allowed:
            expected = allowed.describe() or "a register"
            raise kernel_error(f"{opcode}: operand {slot.name} must be {expected}, got {given!r}")
