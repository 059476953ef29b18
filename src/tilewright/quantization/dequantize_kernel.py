"""Kernel of ``Scaled.dequantize`` and ``Packed.dequantize``, with the bits of their definition.

A warp reads 256 columns of some rows, a thread 8 elements of each, all before it converts the
first. Its scale is found by strides, so that scales may lie in any way.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..builder import Builder, Reg, Traced
from ..builder.kernel_function import trace_declared
from ..errors import DtypeError, ProblemError
from ..lazy_imports import provided
from .array_access import FLOAT_TYPES, ArrayInfo
from .scale_blocks import Block
from .weight_types import NF4, is_integer, weight_type

THREADS, LANES = 256, 32
VECTOR = 8  # elements of a thread in a row, as many bytes as an element has bits
ROWS = 4  # of a thread, a CTA's number of warps apart
CTA_ROWS, CTA_COLUMNS = ROWS * THREADS // LANES, LANES * VECTOR
STRIDES = ("row_stride", "column_stride", "matrix_stride")
INTEGERS = ("s32", "s8", "u8")
# Mantissa bits of 6-bit floats, and the power of two by which the f32 of their bits is too small.
SIX_BITS = {"e2m3": (3, 126), "e3m2": (2, 124)}


class DequantizeForm(NamedTuple):
    """What the kernel is traced for: the types of the elements, the scales, the zero points (empty:
    none) and the result, and the block, with a side of 0 for all rows or all columns. ``zero``: a
    zero point of all elements; ``order``: whether columns are permuted; ``factor``: whether a
    global scale multiplies the result, ``factors``: one of each matrix; ``stored``: the type of the
    array of elements.
    """

    data: str
    scale: str
    zeros: str
    dest: str
    block: Block
    stored: str
    zero: int = 0
    order: bool = False
    factor: bool = False
    factors: bool = False

    @property
    def name(self) -> str:
        """Of the kernel."""
        words = [*self[:4], *self.block, f"zero{self.zero}".replace("-", "m") * bool(self.zero)]
        words += ["order" * self.order, "factor" * self.factor, "each" * self.factors]
        return "_".join(("dequantize", *(str(word) for word in words if word != "")))


def launch_scaled(matrix: Any, given: ArrayInfo, dtype: str, device: Any) -> Any:
    """A ``Scaled`` matrix, or stack, of a contiguous array as an array of f32, f16 or bf16.

    Raises ProblemError for rows that are not multiples of 8 elements, or not contiguous.
    """
    *_, rows, columns = given.shape
    down, across = matrix.block
    block = (0 if down >= rows else down, 0 if across >= columns else across)
    form = DequantizeForm(given.dtype, "", "", dtype, block, given.dtype)
    return _launch(form, matrix, given.shape, matrix.data, device)


def launch_packed(matrix: Any, shape: tuple[int, ...], dtype: str, device: Any) -> Any:
    """``Packed`` weights, or a stack, of contiguous arrays, not transposed, as an array of f32, f16
    or bf16 of the library of ``scales``.

    Raises ProblemError for K that is not a multiple of 8, or data that are not contiguous.
    """
    across = 0 if matrix.group >= shape[-1] else matrix.group
    stored = provided("arrays").view(matrix.data).dtype
    form = DequantizeForm(matrix.type, "", "", dtype, (1, across), stored)
    if isinstance(matrix.zeros, int):
        form = form._replace(zero=matrix.zeros)
    form = form._replace(order=matrix.order is not None, factor=matrix.global_scale is not None)
    form = form._replace(factors=form.factor and prod(matrix.global_scale.shape) > 1)
    return _launch(form, matrix, shape, matrix.scales, device)


def _launch(
    form: DequantizeForm, matrix: Any, shape: tuple[int, ...], like: Any, device: Any
) -> Any:
    """The result, an array of the library of ``like``."""
    if form.dest not in FLOAT_TYPES:
        raise DtypeError(f"dtype must be one of {', '.join(FLOAT_TYPES)}, got {form.dest!r:.60}")
    arrays, run = provided("arrays"), provided("launcher")
    data, kind = arrays.view(matrix.data), arrays.kind_of(like)
    *lead, rows, columns = shape
    align = _align(form.data)
    if prod(shape) and (columns % VECTOR or data.address % align or not is_contiguous(data)):
        raise ProblemError(
            f"data must be contiguous, aligned to {align} bytes, with rows of a multiple of "
            f"{VECTOR} elements, to be dequantized by a kernel, got {form.data} {shape}"
        )
    zeros = None if isinstance(matrix.zeros, int) else matrix.zeros
    factors = [_on_device(x, data.device) for x in (matrix.scales, zeros) if x is not None]
    views = [arrays.view(x) for x in factors]
    strides = [scale_strides(view.shape, view.strides) for view in views]
    if strides[1:] and strides[0] != strides[1]:
        raise ProblemError("scales and zeros must have the same strides to be read by a kernel")
    form = form._replace(scale=views[0].dtype, zeros=views[1].dtype if views[1:] else "")
    if form.order:
        factors.append(_on_device(matrix.order, data.device))
        if not is_contiguous(arrays.view(factors[-1])):
            raise ProblemError("order must be contiguous to be read by a kernel")
    if form.factor:
        factors.append(_on_device(matrix.global_scale, data.device))
    out = kind.empty(like, shape, form.dest)
    grid = -(-rows // CTA_ROWS), -(-columns // CTA_COLUMNS), prod(lead)
    if prod(grid):
        arguments = matrix.data, *factors, out, rows, columns, *strides[0]
        run(_kernel(form), grid, (THREADS,), arguments, device=device)
    return out if kind.finish is None else kind.finish(like, out)


def _align(type_: str) -> int:
    """Of the bytes of a thread's elements."""
    bits = weight_type(type_).bits
    return 2 if bits == 6 else bits


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


