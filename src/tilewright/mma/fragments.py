"""Who holds what: a fragment is a layout (thread, value) → place in the matrix.

All of it is one rule and its few exceptions. A quad of threads holds a row: thread 4g + q has row
g, and of each run of 4V elements the V from qV on, as many as a 32-bit register takes; more
registers repeat that 8 rows down, then 4V elements on. A is M×K, B is N×K (its columns are its
rows here), an accumulator is M×N with V = 2 whatever its type. Places count down the columns, as
in CuTe: row + rows * column.

    m16n8k16 f16   A ((4,8),(2,2,2)):((32,1),(16,8,128))   values 0 1 of a register, row + 8,
    column + 8
                   B ((4,8),(2,2)):((16,1),(8,64))
                   C ((4,8),(2,2)):((32,1),(16,8))

A stride of 0 says that several hold the same: wmma's f16 operands are kept twice, sparse metadata
may come from any thread that the selector names.
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
    """One operand of a matrix instruction, spread over a warp (or the 128 threads of a warpgroup).

    ``layout`` maps (thread, value) to row + rows * column of a ``rows`` × ``columns`` matrix of
    ``type`` (and on to the next of ``tiles`` matrices). ``transposed`` says that the operand as
    the mathematics has it is that matrix's transpose: B is K×N there and N×K here. An element
    takes ``container`` bits of a register, from the bit ``low`` of them up.
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
        """The operand's shape as the mathematics has it: B is K×N; tiles come first."""
        one = (self.columns, self.rows) if self.transposed else (self.rows, self.columns)
        return one if self.tiles == 1 else (self.tiles, *one)

    @property
    def threads(self) -> int:
        return int(self.layout[0].size())

    @property
    def values(self) -> int:
        """Values in each thread."""
        return int(self.layout.size()) // self.threads

    @property
    def bits(self) -> int:
        """Bits that an element takes in a register."""
        return self.container or self.dtype.bits

    @property
    def word(self) -> int:
        """Bits of a register: 64 for f64, else 32."""
        return max(32, self.bits)

    @property
    def count(self) -> int:
        """Registers in each thread."""
        return self.values * self.bits // self.word

    @property
    def copies(self) -> int:
        """How many hold each element."""
        return int(self.layout.size()) // (self.rows * self.columns * self.tiles)

    def places(self) -> Array:
        """The layout, evaluated: (threads, values) → row + rows * column."""
        return _places(self.layout, self.threads)

    def coordinates(self) -> tuple[Array, ...]:
        """(row, column) in the operand's own shape, each (threads, values); a tile's number first
        where there are several.
        """
        place, size = self.places(), self.rows * self.columns
        row, column = place % size % self.rows, place % size // self.rows
        one = (column, row) if self.transposed else (row, column)
        return one if self.tiles == 1 else (place // size, *one)

    def registers(self, matrix: npt.ArrayLike) -> Array:
        """A matrix (…, *shape) → what each thread holds: (…, threads, count) of uint32 (uint64
        for f64).

        The matrix is of the type's NumPy type (bool for b1), or is bits as unsigned integers.
        Raises LayoutError and DtypeError.
        """
        bits = require_shape(as_codes(matrix, self.dtype), self.shape, "the matrix is")
        held: Array = bits[(..., *self.coordinates())]  # type: ignore[arg-type]
        if self.container:
            held = held << self.low
        return pack(self._stored, held, np.dtype(f"u{self.word // 8}"))

    def matrix(self, registers: npt.ArrayLike, copy: int = 0) -> Array:
        """The inverse of ``registers``: (…, threads, count) → the matrix's bits (…, *shape).

        Where several hold an element, ``copy`` says whose to take: values count before threads.
        Raises LayoutError and DtypeError.
        """
        held = as_registers(registers, self.word)
        require_shape(held, (self.threads, self.count), "the registers are")
        if not is_integer(copy) or not 0 <= copy < self.copies:
            raise LayoutError(f"there are {self.copies} copies, the first is 0; {copy} is none")
        values = unpack(self._stored, held)
        if self.container:
            values = values >> self.low & ((1 << self.dtype.bits) - 1)
        flat = values.reshape(*values.shape[:-2], -1)[..., _homes(self)[copy]]
        flat = flat.reshape(*values.shape[:-2], self.tiles, self.columns, self.rows)
        made = flat if self.transposed else np.swapaxes(flat, -1, -2)
        return np.ascontiguousarray(made if self.tiles > 1 else made[..., 0, :, :])

    @property
    def _stored(self) -> str:
        return f"b{self.container}" if self.container else self.type


@cache
def _places(layout: Layout, threads: int) -> Array:
    places: Array = layout.indices().reshape((threads, -1), order="F")
    places.setflags(write=False)
    return places


@cache
def _homes(fragment: Fragment) -> Array:
    """[copy][place]: where it is, as thread * values + value."""
    order = np.argsort(_places(fragment.layout, fragment.threads), axis=None, kind="stable")
    return order.reshape(-1, fragment.copies).T


def _mode(modes: Modes) -> tuple[Any, Any]:
    kept = [mode for mode in modes if mode[0] > 1] or [(1, 0)]
    if len(kept) == 1:
        return kept[0]
    shape, stride = zip(*kept, strict=True)
    return shape, stride


def fragment_layout(threads: Modes, values: Modes) -> Layout:
    """The layout of these (shape, stride) modes, those of one element left out."""
    (ts, td), (vs, vd) = _mode(threads), _mode(values)
    return Layout((ts, vs), (td, vd))


def quad_layout(
    rows: int, columns: int, run: int, *, halves: bool = False, warps: int = 1
) -> Layout:
    """The rule of this module: ``run`` neighbours in a thread, then 8 rows down, then 4 runs on,
    then 16 rows down (``halves`` puts 8 rows down last instead). Warps take 16 rows each.
    """
    per_warp = rows // warps
    on = (columns // (4 * run), 4 * run * rows)
    down, further = (min(2, per_warp // 8), 8), (max(1, per_warp // 16), 16)
    values = (on, down, further) if halves else (down, on, further)
    threads = ((4, run * rows), (8, 1), (warps, 16))
    return fragment_layout(threads, ((run, rows), *values))


def elements_per_register(type_: str) -> int:
    """Elements of a row that a register holds."""
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
