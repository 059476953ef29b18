"""Bits of literals, and the initial bytes of a module's variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from math import prod

from ...errors import PtxError
from ...number_conversion import decode, encode
from ...ptx import parameter_block, tree
from ...ptx.types import bits, kind


def initial_bytes(v: tree.Variable, addresses: Mapping[str, int]) -> Iterator[tuple[int, bytes]]:
    """The initialiser of a global or constant variable: offsets and bytes. All other bytes are 0.

    ``addresses`` are those of global variables and functions. Raises PtxError for the address of
    anything else, and for an initialiser that is longer than the variable.
    """
    size, _ = parameter_block.size_and_align(v)
    element = bits(v.type) // 8
    shape = (*v.dims, v.vector) if v.vector > 1 else v.dims
    for index, values in _runs(v.init or (), shape, 0):
        data = b"".join(n.to_bytes(element, "little") for n in _numbers(v, values, addresses))
        if index * element + len(data) > size:
            raise PtxError(f"the initialiser of {v.name} is longer than its {size} bytes")
        yield index * element, data


def _runs(
    values: tuple[object, ...], shape: tuple[int, ...], start: int
) -> Iterator[tuple[int, list[object]]]:
    """Runs of consecutive elements, with the index of the first one; inner braces begin a row."""
    row = prod(shape[1:]) if shape else 1
    index = start
    for nested, group in groupby(values, lambda value: isinstance(value, tuple)):
        run = list(group)
        if nested:
            for i, inner in enumerate(run):
                yield from _runs(inner, shape[1:], index + i * row)  # type: ignore[arg-type]
        else:
            yield index, run
        index += len(run) * (row if nested else 1)


def _numbers(v: tree.Variable, values: list[object], addresses: Mapping[str, int]) -> list[int]:
    """The bits of each element. Integers take a fast path: tables may have 100,000 elements."""
    mask = (1 << bits(v.type)) - 1
    integer = kind(v.type) in ("int", "bits")
    return [
        (x.value if integer and type(x) is tree.Imm else _number(v, x, addresses)) & mask
        for x in values
    ]


def _number(v: tree.Variable, value: object, addresses: Mapping[str, int]) -> int:
    if isinstance(value, tree.Imm | tree.FloatImm):
        return immediate(v.type, value)
    if isinstance(value, tree.Masked):  # 0xFF00(x): the byte of the address that the mask selects
        shift = (value.mask & -value.mask).bit_length() - 1
        return (_number(v, value.symbol, addresses) & value.mask) >> shift
    if isinstance(value, tree.Symbol) and value.name in addresses:
        return addresses[value.name] + value.offset
    name = value.name if isinstance(value, tree.Symbol) else value
    why = "which is neither a global variable nor a function"
    raise PtxError(f"the initialiser of {v.name} has the address of {name}, {why}")


def immediate(type_: str, o: tree.Imm | tree.FloatImm) -> int:
    """The bits of a literal as an operand or element of type ``type_``."""
    kind_ = kind(type_) if type_ else "int"
    if isinstance(o, tree.Imm):
        if kind_ == "float":
            return int(encode(type_, float(o.value)))
        return int(o.value != 0) if kind_ == "pred" else o.value
    if kind_ == "float" and bits(type_) != o.width:
        return int(encode(type_, decode(f"f{o.width}", o.bits)))
    if kind_ == "bits" and bits(type_) == 32 and o.width == 64:  # a decimal literal
        return int(encode("f32", decode("f64", o.bits)))
    return o.bits
