"""Epilogue of kernel ``tma``: computes D = α·acc + β·C and rounds once to D's type.

A warpgroup stages an epilogue tile, 64 rows by a few columns of its accumulators, in shared memory
as rows of D, and one tensor copy stores it while the next tile is staged. C is loaded the same way,
into the buffer from which D is stored. Where rows of D or C are not aligned to 16 bytes, threads
load and store elements instead.

t = α·acc is rounded to f32 (exact for α = 1), then β·C + t is one FMA.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...builder import Builder, Pointer, fragment_registers
from ...dtypes import DType, dtype
from ...layout import ComposedLayout, Tensor, make_tensor
from ...mma import (
    CopyAtom,
    TensorMap,
    TiledCopy,
    TiledMma,
    make_tiled_copy_C,
    make_tiled_mma,
)
from ..epilogue.emission import stored_words
from ..problem import Problem
from .grouped.row_scatter import RowScatter
from .grouped.row_window import window_coordinates
from .tile_scheduler import GroupRows, WorkTileInfo
from .tma_config import TmaConfig
from .tma_geometry import EPILOGUE_BUFFERS, WARPGROUP, WGMMA_ROWS
from .tma_operand import GlobalMatrix, shared_layout

WGMMA = "wgmma.mma_async.sync.aligned.m64n{}k16.f32.f16.f16"  # all types have its layout


@dataclass(frozen=True)
class EpilogueTile:
    """Tile in which a warpgroup stores D: 64 rows (of a wgmma) by ``width`` of the ``columns``
    columns. ``swap``: the kernel computes Dᵀ, so the tile's columns are rows of D.
    """

    type: DType
    accumulator_type: str
    width: int
    columns: int
    swap: bool
    with_c: bool
    by_tma: bool  # D and C by tensor copies
    buffers: int  # in shared memory, of a tile each
    together: bool  # all tiles are staged behind one barrier, in a buffer each
    align: int = 16  # bytes per access, where not by tensor copies
    scaled: bool = True
    accumulates: bool = False  # tensor copies add to D

    @classmethod
    def of(cls, problem: Problem, config: TmaConfig) -> EpilogueTile:
        with_c, buffers = problem.loads_c, config.epilogue_buffers(problem.output.bits)
        by_tma = problem.align_d == 16 and (problem.align_c == 16 or not with_c)
        out, columns = problem.output, config.tile[1]
        width = config.epilogue_width(out.bits)
        align = min(problem.align_d, problem.align_c if with_c else 16)
        together = by_tma and not with_c and config.stores_together(out.bits)
        return cls(
            out, problem.accumulator_type, width, columns, config.swap, with_c, by_tma, buffers,
            together, align, accumulates=problem.accumulates,
        )  # fmt: skip

    @classmethod
    def of_partials(cls, problem: Problem, config: TmaConfig) -> EpilogueTile:
        """The tile of partial accumulators of split-K, neither scaled nor rounded."""
        kind, width = dtype(problem.accumulator_type), config.epilogue_width(32)
        buffers, together = config.epilogue_buffers(32), config.stores_together(32)
        if problem.pair:  # a warpgroup may store the blocks of two
            buffers, together = EPILOGUE_BUFFERS, False
        return cls(
            kind, problem.accumulator_type, width, config.tile[1], config.swap, False, True,
            buffers, together, scaled=False,
        )  # fmt: skip

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return self.type.bits // 8

    @property
    def bytes(self) -> int:
        """Bytes of a tile."""
        return WGMMA_ROWS * self.width * self.size

    @cached_property
    def layout(self) -> ComposedLayout:
        """The tile in shared memory: (row, column) → element."""
        major = "MN" if self.swap else "K"
        return shared_layout(self.type.name, major, WGMMA_ROWS, self.width)

    @property
    def swizzle(self) -> int:
        swizzle: int = 16 << self.layout.outer.bits
        return swizzle

    @property
    def d_rows(self) -> int:
        """Rows of D in a tile."""
        return self.width if self.swap else WGMMA_ROWS

    @property
    def d_columns(self) -> int:
        """Columns of D in a tile."""
        return WGMMA_ROWS if self.swap else self.width

    @property
    def copy_columns(self) -> int:
        """Columns of D that one tensor copy moves."""
        return self.swizzle // self.size

    def coordinates(self, number: int, row: Any, column: Any) -> tuple[Any, Any]:
        """(along rows of D, across) of tile ``number`` of a warpgroup, whose first tile is at
        (``row``, ``column``) of what the kernel computes.
        """
        block, column_tile = divmod(number, self.columns // self.width)
        row, column = row + block * WGMMA_ROWS, column + column_tile * self.width
        return (row, column) if self.swap else (column, row)

    def map(self, matrix: GlobalMatrix) -> TensorMap:
        """The tensor map that stores D and loads C."""
        return matrix.map(self.type.name, (self.copy_columns, self.d_rows), self.swizzle)

    @cached_property
    def mma(self) -> TiledMma:
        """The layout of a tile's accumulators over threads."""
        return make_tiled_mma(WGMMA.format(self.width))

    def matrix_copy(self, move: str) -> TiledCopy:
        """ldmatrix or stmatrix between a thread's 16-bit values and shared memory."""
        count = 4 if self.width % 16 == 0 else 2
        trans = ".trans" if self.swap else ""
        atom = CopyAtom(f"{move}.sync.aligned.m8n8.x{count}{trans}.shared.b16", self.type)
        return make_tiled_copy_C(atom, self.mma)


