"""Mainloop of the cp.async kernels: a ring of stages that all threads fill and read.

A CTA computes a tile. While the warps multiply one stage, the copies of the next ``stages - 1``
k-tiles are in flight; a k-tile has several parts, each of the K of a fragment, and while the warps
multiply one part, they load the fragments of the next:

    for each k-tile:
        for each part but the last:
            multiply, interleaved with the loads of the next part's fragments
                and a share of the copies of k-tile + stages - 1
        the last part: multiply one half; wait for the next stage, barrier;
            multiply the other half, interleaved with the loads of that stage's first fragments

A kernel's class defines the fragments and how two of them are multiplied.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, islice
from typing import Any, Protocol, TypeVar

from ...builder import Builder, Pointer, Reg, Traced
from ..epilogue.operand_loads import EpilogueOperands
from ..epilogue.operand_parameters import parameters_with
from ..epilogue.output_stores import OutputStores, StridedMatrix
from ..kernel_scalars import global_pointer, scalar
from ..problem import Problem
from ..rasterization import tile_coordinates
from .cp_async_epilogue import OutputMatrix
from .cp_async_operand import CpAsyncOperand, OperandTile
from .cp_async_parameters import CpAsyncParameters, SparseCpAsyncParameters

P = TypeVar("P", bound=CpAsyncParameters)


def problem_class(problem: Problem, config: Any) -> Problem:
    """The problem that represents all with the same kernel: what matters is which sizes are
    multiples of the tile, D's alignment, and whether the problem is batched.
    """
    aligned = max(1, problem.align_d * 8 // problem.output.bits)
    units, given = (1, aligned, problem.per_byte), (problem.m, problem.n, problem.k)
    rows = zip(given, config.tile, units, strict=True)
    sizes = (tile if size % tile == 0 else tile + unit for size, tile, unit in rows)
    return replace(problem.with_sizes(*sizes), batch=min(problem.batch, 2))


def traced(
    mainloop: Callable[[Builder, Problem, Any, P], CpAsyncMainloop],
    name: str,
    problem: Problem,
    config: Any,
    parameters: type[P],
) -> Traced:
    """Trace the kernel whose CTAs run this mainloop and its epilogue. ``parameters``: the class of
    the kernel's, without those of an epilogue.
    """
    early = config.programmatic

    def kernel(k: Builder, p: P) -> None:
        alpha = scalar(k, p.alpha, p.alpha_ptr, early=early)
        beta = scalar(k, p.beta, p.beta_ptr, early=early)
        with k.eliminate_common_subexpressions():
            body = mainloop(k, problem, config, p)
            strides = p.batch_stride_a, p.batch_stride_b, p.batch_stride_c, p.batch_stride_d
            index, (a, b, c, d) = body.matrices((p.a, p.b, p.c, p.d), strides)
            depth = k.select(alpha == 0.0, 0, p.k)
            body.inputs((a, p.lda), (b, p.ldb), depth, index)
            if isinstance(p, SparseCpAsyncParameters):
                body.add_metadata(p.metadata, (p.metadata_rows, p.metadata_columns))
            if early:  # not before: else grids of several products would take up the SMs
                k.wait_for_prior_grids()
                k.launch_dependent_grids()
            d_matrix = OutputMatrix(global_pointer(k, d), p.ldd, problem.align_d)
            c_matrix = None
            if problem.epilogue:
                operands = EpilogueOperands(k, problem.epilogue, p, (p.m, p.n))
                operands.load_scalars()
                strided = StridedMatrix(d_matrix.pointer, p.ldd, None)
                d_matrix.graph = OutputStores(k, operands, strided, problem.align_d)
                d_matrix.batch = body.batch()
            if problem.with_c:
                c_matrix = OutputMatrix(global_pointer(k, c), p.ldc, problem.align_c)
            body.run(d_matrix, c_matrix, (alpha, beta))

    bounds: dict[str, Any] = {"block": config.threads, "min_ctas": config.ctas}
    if getattr(config, "in_cluster", False):
        bounds["cluster"] = (1, config.split, 1)
    declared = parameters_with(parameters, problem.epilogue, problem.scalar_type)
    return declared.trace(kernel, name, problem.scalar_type, **bounds)


def _split_range(blocks: Any, split: int, part: Any) -> tuple[Any, Any]:
    """(first, number) of the k-blocks of a part of split-K."""
    each, more = blocks // split, blocks % split  # blocks · split may pass 2^32
    first, end = (each * i + more * i // split for i in (part, part + 1))
    return first, end - first


def exhaust(steps: Iterator[None]) -> None:
    """Emit the rest of an interleaved sequence."""
    for _ in steps:
        pass


class CopiedTile(Protocol):
    """What is copied to a stage: ``count`` chunks."""

    count: int

    def copy(self, first_k: Any, stage: Any, enabled: Any) -> Iterator[None]:
        """As ``OperandTile.copy``."""


class CpAsyncMainloop(ABC):
    """The mainloop. ``a`` and ``b``: double-buffered fragments of two parts of K;
    ``accumulators``: by fragment of A and of B.
    """

    part: int  # K extent of a fragment
    split = 1  # parts of K that different CTAs compute
    tile_type: type[OperandTile] = OperandTile
    slices = 1  # parts of a k-tile that different threads compute
    a: list[list[Any]]
    b: list[list[Any]]
    accumulators: list[list[Any]]

    def __init__(
        self,
        k: Builder,
        problem: Problem,
        config: Any,
        parts: tuple[CpAsyncOperand, ...],
        shared: Pointer,
        parameters: CpAsyncParameters,
        more_bytes: int = 0,
    ) -> None:
        """``more_bytes`` of a stage, behind its operands."""
        self.k, self.problem, self.config = k, problem, config
        self.parts, self.shared = parts, shared
        self.limits = parameters.m, parameters.n
        self.stage_bytes = sum(p.bytes for p in parts) + more_bytes
        self.ring_bytes = self.stage_bytes * config.stages

    @abstractmethod
    def run(self, d: OutputMatrix, c: OutputMatrix | None, scale: tuple[Reg, Reg]) -> None:
        """Compute this CTA's tiles of D, from C too if there is one."""

    def add_metadata(self, address: Reg, grid: tuple[Reg, Reg]) -> None:
        """Set up the metadata of a sparse operand: their address, and their blocks along M (or N)
        and along K.
        """
        raise NotImplementedError

    @abstractmethod
    def partition(self) -> None:
        """Partition both operands' shared memory among threads, and allocate the fragments."""

    @abstractmethod
    def clear(self) -> None:
        """Set the accumulators to zero."""

    @abstractmethod
    def loads(self, part: int, stage: Any) -> Iterator[None]:
        """Load the fragments of a part of K from the stage at byte ``stage`` into the buffer that
        the current products do not read, in the order in which products need them.
        """

    @abstractmethod
    def product(self, part: int, row: int, column: int) -> None:
        """Multiply-accumulate fragment ``row`` of A and fragment ``column`` of B of a part of K."""

    @abstractmethod
    def end_part(self, part: int, columns: range) -> None:
        """Emit what follows the products of a part of K with these fragments of B."""

    def matrices(self, addresses: Any, strides: Any) -> tuple[Any, Any]:
        """The index of this CTA's tile within its D, and the addresses of its A, B, C and D."""
        k, p = self.k, self.problem
        if not p.batched:
            return k.ctaid.x, addresses
        rows, columns = self.counts()
        area = rows * columns
        matrix = (k.ctaid.x // area).to("u64")
        sizes = [t.bits // 8 for t in (p.input, p.input, p.output, p.output)]
        operands = zip(addresses, strides, sizes, strict=True)
        return k.ctaid.x % area, [x + matrix * stride * size for x, stride, size in operands]

    def batch(self) -> Any:
        """The index of this CTA's product, None if there is one."""
        if not self.problem.batched:
            return None
        rows, columns = self.counts()
        return self.k.ctaid.x // (rows * columns)

    def inputs(self, a: tuple[Reg, Reg], b: tuple[Reg, Reg], depth: Reg, index: Any) -> None:
        """Set up both operands, each an address and a leading dimension, for the tile of this
        index and this CTA's range of K.
        """
        k, config = self.k, self.config
        bk = config.tile[2]
        self.first = self.tile_at(index)
        self.depth, self.steps, self.start_k = depth, (depth + (bk - 1)) // bk, 0
        if self.split > 1:
            first_block, self.steps = self.part_of_k(self.steps)
            self.start_k = first_block * bk
        self.tiles, offset = [], 0
        given = zip(self.parts, (a, b), self.limits, self.first, strict=True)
        for operand, (pointer, leading), limit, first in given:
            at, source = self.shared + offset, global_pointer(k, pointer)
            corner = first, self.start_k
            made = self.tile_type(k, operand, source, leading, limit, depth, corner, at)
            self.tiles.append(made)
            offset += operand.bytes
        self.partition()
        self.copied: list[CopiedTile] = list(self.tiles)
        self.write, self.read, self.first_k = (k.var("u32", 0) for _ in range(3))

    def part_of_k(self, blocks: Reg) -> tuple[Any, Any]:
        """(first, number) of the k-blocks of this CTA's part of split-K."""
        return _split_range(blocks, self.split, self.k.ctaid.y)

    def counts(self) -> tuple[Any, Any]:
        """Rows and columns of tiles."""
        bm, bn, _ = self.config.tile
        return (self.limits[0] + (bm - 1)) // bm, (self.limits[1] + (bn - 1)) // bn

    def tile_at(self, index: Any) -> tuple[Any, Any]:
        """(row, column) of D where the tile of this index begins, in rasterization order."""
        bm, bn, _ = self.config.tile
        row, column = tile_coordinates(self.k, index, *self.counts(), self.config.group)
        return row * bm, column * bn

    def prologue(self, enabled: Any = True) -> None:
        """Start the copies of a tile's first stages."""
        self.write.set(0)
        self.read.set(0)
        self.first_k.set(self.start_k)
        for stage in range(self.config.stages - 1):
            exists = self.steps > stage
            exhaust(self._copies(exists if enabled is True else exists & enabled))
            self._commit()

    def mainloop(self) -> None:
        """Accumulate the CTA's tile."""
        k, stages = self.k, self.config.stages
        inner = self.config.tile[2] // (self.part * self.slices)
        self.clear()
        if stages == 1:
            self._single_stage(inner)
            return
        k.cp_async_wait(stages - 2)
        k.barrier()
        exhaust(self._loads(0))
        for step in k.range(0, self.steps):
            copies = self._copies(step + (stages - 1) < self.steps)
            for part in range(inner - 1):
                self._multiply(part, self.interleaved(part, inner - 1, copies))
            exhaust(copies)
            self._commit()
            self._last_part(inner - 1)

    def _single_stage(self, inner: int) -> None:
        """The mainloop with one stage: only other CTAs of the SM overlap the copies."""
        k = self.k
        for step in k.range(0, self.steps):
            exhaust(self._copies(step < self.steps))
            self._commit()
            k.cp_async_wait(0)
            k.barrier()
            exhaust(self._loads(0))
            for part in range(inner):
                self._multiply(part, self._loads(part + 1) if part + 1 < inner else iter(()))
            k.barrier()

    def interleaved(self, part: int, parts: int, copies: Iterator[None]) -> Iterator[None]:
        """What is interleaved with the products of a part, of ``parts``: the loads of the next
        part's fragments, and a share of the copies.
        """
        chunks = sum(tile.count for tile in self.copied)
        share = chunks * (part + 1) // parts - chunks * part // parts
        return chain(self._loads(part + 1), islice(copies, share))

    def _last_part(self, part: int) -> None:
        """The last part of a k-tile. The barrier before the next stage is between two halves of
        the products, so that tensor cores have work while warps wait for one another and for the
        first fragments.
        """
        k = self.k
        middle = len(self.b[part % 2]) // 2
        self._multiply(part, iter(()), 0, middle)
        k.cp_async_wait(self.config.stages - 2)
        k.barrier()
        self._advance(self.read)
        self._multiply(part, self._loads(0), middle)

    def _multiply(
        self, part: int, interleaved: Iterator[None], first: int = 0, last: int | None = None
    ) -> None:
        """The products of a part of K (with B's fragments ``first`` to ``last``), each after one
        step of ``interleaved``.

        The order is column by column, alternately down and up: successive products reuse a
        fragment of B, which takes less power, and power limits large products.
        """
        rows = range(len(self.a[part % 2]))
        columns = range(first, len(self.b[part % 2]) if last is None else last)
        for j in columns:
            for i in rows if j % 2 == 0 else reversed(rows):
                next(interleaved, None)
                self.product(part, i, j)
        exhaust(interleaved)
        self.end_part(part, columns)

    def _loads(self, part: int) -> Iterator[None]:
        return self.loads(part, self.k.mov(self.read))

    def _copies(self, enabled: Any) -> Iterator[None]:
        """The copies of the next k-tile, if there is one; a chunk for each ``next``."""
        stage = self.k.mov(self.write)
        return chain(*(tile.copy(self.first_k, stage, enabled) for tile in self.copied))

    def _commit(self) -> None:
        """Commit the copies of a k-tile, which may be none, and advance to the next k-tile."""
        k = self.k
        k.cp_async_commit()
        k.add(self.first_k, self.config.tile[2], into=self.first_k)
        self._advance(self.write)

    def _advance(self, stage: Any) -> None:
        """Advance to the next stage of the ring."""
        k = self.k
        k.add(stage, self.stage_bytes, into=stage)
        with k.when(stage == self.ring_bytes):
            k.mov(0, into=stage)
