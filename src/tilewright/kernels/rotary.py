"""Rotary position embedding: pairs of elements of each head, rotated by an angle of the token."""

from __future__ import annotations

from functools import cache
from typing import Any

from ..builder import Builder, Pointer, Reg, Traced, trace
from ..errors import ProblemError
from ..lazy_imports import untraced
from ..run import launch
from ..run.arrays import array_view
from ..run.devices.array_placement import device_for_arrays
from ..run.relayout.relayout_kernels import wait_for_predecessors
from .row_call import (
    ROW_PARAMS,
    RowMatrix,
    finished,
    result_like,
    row_matrix,
)
from .row_layout import HOPPER, VECTOR

_THREADS = 256


def _rotary_embedding(
    k: Builder, rows: Reg, columns: Reg, row_stride: Reg, stride: Reg, x: Pointer, y: Pointer,
    cos: Pointer, sin: Pointer, heads: Reg, tokens: Reg,
    *, width: int, interleaved: bool, programmatic: bool,
) -> None:  # fmt: skip
    """A thread rotates ``width`` pairs of a row; rows are (…, token, head)."""
    wait_for_predecessors(k, programmatic)
    half = columns >> 1
    vectors = half // width
    item = k.ctaid.x * _THREADS + k.tid.x
    row = item // vectors
    first = (item - row * vectors) * width
    k.ret(row >= rows)
    source, target = x + row.to("s64") * row_stride, y + row.to("s64") * columns.to("s64")
    angle = ((row // heads) % tokens) * half + first
    c, s = (k.load_vector(p + angle, width, dtype="f32") for p in (cos, sin))
    if interleaved:
        pairs = k.load_vector(source + first * 2, 2 * width, dtype="f32")
        a, b = pairs[::2], pairs[1::2]
    else:
        a, b = (k.load_vector(source + at, width, dtype="f32") for at in (first, first + half))
    one = [k.fma(-q, t, p * u) for p, q, t, u in zip(a, b, s, c, strict=True)]
    two = [k.fma(p, t, q * u) for p, q, t, u in zip(a, b, s, c, strict=True)]
    if interleaved:
        k.store_vector(target + first * 2, [v for pair in zip(one, two, strict=True) for v in pair])
    else:
        k.store_vector(target + first, one)
        k.store_vector(target + first + half, two)


@untraced
def rotary_embedding(
    x: Any, cos: Any, sin: Any, *, interleaved: bool = False, out: Any = None, device: Any = None,
    stream: Any = None,
) -> Any:  # fmt: skip
    """Rotate pairs (a, b) of ``x`` to (a cos - b sin, b cos + a sin), computed in f32: an array of
    ``x``'s shape and type.

    ``x``: f16, bf16 or f32 of shape (…, tokens, heads, dim), dim even; ``cos``, ``sin``:
    (tokens, dim / 2), contiguous, of these types. A pair is elements i and i + dim / 2 of a head,
    or, ``interleaved``, elements 2 i and 2 i + 1. ``out``, ``device``, ``stream`` and errors as for
    ``softmax``.
    """
    matrix, shape = row_matrix("x", x), tuple(array_view.view(x).shape)
    if len(shape) < 3 or shape[-1] % 2:
        raise ProblemError(f"x must have shape (…, tokens, heads, even dim), got {shape}")
    tokens, heads, columns = shape[-3:]
    tables = [row_matrix(n, t).array for n, t in (("cos", cos), ("sin", sin))]
    for name, table in zip(("cos", "sin"), tables, strict=True):
        view = array_view.view(table)
        if tuple(view.shape) != (tokens, columns // 2) or not array_view.is_contiguous(view):
            expected = f"{name} must be contiguous, of shape {(tokens, columns // 2)}"
            raise ProblemError(f"{expected}, got shape {view.shape} and strides {view.strides}")
    if matrix.stride != 1:
        raise ProblemError(f"the heads of x must be contiguous, got a stride of {matrix.stride}")
    y = result_like(x, shape, matrix.dtype, out)
    if matrix.rows and columns:
        _launch(matrix, [y, *tables], heads, tokens, interleaved, device, stream)
    return finished(x, y, out)


def _launch(
    matrix: RowMatrix, arrays: list[Any], heads: int, tokens: int, interleaved: bool, device: Any,
    stream: Any,
) -> None:  # fmt: skip
    half = matrix.columns // 2
    views = [array_view.view(array) for array in arrays]
    width = VECTOR // matrix.itemsize
    while width > 1 and (
        half % width
        or (matrix.rows > 1 and matrix.row_stride % width)
        or matrix.address % min(VECTOR, width * matrix.itemsize)
        or any(v.device != "cpu" and v.address % min(VECTOR, width * v.itemsize) for v in views)
    ):
        width //= 2
    spec = device_for_arrays(array_view.view(matrix.array).device, device).target
    programmatic = spec.target.number >= HOPPER
    traced = _traced(matrix.dtype, *(v.dtype for v in views), width, interleaved, programmatic)
    grid = -(-matrix.rows * (half // width) // _THREADS), 1, 1
    args = (*matrix.numbers, matrix.array, *arrays, heads, tokens)
    launch(
        traced, grid, (_THREADS, 1, 1), args, device=device, stream=stream,
        programmatic=programmatic,
    )  # fmt: skip


@cache
def _traced(
    x: str, y: str, cos: str, sin: str, width: int, interleaved: bool, programmatic: bool
) -> Traced:
    pointers = {"x": x, "y": y, "cos": cos, "sin": sin}
    params = ROW_PARAMS | {name: f"ptr {type_}" for name, type_ in pointers.items()}
    return trace(
        _rotary_embedding,
        {"width": width, "interleaved": interleaved, "programmatic": programmatic},
        params=params | {"heads": "u32", "tokens": "u32"}, name="rotary_embedding",
        block=_THREADS, lines=False,
    )  # fmt: skip
