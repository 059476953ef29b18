"""Kernel ``simt``: cp.async into a ring of stages, FFMA. For f32 as it is, on sm_80 and later.

Each element of D has one accumulator, which begins at +0 and takes k ascending, one ``fma.rn`` for
each, whatever the configuration: the bits depend on the matrices alone. Subnormals stay.

Both operands lie in shared memory line after line of K, each line contiguous along M or N: a thread
takes its rows and columns of a line by 16 bytes. What is contiguous along K in global memory is
turned on the way, by copies of 4 bytes; its lines are 4 elements longer than the tile, so that 8
neighbours in K of 4 rows lie in 32 banks.
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
from ..kernel_launch import LaunchShape
from ..problem import Problem
from .cp_async_epilogue import OutputMatrix, VectorEpilogue
from .cp_async_mainloop import CpAsyncMainloop, exhaust, problem_class, traced
from .cp_async_operand import CpAsyncOperand
from .simt_config import PAD, TYPE, VECTOR, SimtConfig

TURNED = 8  # neighbours along K that neighbouring threads copy: a sector of 32 bytes


class SimtOperand(CpAsyncOperand):
    """An operand in lines of M or N, one for each k."""

    __slots__ = ()

    @property
    def pitch(self) -> int:
        """Elements from one k to the next."""
        return self.extent + (PAD if self.contiguous == "k" else 0)

    @property
    def layout(self) -> Layout:
        """The tile in shared memory: (row, k) → element."""
        return Layout((self.extent, self.depth), (1, self.pitch))

    def lines(self, share: Layout) -> Layout:
        """(thread, values, k) → element, of a share of the tile's rows."""
        return make_layout(*composition(self.layout[0], share), self.layout[1])

    @property
    def bytes(self) -> int:
        return self.pitch * self.depth * self.size

    @property
    def line(self) -> int:
        most = TURNED if self.contiguous == "k" else self.threads
        return min(super().line, most)


def operands(problem: Problem, config: SimtConfig) -> tuple[SimtOperand, SimtOperand]:
    """The stage: A and B as this configuration cuts them."""
    bm, bn, bk = config.tile
    full_k = problem.k % bk == 0

    def operand(name: str, size: int, tile: int, major: str, align: int) -> SimtOperand:
        turned = major == "k"
        contiguous, align = ("k", 4) if turned else ("mn", align)
        full = size % tile == 0
        return SimtOperand(name, TYPE, tile, bk, contiguous, align, full_k, full, config.threads)

    return (
        operand("a", problem.m, bm, problem.a_major, problem.align_a),
        operand("b", problem.n, bn, problem.b_major, problem.align_b),
    )


def build(problem: Problem, config: SimtConfig) -> Traced:
    """The kernel for a problem and a configuration, traced once for all problems of its class."""
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
    """A tile, by fragments of 1 of K: registers, FFMA."""

    part = 1

    def __init__(
        self, k: Builder, problem: Problem, config: SimtConfig, limits: tuple[Reg, Reg]
    ) -> None:
        shared = k.dynamic_shared(config.shared_bytes, 128)
        super().__init__(k, problem, config, operands(problem, config), shared, limits)

    # --- fragments ---

    def partition(self) -> None:
        self.lines, held = [], []
        for side, tile in enumerate(self.tiles):
            layout = self.parts[side].lines(self.config.share(side))
            mine = make_tensor(tile.tile.engine, layout)[self.k.tid.x, None, None]
            vectors, depth = range(layout.size(1) // VECTOR), range(layout.size(2))
            self.lines.append([[mine.at(((0, v), i)) for v in vectors] for i in depth])
            held.append(self.k.make_rmem_tensor((VECTOR, len(vectors), 2), TYPE))
        self.held = held
        self.a, self.b = (
            [fragment_registers(x[None, None, half]) for half in range(2)] for x in held
        )

    def clear(self) -> None:
        rows, columns = self.config.thread_tile
        acc = self.k.make_rmem_tensor(Layout((columns, rows)), TYPE)
        self.k.clear(acc)
        self.sums = [list(fragment_registers(acc[None, i])) for i in range(rows)]

    def loads(self, part: int, stage: Any) -> Iterator[None]:
        wide = CopyAtom(UniversalCopy(32 * VECTOR), TYPE)
        for held, lines in zip(self.held, self.lines, strict=True):
            for v, pointer in enumerate(lines[part]):
                line = Tensor(pointer.add_bytes(stage), Layout(VECTOR))
                self.k.copy(wide, line, held[None, v, part % 2])
                yield

    def meanwhile(self, part: int, parts: int, copies: Iterator[None]) -> Iterator[None]:
        """All copies are started at once: ptxas puts three idle instructions before a cp.async that
        follows none.
        """
        if part == 0:
            exhaust(copies)
        return super().meanwhile(part, parts, copies)

    def product(self, part: int, row: int, column: int) -> None:
        accumulator = self.sums[row][column]
        self.k.fma(self.a[part % 2][row], self.b[part % 2][column], accumulator, into=accumulator)

    def end_part(self, part: int, columns: range) -> None:
        """An FMA adds to the accumulator itself."""

    # --- the epilogue ---

    def run(self, d: OutputMatrix, c: OutputMatrix | None, scale: tuple[Reg, Reg]) -> None:
        self.begin()
        self.mainloop()
        self.write_out(d, c, scale)

    def write_out(self, d: OutputMatrix, c: OutputMatrix | None, scale: tuple[Reg, Reg]) -> None:
        """D = α·sums + β·C, each thread its own rows, 4 columns at a time."""
        k, config, problem = self.k, self.config, self.problem
        bm, bn, _ = config.tile
        full = problem.m % bm == 0 and problem.n % bn == 0
        out = VectorEpilogue(k, problem, full, d, c)
        out.begin(self.limits, scale)
        shares = [config.share(side) for side in range(2)]
        first = tuple(f + s[0](k.tid.x) for f, s in zip(self.first, shares, strict=True))
        tiles = [m and out.tile(m, config.tile, first) for m in (d, c)]
        rows, vectors = shares[0][1], shares[1][1][1]
        for i, v in product(range(rows.size()), range(vectors.size())):
            place = rows(i), vectors(v)
            at = None if out.anywhere else tuple(f + p for f, p in zip(first, place, strict=True))
            sums = self.sums[i][VECTOR * v : VECTOR * (v + 1)]
            out.piece(sums, at, *(m and m.at(place) for m in tiles))
