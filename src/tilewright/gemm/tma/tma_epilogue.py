"""The way out of kernel ``tma``: D = α·acc + β·C, rounded once into D's format.

A warpgroup lays a part of its sums, 64 rows by a few columns, down in shared memory as lines along
D's rows, and one copy takes them to global memory while the next part is laid down. C comes the
same way, to the place from which D then leaves. Where D's or C's lines don't begin at multiples of
16 bytes, threads move them element by element instead.

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
    make_smem_layout,
    make_tiled_copy_C,
    make_tiled_mma,
)
from ..problem import Problem
from .tma_config import WARPGROUP, WGMMA_ROWS, TmaConfig
from .tma_operand import GlobalMatrix

SUMS = "wgmma.mma_async.sync.aligned.m64n{}k16.f32.f16.f16"  # where sums stand is one for all types


@dataclass(frozen=True)
class EpilogueTile:
    """Tile in which a warpgroup stores D: 64 rows (of a wgmma) by ``width`` of the ``columns``
    columns. ``swap``: the kernel computes Dᵀ, so the tile's columns are rows of D.
    """

    type: DType
    sums: str
    width: int
    columns: int
    swap: bool
    with_c: bool
    copied: bool  # D and C by tensor copies
    buffers: int  # for parts
    at_once: bool  # a buffer for each part, and one barrier
    align: int = 16  # bytes that are moved at once, where not
    scaled: bool = True

    @classmethod
    def of(cls, problem: Problem, config: TmaConfig) -> EpilogueTile:
        copied = problem.align_d == 16 and (problem.align_c == 16 or not problem.with_c)
        out, columns = problem.output, config.tile[1]
        width = config.epilogue_width(out.bits)
        align = min(problem.align_d, problem.align_c if problem.with_c else 16)
        with_c, buffers = problem.with_c, config.epilogue_buffers(out.bits)
        at_once = copied and not with_c and config.stores_together(out.bits)
        return cls(
            out,
            problem.accumulator_type,
            width,
            columns,
            config.swap,
            with_c,
            copied,
            buffers,
            at_once,
            align,
        )

    @classmethod
    def of_sums(cls, problem: Problem, config: TmaConfig) -> EpilogueTile:
        """For sums over a part of K, as they are."""
        kind, width = dtype(problem.accumulator_type), config.epilogue_width(32)
        columns, buffers, at_once = (
            config.tile[1],
            config.epilogue_buffers(32),
            config.stores_together(32),
        )
        return cls(
            kind, problem.accumulator_type, width, columns, config.swap, False, True, buffers,
            at_once, scaled=False,
        )  # fmt: skip

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return self.type.bits // 8

    @property
    def bytes(self) -> int:
        """Bytes of a part."""
        return WGMMA_ROWS * self.width * self.size

    @cached_property
    def layout(self) -> ComposedLayout:
        """A part in shared memory: (row, column) → element."""
        major, order = ("MN", (1, 0)) if self.swap else ("K", (0, 1))
        made = make_smem_layout(self.type, major, (WGMMA_ROWS, self.width), order=order)
        assert isinstance(made, ComposedLayout)
        return made

    @property
    def swizzle(self) -> int:
        return 16 << self.layout.outer.bits

    @property
    def lines(self) -> int:
        """Rows of D in a part."""
        return self.width if self.swap else WGMMA_ROWS

    @property
    def length(self) -> int:
        """Elements of each."""
        return WGMMA_ROWS if self.swap else self.width

    @property
    def line(self) -> int:
        """Elements of them that one copy takes."""
        return self.swizzle // self.size

    def map(self, matrix: GlobalMatrix) -> TensorMap:
        """The map with which D leaves and C comes."""
        return matrix.map(self.type.name, (self.line, self.lines), self.swizzle)

    @cached_property
    def mma(self) -> TiledMma:
        """Which thread holds which sums of a part."""
        return make_tiled_mma(SUMS.format(self.width))

    def matrices(self, move: str) -> TiledCopy:
        """ldmatrix or stmatrix between a thread's numbers of 16 bits and shared memory."""
        count = 4 if self.width % 16 == 0 else 2
        trans = ".trans" if self.swap else ""
        atom = CopyAtom(f"{move}.sync.aligned.m8n8.x{count}{trans}.shared.b16", self.type)
        return make_tiled_copy_C(atom, self.mma)


