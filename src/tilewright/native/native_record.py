"""Access from Python to a ``Struct`` in memory: fields by name."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from .aligned_memory import aligned_zeros
from .native_language import ArrayType, Int, PointerType, Struct

_CTYPES = {
    (8, False): ctypes.c_uint8, (16, False): ctypes.c_uint16, (32, False): ctypes.c_uint32,
    (64, False): ctypes.c_uint64, (32, True): ctypes.c_int32, (64, True): ctypes.c_int64,
}  # fmt: skip


class Record:
    """A ``Struct`` at an address, or in new memory of its own.

    Scalars and pointers read and write as numbers, arrays read as NumPy views.
    """

    __slots__ = ("_kind", "_memory", "address")

    def __init__(self, kind: type[Struct], address: int | None = None) -> None:
        memory = aligned_zeros(kind.size) if address is None else None
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "_memory", memory)
        object.__setattr__(self, "address", memory.ctypes.data if memory is not None else address)

    def __getattr__(self, name: str) -> Any:
        offset, kind = self._kind.fields[name]
        if isinstance(kind, ArrayType):
            return view(self.address + offset, kind.of, kind.count)
        return _scalar(kind).from_address(self.address + offset).value

    def __setattr__(self, name: str, value: int) -> None:
        offset, kind = self._kind.fields[name]
        _scalar(kind).from_address(self.address + offset).value = value


def _scalar(kind: type[Int] | type[Struct] | PointerType) -> Any:
    if isinstance(kind, type) and issubclass(kind, Int):
        return _CTYPES[(kind.bits, kind.signed)]
    return ctypes.c_uint64


def view(address: int, of: type[Int] | type[Struct], count: int) -> npt.NDArray[Any]:
    """An array of integers over memory at an address."""
    return np.ctypeslib.as_array((_scalar(of) * count).from_address(address))
