"""Kernel of ``quantize`` with zero points, of s8 and u8 by rows: ``quantized_with_zeros`` of
``quantization_reference``, with the same bits. A CTA reads its row twice.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

from ..builder import Builder, Pointer, Reg, Traced, trace
from ..dtypes import dtype
from ..lazy_imports import provided
from .array_access import ArrayInfo
from .quantize_kernels import (
    LARGEST_F32,
    THREADS,
    QuantizeForm,
    check_rows,
    finished,
    load_values,
    over_cta,
    rounded_scale,
    store_scales,
)

STEPS = 255.0  # from the least integer to the largest
WORD = 4  # elements


def launch(x: Any, given: ArrayInfo, form: QuantizeForm, device: Any) -> tuple[Any, Any, Any]:
    """(data, scales, zero points) of a contiguous matrix, or stack, by rows.

    Raises ProblemError for rows that are not multiples of 16 bytes, or not contiguous.
    """
    check_rows(x, given, form)
    kind = provided("arrays").kind_of(x)
    *lead, columns = given.shape
    rows, grid = prod(lead), (*lead, 1)
    data = kind.empty(x, given.shape, form.dest)
    scales, zeros = kind.empty(x, grid, form.scale), kind.empty(x, grid, form.dest)
    if rows:
        arguments = x, data, scales, zeros, columns
        provided("launcher")(_kernel(form), (rows,), (THREADS,), arguments, device=device)
    data, scales, zeros = (finished(kind, x, array) for array in (data, scales, zeros))
    return data, scales, zeros


@cache
def _kernel(form: QuantizeForm) -> Traced:
    params = {
        "x": f"ptr {form.source} align 16", "data": f"ptr {form.dest} align {form.lane_elements}",
        "scales": f"ptr {form.scale}", "zeros": f"ptr {form.dest}", "columns": "u32",
    }  # fmt: skip
    name = f"quantize_zeros_{form.source}_{form.dest}_{form.scale}"
    return trace(_rows, {"form": form}, params=params, name=name, block=THREADS, lines=False)


def _rows(
    k: Builder, x: Pointer, data: Pointer, scales: Pointer, zeros: Pointer, columns: Reg,
    *, form: QuantizeForm,
) -> None:  # fmt: skip
    """A row for a CTA."""
    row, step, least = k.ctaid.x, form.lane_elements, float(dtype(form.dest).range[0])
    first = row.to("u64") * columns.to("u64")
    low, high = k.var("f32", 0.0), k.var("f32", 0.0)
    for column in k.range(k.tid.x * step, columns, THREADS * step):
        for value in load_values(k, form, x + (first + column.to("u64"))):
            low.set(k.max(low, -value))
            high.set(k.max(high, value))
    below, above = (k.min(over_cta(k, end), LARGEST_F32) for end in (low, high))
    range_ = k.min(below + above, LARGEST_F32)
    scale, inverse = rounded_scale(k, form, range_ / STEPS)
    zero = k.min(_nearest(k, below * inverse), STEPS) + least
    for column in k.range(k.tid.x * step, columns, THREADS * step):
        values = load_values(k, form, x + (first + column.to("u64")))
        elements = [_element(k, value * inverse, zero, least) for value in values]
        words = [_packed(k, form, elements[i : i + WORD]) for i in range(0, step, WORD)]
        (data + (first + column.to("u64"))).cast("b32").store(words)
    with k.if_(k.tid.x == 0):
        store_scales(form, scales + row, [scale])
        (zeros + row).cast("u8").store([k.emit("cvt.rni.s32.f32", zero).view("u32").to("u8")])


def _nearest(k: Builder, value: Reg) -> Any:
    """The integer to which an f32 is rounded, to nearest even."""
    return k.emit("cvt.rni.f32.f32", value)


def _element(k: Builder, value: Reg, zero: Reg, least: float) -> Any:
    """An element in s32; a NaN counts as 0."""
    number = k.select(value == value, value, 0.0)
    shifted = _nearest(k, number) + zero
    return k.emit("cvt.rni.s32.f32", k.min(k.max(shifted, least), least + STEPS))


def _packed(k: Builder, form: QuantizeForm, elements: list[Any]) -> Any:
    """Four elements as a word."""
    pack = f"cvt.pack.sat.{form.dest}.s32.b32"
    high = k.emit(pack, elements[3], elements[2], 0)
    return k.emit(pack, elements[1], elements[0], high)
