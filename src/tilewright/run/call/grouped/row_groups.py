"""The groups of a call: an array of sizes in the memory where the matrices are.

The kernel reads the sizes; the host sees them only where the arrays are on the CPU, and then checks
them. On a GPU the kernel takes an impossible size for the nearest possible one.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, NamedTuple

import numpy as np

from ....errors import DeviceError, DtypeError, ProblemError
from ....gemm.grouping import COUNTS, DIMENSIONS, ENDS, INDEX_TYPES, OFFSETS, Grouping
from ....quantization.weight_format import PreparedWeights
from ...arrays import array_view
from ...arrays.array_view import ArrayView
from ...arrays.memory_overlap import overlap
from ..request import GroupRequest


class RowGroups(NamedTuple):
    """The groups of a call: what the array ``sizes`` has, and the array. ``capacity``: the number
    of rows, or of the elements along K, that a group may have.
    """

    request: GroupRequest
    sizes: ArrayView
    name: str
    capacity: int

    def check(self, where: str, written: dict[str, ArrayView], *, copies_d: bool) -> None:
        """Raise DeviceError unless the array is on the device ``where``, ProblemError for sizes
        that are not possible, where the host sees them, or that an output overlaps. ``copies_d``:
        the kernel writes to a copy of D on the GPU, which has no rows but those of groups.
        """
        if copies_d and self.request.grouping.along == "m":
            hint = "out[...] = a row-major result"
            raise ProblemError(
                "out must have contiguous rows, got strides that need a copy", hint=hint
            )
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
                    hint="offsets never decrease"
                    if self.request.grouping.form != COUNTS
                    else "a count is the number of rows of a group",
                )
            last = value if self.request.grouping.form != COUNTS else 0


def row_groups(a: Any, b: Any, offsets: Any, counts: Any, along: str) -> RowGroups:
    """The groups of ``grouped_matmul``'s arguments; ``b``: a stack with a matrix for each group of
    rows, or one matrix of groups along K.

    Raises ProblemError for shapes that do not fit, DtypeError for a type that is not an index.
    """
    if along not in DIMENSIONS:
        raise ProblemError(f"along must be one of {', '.join(DIMENSIONS)}, got {along!r:.60}")
    if (offsets is None) == (counts is None):
        given = "neither" if offsets is None else "both"
        raise ProblemError(f"one of offsets and counts must be given, got {given}")
    name, sizes = ("counts", counts) if offsets is None else ("offsets", offsets)
    if isinstance(sizes, list | tuple):
        sizes = _array_of(name, sizes)
    view, va, vb = (array_view.view(x) for x in (sizes, a, b))
    if isinstance(vb.owner, PreparedWeights):
        vb = vb._replace(shape=vb.owner.shape)
    if along == "k":
        form = _form_along_k(name, view, va, vb)
    else:
        form = _form_along_m(name, view, va, vb)
    if view.dtype not in INDEX_TYPES:
        raise DtypeError(f"{name} must be one of {', '.join(INDEX_TYPES)}, got {view.dtype}")
    if (view.shape[0] > 1 and view.strides[0] != 1) or view.address % view.itemsize:
        raise ProblemError(f"{name} must be contiguous and aligned, got strides {view.strides}")
    groups = view.shape[0] - (form == OFFSETS)
    request = GroupRequest(Grouping(view.dtype, form, along), groups)
    return RowGroups(request, view, name, va.shape[-1 if along == "k" else -2])


def _array_of(name: str, sizes: Sequence[Any]) -> Any:
    """The array of a list of integers."""
    try:
        return np.array([index(size) for size in sizes], np.int64)
    except (TypeError, OverflowError):
        raise ProblemError(f"{name} must be integers of 64 bits, got {sizes!r:.60}") from None


def _form_along_m(name: str, sizes: ArrayView, a: ArrayView, b: ArrayView) -> str:
    """What the array has, by its length and the number of matrices B."""
    rank = 2 if name == "offsets" else 3
    if len(b.shape) != 3 or len(a.shape) != rank:
        expected = "(M, K)" if name == "offsets" else "(groups, capacity, K)"
        shapes = f"got a {a.shape} and b {b.shape}"
        raise ProblemError(f"a must be {expected} and b (groups, K, N), {shapes}")
    groups = b.shape[0]
    if groups == 0:
        raise ProblemError("b must have a matrix for each of 1 or more groups, got none")
    forms = {groups: ENDS, groups + 1: OFFSETS} if name == "offsets" else {groups: COUNTS}
    if len(sizes.shape) != 1 or sizes.shape[0] not in forms:
        lengths = " or ".join(map(str, forms))
        what = f"{name} must have {lengths} elements for {groups} groups"
        raise ProblemError(f"{what}, got shape {sizes.shape}")
    return forms[sizes.shape[0]]


def _form_along_k(name: str, sizes: ArrayView, a: ArrayView, b: ArrayView) -> str:
    """Along K the array has the ends, and its length is the number of groups."""
    if name != "offsets" or len(a.shape) != 2 or len(b.shape) != 2:
        shapes = f"got {name}, a {a.shape} and b {b.shape}"
        raise ProblemError(f"groups along K must be given as offsets, a (M, K), b (K, N), {shapes}")
    if len(sizes.shape) != 1 or not sizes.shape[0]:
        what = "offsets along K must have an element for each of 1 or more groups"
        raise ProblemError(f"{what}, got shape {sizes.shape}")
    return ENDS
