"""Arrays of a library that keeps them in a virtual machine's memory, as torch keeps its on a GPU.

``with registered():`` makes them known; ``matmul`` then works on them in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from tilewright import dtypes
from tilewright.run import ArrayKind, ArrayView, device, register
from tilewright.run.arrays import array_view
from tilewright.run.arrays.array_view import FastArrayOps
from tilewright.run.devices.device_protocol import ExecutionDevice


def _compact(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


class Resident:
    """A strided array in the memory of ``on``."""

    def __init__(self, view: ArrayView, on: ExecutionDevice) -> None:
        self.memory, self.on = view, on
        self.shape = view.shape

    @classmethod
    def of(cls, array: Any, on: ExecutionDevice | None = None) -> Resident:
        """A compact copy of a NumPy array on the device."""
        made = cls.empty(array.shape, dtypes.from_numpy(array.dtype).name, on)
        bits = np.ascontiguousarray(array).view(f"u{array.itemsize}")
        made.on.upload(made.memory.address, bits.reshape(1, -1), array.size)
        return made

    @classmethod
    def empty(
        cls, shape: tuple[int, ...], dtype: str, on: ExecutionDevice | None = None
    ) -> Resident:
        on = on or device("vm")
        strides = _compact(tuple(shape))
        address = on.alloc(prod(shape) * dtypes.dtype(dtype).bits // 8)
        return cls(ArrayView(address, shape, strides, dtype, on.name, False, None), on)

    def cut(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Resident:
        address = self.memory.address + offset * self.memory.itemsize
        view = self.memory._replace(address=address, shape=shape, strides=strides)
        return Resident(view, self.on)

    @property
    def T(self) -> Resident:
        return self.cut(self.memory.shape[::-1], self.memory.strides[::-1])

    def reshape(self, *shape: int) -> Resident:
        """The same elements in another shape; they must be compact."""
        assert prod(shape) == prod(self.shape) and self.memory.strides == _compact(self.shape)
        return self.cut(shape, _compact(shape))

    def numpy(self) -> Any:
        """A copy of the elements."""
        s = self.memory
        reach = sum((n - 1) * step for n, step in zip(s.shape, s.strides, strict=True)) + 1
        flat = np.empty((1, reach), f"u{s.itemsize}")
        self.on.download(flat, s.address, reach)
        steps = tuple(step * s.itemsize for step in s.strides)
        bits = np.lib.stride_tricks.as_strided(flat[0], s.shape, steps).copy()
        return bits.view(dtypes.dtype(s.dtype).numpy)

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("the virtual machine's memory is its own")


KIND = ArrayKind(
    "resident",
    lambda x: x.memory._replace(owner=x),
    lambda x, shape, dtype: Resident.empty(shape, dtype, x.on),
    lambda x: 0,
)


# --- a kind with a fast path ---

seen: list[Any] = []  # arrays that took the slow path


def _viewed(array: Resident) -> ArrayView:
    seen.append(array)
    return KIND.view(array)


def _signature(array: Any) -> Any:
    return isinstance(array, Resident) and array.memory._replace(address=0, owner=None)


def _fast_ops(given: list[Resident]) -> FastArrayOps:
    known = [_signature(x) for x in given]

    def fits(*others: Any) -> bool:
        distinct = len({id(x) for x in others}) == len(known)
        return distinct and [*map(_signature, others)] == known

    def allocator(shape: Any, dtype: str) -> Any:
        return lambda: Resident.empty(shape, dtype)

    return FastArrayOps(fits, lambda x: x.memory.address, lambda: 0, allocator)


FAST_KIND = replace(KIND, view=_viewed, fast_ops=_fast_ops)


@contextmanager
def registered(kind: ArrayKind = KIND) -> Iterator[None]:
    entry = (lambda cls: issubclass(cls, Resident)), kind
    register(*entry)
    try:
        yield
    finally:
        array_view._REGISTERED.remove(entry)
        array_view._BY_TYPE.pop(Resident, None)
