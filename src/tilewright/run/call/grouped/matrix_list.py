"""``MatrixList``: matrices B of grouped products that lie anywhere in memory, as one stack.

    stack       matrix g at address + g · stride          a batch dimension of the tensor map
    list        matrix g at address + place[g] · unit     the same, with a unit as its stride

``unit`` divides the distances of the matrices, so the kernel reads a coordinate for each group, and
the tensor map is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from ....errors import ProblemError
from ...arrays import array_view
from ...arrays.array_view import ArrayView
from ...devices.device import device

UNIT, MAX_UNIT = 16, 1 << 20  # bytes
PLACES = 2**31
_MAX_KNOWN = 256
_known: dict[Any, Any] = {}  # arrays of places, which hold for any matrices at these addresses


@dataclass(frozen=True, eq=False)
class MatrixList:
    """Matrices of one shape, type and layout, the first one at the lowest address and ``unit``
    bytes; ``places``: an s32 array where they are.
    """

    matrices: tuple[Any, ...]
    first: ArrayView
    unit: int
    places: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the stack."""
        return len(self.matrices), *self.first.shape

    def view(self) -> ArrayView:
        """The stack: its batch stride is the unit."""
        strides = self.unit // self.first.itemsize, *self.first.strides
        return self.first._replace(shape=self.shape, strides=strides, owner=self)


def matrix_list(matrices: Sequence[Any]) -> Any:
    """The matrices as a stack: of arrays on the CPU a copy, else a ``MatrixList``.

    Raises ProblemError for matrices that differ in more than their addresses.
    """
    views = [array_view.view(matrix) for matrix in matrices]
    for i, view in enumerate(views):
        if view.sparse:
            raise ProblemError(
                f"the matrices of a list b must be dense, got a sparse b[{i}]",
                hint="compress_24 of a stack of matrices makes one b",
            )
        same = (view.shape, view.strides, view.dtype, view.device)
        first = views[0]
        if same != (first.shape, first.strides, first.dtype, first.device):
            shown = f"{view.dtype} of shape {view.shape} with strides {view.strides}"
            raise ProblemError(
                f"the matrices of a list b must have one shape, type and layout, got b[{i}] as "
                f"{shown} on {view.device}, and b[0] as {first.dtype} of shape {first.shape} "
                f"with strides {first.strides} on {first.device}"
            )
    if views[0].device == "cpu":
        return np.stack([np.asarray(matrix) for matrix in matrices])
    first = min(views, key=lambda view: view.address)
    distances = [view.address - first.address for view in views]
    unit = gcd(MAX_UNIT, *distances)
    if unit % UNIT or max(distances) // unit >= PLACES:
        raise ProblemError(
            f"the matrices of a list b must be multiples of {UNIT} bytes apart, got {unit}"
        )
    places = _places(matrices[0], [distance // unit for distance in distances])
    return MatrixList(tuple(matrices), first, unit, places)


def _places(like: Any, places: list[int]) -> Any:
    """The array of places where ``like`` is, kept for later calls."""
    view = array_view.view(like)
    key = view.device, type(like), tuple(places)
    array = _known.get(key)
    if array is None:
        if len(_known) >= _MAX_KNOWN:
            _known.clear()
        array, on = array_view.empty_like_kind(like, (len(places),), "s32"), device(view.device)
        on.wait(array_view.stream_of(array))  # kernels that used this memory before
        on.upload(array_view.view(array).address, np.array([places], np.uint32), len(places))
        on.wait()
        _known[key] = array
    return array
