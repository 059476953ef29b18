"""The largest elements of each row, in descending order, and where they are.

An element and its index make a key of 64 bits: f32 bits in an order that unsigned integers have,
then the inverted index. Round i finds the largest key below that of round i - 1, so equal elements
come in the order of their indices.
"""

from __future__ import annotations

from typing import Any

from ..builder import Builder, Pointer, Reg
from ..errors import ProblemError
from ..lazy_imports import untraced
from ..mma.array_inputs import is_integer
from ..run.arrays import array_view
from .matrix_row import MatrixRow
from .row_call import finished, launch_rows, row_matrix
from .row_layout import RowLayout

_SIGN, _ALL = 0x80000000, 0xFFFFFFFF
_INDEX_MASK = 0x7FFFFFFF  # inverts an index below 2^31, so that no key is 2^64 - 1


def _ordered(k: Builder, v: Reg) -> Reg:
    """The bits of an f32 as a u32 of the same order; a NaN is the largest."""
    bits = v.view("u32")
    ordered = bits ^ k.select(bits >= _SIGN, _ALL, _SIGN)
    return k.select(v != v, _ALL, ordered)


def _value(k: Builder, ordered: Reg) -> Reg:
    """The f32 of ``_ordered``."""
    return (ordered ^ k.select(ordered >= _SIGN, _SIGN, _ALL)).view("f32")


def _top_k(
    k: Builder, rows: Reg, columns: Reg, row_stride: Reg, stride: Reg, x: Pointer, values: Pointer,
    indices: Pointer, *, layout: RowLayout, count: int,
) -> None:  # fmt: skip
    row = MatrixRow(k, layout, rows, columns, x, row_stride, stride)
    row.map(lambda v: _ordered(k, v))
    last = k.var("u64", (1 << 64) - 1)
    for i in k.range(count, unroll=False):
        best = k.var("u64", 0)
        for vector in row.vectors():
            for j, bits in enumerate(vector.values):
                key = k.emit("mov.b64", [(vector.index + j) ^ _INDEX_MASK, bits], dtype="u64")
                with k.when((key < last) & vector.exists):
                    k.max(best, key, into=best)
        last.set(row.combine(best, "max"))
        inverted, bits = k.unpack(last, "u32")
        with k.if_(row.leads):
            place = (row.index * count + i).to("u64")
            k.store_vector(values + place, [_value(k, bits)])
            indices[place] = (inverted ^ _INDEX_MASK).view("s32")


@untraced
def top_k(x: Any, count: int, *, device: Any = None, stream: Any = None) -> tuple[Any, Any]:
    """The ``count`` largest elements along the last dimension, in descending order, and their
    indices (s32): two arrays of shape (…, count). Of equal elements the first comes first; a NaN
    is larger than any number.

    ``x``: f16, bf16 or f32 of shape (…, n) with n ≥ ``count``. Each element of the result takes a
    pass over the row's registers, so it is meant for few. ``device``, ``stream`` and errors as for
    ``softmax``.
    """
    rows = row_matrix("x", x)
    if not (is_integer(count) and 1 <= count <= rows.columns):
        raise ProblemError(f"count must be from 1 to {rows.columns}, got {count!r:.40}")
    count = int(count)
    shape = (*array_view.view(x).shape[:-1], count)
    values = array_view.empty_like_kind(x, shape, rows.dtype)
    indices = array_view.empty_like_kind(x, shape, "s32")
    launch_rows(
        _top_k, rows, {"values": values, "indices": indices}, {}, count=count, device=device,
        stream=stream,
    )  # fmt: skip
    return finished(x, values, None), finished(x, indices, None)
