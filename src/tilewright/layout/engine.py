"""Engines: the data of a tensor, indexed by the offsets of its layout.

An engine is read and written at an offset, ``engine[i]``, and advanced by one, ``engine + i``;
``dtype`` is the type of its elements, ``recast`` views the same memory as elements of another type.
``ArrayEngine`` is the memory of a NumPy array; a kernel's pointers and registers are engines too.
Two have no memory: ``Coordinates``, whose elements are the offsets themselves, and ``Mapped``, a
function of another engine's elements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..dtypes import DType, from_numpy
from ..errors import LayoutError
from .int_tuple import IntTuple, text
from .scaled_basis import add_coordinates


@dataclass(frozen=True, slots=True, eq=False)
class ArrayEngine:
    """One-dimensional NumPy memory and a position in it. Offsets may be arrays of integers."""

    memory: NDArray[Any]
    position: int = 0

    @property
    def dtype(self) -> DType:
        return from_numpy(self.memory.dtype)

    def __getitem__(self, offset: Any) -> Any:
        return self.memory[self._checked(offset)]

    def __setitem__(self, offset: Any, value: Any) -> None:
        self.memory[self._checked(offset)] = value

    def __add__(self, offset: int) -> ArrayEngine:
        return ArrayEngine(self.memory, self.position + offset)

    def __str__(self) -> str:
        start = f"+{self.position}" if self.position else ""
        return f"{self.memory.dtype}[{self.memory.size}]{start}"

    def _checked(self, offset: Any) -> Any:
        index, size = offset + self.position, self.memory.size
        if index.__class__ is int:
            outside = not 0 <= index < size
        else:
            outside = bool(np.any(index < 0) or np.any(index >= size))
        if outside:
            raise LayoutError(f"the offset must be 0 to {size - 1}, got {index}")
        return index

    def recast(self, t: DType) -> ArrayEngine:
        """The same bytes as elements of ``t``. LayoutError where an element would be split."""
        old, new = self.memory.dtype.itemsize, t.numpy.itemsize
        for type_ in (self.dtype, t):
            if type_.bits != 8 * type_.numpy.itemsize:
                raise LayoutError(f"recast of {type_}: NumPy stores each element in a byte")
        if self.position * old % new:
            raise LayoutError(
                f"recast to {t}: the position must be a multiple of {new} bytes, got element"
                f" {self.position} of {self.dtype}"
            )
        whole = self.memory.size * old // new * new // old
        return ArrayEngine(self.memory[:whole].view(t.numpy), self.position * old // new)

    def like(self, count: int, t: DType) -> ArrayEngine:
        """New memory of ``count`` zeros."""
        return ArrayEngine(np.zeros(count, t.numpy))


class Computed:
    """An engine without memory: its elements have no number format and can't be written."""

    __slots__ = ()

    @property
    def dtype(self) -> NoReturn:
        raise LayoutError(f"{self} has computed elements without a number format")

    def __setitem__(self, offset: Any, value: Any) -> NoReturn:
        raise LayoutError(f"{self} has computed elements, which can't be written")

    def recast(self, t: DType) -> NoReturn:
        raise LayoutError(f"{self} has computed elements, which can't be recast to {t}")

    def like(self, count: int, t: DType) -> NoReturn:
        hint = "make the tensor from an array, or in a kernel"
        raise LayoutError(f"{self} has computed elements and no memory", hint=hint)


@dataclass(frozen=True, slots=True, eq=False)
class Coordinates(Computed):
    """An engine whose elements are the offsets themselves, plus ``origin``."""

    origin: IntTuple = 0

    def __getitem__(self, offset: IntTuple) -> IntTuple:
        return add_coordinates(self.origin, offset)

    def __add__(self, offset: IntTuple) -> Coordinates:
        return Coordinates(self[offset])

    def __str__(self) -> str:
        return text(self.origin)


@dataclass(frozen=True, slots=True, eq=False)
class Mapped(Computed):
    """``function`` of the elements of ``engine``, computed when they are read."""

    engine: Any
    function: Callable[[Any], Any]

    def __getitem__(self, offset: Any) -> Any:
        return self.function(self.engine[offset])

    def __add__(self, offset: Any) -> Mapped:
        return Mapped(self.engine + offset, self.function)

    def __str__(self) -> str:
        return f"{getattr(self.function, '__name__', 'function')}({self.engine})"
