"""Epilogue functions in kernel ``tma``: evaluates an epilogue graph and stores its outputs.

A warpgroup computes an epilogue tile of every output from its accumulators, stages each in a buffer
of its own in shared memory and stores them together. Matrix operands are read from stages that an
epilogue load warp fills (``epilogue_load``); other operands, and those that tensor copies cannot
load, are loaded from global memory in the layout of the accumulators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from ...builder import Builder, Pointer, fragment_registers
from ...dtypes import dtype
from ...layout import Tensor, make_identity_tensor, make_tensor
from ..epilogue.atomic_maxima import AtomicMaxima
from ..epilogue.bitmasks import BitmaskStores
from ..epilogue.emission import stored_words
from ..epilogue.operand_loads import EpilogueOperands, TileElements
from ..epilogue.tile_reductions import ReductionUnit, TileReductions
from ..kernel_scalars import global_pointer
from ..problem import Problem
from .epilogue_load.operand_stages import OperandReader, OperandStages
from .epilogue_load.vector_stages import VectorReader, VectorStages
from .tma_config import TmaConfig
from .tma_epilogue import (
    EpilogueTile,
    OutputTensor,
    TmaEpilogue,
    copy_by_tma,
)
from .tma_geometry import EPILOGUE_BUFFERS, GROUP, SHARED_ALIGNMENT, WGMMA_ROWS
from .tma_reductions import WARP_ROWS

# Accumulators of a thread at most with which it reads operands from shared memory ahead of its
# stores there, and the elements that it is ahead: a load after a store waits for it.
AHEAD_ACCUMULATORS, READ_AHEAD = 128, 2 * GROUP
# Lanes whose numbers differ in these bits hold other rows, or other columns, of the accumulators.
ROW_LANES, COLUMN_LANES = (4, 8, 16), (1, 2)


class StoredOutput(NamedTuple):
    """A tensor output: its number among the graph's outputs, its epilogue tile, where it is stored,
    the buffers that stage it.
    """

    number: int
    tile: EpilogueTile
    tensor: OutputTensor
    buffers: list[Tensor]


def output_tiles(problem: Problem, config: TmaConfig) -> tuple[EpilogueTile, ...]:
    """The epilogue tiles of D and the other tensor outputs, which have the same shape."""
    bound = problem.epilogue
    if bound is None:
        return (EpilogueTile.of(problem, config.stored),)
    return _output_tiles(problem, config)


@lru_cache(maxsize=256)
def _output_tiles(problem: Problem, config: TmaConfig) -> tuple[EpilogueTile, ...]:
    assert problem.epilogue is not None
    aligns = (problem.align_d, *(layout.align for layout in problem.epilogue.outputs))
    first = EpilogueTile.of(problem, config)
    width, columns = config.graph_epilogue_width(problem), config.d_tile(problem)[1]
    return tuple(
        replace(
            first, type=dtype(output.type), width=width, columns=columns, with_c=False,
            by_tma=align == 16, buffers=EPILOGUE_BUFFERS, together=False, align=align,
            accumulates=first.accumulates and output is problem.epilogue.graph.d,
        )
        for output, align in zip(problem.epilogue.graph.tensors, aligns, strict=True)
    )  # fmt: skip


def more_outputs(k: Builder, operands: EpilogueOperands) -> list[OutputTensor]:
    """The tensor outputs of an epilogue after D."""
    p = operands.parameters
    return [
        OutputTensor(
            getattr(p, f"map_{name}"), global_pointer(k, getattr(p, name)),
            getattr(p, f"{name}_m"), getattr(p, f"{name}_batch"),
        )
        for name, _, _ in operands.bound.named_outputs()
    ]  # fmt: skip


class TmaGraphEpilogue(TmaEpilogue):
    """Stores the outputs of an epilogue graph. ``tensors``: D and the other tensor outputs;
    ``stages``: of the operands that are in shared memory.
    """

    def __init__(
        self, k: Builder, problem: Problem, config: TmaConfig, shared: Any, index: Any,
        tensors: list[OutputTensor], operands: EpilogueOperands, limits: Any, barrier: Any,
        stages: Sequence[OperandStages | VectorStages],
    ) -> None:  # fmt: skip
        tiles = output_tiles(problem, config)
        one = k.const("f32", 1.0)
        super().__init__(
            k, tiles[0], shared, index, tensors[0], tensors[0], (one, one), limits, barrier
        )
        self.operands, self.pair = operands, problem.pair
        self.tiles = config.graph_epilogue_tiles(problem)
        self.readers = [self._reader(x, config, problem) for x in stages]
        self.ahead = READ_AHEAD if config.accumulator_registers <= AHEAD_ACCUMULATORS else 0
        self.copied_to = any(isinstance(reader, OperandReader) for reader in self.readers)
        assert problem.epilogue is not None
        indices = [i for i, o in enumerate(operands.bound.graph.outputs) if o.reduction == "tensor"]
        self.outputs = []
        for i, tile, tensor in zip(indices, tiles, tensors, strict=True):
            pitch = -(-tile.bytes // SHARED_ALIGNMENT) * SHARED_ALIGNMENT
            first, step = k.pointer("shared", tile.type, shared), pitch // tile.size
            buffers = [make_tensor(first + j * step, tile.layout) for j in range(tile.buffers)]
            self.outputs.append(StoredOutput(i, tile, tensor, buffers))
            shared = shared + tile.buffers * pitch
        self.offsets = self._offsets()
        reduced = k, operands.bound, operands.parameters, limits
        self.reductions = TileReductions(*reduced)
        rows_are_aligned = any(o.tile.by_tma for o in self.outputs)  # to 16 bytes, so N is even
        together = 2 if rows_are_aligned and not config.swap else 1
        self.maxima = AtomicMaxima(*reduced, by_rows=not config.swap, together=together)
        lanes = ROW_LANES if config.swap else COLUMN_LANES
        self.bitmasks = BitmaskStores(*reduced, lanes)

    def _reader(
        self, stages: OperandStages | VectorStages, config: TmaConfig, problem: Problem
    ) -> OperandReader | VectorReader:
        if isinstance(stages, OperandStages):
            return OperandReader(stages, self.index, self.thread)
        zero = self.k.const("u32", 0)
        row = zero if config.pingpong else self.index * config.d_warpgroup_rows(problem)
        buffer = self.index if config.pingpong else zero
        return VectorReader(stages, buffer, row, self.thread, self.tile, self.tiles)

    def run(self, acc: list[list[Any]], row: Any, column: Any, batch: Any) -> None:
        """Store the outputs of 64-row blocks, and combine their maxima."""
        self._limit_rows()
        self.maxima.begin()
        super().run(self._elements_of(acc), row, column, batch)
        self.maxima.store(None if self.reductions.joined else batch)

    def _limit_rows(self) -> None:
        """Of a group reduce the rows that exist."""
        if self.rows is None:
            return
        end = self.rows.first + self.rows.count
        self.maxima.limits = end, self.limits[1]
        for outputs in (self.reductions, self.bitmasks):
            outputs.row_end, outputs.joined = end, self.rows.joined

    def _elements_of(self, acc: list[list[Any]]) -> list[list[Any]]:
        """A tuple for each element of the blocks, of one accumulator or of both products'
        accumulators.
        """
        halves, middle = [acc], len(acc) // 2
        if self.pair and self.tile.swap:
            halves = [acc[:middle], acc[middle:]]
        elif self.pair:
            middle = len(acc[0]) // 2
            halves = [[block[:middle] for block in acc], [block[middle:] for block in acc]]
        blocks = zip(*halves, strict=True)
        return [list(zip(*block, strict=True)) for block in blocks]

    def _offsets(self) -> list[tuple[int, int]]:
        """(row, column) of each accumulator of a thread in a tile, from those of the first."""
        shape = (WGMMA_ROWS, self.tile.width)
        coordinates = self.tile.mma.thr_slice(0).partition_C(make_identity_tensor(shape))
        return [tuple(coordinates[i]) for i in range(coordinates.size())]

    def _store_tiles(self, tiles: list[tuple[list[Any], Any]], number: int) -> None:
        """Compute, stage and store one tile of each output."""
        k = self.k
        ((accumulators, at),) = tiles
        elements = self._elements(at)
        staged = [(o, o.buffers[number % o.tile.buffers]) for o in self.outputs]
        by_tma = [o for o in staged if o[0].tile.by_tma]
        if by_tma:
            with k.when(self.leader):
                k.bulk_wait(EPILOGUE_BUFFERS - 1 if number else 0, read=True)
        self._synchronize()
        for reader in self.readers:
            reader.wait(number)
        self.reductions.begin(elements, self._unit(at))
        self._evaluate(accumulators, elements, number, [buffer for _, buffer in staged])
        self.maxima.end_lines(elements)
        if by_tma or self.copied_to:
            k.fence_async()
        self._synchronize()
        if by_tma:
            with k.when(self.leader):
                for output, buffer in by_tma:
                    there = self._map_coordinates(at)
                    copy_by_tma(k, buffer, output.tensor.map, there, output.tile, None)
                k.bulk_commit()
        self._release(number)
        for output, buffer in staged:
            if not output.tile.by_tma:
                self._copy_by_threads(buffer, output.tensor, at, output.tile, store=True)

    def _release(self, number: int) -> None:
        """Release the operands of a tile, which all threads have read."""
        for reader in self.readers:
            with self.k.when(self.leader):
                reader.release(number)
            if number == self.tiles - 1:
                reader.advance()

    def _evaluate(
        self, accumulators: list[Any], elements: TileElements, number: int, buffers: list[Tensor]
    ) -> None:
        """Stage a tile of each tensor output, and add its elements to the reductions: a few
        elements at a time, so that few values are in registers beside the accumulators.
        """
        stagings = [
            OutputStaging(self.k, self.thread, buffer, output.tile)
            for output, buffer in zip(self.outputs, buffers, strict=True)
        ]
        for i in range(0, len(accumulators), GROUP):
            part = replace(elements, offsets=elements.offsets[i : i + GROUP])
            loaded = self._read(number, i)
            if i + self.ahead < len(accumulators):
                self._read(number, i + self.ahead)
            group = self.operands.values(accumulators[i : i + GROUP], part, loaded)
            for output, staging in zip(self.outputs, stagings, strict=True):
                staging.add(group[output.number])
            self.reductions.add(group, part)
            self.maxima.add(group, part)
            if self.tile.swap:
                self.bitmasks.add(group, part, True)
            else:
                self.bitmasks.add_pairs(group, part, i // GROUP, len(accumulators) // GROUP)

    def _read(self, number: int, first: int) -> dict[str, list[Any]]:
        """A group of the elements of operands that are in shared memory, which are read once."""
        loaded: dict[str, list[Any]] = {}
        for reader in self.readers:
            loaded |= reader.values(number, first, GROUP)
        return loaded

    def _elements(self, at: Any) -> TileElements:
        """This thread's elements of D in the tile at (along D's rows, across, batch)."""
        tile = self.tile
        along, across, batch = at
        lane, warp = self.thread & 31, self.thread >> 5
        row, column = warp * 16 + (lane >> 2), (lane & 3) * 2
        if tile.swap:  # the tile's columns are rows of D
            offsets = [(column, row) for row, column in self.offsets]
            return TileElements(across + column, along + row, batch, offsets, 1)
        return TileElements(across + row, along + column, batch, self.offsets, 2)

    def _unit(self, at: Any) -> ReductionUnit:
        """This warp's unit of the tile at (along D's rows, across, batch)."""
        along, across, _ = at
        first, width = (self.thread >> 5) * WARP_ROWS, self.tile.width
        if self.tile.swap:
            return ReductionUnit(width, WARP_ROWS, across, along + first, COLUMN_LANES, ROW_LANES)
        return ReductionUnit(WARP_ROWS, width, across + first, along, ROW_LANES, COLUMN_LANES)

    def drain(self) -> None:
        """Wait until the stores have read shared memory, before the CTA ends."""
        if any(o.tile.by_tma for o in self.outputs):
            with self.k.when(self.leader):
                self.k.bulk_wait(0, read=True)


class OutputStaging:
    """Stages an epilogue tile of an output in ``buffer`` by groups of a thread's elements, in the
    accumulators' order: those of 16 bits by ``stmatrix``, others by pairs of neighbours of a row.
    ``thread``: of the warpgroup.
    """

    def __init__(self, k: Builder, thread: Any, buffer: Tensor, tile: EpilogueTile) -> None:
        self.k, self.tile, self.stored = k, tile, 0
        self._words: list[Any] = []  # that wait for the rest of their instruction
        with k.eliminate_common_subexpressions():
            if tile.size == 2:
                self._copy = tile.matrix_copy("stmatrix")
                slice_ = self._copy.thr_slice(thread)
                shape = tile.mma.partition_shape_C((WGMMA_ROWS, tile.width))
                self._fragment = slice_.retile(k.make_rmem_tensor(shape, tile.type))
                self._there = slice_.partition_D(buffer)
            else:
                self._there = tile.mma.thr_slice(thread).partition_C(buffer)

    def add(self, values: Sequence[Any]) -> None:
        """Stage the next group."""
        if self.tile.size == 2:
            self._store_matrices(values)
        elif self.tile.size == 1:
            self._store_bytes(values)
        else:
            self._store_words(values)

    def _store_matrices(self, values: Sequence[Any]) -> None:
        """An ``stmatrix``, when all its words are complete."""
        self._words += stored_words(self.k, values, self.tile.type.name)
        fragment = self._fragment[(None, self.stored), 0, 0]
        registers = fragment_registers(fragment)
        if len(self._words) < len(registers):
            return
        for register, word in zip(registers, self._words, strict=True):
            self.k.mov(word, into=register)
        self.k.copy(self._copy, fragment, self._next())
        self._words = []

    def _store_bytes(self, values: Sequence[Any]) -> None:
        """Pairs of neighbours of a row: 16 bits, or (swapped) a byte for each row of D."""
        there = self._next()
        for i in range(0, GROUP, 2):
            (pair,) = stored_words(self.k, values[i : i + 2], self.tile.type.name)
            if not self.tile.swap:
                self._at(there, i).cast("b16").aligned(2).store(pair)
                continue
            for j, byte in enumerate((pair.view("u16"), pair.view("u16") >> 8), i):
                self._at(there, j).cast("u8").store(byte.to("u8"))

    def _store_words(self, values: Sequence[Any]) -> None:
        there = self._next()
        words = stored_words(self.k, values, self.tile.type.name)
        step = 1 if self.tile.swap else 2
        for i in range(0, GROUP, step):
            end = self._at(there, i).aligned(step * self.tile.size)
            end.store(words[i : i + step])

    def _at(self, there: Tensor, index: int) -> Pointer:
        with self.k.eliminate_common_subexpressions():
            pointer: Pointer = there.at(index)
        return pointer

    def _next(self) -> Tensor:
        """What the next instruction, or the next group, writes."""
        with self.k.eliminate_common_subexpressions():
            modes = (None,) if self.tile.size == 2 else (None, None)
            there: Tensor = self._there[(*modes, self.stored), 0, 0]
        self.stored += 1
        return there
