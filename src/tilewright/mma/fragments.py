"""Who holds what: a fragment is a layout (thread, value) → place in the matrix.

All matrices of mma.sync follow one rule. A quad of threads holds a row: thread 4g + q has row g,
and of each run of 4V elements the V from qV on, as many as a 32-bit register takes; more
registers repeat that 8 rows down, then 4V elements on. A is M×K, B is N×K (its columns are its
rows here), an accumulator is M×N with V = 2 whatever its type. Places count down the columns, as
in CuTe: row + rows * column.

    m16n8k16 f16   A ((4,8),(2,2,2)):((32,1),(16,8,128))   values 0 1 of a register, row + 8,
    column + 8
                   B ((4,8),(2,2)):((16,1),(8,64))
                   C ((4,8),(2,2)):((32,1),(16,8))
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ..dtypes import DType, dtype, pack, unpack
from ..errors import LayoutError
from ..layout import Layout

Array = npt.NDArray[Any]

LANES = 32


@dataclass(frozen=True, slots=True)
class Fragment:
    """One operand of a matrix instruction, spread over a warp.

    ``layout`` maps (thread, value) to row + rows * column of a ``rows`` × ``columns`` matrix of
    ``type``. ``transposed`` says that the operand as the mathematics has it is that matrix's
    transpose: B is K×N there and N×K here.
    """

    type: str
    rows: int
    columns: int
    layout: Layout
    transposed: bool = False

    @property
    def dtype(self) -> DType:
        return dtype(self.type)

    @property
    def shape(self) -> tuple[int, int]:
        """The operand's shape as the mathematics has it: B is K×N."""
        return (self.columns, self.rows) if self.transposed else (self.rows, self.columns)

    @property
    def values(self) -> int:
        """Values in each thread."""
        return self.rows * self.columns // LANES

    @property
    def count(self) -> int:
        """32-bit registers in each thread."""
        return self.values * self.dtype.bits // 32

    def places(self) -> Array:
        """The layout, evaluated: (32 threads, values) → row + rows * column."""
        return _places(self.layout, self.values)

    def coordinates(self) -> tuple[Array, Array]:
        """(row, column) in the operand's own shape, each (32 threads, values)."""
        row, column = self.places() % self.rows, self.places() // self.rows
        return (column, row) if self.transposed else (row, column)

    def registers(self, matrix: npt.ArrayLike) -> Array:
        """A matrix's bits (…, *shape) → what each thread holds: (…, 32, count) of uint32."""
        bits = np.asarray(matrix)
        if bits.shape[-2:] != self.shape:
            raise LayoutError(f"the matrix is {self.shape}, not {bits.shape}")
        return pack(self.dtype, bits[(..., *self.coordinates())])

    def matrix(self, registers: npt.ArrayLike) -> Array:
        """The inverse of ``registers``: (…, 32, count) → the matrix's bits (…, *shape)."""
        words = np.asarray(registers, np.uint32)
        if words.shape[-2:] != (LANES, self.count):
            raise LayoutError(f"the registers are {(LANES, self.count)}, not {words.shape}")
        values = unpack(self.dtype, words)
        matrix = np.empty((*words.shape[:-2], *self.shape), values.dtype)
        matrix[(..., *self.coordinates())] = values
        return matrix


@cache
def _places(layout: Layout, values: int) -> Array:
    places: Array = layout.indices().reshape((LANES, values), order="F")
    places.setflags(write=False)
    return places


def _layout(threads: tuple[int, int], *modes: tuple[int, int]) -> Layout:
    """Threads (4, 8) with these strides; values with these (shape, stride) modes, if not 1."""
    kept = [mode for mode in modes if mode[0] > 1] or [(1, 0)]
    shape, stride = zip(*kept, strict=True)
    if len(kept) == 1:
        return Layout(((4, 8), shape[0]), (threads, stride[0]))
    return Layout(((4, 8), shape), (threads, stride))


def _quad_rows(rows: int, columns: int, run: int) -> Layout:
    """The rule of this module: ``run`` neighbours in a thread, then 8 rows down, then 4 runs on."""
    return _layout(
        (run * rows, 1), (run, rows), (rows // 8, 8), (columns // (4 * run), 4 * run * rows)
    )


def _run(type_: str) -> int:
    return max(1, 32 // dtype(type_).bits)


@cache
def operand_a(type_: str, m: int, k: int) -> Fragment:
    """A of mma.sync, M×K."""
    return Fragment(type_, m, k, _quad_rows(m, k, _run(type_)))


@cache
def operand_b(type_: str, n: int, k: int) -> Fragment:
    """B of mma.sync, as N×K."""
    return Fragment(type_, n, k, _quad_rows(n, k, _run(type_)), transposed=True)


@cache
def accumulator(type_: str, m: int, n: int) -> Fragment:
    """C and D of mma.sync, M×N."""
    return Fragment(type_, m, n, _quad_rows(m, n, 2))


@cache
def ldmatrix(count: int, trans: bool = False) -> Fragment:
    """What ldmatrix gives: ``count`` (1, 2, 4) matrices of 8×8 16-bit elements, one atop the next.

    Row r of the 8 * count is read from lane r's address. Register i is matrix i: thread 4g + q
    holds elements 2q and 2q + 1 of its row g, or of its column g with ``trans``.
    """
    if count not in (1, 2, 4):
        raise LayoutError(f"ldmatrix loads 1, 2 or 4 matrices, not {count}")
    rows = 8 * count
    if trans:
        return Fragment("b16", rows, 8, _layout((2, rows), (2, 1), (count, 8)))
    return Fragment("b16", rows, 8, _layout((2 * rows, 1), (2, rows), (count, 8)))


@cache
def ldmatrix_rows(count: int) -> Layout:
    """Lane → the row whose address it gives. The other lanes' addresses are not used."""
    return Layout(ldmatrix(count).rows, 1)
