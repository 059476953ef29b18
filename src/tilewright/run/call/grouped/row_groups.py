"""The groups of a call: an array of sizes in the memory where the matrices are.

The kernel reads the sizes; the host sees them only where the arrays are on the CPU, and then checks
them. On a GPU the kernel takes an impossible size for the nearest possible one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ....errors import DeviceError, DtypeError, ProblemError
from ....gemm.grouping import COUNTS, ENDS, INDEX_TYPES, OFFSETS, Grouping
from ...arrays import array_view
from ...arrays.array_view import ArrayView
from ...arrays.memory_overlap import overlap


class RowGroups(NamedTuple):
    """The groups of rows of a call: what the array ``sizes`` has, and the array. ``capacity``: the
    number of rows that a group may have.
    """

    grouping: Grouping
    sizes: ArrayView
    name: str
    capacity: int

    def check(self, where: str, written: dict[str, ArrayView]) -> None:
        """Raise DeviceError unless the array is on the device ``where``, ProblemError for sizes
        that are not possible, where the host sees them, or that an output overlaps.
        """
        name, sizes = self.name, self.sizes
        if sizes.device != where:
            raise DeviceError(
                f"{name} must be on {where}, where a is, got {name} on {sizes.device}",
                hint=f"move {name} to {where}; the host never waits for it",
            )
        for other, view in written.items():
            if overlap(view, sizes):
                raise ProblemError(f"{other} must not share memory with {name}")
        if where == "cpu":
            self._check_values()

    def _check_values(self) -> None:
        values = array_view.bits(self.sizes).view(f"i{self.sizes.itemsize}").tolist()
        last = 0
        for i, value in enumerate(values):
            if not last <= value <= self.capacity:
                raise ProblemError(
                    f"{self.name}[{i}] must be from {last} to {self.capacity}, got {value}",
                    hint="offsets count rows of all groups, and never decrease"
                    if self.grouping.form != COUNTS
                    else "a count is the number of rows of a group",
                )
            last = value if self.grouping.form != COUNTS else 0


def row_groups(a: Any, b: Any, offsets: Any, counts: Any) -> RowGroups:
    """The groups of ``grouped_matmul``'s arguments; ``b``: a stack with a matrix for each group.

    Raises ProblemError for shapes that do not fit, DtypeError for a type that is not an index.
    """
    if (offsets is None) == (counts is None):
        given = "neither" if offsets is None else "both"
        raise ProblemError(f"one of offsets and counts must be given, got {given}")
    name, sizes = ("counts", counts) if offsets is None else ("offsets", offsets)
    if isinstance(sizes, list | tuple):
        sizes = np.array(sizes, np.int64)
    view, va, vb = (array_view.view(x) for x in (sizes, a, b))
    rank = 2 if counts is None else 3
    if len(vb.shape) != 3 or len(va.shape) != rank:
        expected = "(M, K)" if counts is None else "(groups, capacity, K)"
        shapes = f"got a {va.shape} and b {vb.shape}"
        raise ProblemError(f"a must be {expected} and b (groups, K, N), {shapes}")
    groups = vb.shape[0]
    if groups == 0:
        raise ProblemError("b must have a matrix for each of 1 or more groups, got none")
    forms = {groups: COUNTS} if offsets is None else {groups: ENDS, groups + 1: OFFSETS}
    if len(view.shape) != 1 or view.shape[0] not in forms:
        lengths = " or ".join(map(str, forms))
        raise ProblemError(
            f"{name} must have {lengths} elements for {groups} groups, got shape {view.shape}"
        )
    if view.dtype not in INDEX_TYPES:
        raise DtypeError(f"{name} must be one of {', '.join(INDEX_TYPES)}, got {view.dtype}")
    if (view.shape[0] > 1 and view.strides[0] != 1) or view.address % view.itemsize:
        raise ProblemError(f"{name} must be contiguous and aligned, got strides {view.strides}")
    return RowGroups(Grouping(view.dtype, forms[view.shape[0]]), view, name, va.shape[-2])
