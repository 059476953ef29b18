"""A strided copy on the device: for a matrix that has no contiguous index.

It moves bits, whatever they mean, so one kernel serves every type of its size.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ..build import Builder, Traced, trace
from ..ptx import abi
from .device import Device

_BLOCK = (32, 8, 1)
_MOST_Y = 65535


def _copy(
    k: Builder, rows: Any, columns: Any, source: Any, source_row: Any, source_column: Any,
    target: Any, target_row: Any, target_column: Any,
) -> None:  # fmt: skip
    """One element for each thread; a thread walks on where the grid's y, the columns, ends."""
    row = k.ctaid.x * _BLOCK[1] + k.tid.y
    first = k.ctaid.y * _BLOCK[0] + k.tid.x
    with k.if_(row < rows):
        for column in k.range(first, columns, k.nctaid.y * _BLOCK[0]):
            i, j = row.to("s64"), column.to("s64")
            value = source[i * source_row + j * source_column]
            target[i * target_row + j * target_column] = value


@cache
def strided_copy(itemsize: int) -> Traced:
    """The kernel for elements of 2 or 4 bytes; strides count elements and may be negative."""
    pointer = f"ptr u{8 * itemsize}"
    strides = {f"{end}_{axis}": "s64" for end in ("source", "target") for axis in ("row", "column")}
    params = {"rows": "u32", "columns": "u32", "source": pointer, "target": pointer, **strides}
    return trace(_copy, name=f"strided_copy_{8 * itemsize}", params=params, lines=False)


def copy(
    device: Device, shape: tuple[int, int], itemsize: int, source: int, source_strides: Any,
    target: int, target_strides: Any, stream: int = 0,
) -> None:  # fmt: skip
    """Start copying a matrix between two addresses, each with its strides in elements."""
    rows, columns = shape
    if not rows or not columns:
        return
    traced = strided_copy(itemsize)
    grid = (-(-rows // _BLOCK[1]), min(-(-columns // _BLOCK[0]), _MOST_Y), 1)
    params = abi.pack(
        traced.entry, (rows, columns, source, *source_strides, target, *target_strides)
    )
    device.launch(device.compile(traced), grid, _BLOCK, params, traced.dynamic_shared, stream)
