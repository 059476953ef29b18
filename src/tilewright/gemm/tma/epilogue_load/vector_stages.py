"""Vector operands of an epilogue, such as a bias, in shared memory.

    epilogue load warp (epilogue_load_warp)         math warps of the work tile
        for each work tile:                             for each work tile:
            wait until the buffer is empty                  wait until the buffer is full
            load the elements that the tile meets,          for each epilogue tile: read rows and
            store them in their compute type                columns in the accumulators' layout
                                                            release the buffer

A buffer has all vectors of a work tile; with pingpong each warpgroup has its own. Elements are
permuted so that those of a thread are neighbours: of 16 columns a thread reads its 4 at once (0, 1,
8, 9 of the first threads), and of 16 rows its 2 (0 and 8).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from ....builder import Builder, PipelineAsync, Pointer
from ...epilogue.bound_epilogue import EpilogueOperandLayout
from ...epilogue.graph import EpilogueInput
from ...epilogue.operand_loads import EpilogueOperands, TileElements, load_vector
from ...epilogue.reference import compute_type
from ...problem import Problem
from ..tma_config import TmaConfig
from ..tma_epilogue import EpilogueTile
from ..tma_geometry import GROUP, VECTOR_BYTES, WGMMA_ROWS

WARP = 32
UNIT = 16  # elements that are permuted among themselves
LOADS_IN_FLIGHT = 4  # of a thread of the load warp


class SharedVector(NamedTuple):
    """A vector operand: its parameter, its layout in global memory, whether it varies along the
    tile's rows (else its columns), the elements that a tile meets, the bytes before it in a buffer.
    """

    name: str
    source: EpilogueInput
    layout: EpilogueOperandLayout
    by_rows: bool
    length: int
    offset: int

    @property
    def type(self) -> str:
        """The type of its elements in shared memory."""
        return compute_type(self.source.type)


@lru_cache(maxsize=256)
def shared_vectors(problem: Problem, config: TmaConfig) -> tuple[SharedVector, ...]:
    """The vector operands of the epilogue that go through shared memory."""
    if problem.epilogue is None or not config.shares_vectors(problem):
        return ()
    found, offset = [], 0
    for name, source, layout in problem.epilogue.shared_vectors():
        length = config.vector_length(problem, source.varies)
        by_rows = ("m" in source.varies) != config.swap
        found.append(SharedVector(name, source, layout, by_rows, length, offset))
        offset += VECTOR_BYTES * length
    return tuple(found)


class VectorStages:
    """The buffers of a CTA, and their pipeline."""

    def __init__(self, k: Builder, problem: Problem, config: TmaConfig) -> None:
        self.k, self.vectors, self.swap = k, shared_vectors(problem, config), config.swap
        self.buffers = 2 if config.pingpong else 1
        self.bytes = config.vector_bytes(problem) // self.buffers
        self.address = k.dynamic_shared(self.buffers * self.bytes, 16).address()
        readers = 1 if config.pingpong else config.storing_warpgroups(problem)
        self.pipeline = PipelineAsync(k, self.buffers, readers, WARP)


class VectorBuffer:
    """A buffer as its readers or its load warp (``loads``) use it. ``index``: of the buffer."""

    def __init__(self, stages: VectorStages, index: Any, *, loads: bool) -> None:
        self.k, self.loads = stages.k, loads
        self.full, self.empty = stages.pipeline.full + index, stages.pipeline.empty + index
        self.address = stages.address + index * stages.bytes
        self.turn = self.k.var("u32", int(loads))

    def wait(self) -> None:
        """Wait until the buffer is full, or empty if this side loads."""
        self.k.mbarrier_wait(self.empty if self.loads else self.full, self.turn)

    def advance(self) -> None:
        """Go to the next work tile."""
        self.k.xor(self.turn, 1, into=self.turn)

    def vector(self, vector: SharedVector) -> Pointer:
        """The first element of a vector."""
        first: Pointer = self.k.pointer("shared", vector.type, self.address + vector.offset)
        return first


class VectorLoad:
    """The side of an epilogue load warp, which loads all vectors of a work tile."""

    def __init__(self, stages: VectorStages, operands: EpilogueOperands, index: Any) -> None:
        self.k, self.vectors, self.operands = stages.k, stages.vectors, operands
        self.buffer = VectorBuffer(stages, index, loads=True)
        lane = self.k.laneid
        columns = (lane >> 1 & 3) * 4 + (lane >> 3 & 1) * 2 + (lane & 1)
        rows = (lane & 7) * 2 + (lane >> 3 & 1)
        self.lane, (self.row_position, self.column_position) = (
            lane,
            ((lane & -UNIT) + position for position in (rows, columns)),
        )

    def load(self, row: Any, column: Any, batch: Any) -> None:
        """Load what the work tile at (``row``, ``column``) of D meets. All lanes call it."""
        self.buffer.wait()
        for vector in self.vectors:
            self._load_vector(vector, row, column, batch)
        self.k.mbarrier_arrive(self.buffer.full)
        self.buffer.advance()

    def _load_vector(self, vector: SharedVector, row: Any, column: Any, batch: Any) -> None:
        """Each lane loads every 32nd element, some at a time."""
        k, by_m = self.k, "m" in vector.source.varies
        start = (row + self.lane, column) if by_m else (row, column + self.lane)
        position = self.row_position if vector.by_rows else self.column_position
        if vector.length % UNIT:
            position = self.lane
        there = self.buffer.vector(vector) + position
        firsts = range(0, vector.length, WARP)
        for i in range(0, len(firsts), LOADS_IN_FLIGHT):
            some = firsts[i : i + LOADS_IN_FLIGHT]
            offsets = [(first, 0) if by_m else (0, first) for first in some]
            elements = TileElements(*start, batch, offsets, 1)
            values = self.operands.load(vector.name, vector.source, vector.layout, elements)
            for first, value in zip(some, values, strict=True):
                rest = vector.length - first
                with k.when(self.lane < rest if rest < WARP else True):
                    (there + first).store(value)


class VectorReader:
    """The math warps' side: the operands' elements in the accumulators' layout. ``row``: the first
    row of the warpgroup in the work tile; ``thread``: of the warpgroup; ``tiles``: epilogue tiles
    of the warpgroup, all like ``tile``.
    """

    def __init__(
        self, stages: VectorStages, index: Any, row: Any, thread: Any, tile: EpilogueTile,
        tiles: int,
    ) -> None:  # fmt: skip
        self.k, self.vectors, self.tile, self.tiles = stages.k, stages.vectors, tile, tiles
        self.buffer = VectorBuffer(stages, index, loads=False)
        lane, warp = thread & 31, thread >> 5
        self.row, self.column = row + warp * UNIT + (lane >> 2) * 2, lane & 3

    def wait(self, number: int) -> None:
        """Wait until the vectors are there, before the first epilogue tile."""
        if number == 0:
            self.buffer.wait()
        self.read: dict[tuple[str, int], list[Any]] = {}

    def values(self, number: int, first: int, count: int) -> dict[str, list[Any]]:
        """A group of a thread's elements from ``first`` on in epilogue tile ``number``, for each
        vector by its name, as its compute type.
        """
        assert count == GROUP
        block, tile_column = divmod(number * self.tile.width, self.tile.columns)
        column = tile_column + first // GROUP * 8
        return {
            vector.source.name: self._row_values(vector, block)
            if vector.by_rows
            else self._column_values(vector, column)
            for vector in self.vectors
        }

    def _row_values(self, vector: SharedVector, block: int) -> list[Any]:
        """Those of two rows, for two columns each."""
        first, second = self._read(vector, self.row + block * WGMMA_ROWS, 2, block)
        return [first, first, second, second]

    def _column_values(self, vector: SharedVector, column: int) -> list[Any]:
        """Those of two columns, for two rows each."""
        unit = 8 if vector.length % UNIT else UNIT
        start, count = column // unit * unit, unit // 4
        read = self._read(vector, self.column * count + start, count, start)
        return 2 * read[(column - start) // 4 :][:2]

    def _read(self, vector: SharedVector, position: Any, count: int, key: int) -> list[Any]:
        """``count`` neighbours in shared memory, read once for an epilogue tile."""
        name = vector.source.name, key
        if name not in self.read:
            pointer = self.buffer.vector(vector) + position
            self.read[name] = load_vector(self.k, pointer, vector.type, count)
        return self.read[name]

    def release(self, number: int) -> None:
        """One thread releases the buffer after the last epilogue tile, when all have read it."""
        if number == self.tiles - 1:
            self.k.mbarrier_arrive(self.buffer.empty)

    def advance(self) -> None:
        """Go to the next work tile."""
        self.buffer.advance()
