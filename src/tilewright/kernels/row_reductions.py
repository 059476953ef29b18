"""Sums, means, maxima and minima along one dimension.

Along the last dimension a CTA (or a warp) reduces a row. Along another one, a lane reduces a few
neighbouring columns, and the rows are split over CTAs; a second launch combines their f32 results,
in a fixed order.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

from ..builder import Builder, Pointer, Reg, Traced, trace
from ..errors import ProblemError
from ..lazy_imports import untraced
from ..mma.array_inputs import is_integer
from ..run import launch
from ..run.arrays import array_view
from ..run.devices.array_placement import device_for_arrays
from ..run.relayout.relayout_kernels import wait_for_predecessors
from .matrix_row import IDENTITY, MatrixRow, combine_two
from .row_call import (
    RowMatrix,
    finished,
    launch_rows,
    result_like,
    row_matrix,
)
from .row_layout import HOPPER, VECTOR, RowLayout

OPERATIONS = ("sum", "mean", "max", "min")
_LANES, _WARPS, _UNROLLED = 32, 8, 4
_CTAS_PER_SM, _LEAST_ROWS = 8, 64  # rows of a CTA


def _reduce_rows(
    k: Builder, rows: Reg, columns: Reg, row_stride: Reg, stride: Reg, x: Pointer, y: Pointer,
    scale: Reg, *, layout: RowLayout, op: str,
) -> None:  # fmt: skip
    row = MatrixRow(k, layout, rows, columns, x, row_stride, stride)
    total = row.reduce(op) * scale
    with k.if_(row.leads):
        k.store_vector(y + row.index, [total])


def _reduce_columns(
    k: Builder, rows: Reg, columns: Reg, chunk: Reg, x: Pointer, y: Pointer, scale: Reg,
    *, width: int, op: str, programmatic: bool,
) -> None:  # fmt: skip
    """Grid: (tiles of columns of all matrices, splits of the rows); rows are ``columns`` elements
    long.
    """
    wait_for_predecessors(k, programmatic)
    lane, warp = k.laneid, k.warpid
    tiles = (columns + (_LANES * width - 1)) // (_LANES * width)
    matrix = k.ctaid.x // tiles
    first = ((k.ctaid.x - matrix * tiles) * _LANES + lane) * width
    begin = k.ctaid.y * chunk
    end, exists = k.min(begin + chunk, rows), first < columns
    source = x + (matrix * rows).to("u64") * columns.to("u64") + first
    totals = [k.var("f32", IDENTITY[op]) for _ in range(width)]
    for i in k.range(begin + warp, end, _WARPS * _UNROLLED):
        loaded = []
        for row in (i + u * _WARPS for u in range(_UNROLLED)):
            here = exists & (row < end)
            pointer = source + row.to("u64") * columns.to("u64")
            loaded.append((here, k.load_vector(pointer, width, dtype="f32", pred=here)))
        for here, values in loaded:
            with k.when(here):
                for total, v in zip(totals, values, strict=True):
                    combine_two(k, op, total, v, into=total)
    shared = k.shared("f32", _WARPS * _LANES * width, align=VECTOR)
    own = shared + lane * width
    k.store_vector(own + warp * (_LANES * width), totals)
    k.barrier()
    with k.if_((warp == 0) & exists):
        results = k.load_vector(own, width)
        for other in range(1, _WARPS):
            values = k.load_vector(own + other * _LANES * width, width)
            results = [combine_two(k, op, a, b) for a, b in zip(results, values, strict=True)]
        target = y + (matrix * k.nctaid.y + k.ctaid.y).to("u64") * columns.to("u64") + first
        k.store_vector(target, [r * scale for r in results])


@untraced
def reduce(
    x: Any, op: str = "sum", axis: int = -1, *, out: Any = None, device: Any = None,
    stream: Any = None,
) -> Any:  # fmt: skip
    """The ``sum``, ``mean``, ``max`` or ``min`` along ``axis``, computed in f32: an array of the
    shape of ``x`` without this dimension, and of its type.

    ``x``: f16, bf16 or f32; on a GPU it must be contiguous unless ``axis`` is the last one. A NaN
    gives a NaN. ``out`` (contiguous; f16, bf16 or f32), ``device``, ``stream`` as for ``softmax``.
    Raises ProblemError for an unknown ``op``, an ``axis`` out of range or without elements.
    """
    if op not in OPERATIONS:
        raise ProblemError(f"op must be {', '.join(OPERATIONS)}, got {op!r:.40}")
    matrix, shape = row_matrix("x", x), tuple(array_view.view(x).shape)
    if not (is_integer(axis) and -len(shape) <= axis < len(shape)):
        raise ProblemError(f"axis must be from {-len(shape)} to {len(shape) - 1}, got {axis!r:.40}")
    axis = int(axis) % len(shape)
    if not shape[axis]:
        raise ProblemError(f"x must have elements along axis {axis}, got shape {shape}")
    y = result_like(x, shape[:axis] + shape[axis + 1 :], matrix.dtype, out)
    scale = 1 / shape[axis] if op == "mean" else 1.0
    combined = "add" if op in ("sum", "mean") else op
    options: dict[str, Any] = {"device": device, "stream": stream}
    if axis == len(shape) - 1:
        launch_rows(_reduce_rows, matrix, {"y": y}, {"scale": scale}, op=combined, **options)
    elif prod(shape):
        _along_columns(matrix, shape, axis, y, scale, combined, options)
    return finished(x, y, out)


def _along_columns(
    matrix: RowMatrix, shape: tuple[int, ...], axis: int, y: Any, scale: float, op: str,
    options: dict[str, Any],
) -> None:  # fmt: skip
    if not array_view.is_contiguous(array_view.view(matrix.array)):
        raise ProblemError(f"x must be contiguous for axis {axis}, got a view")
    outer, rows, columns = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    view = array_view.view(y)
    width = VECTOR // array_view.view(matrix.array).itemsize
    while width > 1 and (
        columns % width
        or matrix.address % min(VECTOR, width * matrix.itemsize)
        or (view.device != "cpu" and view.address % min(VECTOR, width * view.itemsize))
    ):
        width //= 2
    spec = device_for_arrays(view.device, options["device"]).target
    programmatic = spec.target.number >= HOPPER
    tiles = outer * -(-columns // (_LANES * width))
    splits = max(1, min(_CTAS_PER_SM * spec.sms // tiles, rows // _LEAST_ROWS))
    chunk = -(-rows // splits)
    splits = -(-rows // chunk)
    on = {**options, "programmatic": programmatic}
    kernel = width, op, programmatic
    result = y
    if splits > 1:
        result = array_view.empty_like_kind(matrix.array, (outer, splits, columns), "f32")
    types = matrix.dtype, array_view.view(result).dtype
    args = rows, columns, chunk, matrix.array, result, scale if splits == 1 else 1.0
    launch(_traced(*types, *kernel), (tiles, splits, 1), (_LANES * _WARPS, 1, 1), args, **on)
    if splits > 1:
        args = splits, columns, splits, result, y, scale
        traced = _traced("f32", view.dtype, *kernel)
        launch(traced, (tiles, 1, 1), (_LANES * _WARPS, 1, 1), args, **on)


@cache
def _traced(x: str, y: str, width: int, op: str, programmatic: bool) -> Traced:
    params = {"rows": "u32", "columns": "u32", "chunk": "u32", "x": f"ptr {x}", "y": f"ptr {y}"}
    return trace(
        _reduce_columns, {"width": width, "op": op, "programmatic": programmatic},
        params={**params, "scale": "f32"}, name="reduce_columns", block=_LANES * _WARPS,
        min_ctas=_CTAS_PER_SM, lines=False,
    )  # fmt: skip
