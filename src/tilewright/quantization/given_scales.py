"""Kernel of ``quantize`` with given scales (delayed scaling), of blocks of any sides.

A CTA quantizes a row; its scales are found by strides, so that they may be of any array.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

from ..builder import Builder, Pointer, Traced
from ..builder.kernel_function import trace_declared
from ..lazy_imports import provided
from .array_access import ArrayInfo
from .dequantize_kernel import STRIDES, scale_strides
from .quantize_kernels import (
    THREADS,
    QuantizeForm,
    check_rows,
    finished,
    load_values,
    store_elements,
)
from .scale_blocks import Block


def launch(
    x: Any, given: ArrayInfo, form: QuantizeForm, block: Block, scales: Any, device: Any
) -> Any:
    """The elements of a contiguous matrix, or stack. ``scales``: f32, one for each block.

    Raises ProblemError for rows that are not multiples of 16 bytes, or not contiguous.
    """
    check_rows(x, given, form)
    arrays = provided("arrays")
    kind = arrays.kind_of(x)
    data = kind.empty(x, given.shape, form.dest)
    *matrices, rows, columns = given.shape
    sides = (0 if block[0] >= rows else block[0], 0 if block[1] >= columns else block[1])
    grid = rows, 1, prod(matrices)
    if prod(given.shape):
        view = arrays.view(scales)
        strides = scale_strides(view.shape, view.strides)
        arguments = x, scales, data, rows, columns, *strides
        provided("launcher")(_kernel(form, sides), grid, (THREADS,), arguments, device=device)
    return finished(kind, x, data)


@cache
def _kernel(form: QuantizeForm, block: Block) -> Traced:
    params = {
        "x": f"ptr {form.source} align 16", "scales": "ptr f32",
        "data": f"ptr {form.dest} align {form.lane_elements}", "rows": "u32", "columns": "u32",
    } | dict.fromkeys(STRIDES, "u64")  # fmt: skip

    def body(k: Builder, *values: Any) -> None:
        _quantize(k, form, block, dict(zip(params, values, strict=True)))

    sides = "x".join(map(str, block))
    name = f"quantize_given_{form.source}_{form.dest}_{sides}"
    return trace_declared(body, params, name=name, block=THREADS, lines=False)


def _quantize(k: Builder, form: QuantizeForm, block: Block, p: dict[str, Any]) -> None:
    """A row for a CTA."""
    (down, across), step = block, form.lane_elements
    row, matrix = k.ctaid.x, k.ctaid.z.to("u64")
    first = (matrix * p["rows"].to("u64") + row.to("u64")) * p["columns"].to("u64")
    at = matrix * p["matrix_stride"]
    if down:
        at = at + (row // down).to("u64") * p["row_stride"]
    scales = p["scales"] + at
    whole = None if across else _inverse(k, scales)
    for column in k.range(k.tid.x * step, p["columns"], THREADS * step):
        values = load_values(k, form, p["x"] + (first + column.to("u64")))
        inverses = [whole] * step
        if across:
            count = 1 if across % step == 0 else step
            blocks = [((column + i) // across).to("u64") for i in range(count)]
            own = [_inverse(k, scales + i * p["column_stride"]) for i in blocks]
            inverses = own * (step // count)
        scaled = [value * x for value, x in zip(values, inverses, strict=True)]
        store_elements(k, form, p["data"] + (first + column.to("u64")), scaled)


def _inverse(k: Builder, scale: Pointer) -> Any:
    return 1.0 / scale.load(1)[0]