@dataclass
class OutputTensor:
    """D, C or the workspace in a kernel: tensor map, or pointer and strides."""

    map: Any
    pointer: Pointer | None
    leading: Any
    batch_stride: Any


class TmaEpilogue:
    """Stores the accumulators of a warpgroup. ``shared``: address of its own buffers; ``index``: of
    the warpgroup; ``scalars``: α and β; ``limits``: rows and columns of D; ``barrier``: mbarrier
    for the loads of C. ``rows``: of the group whose tile is stored; ``scatter``: where its
    rows go.
    """

    def __init__(
        self, k: Builder, tile: EpilogueTile, shared: Any, index: Any, d: OutputTensor,
        c: OutputTensor, scalars: Any, limits: Any, barrier: Pointer,
    ) -> None:  # fmt: skip
        self.k, self.tile, self.d, self.c, self.index = k, tile, d, c, index
        self.alpha, self.beta = scalars
        self.limits = limits
        self.c_barrier = barrier
        self.thread = k.tid.x & (WARPGROUP - 1)
        self.leader = self.thread == 0
        first, step = k.pointer("shared", tile.type, shared), tile.bytes // tile.size
        self.buffers = [make_tensor(first + i * step, tile.layout) for i in range(tile.buffers)]
        self.rows: GroupRows | None = None
        self.scatter: RowScatter | None = None
        self.use_c = self.beta != 0.0 if tile.with_c else None
        self.phase = k.var("u32", 0) if tile.with_c else None

    def begin(self, tile: WorkTileInfo) -> None:
        """Prepare for a work tile, whose accumulators are stored next."""
        self.rows = tile.rows

    def _synchronize(self) -> None:
        """Synchronize this warpgroup."""
        self.k.emit("bar.sync", self.index + 1, WARPGROUP)

    def run(self, acc: list[list[Any]], row: Any, column: Any, batch: Any) -> None:
        """Store the accumulators of 64-row blocks, the first at (``row``, ``column``)."""
        tile = self.tile
        numbers = range(len(acc) * (tile.columns // tile.width))
        for group in [numbers] if tile.together else [[number] for number in numbers]:
            tiles = [self._epilogue_tile(acc, number, row, column, batch) for number in group]
            self._store_tiles(tiles, group[0])

    def _epilogue_tile(
        self, acc: list[list[Any]], number: int, row: Any, column: Any, batch: Any
    ) -> tuple[list[Any], Any]:
        """The accumulators of tile ``number``, its coordinates (along rows of D, across, batch)."""
        tile, per = self.tile, self.tile.width // 2  # accumulators of a thread
        block, column_tile = divmod(number, tile.columns // tile.width)
        coordinates = tile.coordinates(number, row, column)
        return acc[block][column_tile * per : (column_tile + 1) * per], (*coordinates, batch)

    def _store_tiles(self, tiles: list[tuple[list[Any], Any]], number: int) -> None:
        """Stage and store tiles from ``number`` on, behind one barrier."""
        k, tile = self.k, self.tile
        buffers = [self.buffers[(number + i) % tile.buffers] for i in range(len(tiles))]
        if tile.by_tma:
            with k.when(self.leader):
                k.bulk_wait(tile.buffers - 1 if number else 0, read=True)
        self._synchronize()
        for (accumulators, at), buffer in zip(tiles, buffers, strict=True):
            c = self._load_c(buffer, at) if tile.with_c else None
            self._stage(self._values(accumulators, c), buffer, tile)
        if tile.by_tma:
            k.fence_async()
        self._synchronize()
        if not tile.by_tma:
            for (_, at), buffer in zip(tiles, buffers, strict=True):
                self._copy_by_threads(buffer, self.d, at, tile, store=True)
            return
        with k.when(self.leader):
            for (_, at), buffer in zip(tiles, buffers, strict=True):
                copy_by_tma(k, buffer, self.d.map, self._map_coordinates(at), tile, None)
            k.bulk_commit()

    def _map_coordinates(self, at: Any) -> Any:
        """Where the tensor maps of outputs have the tile at (along rows of D, across, batch)."""
        if self.rows is None:
            return at
        along, across, batch = at
        first, count, joined = self.rows
        return along, *window_coordinates(across, first, count), None if joined else batch

    def _row_exists(self, row: Any) -> Any:
        """Whether a row of D may be read and written."""
        if self.rows is None:
            return row < self.limits[0]
        return row - self.rows.first < self.rows.count

    def drain(self) -> None:
        """Wait until the stores have read shared memory, before the CTA ends."""
        if self.tile.by_tma:
            with self.k.when(self.leader):
                self.k.bulk_wait(0, read=True)

    # --- registers and shared memory ---

    def _stage(self, values: list[Any], buffer: Tensor, tile: EpilogueTile) -> None:
        """Convert a thread's values to a tile's type and write them to shared memory."""
        fragment = self._converted(values, tile)
        copy_fragment(self.k, self.thread, fragment, buffer, tile, loads=False)

    def _converted(self, values: list[Any], tile: EpilogueTile) -> Tensor:
        """A thread's values in a tile's type."""
        k = self.k
        fragment = tile_fragment(k, tile)
        words = fragment_registers(fragment)
        if tile.size == 2:
            pairs = zip(words, values[0::2], values[1::2], strict=True)
            for word, low, high in pairs:
                k.emit(f"cvt.rn.{tile.type.name}x2.f32", high, low, into=word)
        else:
            stored = stored_words(k, values, tile.type.name)
            for word, value in zip(words, stored, strict=True):
                k.mov(value, into=word)
        return fragment

    def _load_c(self, buffer: Tensor, at: Any) -> Tensor:
        """Load a tile of C into registers, where β is not 0."""
        k, tile = self.k, self.tile
        fragment = tile_fragment(k, tile)
        assert self.use_c is not None and self.phase is not None
        with k.if_(self.use_c):
            if tile.by_tma:
                with k.when(self.leader):
                    k.mbarrier_arrive(self.c_barrier, bytes=tile.bytes)
                    copy_by_tma(k, buffer, self.c.map, at, tile, self.c_barrier)
                k.mbarrier_wait(self.c_barrier, self.phase)
                k.xor(self.phase, 1, into=self.phase)
            else:
                self._copy_by_threads(buffer, self.c, at, tile, store=False)
                self._synchronize()
            copy_fragment(k, self.thread, fragment, buffer, tile, loads=True)
            self._synchronize()
        return fragment

    def _values(self, accumulators: list[Any], c: Tensor | None) -> list[Any]:
        """α·acc + β·C, before rounding."""
        k, tile = self.k, self.tile
        integer = tile.accumulator_type == "s32"
        scaled = tile.scaled and not integer
        if c is None:
            return [self.alpha * v for v in accumulators] if scaled else accumulators
        assert self.use_c is not None
        made = []
        for i, v in enumerate(accumulators):
            value, before = self.alpha * v if scaled else v, c[i]
            before = before if before.dtype.name in ("f32", "s32") else before.to("f32")
            total = value + before if integer else k.fma(self.beta, before, value)
            made.append(k.select(self.use_c, total, value))
        return made

    # --- shared and global memory ---

    def _copy_by_threads(
        self, buffer: Tensor, matrix: OutputTensor, at: Any, tile: EpilogueTile, *, store: bool
    ) -> None:
        """Copy a tile by threads, a warp along a row of D: vectors of as many elements as are
        aligned, single elements where a vector crosses the edge of D.
        """
        k = self.k
        along, across, batch = at
        lane, warp = self.thread & 31, self.thread >> 5
        count = min(tile.align // tile.size, tile.d_columns)
        start = along.to("u64")
        if self.scatter is None:
            start = across.to("u64") * matrix.leading + start
        if batch is not None:
            start = start + batch.to("u64") * matrix.batch_stride
        assert matrix.pointer is not None
        base = matrix.pointer.cast(tile.type) + start
        left = k.max(self.limits[1].view("s32") - along.view("s32"), 0).view("u32")
        for line in k.range(warp, tile.d_rows, WARPGROUP // 32, unroll=False):
            exists, number = self._row_exists(across + line), line
            if self.scatter is not None:
                number, is_stored = self.scatter.target(across + line)
                exists = exists & is_stored
            for i in range(0, tile.d_columns, 32 * count):
                first = lane * count + i
                if i + 32 * count > tile.d_columns:
                    exists, first = (
                        exists & (first < tile.d_columns),
                        k.min(first, tile.d_columns - count),
                    )
                here = buffer.at((first, line) if tile.swap else (line, first))
                there = base + (number.to("u64") * matrix.leading + first.to("u64"))
                ends = (here, there) if store else (there, here)
                complete = first + count <= left
                with k.when(exists & complete):
                    _copy(*ends, count)
                for j in range(count if count > 1 else 0):
                    with k.when(exists & ~complete & (first + j < left)):
                        _copy(ends[0] + j, ends[1] + j, 1)


# --- copies of a tile ---------------------------------------------------------------------------


def tile_fragment(k: Builder, tile: EpilogueTile) -> Tensor:
    """Registers for a thread's elements of a tile."""
    shape = tile.mma.partition_shape_C((WGMMA_ROWS, tile.width))
    return k.make_rmem_tensor(shape, tile.type)


def copy_fragment(
    k: Builder, thread: Any, fragment: Tensor, buffer: Tensor, tile: EpilogueTile, *, loads: bool
) -> None:
    """Copy a thread's elements to a tile in shared memory, or from it (``loads``)."""
    with k.eliminate_common_subexpressions():
        if tile.size == 2:
            copy = tile.matrix_copy("ldmatrix" if loads else "stmatrix")
            slice_ = copy.thr_slice(thread)
            if loads:
                k.copy(copy, slice_.partition_S(buffer), slice_.retile(fragment))
            else:
                k.copy(copy, slice_.retile(fragment), slice_.partition_D(buffer))
            return
        there = tile.mma.thr_slice(thread).partition_C(buffer)
        k.copy(*((there, fragment) if loads else (fragment, there)))


def copy_by_tma(
    k: Builder, buffer: Tensor, map_: Any, at: Any, tile: EpilogueTile, barrier: Any
) -> None:
    """Store a tile at (along rows of D, across, batch) by tensor copies, or add it to what is
    there, or load it if there is a barrier.
    """
    store = k.tma_reduce if tile.accumulates else k.tma_store
    along, *others = (x for x in at if x is not None)
    for i in range(tile.d_columns // tile.copy_columns):
        here = (buffer.engine + i * tile.d_rows * tile.copy_columns).cast("b8")
        here_at = (along + i * tile.copy_columns if i else along, *others)
        if barrier is None:
            store(map_, here_at, here)
        else:
            k.tma_load(here, map_, here_at, barrier)


def _copy(source: Pointer, target: Pointer, count: int) -> None:
    """Copy ``count`` neighbouring elements by one access."""
    size = count * source.size
    words = f"b{min(8 * size, 32)}"
    loaded = source.cast(words).aligned(size).load(max(size // 4, 1))
    target.cast(words).aligned(size).store(loaded)