@dataclass
class OutputTensor:
    """D or C in a kernel: its map, or a pointer to its bytes, where its lines and matrices are."""

    map: Any
    pointer: Pointer
    leading: Any
    apart: Any


class TmaEpilogue:
    """Writes a warpgroup's sums out. ``shared``: the address of its own buffers, ``index``: its
    number; ``limits``: rows and columns of D; ``barriers``: where C's arrival is told.
    """

    def __init__(
        self, k: Builder, way: EpilogueTile, shared: Any, index: Any, d: OutputTensor,
        c: OutputTensor, scale: Any, limits: Any, barriers: Pointer,
    ) -> None:  # fmt: skip
        self.k, self.way, self.d, self.c, self.index = k, way, d, c, index
        self.alpha, self.beta = scale
        self.limits = limits
        self.barriers = barriers
        self.thread = k.tid.x & (WARPGROUP - 1)
        self.first = self.thread == 0
        first, step = k.pointer("shared", way.type, shared), way.bytes // way.size
        self.tiles = [make_tensor(first + i * step, way.layout) for i in range(way.buffers)]
        self.use_c = self.beta != 0.0 if way.with_c else None
        self.phase = k.var("u32", 0) if way.with_c else None

    def barrier(self) -> None:
        """Of this warpgroup."""
        self.k.emit("bar.sync", self.index + 1, WARPGROUP)

    def run(self, acc: list[list[Any]], row: Any, column: Any, batch: Any) -> None:
        """Write the sums of blocks of ``WGMMA_ROWS`` rows, the first at (``row``, ``column``)."""
        way = self.way
        numbers = range(len(acc) * (way.columns // way.width))
        for group in [numbers] if way.at_once else [[number] for number in numbers]:
            self._leave([self._part(acc, number, row, column, batch) for number in group], group[0])

    def _part(
        self, acc: list[list[Any]], number: int, row: Any, column: Any, batch: Any
    ) -> tuple[list[Any], Any]:
        """A part's sums, and its place in D."""
        way, per = self.way, self.way.width // 2  # sums of a thread
        block, part = divmod(number, way.columns // way.width)
        corner = row + block * WGMMA_ROWS, column + part * way.width
        place = corner if way.swap else corner[::-1]  # along D's rows, across them
        return acc[block][part * per : part * per + per], (*place, batch)

    def _leave(self, parts: list[tuple[list[Any], Any]], number: int) -> None:
        """Parts behind one another, the first of them the ``number``-th, behind one barrier."""
        k, way = self.k, self.way
        tiles = [self.tiles[(number + i) % way.buffers] for i in range(len(parts))]
        if way.copied:
            with k.when(self.first):
                k.bulk_wait(way.buffers - 1 if number else 0, read=True)
        self.barrier()
        for (sums, place), tile in zip(parts, tiles, strict=True):
            held = self._fetch(tile, place) if way.with_c else None
            self._lay(self._values(sums, held), tile)
        if way.copied:
            k.fence_async()
        self.barrier()
        if not way.copied:
            for (_, place), tile in zip(parts, tiles, strict=True):
                self._move(tile, self.d, place, out=True)
            return
        with k.when(self.first):
            for (_, place), tile in zip(parts, tiles, strict=True):
                self._copies(tile, self.d, place, None)
            k.bulk_commit()

    def end(self) -> None:
        """What was sent has left shared memory before the CTA ends."""
        if self.way.copied:
            with self.k.when(self.first):
                self.k.bulk_wait(0, read=True)

    # --- registers and shared memory ---

    def _held(self) -> Tensor:
        shape = self.way.mma.partition_shape_C((WGMMA_ROWS, self.way.width))
        return self.k.make_rmem_tensor(shape, self.way.type)

    def _lay(self, values: list[Any], tile: Tensor) -> None:
        """A thread's numbers, converted, to their places."""
        k, way = self.k, self.way
        held = self._held()
        words = fragment_registers(held)
        if way.size == 2:
            pairs = zip(words, values[0::2], values[1::2], strict=True)
            for word, low, high in pairs:
                k.emit(f"cvt.rn.{way.type.name}x2.f32", high, low, into=word)
        else:
            for word, value in zip(words, values, strict=True):
                k.mov(value, into=word)
        self._between(held, tile, loads=False)

    def _between(self, held: Tensor, tile: Tensor, *, loads: bool) -> None:
        k, way = self.k, self.way
        with k.eliminate_common_subexpressions():
            if way.size == 2:
                copy = way.matrices("ldmatrix" if loads else "stmatrix")
                thread = copy.thr_slice(self.thread)
                if loads:
                    k.copy(copy, thread.partition_S(tile), thread.retile(held))
                else:
                    k.copy(copy, thread.retile(held), thread.partition_D(tile))
                return
            places = way.mma.thr_slice(self.thread).partition_C(tile)
            k.copy(*((places, held) if loads else (held, places)))

    def _fetch(self, tile: Tensor, place: Any) -> Tensor:
        """C's part in registers, where β is not 0."""
        k, way = self.k, self.way
        held = self._held()
        with k.if_(self.use_c):
            if way.copied:
                with k.when(self.first):
                    k.mbarrier_arrive(self.barriers, bytes=way.bytes)
                    self._copies(tile, self.c, place, self.barriers)
                k.mbarrier_wait(self.barriers, self.phase)
                k.xor(self.phase, 1, into=self.phase)
            else:
                self._move(tile, self.c, place, out=False)
                self.barrier()
            self._between(held, tile, loads=True)
            self.barrier()
        return held

    def _values(self, sums: list[Any], held: Tensor | None) -> list[Any]:
        """What D's elements are, before they are rounded."""
        k, way = self.k, self.way
        whole = way.sums == "s32"
        scaled = way.scaled and not whole
        if held is None:
            return [self.alpha * v for v in sums] if scaled else sums
        made = []
        for i, v in enumerate(sums):
            value, before = self.alpha * v if scaled else v, held[i]
            before = before if before.dtype.name in ("f32", "s32") else before.to("f32")
            total = value + before if whole else k.fma(self.beta, before, value)
            made.append(k.select(self.use_c, total, value))
        return made

    # --- shared and global memory ---

    def _copies(self, tile: Tensor, matrix: OutputTensor, place: Any, barrier: Any) -> None:
        """A part by tensor copies: out, or in where there is a barrier."""
        k, way = self.k, self.way
        along, across, batch = place
        more = () if batch is None else (batch,)
        for i in range(way.length // way.line):
            here = (tile.engine + i * way.lines * way.line).cast("b8")
            at = (along + i * way.line if i else along, across, *more)
            if barrier is None:
                k.tma_store(matrix.map, at, here)
            else:
                k.tma_load(here, matrix.map, at, barrier)

    def _move(self, tile: Tensor, matrix: OutputTensor, place: Any, *, out: bool) -> None:
        """A part by threads, a warp along a row of D: as many neighbours at once as lie together in
        memory, and singly where they cross D's edge.
        """
        k, way = self.k, self.way
        along, across, batch = place
        lane, warp = self.thread & 31, self.thread >> 5
        count = min(way.align // way.size, way.length)
        start = across.to("u64") * matrix.leading + along.to("u64")
        if batch is not None:
            start = start + batch.to("u64") * matrix.apart
        base = matrix.pointer.cast(way.type) + start
        left = k.max(self.limits[1].view("s32") - along.view("s32"), 0).view("u32")
        for line in k.range(warp, way.lines, WARPGROUP // 32, unroll=False):
            exists = across + line < self.limits[0]
            for i in range(0, way.length, 32 * count):
                first = lane * count + i
                if i + 32 * count > way.length:
                    exists, first = exists & (first < way.length), k.min(first, way.length - count)
                here = tile.at((first, line) if way.swap else (line, first))
                there = base + (line.to("u64") * matrix.leading + first.to("u64"))
                ends = (here, there) if out else (there, here)
                whole = first + count <= left
                with k.when(exists & whole):
                    _copy(*ends, count)
                for j in range(count if count > 1 else 0):
                    with k.when(exists & ~whole & (first + j < left)):
                        _copy(ends[0] + j, ends[1] + j, 1)


def _copy(source: Pointer, target: Pointer, count: int) -> None:
    """So many neighbours at once."""
    size = count * source.size
    words = f"b{min(8 * size, 32)}"
    loaded = source.cast(words).aligned(size).load(max(size // 4, 1))
    target.cast(words).aligned(size).store(loaded)
