"""The groups of a call: an array of sizes in the memory where the matrices are.

The kernel reads the sizes; the host sees them only where the arrays are on the CPU, and then checks
them. On a GPU the kernel takes an impossible size for the nearest possible one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import index
from typing import Any, NamedTuple

import numpy as np

from ....errors import DeviceError, DtypeError, ProblemError
from ....gemm.block_scaling import BLOCK
from ....gemm.grouping import COUNTS, DIMENSIONS, ENDS, INDEX_TYPES, OFFSETS, Grouping
from ....gemm.kernel_launch import INDEX_ADDRESSES
from ....gemm.problem import SIZE_LIMIT
from ....quantization.weight_format import PreparedWeights
from ...arrays import array_view
from ...arrays.array_view import ArrayView
from ...arrays.memory_overlap import overlap
from ..request import GroupRequest
from .matrix_list import MatrixList

GATHERED_BYTES = 2**36  # of A: its rows are at 32-bit multiples of 16 bytes


class GroupArguments(NamedTuple):
    """What ``grouped_matmul`` is told of the groups."""

    offsets: Any
    counts: Any
    along: str
    gather: Any = None
    scatter: Any = None
    expected_rows: Any = None

    @property
    def sizes(self) -> Any:
        """The array of sizes."""
        return self.counts if self.offsets is None else self.offsets

    def check_absent(self) -> None:
        """Raise ProblemError for what lists of matrices a and b exclude."""
        for name, value in self._asdict().items():
            if value is not None and (name, value) != ("along", "m"):
                what = f"{name} must not be given with lists of matrices a and b"
                raise ProblemError(f"{what}, got {value!r:.60}")


class RowGroups(NamedTuple):
    """The groups of a call: what the array ``sizes`` has, and the array. ``capacity``: the number
    of rows, or of the elements along K, that a group may have; ``a_rows``: those of A; ``unit``:
    what groups begin at multiples of; ``gather``, ``scatter``: the indices of rows.
    """

    request: GroupRequest
    sizes: ArrayView
    name: str
    capacity: int
    a_rows: int
    unit: int = 1
    gather: ArrayView | None = None
    scatter: ArrayView | None = None
    listed: MatrixList | None = None

    @property
    def arrays(self) -> tuple[ArrayView | None, ...]:
        """The arrays that the kernel reads."""
        places = None if self.listed is None else array_view.view(self.listed.places)
        return self.sizes, self.gather, self.scatter, places

    def check(self, where: str, written: dict[str, ArrayView], copied: Collection[str]) -> None:
        """Raise DeviceError unless the array is on the device ``where``, ProblemError for sizes
        that are not possible, where the host sees them, or that an output overlaps. ``copied``:
        the matrices that the kernel accesses in a copy on the GPU; D's has no rows but those of
        groups, and a list has none.
        """
        if self.listed is not None and "b" in copied:
            strides = self.listed.first.strides
            raise ProblemError(
                f"the matrices of a list b must be readable where they are, got strides {strides}",
                hint="a contiguous dimension, and 16 bytes that divide addresses and the other",
            )
        if "d" in copied and self.request.grouping.along == "m":
            hint = "out[...] = a row-major result"
            raise ProblemError(
                "out must have contiguous rows, got strides that need a copy", hint=hint
            )
        names = self.name, *INDEX_ADDRESSES
        for name, array in zip(names, self.arrays, strict=True):
            if array is not None:
                _check_placement(name, array, where, written)
        if where == "cpu":
            self._check_values()
            self._check_indices()

    def check_operands(self, operands: Mapping[str, ArrayView], d: ArrayView) -> None:
        """Raise ProblemError where rows of D are scattered onto an operand of the epilogue, or D
        overlaps a matrix of a list.
        """
        for i, matrix in enumerate(() if self.listed is None else self.listed.matrices):
            if overlap(array_view.view(matrix), d):
                raise ProblemError(f"out must not share memory with b[{i}]")
        for name, view in operands.items():
            if self.scatter is not None and overlap(view, d):
                raise ProblemError(
                    f"out must not share memory with {name} where rows are scattered"
                )

    def _check_indices(self) -> None:
        """Of the groups' rows those that are gathered must be A's, those that are scattered
        different ones of D.
        """
        sizes, rows, written = _values(self.sizes), self.request.d_rows or 0, dict[int, int]()
        begin = sizes[0] if self.request.grouping.form == OFFSETS else 0
        for name, array, low, high in (
            ("gather", self.gather, 0, self.a_rows), ("scatter", self.scatter, -1, rows),
        ):  # fmt: skip
            values = [] if array is None else _values(array)[begin : sizes[-1]]
            for i, value in enumerate(values, begin):
                if not low <= value < high:
                    what = f"{name}[{i}] must be from {low} to {high - 1}, got {value}"
                    raise ProblemError(what)
                if name == "scatter" and value >= 0 and (other := written.setdefault(value, i)) < i:
                    raise ProblemError(f"scatter must differ, got {value} at {other} and at {i}")

    def _check_values(self) -> None:
        last = 0
        for i, value in enumerate(_values(self.sizes)):
            if not last <= value <= self.capacity:
                raise ProblemError(
                    f"{self.name}[{i}] must be from {last} to {self.capacity}, got {value}",
                    hint="offsets never decrease"
                    if self.request.grouping.form != COUNTS
                    else "a count is the number of rows of a group",
                )
            last = value if self.request.grouping.form != COUNTS else 0
            if value % self.unit and value != self.capacity:
                what = (
                    f"{self.name}[{i}] must be a multiple of {self.unit} for 8-bit groups along K"
                )
                raise ProblemError(f"{what}, got {value}", hint="pad the groups with zeros")


def _values(array: ArrayView) -> list[int]:
    """The integers of an array on the CPU."""
    values: list[int] = array_view.bits(array).view(f"i{array.itemsize}").tolist()
    return values


def _check_placement(
    name: str, array: ArrayView, where: str, written: Mapping[str, ArrayView]
) -> None:
    """Raise DeviceError unless an array is on the device, ProblemError where an output overlaps."""
    if array.device != where:
        raise DeviceError(
            f"{name} must be on {where}, where a is, got {name} on {array.device}",
            hint=f"move {name} to {where}; the host never waits for it",
        )
    for other, view in written.items():
        if overlap(view, array):
            raise ProblemError(f"{other} must not share memory with {name}")


def row_groups(a: Any, b: Any, arguments: GroupArguments, out: Any = None) -> RowGroups:
    """The groups of ``grouped_matmul``'s arguments; ``b``: a stack with a matrix for each group of
    rows, or one matrix of groups along K; ``out``: D, or D by its name among others.

    Raises ProblemError for shapes that do not fit, DtypeError for a type that is not an index.
    """
    offsets, counts, along, gather, scatter, expected = arguments
    if along not in DIMENSIONS:
        raise ProblemError(f"along must be one of {', '.join(DIMENSIONS)}, got {along!r:.60}")
    if (offsets is None) == (counts is None):
        given = "neither" if offsets is None else "both"
        raise ProblemError(f"one of offsets and counts must be given, got {given}")
    _check_expected_rows(expected, along)
    name, sizes = ("counts", counts) if offsets is None else ("offsets", offsets)
    view, va, vb = _index_view(name, sizes), array_view.view(a), array_view.view(b)
    if isinstance(vb.owner, PreparedWeights):
        vb = vb._replace(shape=vb.owner.shape)
    if along == "k":
        form = _form_along_k(name, view, va, vb)
    else:
        form = _form_along_m(name, view, va, vb)
    _check_index_array(name, view)
    groups, rows = view.shape[0] - (form == OFFSETS), va.shape[-2]
    found = {
        key: None if x is None else _index_view(key, x)
        for key, x in zip(INDEX_ADDRESSES, (gather, scatter), strict=False)
    }
    for key, array in found.items():
        if array is not None:
            _check_indices_of_rows(key, array, name, along)
    gathered, scattered = found.values()
    product_rows = rows
    if gathered is not None:
        _check_gathered(va)
        product_rows = gathered.shape[0]
    d_rows = None
    if scattered is not None:
        if scattered.shape[0] != product_rows:
            what = f"scatter must have {product_rows} elements, the rows of the product"
            raise ProblemError(f"{what}, got {scattered.shape[0]}")
        d_rows = _rows_of(out, product_rows)
    types = {key: "" if x is None else x.dtype for key, x in found.items()}
    listed = b if isinstance(b, MatrixList) else None
    grouping = Grouping(view.dtype, form, along, listed=listed is not None, **types)
    expected = None if expected is None else int(expected)
    request = GroupRequest(grouping, groups, gathered and product_rows, d_rows, expected)
    capacity = va.shape[-1] if along == "k" else product_rows
    unit = BLOCK if along == "k" and va.itemsize == 1 else 1
    return RowGroups(request, view, name, capacity, rows, unit, gathered, scattered, listed)


def _check_expected_rows(expected: Any, along: str) -> None:
    """Raise ProblemError unless there is no expected number, or one of rows that may be."""
    if expected is None:
        return
    number = isinstance(expected, int | np.integer) and not isinstance(expected, bool)
    if along != "m" or not number or not 1 <= expected < SIZE_LIMIT:
        what = f"expected_rows must be from 1 to 2^31 - 1, of groups of rows, got {expected!r:.60}"
        raise ProblemError(f"{what}, {along=}")


def _rows_of(out: Any, rows: int) -> int:
    """The rows of D: those of ``out``, one array or one by its name, else ``rows``."""
    outs = list(out.values()) if isinstance(out, Mapping) else [out]
    shapes = [array_view.view(x).shape for x in outs if x is not None]
    return shapes[0][-2] if shapes and len(shapes[0]) > 1 else rows


def _index_view(name: str, array: Any) -> ArrayView:
    """An array of indices, or a list of integers."""
    return array_view.view(_array_of(name, array) if isinstance(array, list | tuple) else array)


def _check_index_array(name: str, view: ArrayView) -> None:
    """Raise DtypeError or ProblemError unless a kernel can read an array of integers."""
    if view.dtype not in INDEX_TYPES:
        raise DtypeError(f"{name} must be one of {', '.join(INDEX_TYPES)}, got {view.dtype}")
    if (view.shape[0] > 1 and view.strides[0] != 1) or view.address % view.itemsize:
        raise ProblemError(f"{name} must be contiguous and aligned, got strides {view.strides}")


def _check_indices_of_rows(key: str, array: ArrayView, sizes: str, along: str) -> None:
    """Raise an error unless ``gather`` or ``scatter`` has indices, of groups of rows."""
    if sizes != "offsets" or along == "k":
        raise ProblemError(f"{key} must come with offsets of groups of rows, got {sizes}, {along=}")
    if len(array.shape) != 1 or not array.shape[0]:
        raise ProblemError(
            f"{key} must have the index of each of 1 or more rows, got {array.shape}"
        )
    _check_index_array(key, array)


def _check_gathered(a: ArrayView) -> None:
    """Raise ProblemError unless the kernel can gather rows of A."""
    rows, pitch = a.shape[0], abs(a.strides[0]) * a.itemsize
    if not rows or rows * pitch >= GATHERED_BYTES:
        what = (
            f"a must have 1 or more rows, and less than {GATHERED_BYTES >> 30} GiB, to be gathered"
        )
        raise ProblemError(f"{what}, got shape {a.shape} and strides {a.strides}")


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
