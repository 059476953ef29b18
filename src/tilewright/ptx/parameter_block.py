"""The parameter block of a kernel: the offset of each parameter, and Python values packed to bytes.

Each parameter follows the one before, at the next multiple of its alignment (``.align``, or the
size of its element). A launch on either device copies this block.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import LaunchError
from .types import bits, kind

if TYPE_CHECKING:
    from .tree import Function, Variable

MAX_BYTES = 32764  # of a kernel's parameters (PTX manual, "Kernel Function Parameters")
MAX_BYTES_BEFORE_8_1, MAX_BYTES_SINCE = 4352, (8, 1)  # and before that .version

_FLOATS = {
    ("float", 2): "<e",
    ("float", 4): "<f",
    ("float", 8): "<d",
    ("bits", 4): "<f",
    ("bits", 8): "<d",
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: its type, and its offset, size and alignment in bytes. An ``array`` takes only
    raw bytes.
    """

    name: str
    type: str
    offset: int
    size: int
    align: int
    array: bool = False

    @property
    def description(self) -> str:
        """The parameter as error messages name it."""
        return f"parameter {self.name} (.{self.type})"

    @property
    def is_address(self) -> bool:
        """Whether a value of it may be an address: 64 bits that are not a float."""
        return not self.array and self.size == 8 and kind(self.type) != "float"

    def pack(self, value: Any) -> bytes:
        """The bytes of ``value``; LaunchError for a value that is not accepted.

        ``ParameterLayout.pack`` lists the accepted types.
        """
        return _bytes(self, value)

    def __str__(self) -> str:
        return f"{self.name}: .{self.type}{f'[{self.size}]' if self.array else ''} at {self.offset}"


@dataclass(frozen=True, slots=True)
class ParameterLayout:
    """A kernel's parameter block: ``size`` in bytes, ``align`` the largest alignment."""

    kernel: str
    parameters: tuple[Parameter, ...]

    @property
    def size(self) -> int:
        last = self.parameters[-1:]
        return last[0].offset + last[0].size if last else 0

    @property
    def align(self) -> int:
        return max((p.align for p in self.parameters), default=1)

    def at(self, offsets: Sequence[int]) -> ParameterLayout:
        """The block with its parameters at these offsets; itself if their number differs.

        A GPU aligns parameters by their addresses in its memory, not by their offsets in the block.
        """
        if len(offsets) != len(self.parameters):
            return self
        moved = [replace(p, offset=at) for p, at in zip(self.parameters, offsets, strict=True)]
        return ParameterLayout(self.kernel, tuple(moved))

    def each(self, args: Sequence[Any]) -> list[tuple[Parameter, Any]]:
        """Each parameter with its argument. LaunchError if their numbers differ."""
        if len(args) != len(self.parameters):
            listed = "; ".join(map(str, self.parameters)) or "none"
            count = f"{len(self.parameters)} parameters, got {len(args)} arguments"
            raise LaunchError(f"kernel {self.kernel} has {count}", hint=f"its parameters: {listed}")
        return list(zip(self.parameters, args, strict=True))

    def pack(self, args: Sequence[Any]) -> bytes:
        """The block for these arguments; LaunchError names the parameter of an argument that is not
        accepted.

        An argument is an int (for example an address), a float, a NumPy scalar of the parameter's
        size, or raw bytes.
        """
        block = bytearray(self.size)
        for parameter, value in self.each(args):
            block[parameter.offset : parameter.offset + parameter.size] = parameter.pack(value)
        return bytes(block)


def layout(function: Function) -> ParameterLayout:
    """The parameter block of a kernel."""
    return layout_parameters(function.name, function.params)


def layout_parameters(kernel: str, params: Iterable[Variable]) -> ParameterLayout:
    """The block of these parameters."""
    found: list[Parameter] = []
    offset = 0
    for variable in params:
        size, align = size_and_align(variable)
        offset = -(-offset // align) * align
        array = bool(variable.dims) or variable.vector > 1
        found.append(Parameter(variable.name, variable.type, offset, size, align, array))
        offset += size
    return ParameterLayout(kernel, tuple(found))


def pack(function: Function, args: Sequence[Any]) -> bytes:
    """``layout(function).pack(args)``; reuse the layout to launch a kernel more than once."""
    return layout(function).pack(args)


def size_and_align(variable: Variable) -> tuple[int, int]:
    """Size and alignment in bytes of a parameter or variable."""
    element = bits(variable.type) // 8 * variable.vector
    return element * prod(_shape(variable)), max(variable.align or element, 1)


def _shape(v: Variable) -> tuple[int, ...]:
    """The dimensions; the values determine an open one: 2 in ``a[][3] = {{1, 2, 3}, {4}}``."""
    if not v.dims or v.dims[0] or not v.init:
        return v.dims
    row = 1 if isinstance(v.init[0], tuple) else prod(v.dims[1:]) * v.vector
    return -(-len(v.init) // max(row, 1)), *v.dims[1:]


def _bytes(p: Parameter, value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        raw = bytes(value)
    elif isinstance(value, np.generic):
        raw = _scalar(p, value)
    elif p.array:
        raise _wrong(p, value, f"expected {p.size} raw bytes")
    elif isinstance(value, int):
        return _integer(p, value)
    elif isinstance(value, float):
        return _float(p, value)
    else:
        raise _wrong(p, value, "expected a number, a NumPy scalar or bytes")
    if len(raw) != p.size:
        raise _wrong(p, value, f"expected {p.size} bytes, got {len(raw)}")
    return raw


def _scalar(p: Parameter, value: np.generic) -> bytes:
    floating = value.dtype.kind not in "iub"
    if not p.array and floating == (kind(p.type) == "int") and value.dtype.kind != "V":
        raise _wrong(p, value, f"expected .{p.type}, got NumPy's {value.dtype}")
    if not p.array and not floating and kind(p.type) == "float":
        raise _wrong(p, value, f"expected .{p.type}, got NumPy's {value.dtype}")
    return value.tobytes()


def _integer(p: Parameter, value: int) -> bytes:
    if kind(p.type) == "float":
        return _float(p, value)
    width = 8 * p.size
    low = 0 if p.type[0] == "u" and value >= 0 else -(1 << width - 1)
    high = (1 << width - (p.type[0] == "s")) - 1
    if not low <= value <= high:
        raise _wrong(p, value, f"expected an integer of {width} bits")
    return (value & (1 << width) - 1).to_bytes(p.size, "little")


def _float(p: Parameter, value: int | float) -> bytes:
    code = _FLOATS.get((kind(p.type), p.size))
    if code is None:
        raise _wrong(p, value, f"expected .{p.type}, got a Python float")
    try:
        return struct.pack(code, float(value))
    except OverflowError:
        raise _wrong(p, value, f"out of the range of {8 * p.size} bits") from None


def _wrong(p: Parameter, value: Any, why: str) -> LaunchError:
    text = repr(value)
    return LaunchError(f"{p.description} can't be {text[:60]}: {why}")
