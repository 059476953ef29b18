"""RMSNorm and layer normalization of each row."""

from __future__ import annotations

from typing import Any

from ..builder import Builder, Pointer, Reg
from ..errors import ProblemError
from ..lazy_imports import untraced
from .matrix_row import MatrixRow
from .row_call import RowMatrix, finished, launch_rows, result_like, row_matrix
from .row_layout import RowLayout


def _rms_norm(
    k: Builder, rows: Reg, columns: Reg, row_stride: Reg, stride: Reg, x: Pointer, y: Pointer,
    weight: Pointer, eps: Reg, inverse: Reg, *, layout: RowLayout, weighted: bool,
) -> None:  # fmt: skip
    row = MatrixRow(k, layout, rows, columns, x, row_stride, stride)
    mean_square = row.reduce("add", lambda v: v * v) * inverse
    scale = k.rsqrt(mean_square + eps)
    row.map(lambda v: v * scale)
    if weighted:
        row.map(lambda v, w: v * w, weight)
    row.store(y)


def _layer_norm(
    k: Builder, rows: Reg, columns: Reg, row_stride: Reg, stride: Reg, x: Pointer, y: Pointer,
    weight: Pointer, bias: Pointer, eps: Reg, inverse: Reg,
    *, layout: RowLayout, weighted: bool, biased: bool,
) -> None:  # fmt: skip
    row = MatrixRow(k, layout, rows, columns, x, row_stride, stride)
    mean = row.reduce("add") * inverse
    row.map(lambda v: v - mean)
    variance = row.reduce("add", lambda v: v * v) * inverse
    scale = k.rsqrt(variance + eps)
    row.map(lambda v: v * scale)
    if weighted:
        row.map(lambda v, w: v * w, weight)
    if biased:
        row.map(lambda v, b: v + b, bias)
    row.store(y)


@untraced
def rms_norm(
    x: Any, weight: Any = None, *, eps: float = 1e-6, out: Any = None, device: Any = None,
    stream: Any = None,
) -> Any:  # fmt: skip
    """x / √(mean(x²) + eps) · weight along the last dimension, computed in f32: an array of ``x``'s
    shape and type.

    ``x``: f16, bf16 or f32 of shape (…, n), any n; ``weight``: (n,), of any of these types, or None
    for 1. ``out``, ``device``, ``stream`` and errors as for ``softmax``.
    """
    rows = row_matrix("x", x)
    y = result_like(x, rows.shape, rows.dtype, out)
    launch_rows(
        _rms_norm, rows, {"y": y, "weight": _vector("weight", weight, rows, y)},
        {"eps": eps, "inverse": 1 / max(rows.columns, 1)},
        aligned=("y", "weight"), weighted=weight is not None, device=device, stream=stream,
    )  # fmt: skip
    return finished(x, y, out)


@untraced
def layer_norm(
    x: Any, weight: Any = None, bias: Any = None, *, eps: float = 1e-5, out: Any = None,
    device: Any = None, stream: Any = None,
) -> Any:  # fmt: skip
    """(x - mean(x)) / √(var(x) + eps) · weight + bias along the last dimension, computed in f32: an
    array of ``x``'s shape and type. The variance is the mean of (x - mean(x))².

    ``x``: f16, bf16 or f32 of shape (…, n), any n; ``weight`` and ``bias``: (n,), of any of these
    types, or None. ``out``, ``device``, ``stream`` and errors as for ``softmax``.
    """
    rows = row_matrix("x", x)
    y = result_like(x, rows.shape, rows.dtype, out)
    arrays = {
        "y": y,
        "weight": _vector("weight", weight, rows, y),
        "bias": _vector("bias", bias, rows, y),
    }
    launch_rows(
        _layer_norm, rows, arrays, {"eps": eps, "inverse": 1 / max(rows.columns, 1)},
        aligned=tuple(arrays), device=device,
        weighted=weight is not None, biased=bias is not None, stream=stream,
    )  # fmt: skip
    return finished(x, y, out)


def _vector(name: str, vector: Any, rows: RowMatrix, unused: Any) -> Any:
    """A contiguous vector of a row's length; ``unused`` for None. Raises ProblemError."""
    if vector is None:
        return unused
    matrix = row_matrix(name, vector)
    if matrix.shape != (rows.columns,):
        raise ProblemError(f"{name} must have shape ({rows.columns},), got {matrix.shape}")
    if matrix.stride != 1:
        raise ProblemError(f"{name} must be contiguous, got a stride of {matrix.stride}")
    return matrix.array
