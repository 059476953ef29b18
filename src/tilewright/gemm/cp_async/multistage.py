"""Kernel ``multistage``: cp.async into a ring of stages, mma.sync. For sm_80 and later.

A CTA computes a tile, or (``persistent``) tile after tile; then the copies of the next tile's first
stages are in flight during the epilogue. The mainloop goes by the K of an instruction: 32 bytes of
most types. ldmatrix loads the fragments, of any type but f64, as rows of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from typing import Any

from ...builder import Builder, Reg, Traced, fragment_registers
from ...layout import Layout, idx2crd
from ...mma import TiledMma, instruction, make_tiled_mma
from ...mma.instruction import MmaInstruction
from ...target import DeviceSpec
from ..kernel_launch import KernelArguments, LaunchShape, MatrixStrides
from ..kernel_scalars import global_pointer
from ..parameter_declaration import parameter
from ..problem import PROMOTION_K, Problem
from . import cp_async_mainloop, cp_async_parameters
from .cp_async_epilogue import DirectEpilogue, OutputMatrix, PartialEpilogue, StagedEpilogue
from .cp_async_mainloop import CpAsyncMainloop, traced
from .cp_async_operand import WIDE, CpAsyncOperand
from .cp_async_parameters import CpAsyncParameters, SparseCpAsyncParameters, parameters_class
from .metadata_tile import MetadataTile
from .multistage_config import Config, in_bytes, instruction_shape, opcode


@dataclass(frozen=True)
class SplitKGemmParameters(CpAsyncParameters):
    """With split-K the result is written to the workspace."""

    d: Reg = parameter("u64", address="w")


@dataclass(frozen=True)
class SplitKSparseParameters(SparseCpAsyncParameters):
    """The same, with the metadata of a sparse matrix."""

    d: Reg = parameter("u64", address="w")


def kernel_arguments(
    problem: Problem, config: Config, strides: Mapping[str, MatrixStrides], device: DeviceSpec
) -> KernelArguments:
    """The parameter block for matrices with these strides, in elements; those of packed elements
    are multiples of a byte.
    """
    per, (problem, config) = problem.per_byte, in_bytes(problem, config)
    inputs = {
        x: MatrixStrides(s.leading // per, s.batch // per) for x, s in strides.items() if x in "ab"
    }
    if config.split == 1:
        return cp_async_parameters.kernel_arguments(
            problem, config, {**strides, **inputs}, device, parameters_class(problem)
        )
    parameters = SplitKSparseParameters if problem.sparse else SplitKGemmParameters
    return cp_async_parameters.packed(parameters, _partial_problem(problem), inputs)


def problem_class(problem: Problem, config: Config) -> Problem:
    """The problem that represents all with the same kernel. With split-K the kernel stores partial
    accumulators, and the reduction kernel reads C and writes D.
    """
    shown = problem if config.split == 1 else _partial_problem(problem)
    return cp_async_mainloop.problem_class(shown, config)


def _partial_problem(problem: Problem) -> Problem:
    """The problem whose result is the accumulator."""
    return replace(
        problem, d=problem.accumulator_type, with_c=False, align_c=16, align_d=16, epilogue=None,
        accumulates_c=False,
    )  # fmt: skip


def operands(problem: Problem, config: Config) -> tuple[CpAsyncOperand, CpAsyncOperand]:
    """The operands of a stage: tiles of A and B. A sparse one is A of the instruction."""
    bm, bn, bk = config.tile
    full_k, threads, sparse = problem.k % bk == 0, config.threads, problem.sparse

    def operand(
        name: str, type_: str, size: int, tile: int, major: str, align: int
    ) -> CpAsyncOperand:
        contiguous, full = "k" if major == "k" else "mn", size % tile == 0
        role, stored, steps = name, 1, 1
        if sparse:
            role, stored, steps = ("a", 2, 1) if name == sparse else ("b", 1, 2)
        return CpAsyncOperand(
            role, type_, tile, bk // stored, contiguous, align, full_k, full, threads, stored, steps
        )

    return (
        operand("a", problem.a, problem.m, bm, problem.a_major, problem.align_a),
        operand("b", problem.b, problem.n, bn, problem.b_major, problem.align_b),
    )


def tiled_mma(problem: Problem, config: Config) -> TiledMma:
    """The instruction tiled over the warps, each with one block of the CTA's tile. Of a sparse
    operand: the dense instruction of half the K, whose fragments of A and D are the same, and which
    has half of the fragment of B. The M of the instruction is N of a problem with a sparse B.
    """
    warps, warp_tile, atoms = config.warps, config.warp_tile, Layout(config.warps)
    if problem.sparse == "b":
        warps, warp_tile = warps[::-1], warp_tile[::-1]
        atoms = Layout(warps, (config.warps[0], 1))
    given = zip(config.mma_shape(problem.a), warps, warp_tile, strict=False)
    blocks = tuple(Layout((m, count, wm // m), (1, wm, m)) for m, count, wm in given)
    dense = replace(problem, sparse="")
    if problem.sparse == "b":
        dense = replace(dense, a=problem.b, b=problem.a)
    return make_tiled_mma(opcode(dense, config), atoms, blocks)


def build(problem: Problem, config: Config) -> Traced:
    """Trace the kernel, once for all problems of the same class."""
    return _build(problem_class(problem, config), config)


@lru_cache(maxsize=256)
def _build(problem: Problem, config: Config) -> Traced:
    bm, bn, bk = config.tile
    name = f"gemm_{problem.a}_{problem.layout}_{problem.d}_{bm}x{bn}x{bk}"
    promoted = PromotedMultistageKernel if problem.promoted else MultistageKernel
    kernel = partial(promoted, instruction(opcode(problem, config)))
    return traced(kernel, name, *in_bytes(problem, config), parameters_class(problem))


def launch_shape(problem: Problem, config: Config, device: DeviceSpec) -> LaunchShape:
    """The launch: a CTA for each tile of D and each part of split-K, or for each resident one."""
    tiles = config.tiles(problem)
    resident = config.resident(problem.input.bits, device.limits, problem.sparse) * device.sms
    count = min(tiles, resident) if config.is_persistent(problem) else tiles
    return LaunchShape((count, config.split, 1), (config.threads, 1, 1))


class MultistageKernel(CpAsyncMainloop):
    """The body of the kernel. ``row``: the matrix instruction; packed elements are bytes to all
    else.
    """

    def __init__(
        self,
        row: MmaInstruction,
        k: Builder,
        problem: Problem,
        config: Config,
        parameters: CpAsyncParameters,
    ) -> None:
        self.instruction = row
        bits, sparse = problem.input.bits, problem.sparse
        shared = k.dynamic_shared(config.shared_bytes(bits, sparse), 1024)
        more = config.metadata_bytes(bits, sparse) if sparse else 0
        super().__init__(k, problem, config, operands(problem, config), shared, parameters, more)
        self.mma, self.part = tiled_mma(problem, config), instruction_shape(problem, config)[2]
        self.split = config.split
        self.metadata: MetadataTile | None = None

    def run(self, d: OutputMatrix, c: OutputMatrix | None, scale: tuple[Reg, Reg]) -> None:
        """Compute this CTA's tile, or if persistent tile after tile; then the copies of the next
        tile are in flight during the epilogue.
        """
        k = self.k
        out: type[StagedEpilogue]
        out = DirectEpilogue if self.problem.input.bits == WIDE else StagedEpilogue
        if self.split > 1:
            out = PartialEpilogue
        epilogue = out(k, self.problem, self.config, self.mma, d, c)
        self.prologue()
        if not self.config.is_persistent(self.problem):
            self._run_mainloop()
            self._run_epilogue(epilogue, self.shared, self.first, scale)
            return
        staged = self.shared + self.ring_bytes
        rows, columns = self.counts()
        index, count = k.var(k.ctaid.x), rows * columns
        first = [k.var(f) for f in self.first]
        with k.while_(lambda: index < count):
            self._run_mainloop()
            done = [k.mov(f, into=k.var("u32")) for f in first]
            index += k.nctaid.x
            for variable, value in zip(first, self.tile_at(k.min(index, count - 1)), strict=True):
                variable.set(value)
            for tile, row in zip(self.tiles, first, strict=True):
                tile.move_to(row)
            if self.metadata:
                self.metadata.move_to(first[self.metadata.side])
            self.prologue(index < count)
            self._run_epilogue(epilogue, staged, done, scale)

    def _run_mainloop(self) -> None:
        """The mainloop; after it the stages are free for the epilogue, or for the next tile."""
        self.mainloop()
        self.k.cp_async_wait(0)
        self.k.barrier()

    def _run_epilogue(self, epilogue: StagedEpilogue, staged: Any, first: Any, scale: Any) -> None:
        epilogue.run(self.acc, staged, tuple(first), self.limits, scale)

    # --- fragments ---

    def partition(self) -> None:
        for tile in self.tiles:
            tile.partition(self.mma)
        self.by_role = sorted(self.tiles, key=lambda tile: tile.operand.name)
        self.a, self.b = (tile.fragments for tile in self.by_role)

    def add_metadata(self, address: Reg, grid: tuple[Reg, Reg]) -> None:
        source = global_pointer(self.k, address)
        shared = self.shared + sum(operand.bytes for operand in self.parts)
        metadata = MetadataTile(
            self.k, self.problem, self.config, source, grid, self.batch(), shared
        )
        metadata.move_to(self.first[metadata.side])
        metadata.partition(idx2crd(self.k.warpid, self.config.warps)[metadata.side])
        self.metadata = metadata
        self.copied.append(metadata)

    def clear(self) -> None:
        tile = self.config.tile[:2]
        shape = self.mma.partition_shape_C(tile[::-1] if self.problem.sparse == "b" else tile)
        self.acc = self.k.make_rmem_tensor(shape, self.problem.accumulator_type)
        self.k.clear(self.acc)
        rows, columns = range(self.acc.size(1)), range(self.acc.size(2))
        self.accumulators = [
            [fragment_registers(self.acc[None, i, j]) for j in columns] for i in rows
        ]

    def loads(self, part: int, stage: Any) -> Iterator[None]:
        a, b = (tile.load(part, stage) for tile in self.by_role)
        yield next(b)
        if self.metadata:
            yield from self.metadata.load(part, stage)
        yield from a
        yield from b

    def product(self, part: int, row: int, column: int) -> None:
        accumulator = self.accumulators[row][column]
        self._mma(part, row, column, accumulator, accumulator)

    def end_part(self, part: int, columns: range) -> None:
        """The instruction adds to the accumulator itself."""

    def _mma(self, part: int, row: int, column: int, c: Any, d: Any) -> None:
        a, b = self.a[part % 2][row], self.b[part % 2][column]
        metadata = self.metadata.operand(part, row) if self.metadata else None
        self.k.mma(self.instruction, a, b, c, metadata=metadata, into=d)


class PromotedMultistageKernel(MultistageKernel):
    """The kernel with promoted accumulation: the tensor core accumulates 128 of K from zero, and
    the result is added to the accumulator in f32.
    """

    def clear(self) -> None:
        super().clear()
        k, size = self.k, self.acc.size(0)
        self.partial = [[k.array("f32", size) for _ in row] for row in self.accumulators]
        self.zeros = [k.const("f32", 0.0)] * size

    def product(self, part: int, row: int, column: int) -> None:
        partial = list(self.partial[row][column])
        first = part * self.part % PROMOTION_K == 0
        self._mma(part, row, column, self.zeros if first else partial, partial)

    def end_part(self, part: int, columns: range) -> None:
        if (part + 1) * self.part % PROMOTION_K:
            return
        for column, row in product(columns, range(len(self.accumulators))):
            pairs = zip(self.accumulators[row][column], self.partial[row][column], strict=True)
            for total, chained in pairs:
                self.k.add(total, chained, into=total)
