"""Whether arrays share memory, from addresses, shapes and strides alone."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from .array_kind import Shape
from .array_view import ArrayView

_WORK = 10_000  # steps that NumPy may take; after that, arrays are assumed to overlap


def _span(a: ArrayView) -> tuple[int, int]:
    """The first byte of the array's memory, and the byte after the last."""
    low = high = 0
    for size, stride in zip(a.shape, a.strides, strict=True):
        if stride < 0:
            low += (size - 1) * stride
        else:
            high += (size - 1) * stride
    itemsize = a.itemsize
    return a.address + low * itemsize, a.address + (high + 1) * itemsize


class _AddressRange:
    """An array's memory in NumPy's protocol. NumPy computes the overlap and reads nothing."""

    def __init__(self, a: ArrayView) -> None:
        self.__array_interface__ = {
            "version": 3,
            "shape": a.shape,
            "strides": tuple(s * a.itemsize for s in a.strides),
            "typestr": f"|V{a.itemsize}",
            "data": (a.address, True),
        }


def overlap(a: ArrayView, b: ArrayView) -> bool:
    """Whether the arrays share a byte. Exact, but True if that takes too many steps to decide."""
    if a.device != b.device or 0 in a.shape or 0 in b.shape:
        return False
    (a_low, a_end), (b_low, b_end) = _span(a), _span(b)
    if a_end <= b_low or b_end <= a_low:
        return False
    try:
        ranges = np.asarray(_AddressRange(a)), np.asarray(_AddressRange(b))
        return bool(np.shares_memory(*ranges, max_work=_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def overlap_bounds(a: ArrayView, b: ArrayView) -> tuple[int, int]:
    """Arrays of these shapes and strides may overlap only if a's address minus b's is strictly
    between the bounds.
    """
    (a_low, a_end), (b_low, b_end) = (_span(v._replace(address=0)) for v in (a, b))
    return b_low - a_end, b_end - a_low


class _Strided(Protocol):
    """An array's signature or view."""

    @property
    def shape(self) -> Shape: ...
    @property
    def strides(self) -> tuple[int, ...]: ...


def overlaps_itself(a: _Strided) -> bool:
    """Whether two elements may share memory, as in a broadcast array."""
    span = 0
    for stride, size in sorted((abs(s), n) for s, n in zip(a.strides, a.shape, strict=True)):
        if size > 1 and stride <= span:
            return 0 not in a.shape
        span += stride * (size - 1)
    return False