def scale_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int, int]:
    """From row to row of blocks, from column to column, from matrix to matrix; 0 along a dimension
    of one.
    """
    found = [0 if size == 1 else step for size, step in zip(shape, strides, strict=True)]
    matrix, row, column = (0, 0, 0, *found)[-3:]
    return row, column, matrix


@cache
def _kernel(form: DequantizeForm) -> Traced:
    params = {"data": f"ptr {form.stored} align {_align(form.data)}", "scales": f"ptr {form.scale}"}
    params |= {"zeros": f"ptr {form.zeros}"} if form.zeros else {}
    params |= {"order": "ptr s32"} if form.order else {}
    params |= {"factor": "ptr f32"} if form.factor else {}
    params |= {"out": f"ptr {form.dest} align 16", "rows": "u32", "columns": "u32"}
    params |= dict.fromkeys(STRIDES, "u64")

    def body(k: Builder, *values: Any) -> None:
        _Dequantizer(k, form, dict(zip(params, values, strict=True))).run()

    return trace_declared(body, params, name=form.name, block=THREADS, lines=False)


class _Dequantizer:
    """The code of a thread, whose rows and columns beyond the matrix are its last ones."""

    def __init__(self, k: Builder, form: DequantizeForm, params: dict[str, Any]) -> None:
        self.k, self.form, self.params = k, form, params
        self.rows, self.columns = params["rows"], params["columns"]
        lane, warp, matrix = k.tid.x & (LANES - 1), k.tid.x >> 5, k.ctaid.z.to("u64")
        self.column = k.ctaid.y * CTA_COLUMNS + lane * VECTOR
        first = k.ctaid.x * CTA_ROWS + warp
        self.row = [first + i * (THREADS // LANES) for i in range(ROWS)]
        self.matrix = matrix
        self.first = matrix * self.rows.to("u64")  # row of the stack
        self.first_scale = matrix * params["matrix_stride"]

    def run(self) -> None:
        """Load all rows, then convert and store one after the other."""
        k, form = self.k, self.form
        column = k.min(self.column, self.columns - VECTOR)
        rows = [k.min(row, self.rows - 1) for row in self.row]
        loaded = [self._load(row, column) for row in rows]
        scales = [self._factors("scales", form.scale, row, column) for row in rows]
        zeros = [
            self._factors("zeros", form.zeros, row, column) if form.zeros else [] for row in rows
        ]
        places: list[Reg] = []
        if form.order:
            places = (self.params["order"] + column).load(4) + (
                self.params["order"] + column + 4
            ).load(4)
        for row, *each in zip(self.row, loaded, scales, zeros, strict=True):
            with k.if_((row < self.rows) & (self.column < self.columns)):
                self._store(row, places, self._products(*each))

    def _offset(self, row: Reg, column: Any) -> Any:
        return (self.first + row.to("u64")) * self.columns.to("u64") + column

    def _load(self, row: Reg, column: Reg) -> Any:
        """The words of a thread's elements of a row."""
        bits = weight_type(self.form.data).bits
        base, first = self.params["data"], self._offset(row, column.to("u64"))
        if bits == 6:
            at = base.cast("u16") + first // VECTOR * 3
            halves = [(at + i).load(1)[0] for i in range(3)]
            low, middle, high = (half.to("u64") for half in halves)
            return low | middle << 16 | high << 32
        return (base.cast("b32") + first // (32 // bits)).load(bits // 4)

    def _factors(self, name: str, type_: str, row: Reg, column: Reg) -> list[Any]:
        """The scales, or zero points, of a thread's elements of a row: one, or one for each."""
        down, across = self.form.block
        at = self.first_scale
        if down:
            at = at + (row // down).to("u64") * self.params["row_stride"]
        count = 1 if across % VECTOR == 0 else VECTOR
        return [
            self._number(self.params[name], type_, at, (column + i) // across if across else None)
            for i in range(count)
        ]

    def _number(self, base: Any, type_: str, at: Any, block: Any) -> Any:
        """A scale in f32, exactly, or a zero point in s32."""
        if block is not None:
            at = at + block.to("u64") * self.params["column_stride"]
        if type_ == "ue8m0":
            code = (base.cast("u8") + at).load(1)[0].to("u32")
            bits = self.k.select(code == 0, 1 << 22, code << 23)
            return self.k.select(code == 255, 0x7FFFFFFF, bits).view("f32")
        if type_ == "e4m3":
            pair = self.k.unpack_floats((base.cast("u8") + at).load(1)[0].to("u32"), type_, "f16")[
                0
            ]
            return self.k.unpack(pair)[0].to("f32")
        number = (base + at).load(1)[0]
        wide = "s32" if type_ in INTEGERS else "f32"
        return number if type_ == wide else number.to(wide)

    def _values(self, loaded: Any) -> list[Any]:
        """The elements in f32, exactly; integers in s32 if zero points are subtracted."""
        k, type_ = self.k, self.form.data
        if type_ in SIX_BITS:
            bits = [(loaded >> 6 * i).to("u32") for i in range(VECTOR)]
            mantissa, exponent = SIX_BITS[type_]
            words = [(x & 32) << 26 | (x & 31) << (23 - mantissa) for x in bits]
            return [word.view("f32") * 2.0**exponent for word in words]
        if type_ == "nf4":
            return self._levels(loaded[0])
        unpack = k.unpack_integers if is_integer(type_) else k.unpack_floats
        pairs = [pair for word in loaded for pair in unpack(word, type_, "f16")]
        return [half.to("f32") for pair in pairs for half in k.unpack(pair)]

    def _levels(self, word: Reg) -> list[Any]:
        """The values of eight nibbles as NormalFloat: both halves of their bits by tables."""
        bits = NF4.view(np.uint32)
        halves = [
            self.k.unpack_table(word, table.tolist(), "f16")
            for table in (bits & 0xFFFF, bits >> 16)
        ]
        made: list[Any] = []
        for low, high in zip(*halves, strict=True):
            low, high = low.view("u32"), high.view("u32")
            made += [low & 0xFFFF | high << 16, low >> 16 | high & 0xFFFF0000]
        return [value.view("f32") for value in made]

    def _products(self, loaded: Any, scales: list[Any], zeros: list[Any]) -> list[Any]:
        """f32(element − zero point) · scale, or element · scale + zero point of floats."""
        values, form = self._values(loaded), self.form
        points = zeros * (VECTOR // max(len(zeros), 1))
        if form.zeros in INTEGERS:
            both = zip(values, points, strict=True)
            values = [(value.to("s32") - point).to("f32") for value, point in both]
        if form.zero:
            values = [value - float(form.zero) for value in values]
        scales = scales * (VECTOR // len(scales))
        values = [value * scale for value, scale in zip(values, scales, strict=True)]
        if form.zeros and form.zeros not in INTEGERS:
            values = [value + point for value, point in zip(values, points, strict=True)]
        if form.factor:
            factor = (self.params["factor"] + (self.matrix if form.factors else 0)).load(1)[0]
            values = [value * factor for value in values]
        return values

    def _store(self, row: Reg, places: list[Reg], values: list[Any]) -> None:
        """16 bytes at a time, or each element at its place."""
        k, dest, out = self.k, self.form.dest, self.params["out"]
        for place, value in zip(places, values, strict=False):
            rounded = value if dest == "f32" else value.to(dest)
            with k.if_(place.to("u32") < self.columns):  # which was not checked on a GPU
                (out + self._offset(row, place.to("u64"))).store([rounded])
        if places:
            return
        words = [value.view("b32") for value in values]
        if dest != "f32":
            pairs = zip(values[::2], values[1::2], strict=True)
            words = [k.pack(f"{dest}x2", low, high).view("b32") for low, high in pairs]
        at = (out + self._offset(row, self.column.to("u64"))).cast("b32")
        for i in range(0, len(words), 4):
            (at + i).store(words[i : i + 4])
