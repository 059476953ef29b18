"""Kernel ``multistage``: cp.async into a ring of stages, ldmatrix, mma.sync. For sm_80 and later.

A CTA computes a tile, or (``persistent``) one after another, the next one's first copies under way
while the last one is written out. While the warps multiply one stage, the copies of the
``stages - 1`` after it are under way; and while they multiply 16 of K, the fragments of the next 16
are on their way from shared memory:

    for each tile of K:
        for each 16 of it but the last:
            multiply; meanwhile load the fragments of the following 16
                and start a share of the copies of tile + stages - 1
        the last: multiply one half; wait for the next stage, barrier;
            multiply the other, meanwhile load its first fragments
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain, islice
from typing import Any

from ..build import Builder, Reg, Traced, registers_of, trace
from ..layout import Layout
from ..mma import TiledMma, make_tiled_mma
from ..target import Device
from .arguments import Arguments, Lines, Shape
from .config import Config
from .epilogue import Epilogue, Matrix
from .operand import Operand, Tile
from .problem import Problem
from .scale import global_pointer, scalar
from .schedule import place

PARAMETERS = {
    "a": "u64", "b": "u64", "c": "u64", "d": "u64",
    "m": "u32", "n": "u32", "k_total": "u32",
    "lda": "u64", "ldb": "u64", "ldc": "u64", "ldd": "u64",
    "alpha": "f32", "beta": "f32", "alpha_ptr": "u64", "beta_ptr": "u64",
}  # fmt: skip


def operands(problem: Problem, config: Config) -> tuple[Operand, Operand]:
    """The stage: A and B as this configuration cuts them."""
    bm, bn, bk = config.tile
    full_k, threads = problem.k % bk == 0, config.threads

    def operand(name: str, type_: str, size: int, tile: int, major: str, align: int) -> Operand:
        contiguous, full = "k" if major == "k" else "mn", size % tile == 0
        return Operand(name, type_, tile, bk, contiguous, align, full_k, full, threads)

    return (
        operand("a", problem.a, problem.m, bm, problem.a_major, problem.align_a),
        operand("b", problem.b, problem.n, bn, problem.b_major, problem.align_b),
    )


def tiled_mma(problem: Problem, config: Config) -> TiledMma:
    """Warps side by side, each with a block of its own of the CTA's tile."""
    (wm, wn), (down, across) = config.warp_tile, config.warps
    types = f"f32.{problem.a}.{problem.b}.f32"
    blocks = (
        Layout((16, down, wm // 16), (1, wm, 16)),
        Layout((8, across, wn // 8), (1, wn, 8)),
    )
    return make_tiled_mma(f"mma.sync.aligned.m16n8k16.row.col.{types}", (down, across), blocks)


def shape_class(problem: Problem, config: Config) -> Problem:
    """The problem that stands for all with the same kernel: only which sizes are multiples of the
    tile matters.
    """
    pairs = zip((problem.m, problem.n, problem.k), config.tile, strict=True)
    return problem.sized(*(tile if size % tile == 0 else tile + 1 for size, tile in pairs))


def build(problem: Problem, config: Config) -> Traced:
    """The kernel for a problem and a configuration, traced once for all problems of its class."""
    return _build(shape_class(problem, config), config)


@lru_cache(maxsize=256)
def _build(problem: Problem, config: Config) -> Traced:
    bm, bn, bk = config.tile
    name = f"gemm_{problem.a}_{problem.layout}_{problem.d}_{bm}x{bn}x{bk}"

    def kernel(
        k: Any, a: Any, b: Any, c: Any, d: Any, m: Any, n: Any, k_total: Any,
        lda: Any, ldb: Any, ldc: Any, ldd: Any,
        alpha: Any, beta: Any, alpha_ptr: Any, beta_ptr: Any,
    ) -> None:  # fmt: skip
        scale = scalar(k, alpha, alpha_ptr), scalar(k, beta, beta_ptr)
        with k.sharing():
            body = Multistage(k, problem, config)
            body.inputs((a, lda), (b, ldb), (m, n), k.select(scale[0] == 0.0, 0, k_total))
            d_matrix = Matrix(global_pointer(k, d), ldd, problem.align_d)
            c_matrix = None
            if problem.with_c:
                c_matrix = Matrix(global_pointer(k, c), ldc, problem.align_c)
            atom = body.mma.atom
            body.run(Epilogue(k, problem, config, atom, d_matrix, c_matrix), scale)

    bounds = {"block": config.threads, "min_ctas": config.ctas}
    return trace(kernel, name=name, params=PARAMETERS, lines=False, **bounds)


def arguments(
    problem: Problem, config: Config, lines: Mapping[str, Lines], device: Device
) -> Arguments:
    """The kernel's parameters for matrices that lie so."""
    values = {"m": problem.m, "n": problem.n, "k_total": problem.k}
    values |= {f"ld{name}": of.leading for name, of in lines.items()}
    return Arguments(build(problem, config), values, {x: (x,) for x in "abcd"})


def shape(problem: Problem, config: Config, device: Device) -> Shape:
    """The launch: a CTA for each tile of D, or for each place that the device has."""
    bm, bn, _ = config.tile
    tiles = -(-problem.m // bm) * -(-problem.n // bn)
    places = device.sms * config.resident(problem.input.bits, device.limits)
    count = min(tiles, places) if config.persists(problem) else tiles
    return Shape((count, 1, 1), (config.threads, 1, 1))


def exhaust(steps: Iterator[None]) -> None:
    """Do what is left of some steps."""
    for _ in steps:
        pass


class Multistage:
    """The kernel's parts, in the order they run."""

    def __init__(self, k: Builder, problem: Problem, config: Config) -> None:
        self.k, self.problem, self.config = k, problem, config
        self.parts = operands(problem, config)
        self.stage_bytes = sum(p.bytes for p in self.parts)
        self.ring_bytes = self.stage_bytes * config.stages
        self.shared = k.dynamic_shared(config.shared_bytes(problem.input.bits), 1024)
        self.mma = tiled_mma(problem, config)

    def inputs(
        self, a: tuple[Reg, Reg], b: tuple[Reg, Reg], limits: tuple[Reg, Reg], depth: Reg
    ) -> None:
        """Find this CTA's tile, this warp's part of it, and set up both operands."""
        k, config = self.k, self.config
        bk = config.tile[2]
        self.limits = limits
        self.first = self._tile(k.ctaid.x)
        self.depth, self.steps = depth, (depth + (bk - 1)) // bk
        self.tiles, offset = [], 0
        given = zip(self.parts, (a, b), limits, self.first, strict=True)
        for operand, (pointer, leading), limit, first in given:
            place, source = self.shared + offset, global_pointer(k, pointer)
            self.tiles.append(Tile(k, operand, source, leading, limit, depth, first, place))
            offset += operand.bytes
        for tile in self.tiles:
            tile.partition(self.mma)
        self.chunks = sum(tile.count for tile in self.tiles)

    def _tiles(self) -> tuple[Any, Any]:
        """Rows and columns of tiles."""
        bm, bn, _ = self.config.tile
        return (self.limits[0] + (bm - 1)) // bm, (self.limits[1] + (bn - 1)) // bn

    def _tile(self, index: Any) -> tuple[Any, Any]:
        """Where the ``index``-th tile begins: they go down groups of ``group`` rows of tiles, so
        that neighbours share A and B in the L2.
        """
        bm, bn, _ = self.config.tile
        row, column = place(self.k, index, *self._tiles(), self.config.group)
        return row * bm, column * bn

    # --- tile after tile ---

    def run(self, epilogue: Epilogue, scale: tuple[Reg, Reg]) -> None:
        """Compute this CTA's tile, or one after another; the next one's copies are under way while
        the last one is written out.
        """
        k = self.k
        self.write, self.read, self.first_k = (k.var("u32", 0) for _ in range(3))
        self._begin(True)
        if not self.config.persists(self.problem):
            self._mainloop()
            self._write_out(epilogue, self.shared, self.first, scale)
            return
        staged = self.shared + self.ring_bytes
        rows, columns = self._tiles()
        index, count = k.var(k.ctaid.x), rows * columns
        first = [k.var(f) for f in self.first]
        with k.while_(lambda: index < count):
            self._mainloop()
            done = [k.mov(f, into=k.var("u32")) for f in first]
            index += k.nctaid.x
            for variable, value in zip(first, self._tile(k.min(index, count - 1)), strict=True):
                variable.set(value)
            for tile, row in zip(self.tiles, first, strict=True):
                tile.move_to(row)
            self._begin(index < count)
            self._write_out(epilogue, staged, done, scale)

    def _begin(self, wanted: Any) -> None:
        """Start the copies of a tile's first stages."""
        for variable in (self.write, self.read, self.first_k):
            variable.set(0)
        for stage in range(self.config.stages - 1):
            there = self.steps > stage
            exhaust(self._copies(there if wanted is True else there & wanted))
            self._commit()

    def _write_out(self, epilogue: Epilogue, staged: Any, first: Any, scale: Any) -> None:
        epilogue.run(self.acc, staged, tuple(first), self.limits, scale)

    # --- main loop ---

    def _mainloop(self) -> None:
        k, stages = self.k, self.config.stages
        bm, bn, bk = self.config.tile
        self.acc = k.make_rmem_tensor(self.mma.partition_shape_C((bm, bn)), "f32")
        k.clear(self.acc)
        rows, columns = range(self.acc.size(1)), range(self.acc.size(2))
        self.sums = [[registers_of(self.acc[None, i, j]) for j in columns] for i in rows]
        k.cp_async_wait(stages - 2)
        k.barrier()
        inner = bk // 16
        exhaust(self._loads(0))
        for step in k.range(0, self.steps):
            copies = self._copies(step + (stages - 1) < self.steps)
            for part in range(inner - 1):
                share = self._share(part + 1, inner - 1) - self._share(part, inner - 1)
                self._multiply(part, chain(self._loads(part + 1), islice(copies, share)))
            exhaust(copies)
            self._commit()
            self._turn(inner - 1)
        k.cp_async_wait(0)
        k.barrier()

    def _share(self, part: int, parts: int) -> int:
        """How many of a thread's copies are started before a part."""
        return self.chunks * part // parts

    def _turn(self, part: int) -> None:
        """The last 16 of a tile. The barrier that opens the next stage stands between two shares of
        the products, so that the tensor cores have work while warps wait for one another and for
        the first fragments.
        """
        k = self.k
        middle = self.config.warp_tile[1] // 16
        self._multiply(part, iter(()), 0, middle)
        k.cp_async_wait(self.config.stages - 2)
        k.barrier()
        self._advance(self.read)
        self._multiply(part, self._loads(0), middle)

    def _multiply(
        self, part: int, meanwhile: Iterator[None], first: int = 0, last: int | None = None
    ) -> None:
        """The products of a 16 of K (of 8-columns ``first`` to ``last`` of B), with a step of
        ``meanwhile`` before each until there is none left.

        All rows of A meet a column of B before the next one comes, up one column and down the
        other: a tensor core that holds B still takes less power, and power is what limits large
        products.
        """
        a, b = (tile.fragments[part % 2] for tile in self.tiles)
        rows = range(len(a))
        for j in range(first, len(b) if last is None else last):
            for i in rows if j % 2 == 0 else reversed(rows):
                next(meanwhile, None)
                acc = self.sums[i][j]
                self.k.mma(self.mma.atom.instruction, a[i], b[j], acc, into=acc)
        exhaust(meanwhile)

    def _loads(self, part: int) -> Iterator[None]:
        """The fragments of a 16 of K into the buffer that the products before do not read, what is
        needed first first.
        """
        stage = self.k.mov(self.read)
        a, b = (tile.load(part, stage) for tile in self.tiles)
        yield next(b)
        yield from a
        yield from b

    def _copies(self, wanted: Any) -> Iterator[None]:
        """The next tile's copies, if there is such a tile, a chunk for each ``next``."""
        stage = self.k.mov(self.write)
        return chain(*(tile.copy(self.first_k, stage, wanted) for tile in self.tiles))

    def _commit(self) -> None:
        """Close a tile's group, whether it exists or not, and go on to the next."""
        k = self.k
        k.cp_async_commit()
        k.add(self.first_k, self.config.tile[2], into=self.first_k)
        self._advance(self.write)

    def _advance(self, stage: Any) -> None:
        """To the next stage of the ring."""
        k = self.k
        k.add(stage, self.stage_bytes, into=stage)
        with k.when(stage == self.ring_bytes):
            k.mov(0, into=stage)
