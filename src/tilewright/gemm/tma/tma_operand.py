"""Operands A and B of kernel ``tma``: shared memory layout, tensor copies, wgmma descriptors.

A stage holds a tile of ``extent`` rows (M of A, N of B) by ``depth`` along K, in columns of
swizzled lines: a line is up to 128 bytes along the contiguous dimension, a column is all lines at
one offset along it. One tensor copy loads a column, or a CTA's share of it.

    K-major, 128 × 64 bf16      Sw<3,3,3> o (128,64):(64,1)            one column of 128 lines
    M-major, 128 × 64 bf16      Sw<3,3,3> o ((64,2),64):((1,4096),64)  two columns of 64 lines
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from ...builder import Builder, Pointer
from ...dtypes import dtype
from ...layout import ComposedLayout, local_tile
from ...mma import TensorMap, make_descriptor, make_smem_layout
from ...quantization.weight_format import UNIT_ROWS, WeightFormat
from ..columns import larger, select
from ..grouping import has_problems
from ..problem import Problem
from .grouped.row_window import window_shape, window_strides
from .tma_config import TmaConfig
from .tma_geometry import TmaGeometry, swizzle_bytes

WGMMA_K = 32  # bytes of K per wgmma
PROMOTION = 128  # bytes that an L2 miss fetches; 256 is slower where lines straddle


@lru_cache(maxsize=1024)
def shared_layout(type_: str, major: str, rows: int, columns: int) -> ComposedLayout:
    """A tile in shared memory: columns of swizzled lines. Computed once, for all shapes."""
    order = (0, 1) if major == "K" else (1, 0)
    made = make_smem_layout(type_, major, (rows, columns), order=order)
    assert isinstance(made, ComposedLayout)
    return made


@dataclass(frozen=True)
class GlobalMatrix:
    """A matrix in global memory: ``count`` lines of ``length`` elements, ``leading`` elements from
    line to line; ``batches`` of them (0: not batched), ``batch_stride`` elements apart.
    ``window``: copies access a row window.
    """

    address: int
    count: int
    length: int
    leading: int
    batches: int = 0
    batch_stride: int = 0
    window: bool = False

    def map(self, type_: str, box: tuple[int, ...], swizzle: int) -> TensorMap:
        """The tensor map that copies boxes of (elements of a line, lines)."""
        size = dtype(type_).bits // 8
        shape: tuple[int, ...] = (self.length, self.count)
        strides: tuple[int, ...] = (self.leading * size,)
        if self.window:
            shape, box = (self.length, *window_shape()), (*box, 1, 1)
            strides = window_strides(*strides)
        if self.batches:
            shape, box = (*shape, self.batches), (*box, 1)
            strides = (*strides, self.batch_stride * size)
        return TensorMap.tiled(
            self.address, type_, shape, strides, box, swizzle=swizzle, l2_promotion=PROMOTION
        )


@dataclass(frozen=True)
class TmaOperand:
    """One operand of a stage. ``contiguous``: ``k`` or ``mn``. ``sharers``: CTAs of the cluster
    that read the same tile; each loads its share and multicasts it to all. ``batched``: it is a
    stack if the problem has batches; ``grouped``: tiles begin at any row;
    ``windowed``: copies access a row window along K.
    """

    type: str
    extent: int
    depth: int
    contiguous: str
    sharers: int = 1
    batched: bool = True
    grouped: bool = False
    windowed: bool = False

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return dtype(self.type).bits // 8

    @property
    def bytes(self) -> int:
        """Bytes of a stage."""
        return self.extent * self.depth * self.size

    @property
    def major(self) -> str:
        """``K`` or ``MN``, as wgmma descriptors name it."""
        return "K" if self.contiguous == "k" else "MN"

    @cached_property
    def layout(self) -> ComposedLayout:
        """The tile in shared memory: (row, k) → element."""
        return shared_layout(self.type, self.major, self.extent, self.depth)

    @property
    def swizzle(self) -> int:
        """Bytes of a line."""
        size: int = 16 << self.layout.outer.bits
        return size

    @property
    def line_elements(self) -> int:
        """Elements of a line."""
        return self.swizzle // self.size

    @property
    def lines_per_copy(self) -> int:
        """Lines that one tensor copy loads."""
        return self.extent // self.sharers if self.major == "K" else self.depth

    def map(self, matrix: GlobalMatrix) -> TensorMap:
        """The tensor map that ``load`` uses."""
        matrix = replace(matrix, window=self.windowed)
        return matrix.map(self.type, (self.line_elements, self.lines_per_copy), self.swizzle)

    @property
    def has_edge_map(self) -> bool:
        """Whether the last tile has a tensor map of its own, with a box of the existing rows only:
        copies fill out-of-bounds rows with zeros at a third of their speed, and D does not depend
        on them.
        """
        return not self.grouped and self.major == "K" and self.sharers == 1

    def edge_map(self, matrix: GlobalMatrix) -> TensorMap:
        """The tensor map of the last tile."""
        rows = self.last_tile_rows(max(1, matrix.count))
        return matrix.map(self.type, (self.line_elements, rows), self.swizzle)

    def last_tile_rows(self, rows: Any) -> Any:
        """The rows of the last tile of a matrix of ``rows`` rows."""
        return (rows - 1) % self.extent + 1

    @property
    def extent_unit(self) -> Any:
        """What the extent must be a multiple of, so that every CTA that shares the operand loads
        whole core matrices or swizzled rows.
        """
        if self.major == "K":
            return 8 * self.sharers
        return self.sharers * (swizzle_bytes(self.extent, 8 * self.size) // self.size)

    # --- copies ---

    def map_and_bytes(
        self, k: Builder, maps: tuple[Any, Any], row: Any, rows: Any
    ) -> tuple[Any, Any]:
        """The tensor map for the tile that begins at ``row`` of ``rows``, and the bytes of a stage
        that it loads (the transaction count).
        """
        if not self.has_edge_map:
            return maps[0], self.bytes
        at_edge = row + self.extent > rows
        count = k.select(at_edge, self.last_tile_rows(rows), self.extent)
        full, edge = (k.map_address(map_) for map_ in maps)
        return k.select(at_edge, edge, full), count * (self.depth * self.size)

    def load(
        self, k: Builder, target: Any, map_: Any, coordinates: tuple[Any, Any, Any],
        barrier: Pointer, share: Any = 0, multicast: Any = None, *, advances: bool = True,
    ) -> None:  # fmt: skip
        """Issue the copies of this CTA's share of the tile at ``coordinates`` (row, k, batch; k may
        be the coordinates in a window) to the shared address ``target``. ``multicast``: mask of the
        CTAs that receive it. Unless it ``advances``, every share comes from these coordinates (of a
        matrix of its own).
        """
        row, first_k, batch = coordinates
        more = () if batch is None else (batch,)
        column = self.swizzle * (self.extent if self.major == "K" else self.depth)
        count, share_bytes, share_rows = self._share(column)
        if self.sharers > 1:
            target = target + share * share_bytes
            row = row + share * share_rows if advances else row
        for i in range(count):
            offset = i * self.line_elements
            at: tuple[Any, ...] = ()
            if self.major == "K":
                at = (_plus(first_k, offset), row)
            else:
                along_k = first_k if isinstance(first_k, tuple) else (first_k,)
                at = (_plus(row, offset), *along_k)
            there = k.pointer("shared", "b8", target) + i * column
            k.tma_load(there, map_, (*at, *more), barrier, multicast_mask=multicast)

    def _share(self, column: int) -> tuple[int, int, int]:
        """(copies, bytes, rows) of a CTA's share of the tile."""
        if self.major == "K":
            lines = self.lines_per_copy
            return self.depth // self.line_elements, lines * self.swizzle, lines
        count = self.extent // self.line_elements // self.sharers
        return count, count * column, count * self.line_elements

    # --- descriptors ---

    def byte_offset(self, row: int, k: int) -> int:
        """Bytes from the start of the tile to (row, k), before the swizzle."""
        offset: int = self.layout.inner((row, k))
        return offset * self.size

    def descriptor_bits(self, rows: int, k_bytes: int = WGMMA_K) -> int:
        """The wgmma descriptor of ``rows`` rows by the K of an instruction, start address 0."""
        tile = local_tile(self.layout, (rows, k_bytes // self.size), (0, 0))
        return make_descriptor(tile, self.type, self.major).bits

    @property
    def wgmmas_per_stage(self) -> int:
        """Instructions along the K of a stage."""
        return self.depth * self.size // WGMMA_K


@dataclass(frozen=True)
class UnitsOperand(TmaOperand):
    """B as prepared weights: units of 64 rows, which consumers load to registers."""

    weights: WeightFormat | None = None

    @property
    def bytes(self) -> int:
        """Bytes of a stage."""
        return self.extent // UNIT_ROWS * self.row_block_bytes

    @property
    def row_block_bytes(self) -> int:
        """Bytes of a k-tile of 64 rows."""
        assert self.weights is not None
        return self.depth // self.weights.unit_k * self.weights.unit_bytes

    @property
    def has_edge_map(self) -> bool:
        """The last row block is whole."""
        return False

    @property
    def extent_unit(self) -> Any:
        """Every CTA that shares the operand loads whole row blocks."""
        return UNIT_ROWS * self.sharers


def operands(problem: Problem, config: TmaConfig) -> tuple[TmaOperand, TmaOperand]:
    """The left and right operand of wgmma: A and B, or with ``swap`` Bᵀ and Aᵀ."""
    a, b = matrix_operands(problem, config)
    return (b, a) if config.swap else (a, b)


def matrix_operands(problem: Problem, config: TmaGeometry[Any]) -> tuple[TmaOperand, TmaOperand]:
    """A and B as operands; extents, depths and sharers are columns if ``config`` has columns."""
    (bm, bn, bk), (cm, cn), swap = config.tile, config.cluster, config.swap
    a = "k" if problem.a_major == "k" else "mn"
    b = "k" if problem.b_major == "k" else "mn"
    b_sharers = select(swap, cn, cm)
    if problem.pair:  # the halves of the tile come from two matrices, as if shared by two CTAs
        b_sharers = larger(b_sharers, 2)
    a_depth, b_depth = (bk // 2 if problem.sparse == side else bk for side in "ab")
    along_k, listed = problem.has_k_groups, has_problems(problem.groups)
    windowed = along_k and problem.k_group_unit == 1
    left = TmaOperand(
        problem.a, select(swap, bn, bm), a_depth, a, select(swap, cm, cn),
        not (problem.has_row_groups or along_k or listed), problem.groups is not None, windowed,
    )  # fmt: skip
    extent = select(swap, bm, bn)
    if problem.weights is not None:
        return left, UnitsOperand(problem.b, extent, bk, b, b_sharers, weights=problem.weights)
    return left, TmaOperand(
        problem.b, extent, b_depth, b, b_sharers, not (along_k or listed), along_k or listed,
        windowed,
    )  # fmt: skip


def _plus(x: Any, n: int) -> Any:
    return x + n if n else x
