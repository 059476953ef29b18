"""Engines: what the offsets of a tensor count in.

An engine is read and written at an offset, ``engine[i]``, and moved by one, ``engine + i``; its
``dtype`` is what an element is, ``recast`` the same memory in elements of another. Memory under a
NumPy array is one (``ArrayEngine``), a kernel's pointer and its registers are others. Two have no
memory: ``Coordinates``, whose elements are the offsets themselves, and ``Mapped``, a function of
another's elements.
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
            raise LayoutError(f"offset {index} lies outside of {size} elements")
        return index

    def recast(self, t: DType) -> ArrayEngine:
        """The same bytes as elements of ``t``. LayoutError where an element would be cut."""
        old, new = self.memory.dtype.itemsize, t.numpy.itemsize
        for given in (self.dtype, t):
            if given.bits != 8 * given.numpy.itemsize:
                raise LayoutError(f"NumPy keeps a {given} in a byte of its own: it can't be recast")
        if self.position * old % new:
            raise LayoutError(
                f"recast to {t}: element {self.position} of {self.dtype} is not at a multiple of"
                f" {new} bytes"
            )
        whole = self.memory.size * old // new * new // old
        return ArrayEngine(self.memory[:whole].view(t.numpy), self.position * old // new)

    def like(self, count: int, t: DType) -> ArrayEngine:
        """New memory of ``count`` elements, zeros."""
        return ArrayEngine(np.zeros(count, t.numpy))


class Computed:
    """An engine without memory: its elements are of no format, and nothing is written to them."""

    __slots__ = ()

    @property
    def dtype(self) -> NoReturn:
        raise LayoutError(f"the elements of {self} are computed: they have no number format")

    def __setitem__(self, offset: Any, value: Any) -> NoReturn:
        raise LayoutError(f"{self} is computed: it has no memory to write to")

    def recast(self, t: DType) -> NoReturn:
        raise LayoutError(f"{self} is computed: it has no memory to read as {t}")

    def like(self, count: int, t: DType) -> NoReturn:
        raise LayoutError(f"{self} is computed: memory like it is made of an array or in a kernel")


@dataclass(frozen=True, slots=True, eq=False)
class Coordinates(Computed):
    """What has the offsets themselves as elements: numbers or coordinates from ``origin`` on."""

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
