"""The bytes that a variable of a module begins with."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ..errors import PtxError
from ..ptx import abi, tree
from ..ptx.types import bits


def initial_bytes(v: tree.Variable) -> bytes:
    """A global or constant variable's initial bytes; what the initialiser leaves out is zero.

    Raises PtxError for an address in an initialiser: the virtual machine does not place those yet.
    """
    size, _ = abi.extent(v)
    if not v.init:
        return bytes(size)
    element = bits(v.type) // 8
    out = bytearray(size)
    shape = (*v.dims, v.vector) if v.vector > 1 else v.dims
    for place, value in _flat(v, v.init, shape, 0):
        out[place * element : (place + 1) * element] = _bytes(v, value, element)
    return bytes(out)


def _flat(v: tree.Variable, values: tuple[object, ...], shape: tuple[int, ...], start: int) -> Iterator[tuple[int, object]]:
    """Each element's place in memory and its value: inner braces begin a row."""
    row = prod(shape[1:]) if shape else 1
    place = start
    for value in values:
        if isinstance(value, tuple):
            yield from _flat(v, value, shape[1:], place)
            place += row
        else:
            yield place, value
            place += 1


def _bytes(v: tree.Variable, value: object, size: int) -> bytes:
    if isinstance(value, tree.FloatImm):
        return (value.bits & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    number = value.value if isinstance(value, tree.Imm) else value
    if not isinstance(number, int):
        raise PtxError(f"{v.name} begins with {value!r}: an address in an initialiser is not supported yet")
    return (number & ((1 << 8 * size) - 1)).to_bytes(size, "little")
