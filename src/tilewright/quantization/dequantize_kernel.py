"""Kernel of ``Scaled.dequantize``: the product of ``scaled``, with the same bits.

A warp reads 256 columns of some rows, a thread 8 elements of each, all before it converts the
first. Its scale is found by strides, so that scales may lie in any way.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..builder import Builder, Pointer, Reg, Traced, trace
from ..errors import DtypeError, ProblemError
from ..lazy_imports import provided
from .array_access import ArrayInfo
from .scale_blocks import Block

DEST_TYPES = ("f32", "f16", "bf16")
THREADS, LANES = 256, 32
VECTOR = 8  # elements of a thread in a row
ROWS = 4  # of a thread, a CTA's number of warps apart
CTA_ROWS, CTA_COLUMNS = ROWS * THREADS // LANES, LANES * VECTOR
STRIDES = ("row_stride", "column_stride", "matrix_stride")


class DequantizeForm(NamedTuple):
    """What the kernel is traced for: the types of the elements, the scales, the zero points (empty:
    none) and the result, and the block, with a side of 0 for all rows or all columns.
    """

    data: str
    scale: str
    zeros: str
    dest: str
    block: Block


def launch(matrix: Any, given: ArrayInfo, dtype: str, device: Any) -> Any:
    """A ``Scaled`` matrix, or stack, of a contiguous array as an array of f32, f16 or bf16.

    Raises ProblemError for rows that are not multiples of 8 elements, or not contiguous.
    """
    if dtype not in DEST_TYPES:
        raise DtypeError(f"dtype must be one of {', '.join(DEST_TYPES)}, got {dtype!r:.60}")
    arrays, run = provided("arrays"), provided("launcher")
    data, kind = arrays.view(matrix.data), arrays.kind_of(matrix.data)
    *_, rows, columns = given.shape
    if columns % VECTOR or data.address % VECTOR or not is_contiguous(data):
        raise ProblemError(
            f"data must be contiguous, with rows of a multiple of {VECTOR} elements, to be "
            f"dequantized by a kernel, got {given}"
        )
    factors = [_on_device(x, given.device) for x in (matrix.scales, matrix.zeros) if x is not None]
    views = [arrays.view(x) for x in factors]
    down, across = matrix.block
    block = (0 if down >= rows else down, 0 if across >= columns else across)
    scale, *zeros = (view.dtype for view in views)
    form = DequantizeForm(given.dtype, scale, zeros[0] if zeros else "", dtype, block)
    strides = [_strides(view.shape, view.strides) for view in views]
    if strides[1:] and strides[0] != strides[1]:
        raise ProblemError("scales and zeros must have the same strides to be read by a kernel")
    out = kind.empty(matrix.data, given.shape, dtype)
    matrices = prod(given.shape[:-2])
    grid = -(-rows // CTA_ROWS), -(-columns // CTA_COLUMNS), matrices
    if prod(grid):
        arguments = matrix.data, *factors, out, rows, columns, *strides[0]
        run(_kernel(form), grid, (THREADS,), arguments, device=device)
    return out if kind.finish is None else kind.finish(matrix.data, out)


def is_contiguous(view: Any) -> bool:
    """Whether an array has no gaps between its elements, in the order of its dimensions."""
    expected = 1
    for size, stride in zip(view.shape[::-1], view.strides[::-1], strict=True):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


def _on_device(array: Any, where: str) -> Any:
    """An array on the CPU without gaps, as it is uploaded; another one as it is."""
    return np.ascontiguousarray(array) if where == "cpu" else array


def _strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int, int]:
    """From row to row of blocks, from column to column, from matrix to matrix; 0 along a dimension
    of one.
    """
    found = [0 if size == 1 else step for size, step in zip(shape, strides, strict=True)]
    matrix, row, column = (0, 0, 0, *found)[-3:]
    return row, column, matrix


@cache
def _kernel(form: DequantizeForm) -> Traced:
    params = {"data": f"ptr {form.data} align 8", "scales": f"ptr {form.scale}"}
    params |= {"zeros": f"ptr {form.zeros}"} if form.zeros else {}
    params |= {"out": f"ptr {form.dest} align 16", "rows": "u32", "columns": "u32"}
    params |= dict.fromkeys(STRIDES, "u64")
    name = "_".join(("dequantize", *form[:4], *map(str, form.block))).replace("__", "_")
    body = _with_zeros if form.zeros else _without_zeros
    return trace(body, {"form": form}, params=params, name=name, block=THREADS, lines=False)


def _without_zeros(
    k: Builder, data: Pointer, scales: Pointer, out: Pointer, rows: Reg, columns: Reg,
    row_stride: Reg, column_stride: Reg, matrix_stride: Reg, *, form: DequantizeForm,
) -> None:  # fmt: skip
    strides = row_stride, column_stride, matrix_stride
    _Dequantizer(k, form, (rows, columns), strides).run(data, scales, None, out)


def _with_zeros(
    k: Builder, data: Pointer, scales: Pointer, zeros: Pointer, out: Pointer, rows: Reg,
    columns: Reg, row_stride: Reg, column_stride: Reg, matrix_stride: Reg, *, form: DequantizeForm,
) -> None:  # fmt: skip
    strides = row_stride, column_stride, matrix_stride
    _Dequantizer(k, form, (rows, columns), strides).run(data, scales, zeros, out)


class _Dequantizer:
    """The code of a thread, whose rows and columns beyond the matrix are its last ones."""

    def __init__(
        self, k: Builder, form: DequantizeForm, sizes: tuple[Reg, Reg], strides: tuple[Reg, ...]
    ) -> None:
        self.k, self.form, (self.rows, self.columns) = k, form, sizes
        self.row_stride, self.column_stride, matrix_stride = strides
        lane, warp, matrix = k.tid.x & (LANES - 1), k.tid.x >> 5, k.ctaid.z.to("u64")
        self.column = k.ctaid.y * CTA_COLUMNS + lane * VECTOR
        first = k.ctaid.x * CTA_ROWS + warp
        self.row = [first + i * (THREADS // LANES) for i in range(ROWS)]
        self.first = matrix * self.rows.to("u64")  # row of the stack
        self.first_scale = matrix * matrix_stride

    def run(self, data: Pointer, scales: Pointer, zeros: Pointer | None, out: Pointer) -> None:
        """Load all rows, then convert and store one after the other."""
        k, words = self.k, []
        column = k.min(self.column, self.columns - VECTOR)
        rows = [k.min(row, self.rows - 1) for row in self.row]
        for row in rows:
            words.append((data + self._offset(row, column)).cast("b32").load(VECTOR // 4))
        factors = [self._factors(scales, self.form.scale, row, column) for row in rows]
        points = [
            [] if zeros is None else self._factors(zeros, self.form.zeros, row, column)
            for row in rows
        ]
        for row, *each in zip(self.row, words, factors, points, strict=True):
            with k.if_((row < self.rows) & (self.column < self.columns)):
                self._store(out + self._offset(row, self.column), self._products(*each))

    def _offset(self, row: Reg, column: Reg) -> Any:
        return (self.first + row.to("u64")) * self.columns.to("u64") + column.to("u64")

    def _factors(self, base: Pointer, type_: str, row: Reg, column: Reg) -> list[Any]:
        """The scales, or zero points, of a thread's elements of a row: one, or one for each."""
        down, across = self.form.block
        at = self.first_scale
        if down:
            at = at + (row // down).to("u64") * self.row_stride
        count = 1 if across % VECTOR == 0 else VECTOR
        return [
            self._number(base, type_, at, (column + i) // across if across else None)
            for i in range(count)
        ]

    def _number(self, base: Pointer, type_: str, at: Any, block: Any) -> Any:
        """A scale in f32, exactly, or a zero point in s32."""
        if block is not None:
            at = at + block.to("u64") * self.column_stride
        if type_ == "ue8m0":
            code = (base.cast("u8") + at).load(1)[0].to("u32")
            bits = self.k.select(code == 0, 1 << 22, code << 23)
            return self.k.select(code == 255, 0x7FFFFFFF, bits).view("f32")
        number = (base + at).load(1)[0]
        wide = "f32" if type_ in ("f32", "bf16") else "s32"
        return number if type_ == wide else number.to(wide)

    def _products(self, words: Any, scales: list[Any], zeros: list[Any]) -> list[Any]:
        """f32(element − zero point) · scale."""
        k, type_ = self.k, self.form.data
        unpack = k.unpack_integers if type_[0] in "us" else k.unpack_floats
        pairs = [pair for word in words for pair in unpack(word, type_, "f16")]
        values = [half.to("f32") for pair in pairs for half in k.unpack(pair)]
        if zeros:
            points = zeros * (VECTOR // len(zeros))
            both = zip(values, points, strict=True)
            values = [(value.to("s32") - point).to("f32") for value, point in both]
        scales = scales * (VECTOR // len(scales))
        return [value * scale for value, scale in zip(values, scales, strict=True)]

    def _store(self, out: Pointer, values: list[Any]) -> None:
        """16 bytes at a time."""
        k, dest = self.k, self.form.dest
        words = [value.view("b32") for value in values]
        if dest != "f32":
            pairs = zip(values[::2], values[1::2], strict=True)
            words = [k.pack(f"{dest}x2", low, high).view("b32") for low, high in pairs]
        for i in range(0, len(words), 4):
            (out.cast("b32") + i).store(words[i : i + 4])
