"""Kernel ``simt``: cp.async into a ring of stages, FFMA: f32 without tensor cores, sm_80 and later.

An accumulator begins at +0 and adds products in ascending k, one ``fma.rn`` each; subnormals are
kept. Without slices and split-K each element of D has one accumulator, so its bits depend on the
matrices alone. S slices divide each k-tile of BK: slice s has the k of which k' mod BK is from
s·BK/S on, where k' counts so that K ends with a whole k-tile. Split-K divides the k-tiles in order.
D is the sum over the parts of split-K of the sums over the slices, each in order.

In shared memory both operands are MN-major: a thread loads its rows and columns of a k as vectors
of 16 bytes. An operand that is K-major in global memory is transposed by copies of 4 bytes; its
pitch is 4 elements more than the tile, so that 8 neighbours along K of 4 rows are in 32 banks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, product
from typing import Any

from ...builder import Builder, Reg, Traced, fragment_registers
from ...layout import Layout, Tensor, make_tensor
from ...mma import CopyAtom, UniversalCopy
from ...target import DeviceSpec
from ..epilogue.output_stores import OutputStores
from ..kernel_launch import KernelArguments, MatrixStrides
from ..parameter_declaration import parameter
from ..problem import Problem
from ..workspace import unit_shape
from . import cp_async_mainloop, cp_async_parameters
from .cp_async_epilogue import OutputMatrix
from .cp_async_mainloop import CpAsyncMainloop, exhaust, traced
from .simt_config import FLOAT, TYPE, VECTOR, SimtConfig
from .simt_edges import copy_bytes, ends_inside, is_staged, store_width
from .simt_epilogue import Block, EdgeEpilogue, blocks, store_partials, summed_blocks
from .simt_launch import SimtParameters, raster_values, tile_coordinates
from .simt_operand import SimtOperand, SimtTile, operands
from .simt_staging import staged_lines


@dataclass(frozen=True)
class SplitKSimtParameters(SimtParameters):
    """With split-K the result is written to the workspace."""

    d: Reg = parameter("u64", address="w")


def kernel_arguments(
    problem: Problem, config: SimtConfig, strides: Mapping[str, MatrixStrides], device: DeviceSpec
) -> KernelArguments:
    """The parameter block for matrices with these strides."""
    more = raster_values(problem, config)
    if not config.has_partials:
        return cp_async_parameters.kernel_arguments(
            problem, config, strides, device, SimtParameters, more
        )
    inputs = {x: stride for x, stride in strides.items() if x in "ab"}
    shown = _partial_problem(problem)
    return cp_async_parameters.packed(SplitKSimtParameters, shown, inputs, more)


def problem_class(problem: Problem, config: SimtConfig) -> Problem:
    """The problem that represents all with the same kernel. With split-K the kernel stores partial
    accumulators, and the reduction kernel reads C and writes D.
    """
    shown = _partial_problem(problem) if config.has_partials else problem
    align_a, align_b = (copy_bytes(problem, config, side) for side in range(2))
    found = cp_async_mainloop.problem_class(shown, config)
    m, n = (
        _representative(problem, config, side, size) for side, size in enumerate((found.m, found.n))
    )
    return replace(found, m=m, n=n, align_a=align_a, align_b=align_b)


def _representative(problem: Problem, config: SimtConfig, side: int, found: int) -> int:
    """The M (side 0) or N (1) of the problem that represents a class: more than a tile if the last
    tile ends with the matrix, else less; a multiple of a copy's elements.
    """
    tile, align = config.tile[side], copy_bytes(problem, config, side)
    if found == tile:
        return tile
    rest = max(found - tile, align // FLOAT)
    return tile + rest if ends_inside(problem, config, side) else rest


def config_class(config: SimtConfig) -> SimtConfig:
    """The configuration that represents all with the same kernel: the launch has the number of
    parts of split-K, unless they are a cluster.
    """
    return config if config.in_cluster else replace(config, split=min(config.split, 2))


def _partial_problem(problem: Problem) -> Problem:
    """The problem whose result is the accumulator."""
    return replace(
        problem, with_c=False, accumulates_c=False, align_c=16, align_d=16, epilogue=None, d=TYPE
    )


def build(problem: Problem, config: SimtConfig) -> Traced:
    """Trace the kernel, once for all problems of the same class."""
    return _build(problem_class(problem, config), config_class(config))


@lru_cache(maxsize=256)
def _build(problem: Problem, config: SimtConfig) -> Traced:
    bm, bn, bk = config.tile
    name = f"simt_{problem.a}_{problem.layout}_{bm}x{bn}x{bk}"

    return traced(SimtKernel, name, problem, config, SimtParameters)


class SimtKernel(CpAsyncMainloop):
    """The body of the kernel: the K of a fragment is 1, products are FFMAs."""

    part = 1
    tile_type = SimtTile

    def __init__(
        self, k: Builder, problem: Problem, config: SimtConfig, parameters: SimtParameters
    ) -> None:
        shared = k.dynamic_shared(config.shared_bytes, 128)
        super().__init__(k, problem, config, operands(problem, config), shared, parameters)
        self.parameters = parameters
        self.split, self.slices = config.split, config.slices
        self.moved = tuple(ends_inside(problem, config, side) for side in range(2))

    def inputs(self, a: tuple[Reg, Reg], b: tuple[Reg, Reg], depth: Reg, index: Any) -> None:
        super().inputs(a, b, depth, index)
        bk = self.config.tile[2]
        if self.problem.k % bk:
            lead = (depth + (bk - 1)) // bk * bk - depth
            here = self.k.select(self.start_k == 0, lead, 0) if self.split > 1 else lead
            for tile in self._simt_tiles():
                tile.begin(lead, here)

    def tile_at(self, index: Any) -> tuple[Any, Any]:
        """Where the tile begins. A last one that would pass the end of the matrix begins earlier,
        and stores what is from ``owned`` on.
        """
        tile = tile_coordinates(self.k, self.parameters, index, self.config.group)
        self.owned = tile[0] * self.config.tile[0], tile[1] * self.config.tile[1]
        row, column = (
            self.k.min(first, limit - tile) if moved else first
            for first, limit, tile, moved in zip(
                self.owned, self.limits, self.config.tile, self.moved, strict=False
            )
        )
        return row, column

    def _copies(self, enabled: Any) -> Iterator[None]:
        """The copies of the next k-tile; only those of a CTA's first one compare k."""
        if self.config.stages == 1:
            for tile in self._simt_tiles():
                tile.continue_at(self.first_k == self.start_k)
            return super()._copies(enabled)
        return chain(super()._copies(enabled), self._end_first())

    def _simt_tiles(self) -> Iterator[SimtTile]:
        return (tile for tile in self.tiles if isinstance(tile, SimtTile))

    def _end_first(self) -> Iterator[None]:
        for tile in self._simt_tiles():
            tile.lead = None
        yield from ()

    def part_of_k(self, blocks: Reg) -> tuple[Any, Any]:
        """The first parts have one k-block more where the number of parts does not divide them."""
        part, parts = self.k.ctaid.y, self.k.nctaid.y
        each = blocks // parts
        more = blocks - each * parts
        return each * part + self.k.min(part, more), self.k.select(part < more, each + 1, each)

    # --- fragments ---

    def partition(self) -> None:
        self.addresses, fragments = [], []
        for side, tile in enumerate(self.tiles):
            operand = self.parts[side]
            assert isinstance(operand, SimtOperand)
            layout, engine = operand.thread_layout(self.config.share(side)), tile.tile.engine
            each = operand.depth // self.slices
            if self.slices > 1:
                number = self.k.tid.x // self.config.slice_threads
                engine = engine + number * (each * operand.pitch)
            mine = make_tensor(engine, layout)[self.k.tid.x, None, None]
            vectors, depth = range(layout.size(1) // VECTOR), range(each)
            self.addresses.append([[mine.at(((0, v), i)) for v in vectors] for i in depth])
            fragments.append(self.k.make_rmem_tensor((VECTOR, len(vectors), 2), TYPE))
        self.fragments = fragments
        self.a, self.b = (
            [list(fragment_registers(x[None, None, half])) for half in range(2)] for x in fragments
        )

    def clear(self) -> None:
        rows, columns = self.config.thread_tile
        acc = self.k.make_rmem_tensor(Layout((columns, rows)), TYPE)
        self.k.clear(acc)
        self.accumulators = [list(fragment_registers(acc[None, i])) for i in range(rows)]

    def loads(self, part: int, stage: Any) -> Iterator[None]:
        wide = CopyAtom(UniversalCopy(32 * VECTOR), TYPE)
        for fragments, addresses in zip(self.fragments, self.addresses, strict=True):
            for v, pointer in enumerate(addresses[part]):
                vector = Tensor(pointer.add_bytes(stage), Layout(VECTOR))
                self.k.copy(wide, vector, fragments[None, v, part % 2])
                yield

    def interleaved(self, part: int, parts: int, copies: Iterator[None]) -> Iterator[None]:
        """All copies are started together: ptxas puts three idle instructions before a cp.async
        that does not follow another.
        """
        if part == 0:
            exhaust(copies)
        return super().interleaved(part, parts, copies)

    def product(self, part: int, row: int, column: int) -> None:
        accumulator = self.accumulators[row][column]
        self.k.fma(self.a[part % 2][row], self.b[part % 2][column], accumulator, into=accumulator)

    def end_part(self, part: int, columns: range) -> None:
        """An FMA adds to the accumulator itself."""

    # --- the epilogue ---

    def run(self, d: OutputMatrix, c: OutputMatrix | None, scale: tuple[Reg, Reg]) -> None:
        self.prologue()
        self.mainloop()
        self._free_shared()
        if self.config.has_partials:
            store_partials(self.k, self.config, d.pointer, self._mine(), self._blocks())
        else:
            self._store(d, c, scale)

    def _mine(self) -> tuple[Any, Any]:
        """This thread's first row and column of the tile's accumulators."""
        row, column = (self.config.share(side)[0](self.k.tid.x) for side in range(2))
        return row, column

    def _free_shared(self) -> None:
        """Wait until no thread reads the stages, where the epilogue uses shared memory."""
        config = self.config
        if config.slices > 1 or config.in_cluster or is_staged(self.problem, config):
            self.k.cp_async_wait(0)
            self.k.barrier()

    def _blocks(self) -> Iterator[Block]:
        """The blocks of D that this thread stores."""
        if self.config.slices == 1 and not self.config.in_cluster:
            return blocks(self.config, self.accumulators)
        return summed_blocks(self.k, self.config, self.accumulators, self.shared)

    def _store(self, d: OutputMatrix, c: OutputMatrix | None, scale: tuple[Reg, Reg]) -> None:
        """Store D = α·accumulators + β·C: each thread its own lines of neighbours in a row."""
        config, problem = self.config, self.problem
        bm, bn, _ = config.tile
        full = problem.m % bm == 0 and problem.n % bn == 0
        staged = is_staged(problem, config)
        width = store_width(problem) if staged else VECTOR
        mine, lines = self._staged(width) if staged else (self._mine(), self._lines())
        first = tuple(f + x for f, x in zip(self.first, mine, strict=True))
        if c is not None and self.moved[1]:  # rows of the tile begin where D's rows permit it
            c = replace(c, align=min(c.align, d.align))
        out = EdgeEpilogue(self.k, problem, full, d, c, width * FLOAT)
        out.begin(self.limits, scale)
        out.owned, out.moved = self.owned, self.moved
        d_tile = out.tile(d, config.tile, first)
        c_tile = None if c is None else out.tile(c, config.tile, first)
        if d.graph and d.graph.reductions.outputs:
            self._store_units(d.graph, d.batch, first, full)
            return

        def vectors() -> Iterator[tuple[Any, ...]]:
            for place, accumulators in lines:
                at = None
                if not out.anywhere:
                    at = tuple(f + p for f, p in zip(first, place, strict=True))
                c_pointer = None if c_tile is None else c_tile.at(place)
                yield list(accumulators), at, d_tile.at(place), c_pointer

        out.store_vectors(vectors())

    def _staged(self, width: int) -> Any:
        return staged_lines(self.k, self.config, self.accumulators, self.shared, width)

    def _lines(self) -> Iterator[tuple[tuple[Any, Any], Sequence[Reg]]]:
        """The rows of 4 columns that this thread stores: where, and their accumulators."""
        if self.slices > 1 or self.config.in_cluster:
            for row, column, lines in self._blocks():
                yield from (((row + i, column), line) for i, line in enumerate(lines))
            return
        rows, vectors = self.config.share(0)[1], self.config.share(1)[1][1]
        for i, v in product(range(rows.size()), range(vectors.size())):
            yield (rows(i), vectors(v)), self.accumulators[i][VECTOR * v : VECTOR * (v + 1)]

    def _store_units(
        self, outputs: OutputStores, batch: Any, first: tuple[Any, ...], full: bool
    ) -> None:
        """Store the outputs of an epilogue function with reductions: a block of this thread is its
        part of a unit.
        """
        for row, column, lines in self._blocks():
            position = first[0] + row, first[1] + column, batch
            for down, line in enumerate(lines):
                valid = True if full else position[0] + down < self.limits[0]
                outputs.store(line, position, valid, full, down)
            unit = unit_shape(self.problem, self.config)
            outputs.end_unit_of(position, unit, self.config.column_lanes)
