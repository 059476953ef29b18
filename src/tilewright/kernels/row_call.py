"""Calls of kernels on rows: arrays of any library as matrices whose rows are the last dimension.

Arrays on a GPU are read and written in place, at any strides that make them a matrix. Arrays on the
CPU run on the virtual machine (or a GPU by ``device=``), and are copied if they are not contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from .. import dtypes
from ..builder import Traced, trace
from ..errors import DtypeError, ProblemError
from ..run import launch
from ..run.arrays import array_view
from ..run.arrays.array_view import ArrayView
from ..run.arrays.memory_overlap import overlap
from ..run.devices.array_placement import device_for_arrays
from .row_layout import HOPPER, VECTOR, RowLayout, overlapping, row_layout

FLOATS = ("f16", "bf16", "f32")
ROW_PARAMS = {"rows": "u32", "columns": "u32", "row_stride": "s64", "stride": "s64"}
"""The parameters of ``RowMatrix.numbers``: of the input; strides count elements."""


@dataclass(frozen=True)
class RowMatrix:
    """An array as a matrix: element (i, j) is at ``i * row_stride + j * stride`` elements from
    ``array``'s first one.
    """

    array: Any
    dtype: str
    rows: int
    columns: int
    row_stride: int
    stride: int
    address: int  # 0 on the CPU: it is copied to aligned memory
    shape: tuple[int, ...]  # of the array

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return max(1, dtypes.dtype(self.dtype).bits // 8)

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """What ``ROW_PARAMS`` names."""
        return self.rows, self.columns, self.row_stride, self.stride

    def width(self) -> int:
        """Elements of the widest vectors into which all rows can be divided."""
        if self.stride != 1:
            return 1
        width = VECTOR // self.itemsize
        while width > 1 and (
            self.columns % width
            or (self.rows > 1 and self.row_stride % width)
            or self.address % min(width * self.itemsize, VECTOR)
        ):
            width //= 2
        return width


def row_matrix(name: str, x: Any, types: Sequence[str] = FLOATS) -> RowMatrix:
    """The matrix of an array. Raises DtypeError for a type that is not among ``types``,
    ProblemError for an array without dimensions or whose rows are not equally far apart.
    """
    view = array_view.view(x)
    if view.dtype not in types:
        raise DtypeError(f"{name} must be {', '.join(types)}, got {view.dtype}")
    if not view.shape:
        raise ProblemError(f"{name} must have at least one dimension, got shape ()")
    columns, rows = view.shape[-1], prod(view.shape[:-1])
    if max(rows, columns) >= 1 << 31:
        raise ProblemError(f"{name} must have less than 2^31 rows and columns, got {view.shape}")
    if view.device != "cpu":
        strides = _strides(name, view)
        return RowMatrix(x, view.dtype, rows, columns, *strides, view.address, tuple(view.shape))
    if not array_view.is_contiguous(view):
        x = np.ascontiguousarray(array_view.bits(view)).view(dtypes.dtype(view.dtype).numpy)
    return RowMatrix(x, view.dtype, rows, columns, columns, 1, 0, tuple(view.shape))


def _strides(name: str, view: ArrayView) -> tuple[int, int]:
    """The strides of rows and columns."""
    kept = [(n, s) for n, s in zip(view.shape[:-1], view.strides, strict=False) if n != 1]
    for (_, outer), (n, inner) in pairwise(kept):
        if outer != n * inner:
            shown = f"got shape {view.shape} with strides {view.strides}"
            hint = "make it contiguous: torch's x.contiguous(), cupy.ascontiguousarray(x)"
            raise ProblemError(f"the rows of {name} must be equally far apart, {shown}", hint=hint)
    return (kept[-1][1] if kept else view.shape[-1]), view.strides[-1]


def result_like(x: Any, shape: tuple[int, ...], dtype: str, out: Any) -> Any:
    """``out``, checked, or a new contiguous array of ``x``'s library and device.

    Raises ProblemError for an ``out`` of another shape, that is not contiguous or that overlaps
    ``x`` and is not ``x``; DtypeError for one of another type than f16, bf16 and f32.
    """
    if out is None:
        return array_view.empty_like_kind(x, shape, dtype)
    view = array_view.view(out)
    if tuple(view.shape) != shape:
        raise ProblemError(f"out must have shape {shape}, got {tuple(view.shape)}")
    if view.dtype not in FLOATS:
        raise DtypeError(f"out must be {', '.join(FLOATS)}, got {view.dtype}")
    if not array_view.is_contiguous(view):
        raise ProblemError(f"out must be contiguous, got strides {view.strides}")
    given = array_view.view(x)
    same = (view.address, view.dtype, view.shape) == (given.address, given.dtype, given.shape)
    if not (same and array_view.is_contiguous(given)):
        check_apart(given, view, "x itself or an array that shares no memory with it")
    return out


def check_apart(x: ArrayView, out: ArrayView, allowed: str = "an array apart from x") -> None:
    """Raise ProblemError if an output shares memory with the input."""
    if overlap(x, out):
        raise ProblemError(f"out must be {allowed}, got one that overlaps x")


def finished(x: Any, result: Any, out: Any) -> Any:
    """The result that the caller gets: an array of ``x``'s library."""
    finish = array_view.kind_of(x).finish
    return result if finish is None or out is not None else finish(x, result)


