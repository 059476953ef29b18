"""Fragments: layouts (thread, value) → index in the matrix of a matrix instruction's operand.
One rule with few exceptions covers all of them. A quad of threads holds a row: thread 4g + q has
row g, and of each run of 4V elements the V elements from qV on, where V fills a 32-bit register.
Further registers repeat this 8 rows down, then 4V elements on. A is M×K, B is N×K (a row of the
fragment is a column of B), an accumulator is M×N with V = 2 for every type. Indices are
column-major, as in CuTe: row + rows * column.
    m16n8k16 f16   A ((4,8),(2,2,2)):((32,1),(16,8,128))   values 0 1 of a register, row + 8,
    column + 8
                   B ((4,8),(2,2)):((16,1),(8,64))
                   C ((4,8),(2,2)):((32,1),(16,8))

A stride of 0 means that several threads or values hold the same element: wmma's f16 operands are
stored twice, and the selector names the thread that provides sparse metadata.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bit_packing import pack, unpack
from ..dtypes import DType, dtype
from ..errors import LayoutError
from ..layout import Layout
from ..notebook_display import Drawable
from .array_inputs import as_codes, as_registers, is_integer, require_shape

Array = npt.NDArray[Any]

Modes = tuple[tuple[int, int], ...]  # (shape, stride) pairs


@dataclass(frozen=True, slots=True)
class Fragment(Drawable):
    """One operand of a matrix instruction, distributed over a warp (or the 128 threads of a
    warpgroup).

    ``layout`` maps (thread, value) to row + rows * column of a ``rows`` × ``columns`` matrix of
    ``type``, or of ``tiles`` such matrices, one after another. ``transposed``: the mathematical
    operand is the transpose of that matrix (B is K×N, its fragment N×K). An element takes
    ``container`` bits of a register and begins at bit ``low`` of them.
    """

    type: str
    rows: int
    columns: int
    layout: Layout
    transposed: bool = False
    tiles: int = 1
    container: int = 0  # 0: the type's own bits
    low: int = 0

    @property
    def dtype(self) -> DType:
        return dtype(self.type)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the mathematical operand: B is K×N; tiles come first."""
        one = (self.columns, self.rows) if self.transposed else (self.rows, self.columns)
        return one if self.tiles == 1 else (self.tiles, *one)

    @property
    def threads(self) -> int:
        return int(self.layout[0].size())

    @property
    def values(self) -> int:
        """Number of values per thread."""
        return int(self.layout.size()) // self.threads

    @property
    def bits(self) -> int:
        """Bits of a register per element."""
        return self.container or self.dtype.bits

    @property
    def word(self) -> int:
        """Bits of a register: 64 for f64, else 32."""
        return max(32, self.bits)

    @property
    def count(self) -> int:
        """Number of registers per thread."""
        return self.values * self.bits // self.word

    @property
    def copies(self) -> int:
        """Number of (thread, value) pairs that hold each element."""
        return int(self.layout.size()) // (self.rows * self.columns * self.tiles)

    def indices(self) -> Array:
        """The evaluated layout: (threads, values) → row + rows * column."""
        return _indices(self.layout, self.threads)

    def coordinates(self) -> tuple[Array, ...]:
        """(row, column) in the operand's ``shape``, each an array (threads, values); the tile's
        number precedes them if there are several tiles.
        """
        index, size = self.indices(), self.rows * self.columns
        row, column = index % size % self.rows, index % size // self.rows
        one = (column, row) if self.transposed else (row, column)
        return one if self.tiles == 1 else (index // size, *one)

    def registers(self, matrix: npt.ArrayLike) -> Array:
        """A matrix (…, *shape) → the registers of each thread, (…, threads, count) of uint32
        (uint64 for f64).
        The matrix has the type's NumPy type (bool for b1), or its bits as unsigned integers. Raises
        LayoutError and DtypeError.
        """
        bits = require_shape(as_codes(matrix, self.dtype), self.shape, "the matrix")
        values: Array = bits[(..., *self.coordinates())]  # type: ignore[arg-type]
        if self.container:
            values = values << self.low
        return pack(self._stored_type, values, np.dtype(f"u{self.word // 8}"))

    def matrix(self, registers: npt.ArrayLike, copy: int = 0) -> Array:
        """The inverse of ``registers``: (…, threads, count) → the matrix's bits (…, *shape).

        ``copy`` selects one of the ``copies`` of each element, those of one thread first. Raises
        LayoutError and DtypeError.
        """
        words = as_registers(registers, self.word)
        require_shape(words, (self.threads, self.count), "the registers")
        if not is_integer(copy) or not 0 <= copy < self.copies:
            raise LayoutError(f"copy must be 0 to {self.copies - 1}, got {copy}")
        values = unpack(self._stored_type, words)
        if self.container:
            values = values >> self.low & ((1 << self.dtype.bits) - 1)
        flat = values.reshape(*values.shape[:-2], -1)[..., _positions(self)[copy]]
        flat = flat.reshape(*values.shape[:-2], self.tiles, self.columns, self.rows)
        matrices = flat if self.transposed else np.swapaxes(flat, -1, -2)
        return np.ascontiguousarray(matrices if self.tiles > 1 else matrices[..., 0, :, :])

    @property
    def _stored_type(self) -> str:
        return f"b{self.container}" if self.container else self.type


@cache
def _indices(layout: Layout, threads: int) -> Array:
    indices: Array = layout.indices().reshape((threads, -1), order="F")
    indices.setflags(write=False)
    return indices


@cache
def _positions(fragment: Fragment) -> Array:
    """[copy][index of an element] → its position, thread * values + value."""
    order = np.argsort(_indices(fragment.layout, fragment.threads), axis=None, kind="stable")
    return order.reshape(-1, fragment.copies).T


def _mode(modes: Modes) -> tuple[Any, Any]:
    nontrivial = [mode for mode in modes if mode[0] > 1] or [(1, 0)]
    if len(nontrivial) == 1:
        return nontrivial[0]
    shape, stride = zip(*nontrivial, strict=True)
    return shape, stride


def fragment_layout(threads: Modes, values: Modes) -> Layout:
    """The layout of these (shape, stride) modes without those of size 1."""
    (ts, td), (vs, vd) = _mode(threads), _mode(values)
    return Layout((ts, vs), (td, vd))


def quad_layout(
    rows: int, columns: int, run: int, *, halves: bool = False, warps: int = 1
) -> Layout:
    """The rule of this module: ``run`` neighbours in a thread, then 8 rows down, then 4 runs on,
    then 16 rows down (``halves``: 8 rows down is the last instead). Each warp has 16 rows.
    """
    per_warp = rows // warps
    on = (columns // (4 * run), 4 * run * rows)
    down, further = (min(2, per_warp // 8), 8), (max(1, per_warp // 16), 16)
    values = (on, down, further) if halves else (down, on, further)
    threads = ((4, run * rows), (8, 1), (warps, 16))
    return fragment_layout(threads, ((run, rows), *values))


def elements_per_register(type_: str) -> int:
    """Number of elements of a row in a register."""
    return max(1, 32 // dtype(type_).bits)


@cache
def a_fragment(type_: str, m: int, k: int) -> Fragment:
    """A of mma.sync, M×K."""
    return Fragment(type_, m, k, quad_layout(m, k, elements_per_register(type_)))


@cache
def b_fragment(type_: str, n: int, k: int) -> Fragment:
    """B of mma.sync, as N×K."""
    return Fragment(type_, n, k, quad_layout(n, k, elements_per_register(type_)), transposed=True)


@cache
def accumulator_fragment(type_: str, m: int, n: int) -> Fragment:
    """C and D of mma.sync, M×N."""
    return Fragment(type_, m, n, quad_layout(m, n, 2))
