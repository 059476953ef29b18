"""Kernel ``simt``: cp.async into a ring of stages, FFMA: f32 without tensor cores, sm_80 and later.

Each element of D has one accumulator, which begins at +0 and adds the products in ascending k, one
``fma.rn`` each, whatever the configuration: the bits depend on the matrices alone. Subnormals are
kept.

In shared memory both operands are MN-major: a thread loads its rows and columns of a k as vectors
of 16 bytes. An operand that is K-major in global memory is transposed by copies of 4 bytes; its
pitch is 4 elements more than the tile, so that 8 neighbours along K of 4 rows are in 32 banks.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Any

from ...builder import Builder, Reg, Traced, fragment_registers
from ...layout import Layout, Tensor, composition, make_layout, make_tensor
from ...mma import CopyAtom, UniversalCopy
from ...target import DeviceSpec
from ..epilogue.output_stores import OutputStores
from ..kernel_launch import LaunchShape
from ..problem import Problem
from ..workspace import SIMT_UNIT
from .cp_async_epilogue import OutputMatrix, VectorEpilogue
from .cp_async_mainloop import CpAsyncMainloop, exhaust, problem_class, traced
from .cp_async_operand import CpAsyncOperand
from .simt_config import COLUMN_LANES, PAD, TYPE, VECTOR, SimtConfig

TRANSPOSED = 8  # neighbours along K that neighbouring threads copy: a sector of 32 bytes


class SimtOperand(CpAsyncOperand):
    """An operand that is MN-major in shared memory."""

    __slots__ = ()

    @property
    def pitch(self) -> int:
        """Elements from one k to the next."""
        return self.extent + (PAD if self.contiguous == "k" else 0)

    @property
    def layout(self) -> Any:
        """The tile in shared memory: (row, k) → element."""
        return Layout((self.extent, self.depth), (1, self.pitch))

    def thread_layout(self, share: Layout) -> Layout:
        """(thread, values, k) → element, of each thread's share of the tile's rows."""
        return make_layout(*composition(self.layout[0], share), self.layout[1])

    @property
    def bytes(self) -> int:
        return self.pitch * self.depth * self.size

    @property
    def row_chunks(self) -> int:
        most = TRANSPOSED if self.contiguous == "k" else self.threads
        return min(super().row_chunks, most)


def operands(problem: Problem, config: SimtConfig) -> tuple[SimtOperand, SimtOperand]:
    """The operands of a stage: tiles of A and B."""
    bm, bn, bk = config.tile
    full_k = problem.k % bk == 0

    def operand(name: str, size: int, tile: int, major: str, align: int) -> SimtOperand:
        transposed = major == "k"
        contiguous, align = ("k", 4) if transposed else ("mn", align)
        full = size % tile == 0
        return SimtOperand(name, TYPE, tile, bk, contiguous, align, full_k, full, config.threads)

    return (
        operand("a", problem.m, bm, problem.a_major, problem.align_a),
        operand("b", problem.n, bn, problem.b_major, problem.align_b),
    )


def build(problem: Problem, config: SimtConfig) -> Traced:
    """Trace the kernel, once for all problems of the same class."""
    return _build(problem_class(problem, config), config)


@lru_cache(maxsize=256)
def _build(problem: Problem, config: SimtConfig) -> Traced:
    bm, bn, bk = config.tile
    name = f"simt_{problem.a}_{problem.layout}_{bm}x{bn}x{bk}"

    return traced(SimtKernel, name, problem, config)


def launch_shape(problem: Problem, config: SimtConfig, device: DeviceSpec) -> LaunchShape:
    """The launch: a CTA for each tile of each D."""
    return LaunchShape((config.tiles(problem), 1, 1), (config.threads, 1, 1))


class SimtKernel(CpAsyncMainloop):
    """The body of the kernel: the K of a fragment is 1, products are FFMAs."""

    part = 1

    def __init__(
        self, k: Builder, problem: Problem, config: SimtConfig, limits: tuple[Reg, Reg]
    ) -> None:
        shared = k.dynamic_shared(config.shared_bytes, 128)
        super().__init__(k, problem, config, operands(problem, config), shared, limits)

    # --- fragments ---

    def partition(self) -> None:
        self.addresses, fragments = [], []
        for side, tile in enumerate(self.tiles):
            operand = self.parts[side]
            assert isinstance(operand, SimtOperand)
            layout = operand.thread_layout(self.config.share(side))
            mine = make_tensor(tile.tile.engine, layout)[self.k.tid.x, None, None]
            vectors, depth = range(layout.size(1) // VECTOR), range(layout.size(2))
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
        self.store(d, c, scale)

    def store(self, d: OutputMatrix, c: OutputMatrix | None, scale: tuple[Reg, Reg]) -> None:
        """Store D = α·accumulators + β·C: each thread its own rows, 4 columns at a time."""
        k, config, problem = self.k, self.config, self.problem
        bm, bn, _ = config.tile
        full = problem.m % bm == 0 and problem.n % bn == 0
        out = VectorEpilogue(k, problem, full, d, c)
        out.begin(self.limits, scale)
        shares = [config.share(side) for side in range(2)]
        first = tuple(f + s[0](k.tid.x) for f, s in zip(self.first, shares, strict=True))
        d_tile = out.tile(d, config.tile, first)
        c_tile = None if c is None else out.tile(c, config.tile, first)
        rows, vectors = shares[0][1], shares[1][1][1]
        if d.graph and d.graph.reductions.outputs:
            self._store_units(d.graph, d.batch, first, full)
            return
        for i, v in product(range(rows.size()), range(vectors.size())):
            place = rows(i), vectors(v)
            at = None if out.anywhere else tuple(f + p for f, p in zip(first, place, strict=True))
            accumulators = self.accumulators[i][VECTOR * v : VECTOR * (v + 1)]
            d_pointer = d_tile.at(place)
            c_pointer = None if c_tile is None else c_tile.at(place)
            out.store(accumulators, at, d_pointer, c_pointer)

    def _store_units(
        self, outputs: OutputStores, batch: Any, first: tuple[Any, ...], full: bool
    ) -> None:
        """Store the outputs of an epilogue function with reductions: 4 rows of this thread are its
        part of a unit.
        """
        rows, vectors = self.config.share(0)[1], self.config.share(1)[1][1]
        for i, v in product(range(0, rows.size(), VECTOR), range(vectors.size())):
            position = first[0] + rows(i), first[1] + vectors(v), batch
            for down in range(VECTOR):
                valid = True if full else position[0] + down < self.limits[0]
                accumulators = self.accumulators[i + down][VECTOR * v : VECTOR * (v + 1)]
                outputs.store(accumulators, position, valid, full, down)
            outputs.end_unit_of(position, SIMT_UNIT, COLUMN_LANES)
