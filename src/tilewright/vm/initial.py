"""The bytes that a variable of a module begins with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from ..errors import PtxError
from ..ptx import abi, tree
from ..ptx.types import bits
from .flatten import immediate


def initial_bytes(v: tree.Variable, addresses: Mapping[str, int]) -> bytes:
    """A global or constant variable's initial bytes; what the initialiser leaves out is zero.

    ``addresses`` are the global variables' and functions'. Raises PtxError for the address of
    anything else.
    """
    size, _ = abi.extent(v)
    out = bytearray(size)
    if v.init:
        element = bits(v.type) // 8
        shape = (*v.dims, v.vector) if v.vector > 1 else v.dims
        for place, value in _flat(v.init, shape, 0):
            number = _number(v, value, addresses) & ((1 << 8 * element) - 1)
            out[place * element : (place + 1) * element] = number.to_bytes(element, "little")
    return bytes(out)


def _flat(
    values: tuple[object, ...], shape: tuple[int, ...], start: int
) -> Iterator[tuple[int, object]]:
    """Each element's place in memory and its value: inner braces begin a row."""
    row = prod(shape[1:]) if shape else 1
    place = start
    for value in values:
        if isinstance(value, tuple):
            yield from _flat(value, shape[1:], place)
            place += row
        else:
            yield place, value
            place += 1


def _number(v: tree.Variable, value: object, addresses: Mapping[str, int]) -> int:
    if isinstance(value, tree.Imm | tree.FloatImm):
        return immediate(v.type, value)
    if isinstance(value, tree.Masked):  # 0xFF00(x): the byte of the address under the mask
        shift = (value.mask & -value.mask).bit_length() - 1
        return (_number(v, value.symbol, addresses) & value.mask) >> shift
    if isinstance(value, tree.Symbol) and value.name in addresses:
        return addresses[value.name] + value.offset
    name = value.name if isinstance(value, tree.Symbol) else value
    why = "which is neither a global variable nor a function"
    raise PtxError(f"{v.name} begins with the address of {name}, {why}")
