"""Softmax of each row: e^(x - max) / Σ e^(x - max)."""

from __future__ import annotations

from typing import Any

from ..builder import Builder, Pointer, Reg
from ..lazy_imports import untraced
from .matrix_row import MatrixRow
from .row_call import finished, launch_rows, result_like, row_matrix
from .row_layout import RowLayout


def _softmax(
    k: Builder, rows: Reg, columns: Reg, row_stride: Reg, stride: Reg, x: Pointer, y: Pointer,
    *, layout: RowLayout, exact: bool,
) -> None:  # fmt: skip
    row = MatrixRow(k, layout, rows, columns, x, row_stride, stride)
    peak = row.reduce("max")
    row.map(lambda v: k.exp(v - peak, approximate=not exact))
    scale = k.rcp(row.reduce("add"))
    row.map(lambda v: v * scale)
    row.store(y)


@untraced
def softmax(x: Any, *, out: Any = None, device: Any = None, stream: Any = None) -> Any:
    """The softmax along the last dimension, computed in f32: an array of ``x``'s shape and type.

    ``x``: f16, bf16 or f32 of shape (…, n), any n. ``out``: a contiguous array for the result, of
    f16, bf16 or f32; it may be ``x``. A NaN makes its row NaN.
    ``device``: where arrays on the CPU are computed; ``stream``: the GPU's stream. Raises
    DtypeError, ProblemError, DeviceError.
    """
    rows = row_matrix("x", x)
    y = result_like(x, rows.shape, rows.dtype, out)
    launch_rows(
        _softmax, rows, {"y": y}, {}, aligned=("y",), exact=rows.dtype == "f32", device=device,
        stream=stream,
    )  # fmt: skip
    return finished(x, y, out)