@cache
def traced_rows(
    function: Callable[..., None], params: tuple[tuple[str, str], ...], layout: RowLayout,
    static: tuple[tuple[str, Any], ...],
) -> Traced:  # fmt: skip
    """A kernel ``function(k, rows, columns, row_stride, stride, …)``, traced once."""
    statics = {"layout": layout, **dict(static)}
    name = function.__name__.strip("_")
    return trace(
        function, statics, params={**ROW_PARAMS, **dict(params)}, name=name, block=layout.block,
        min_ctas=layout.min_ctas, cluster=layout.ctas if layout.ctas > 1 else None, lines=False,
    )  # fmt: skip


def launch_rows(
    function: Callable[..., None], x: RowMatrix, arrays: dict[str, Any], numbers: dict[str, Any],
    *, aligned: Sequence[str] = (), device: Any = None, stream: Any = None, **static: Any,
) -> None:  # fmt: skip
    """Launch a kernel with a CTA (or a warp) for each row of ``x``.

    Its parameters after ``ROW_PARAMS`` are ``x``, the ``arrays`` by name and the f32 ``numbers``;
    its static arguments ``layout`` and ``static``. ``aligned``: the arrays that it reads or writes
    by the vectors of the rows.
    """
    if not x.rows or not x.columns:
        return
    views = {name: array_view.view(array) for name, array in arrays.items()}
    width = x.width()
    for name in aligned:
        view = views[name]
        while view.device != "cpu" and view.address % min(width * view.itemsize, VECTOR):
            width //= 2
    spec = device_for_arrays(array_view.view(x.array).device, device).target
    stores_rows = "y" in aligned
    clusters = stores_rows and spec.target.number >= HOPPER
    layout = row_layout(x.columns, width, x.itemsize, x.stride != 1, clusters)
    contiguous = x.stride == 1 and (layout.rows == 1 or x.row_stride == x.columns)
    layout = overlapping(layout, x.itemsize, spec, stores_rows=stores_rows, contiguous=contiguous)
    pointers = {"x": x.dtype} | {name: view.dtype for name, view in views.items()}
    params = {name: f"ptr {type_}" for name, type_ in pointers.items()}
    params |= dict.fromkeys(numbers, "f32")
    traced = traced_rows(function, tuple(params.items()), layout, tuple(static.items()))
    args = (*x.numbers, x.array, *arrays.values(), *numbers.values())
    grid = -(-x.rows // layout.rows) * layout.ctas, 1, 1
    launch(
        traced, grid, (layout.block, 1, 1), args, device=device, stream=stream,
        programmatic=layout.programmatic,
    )  # fmt: skip
