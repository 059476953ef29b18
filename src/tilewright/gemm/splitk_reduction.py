"""Split-K reduction: the kernel after a split-K GEMM. D = α Σ partials + β C, summed in order of K.

The workspace holds the partial accumulators of a tile row by row, in the layout of D. A CTA reduces
some rows of a tile; a thread reduces four adjacent elements of a row at a time. Where rows of an
f32 (or s32) D are not aligned to 16 bytes, the sums of a warp go through shared memory, so that
neighbouring lanes store neighbouring elements. Unlike the other kernels, this one does not launch
dependent grids early: the CTAs of the next kernel would start on SMs as they become free, so CTAs
of adjacent tiles of D, which read the same lines of the L2, would not run at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

from ..builder import Builder, Pointer, Reg, Traced
from ..dtypes import dtype
from ..target import DeviceSpec
from . import workspace
from .cp_async.simt_config import SimtConfig
from .cp_async.simt_edges import may_overlap
from .epilogue.operand_loads import EpilogueOperands
from .epilogue.operand_parameters import operand_values, parameters_with, reduction_values
from .epilogue.output_stores import OutputStores, StridedMatrix
from .kernel_launch import KernelArguments, LaunchShape, MatrixStrides, unused_shared
from .kernel_scalars import global_pointer, scalar
from .parameter_declaration import KernelParameters, parameter
from .problem import SIZE_LIMIT, UNIT_SIZES, Problem
from .rasterization import tile_coordinates
from .tma.tma_geometry import WGMMA_ROWS
from .workspace import SplitKConfig, d_tile

THREADS = 256
MIN_CTAS = 4  # resident on an SM: leaves registers for all loads in flight
WARP = 32
VECTOR = 4  # accumulators per load
LOADS_IN_FLIGHT = 8  # of a thread


@dataclass(frozen=True)
class SplitKParameters(KernelParameters):
    """``full_tiles``: tiles that are not split along K; their D is already stored."""

    workspace: Reg = parameter("u64", address="w")
    c: Reg = parameter("u64", address="c")
    d: Reg = parameter("u64", address="d")
    ldc: Reg = parameter("u64")
    ldd: Reg = parameter("u64")
    batch_stride_c: Reg = parameter("u64")
    batch_stride_d: Reg = parameter("u64")
    m: Reg = parameter("u32")
    n: Reg = parameter("u32")
    full_tiles: Reg = parameter("u32")
    batches: Reg = parameter("u32")
    alpha: Reg = parameter("f32")
    beta: Reg = parameter("f32")
    alpha_ptr: Reg = parameter("u64")
    beta_ptr: Reg = parameter("u64")


def _ctas_per_tile(problem: Problem, config: SplitKConfig) -> int:
    size, warps = config.tile[0] * config.tile[1], THREADS // WARP
    if problem.pair:
        size //= 2
    if has_units(problem):
        return -(-size // (warps * prod(workspace.unit_shape(problem, config))))
    return -(-size // (THREADS * VECTOR))


def has_units(problem: Problem) -> bool:
    """Whether a warp reduces a unit of the epilogue's reductions, not 128 elements of some rows."""
    return problem.epilogue is not None and bool(problem.epilogue.partial_reductions)


def launch_shape(problem: Problem, config: SplitKConfig, device: DeviceSpec) -> LaunchShape:
    """Some CTAs for each split tile, equally many on each SM: unused shared memory limits the
    occupancy, else the SMs on which the GEMM kernel ends first would take more of them.
    """
    ctas = workspace.split_tiles(problem, config, device) * _ctas_per_tile(problem, config)
    resident, unused = -(-ctas // device.sms), 0
    if resident < MIN_CTAS:
        unused = unused_shared(resident, _shared_bytes(problem, config), device.limits)
    return LaunchShape((ctas, 1, 1), (THREADS, 1, 1), None, config.programmatic, unused)


def is_staged(problem: Problem, config: SplitKConfig) -> bool:
    """Whether sums go through shared memory: of 4 bytes each, by rows that are not aligned."""
    size, elements = dtype(problem.d).bits // 8, prod(d_tile(config))
    aligned = problem_class(problem, config).align_d >= VECTOR * size
    return not (aligned or problem.epilogue or size != 4 or elements % (WARP * VECTOR))


def _shared_bytes(problem: Problem, config: SplitKConfig) -> int:
    """Shared memory of a CTA."""
    return THREADS * VECTOR * 4 if is_staged(problem, config) else 0


def kernel_arguments(
    problem: Problem, config: SplitKConfig, strides: Mapping[str, MatrixStrides], device: DeviceSpec
) -> KernelArguments:
    """The parameter block for C and D with these strides."""
    values: dict[str, object] = {
        "m": problem.m, "n": problem.n, "batches": problem.batch,
        "full_tiles": config.unsplit_tiles(problem, device),
    }  # fmt: skip
    for name in "cd":
        if name in strides:
            stride = strides[name]
            values |= {f"ld{name}": stride.leading, f"batch_stride_{name}": stride.batch}
    offset = workspace.regions_offset(problem, config, device)
    values |= operand_values(problem.epilogue, strides)
    values |= reduction_values(workspace.regions(problem, config), offset)
    return parameters_with(SplitKParameters, problem.epilogue, "f32").pack(values)


def build(problem: Problem, config: SplitKConfig) -> Traced:
    """Trace the kernel, once for all problems of the same class."""
    return _build(problem_class(problem, config), config_class(config))


def problem_class(problem: Problem, config: SplitKConfig) -> Problem:
    """The problem that represents all with the same kernel: sizes are parameters, except whether
    the problem is batched, and whether rows are whole vectors: others are stored by elements.
    """
    m, n, k = UNIT_SIZES
    align = problem.align_d
    if problem.d_columns % VECTOR:
        n, align = 1 + problem.pair, problem.output.bits // 8
    sized = replace(problem, m=m, n=n, k=k, batch=min(problem.batch, 2), align_d=align)
    return replace(sized, align_a=16, align_b=16)


def config_class(config: SplitKConfig) -> SplitKConfig:
    """The configuration that represents all with the same kernel."""
    return config.for_reduction() if isinstance(config, SimtConfig) else config


@lru_cache(maxsize=256)
def _build(problem: Problem, config: SplitKConfig) -> Traced:
    rows, columns = d_tile(config)
    name = f"gemm_finish_{problem.d}_{rows}x{columns}_{config.split}"

    def kernel(k: Builder, p: SplitKParameters) -> None:
        reduction = SplitKUnitReduction if has_units(problem) else SplitKReduction
        reduction = SplitKPairReduction if problem.pair else reduction
        reduction(k, problem, config, p).run()

    parameters = parameters_with(SplitKParameters, problem.epilogue, "f32")
    return parameters.trace(kernel, name, block=THREADS, min_ctas=MIN_CTAS)


class SplitKReduction:
    """The body of the kernel; ``run`` emits it."""

    def __init__(
        self, k: Builder, problem: Problem, config: SplitKConfig, p: SplitKParameters
    ) -> None:
        self.k, self.problem, self.config, self.parameters = k, problem, config, p
        self.type, self.size = dtype(problem.d), prod(d_tile(config))
        self.ctas, self.columns = prod(config.cluster), d_tile(config)[1]
        self.vectors = self.size // VECTOR

    def run(self) -> None:
        """Emit the kernel."""
        k, p = self.k, self.parameters
        self._locate(global_pointer(k, p.workspace))
        if self.config.programmatic:
            k.wait_for_prior_grids()
        self.alpha, self.beta = scalar(k, p.alpha, p.alpha_ptr), scalar(k, p.beta, p.beta_ptr)
        d = StridedMatrix(global_pointer(k, p.d), p.ldd, p.batch_stride_d)
        c = StridedMatrix(global_pointer(k, p.c), p.ldc, p.batch_stride_c)
        outputs = None
        if self.problem.epilogue:
            limits = p.m, p.n // 2 if self.problem.pair else p.n
            operands = EpilogueOperands(k, self.problem.epilogue, p, limits)
            operands.load_scalars()
            outputs = OutputStores(k, operands, d, self.problem.align_d)
        if outputs:
            self._store_outputs(outputs)
            return
        accumulators = self._sum(self.partials, self.ctas * self.size)
        if is_staged(self.problem, self.config):
            self._store_staged(accumulators, d, c)
            return
        self._store(accumulators, self.inside & self._stores(0, self.position[0]), d, c)

    def _store_outputs(self, outputs: OutputStores) -> None:
        """Store the outputs of an epilogue function."""
        accumulators = self._sum(self.partials, self.ctas * self.size)
        exists = self.inside & (self.position[0] < self.parameters.m)
        outputs.store(accumulators, self.position, exists, False)

    def _locate(self, partials: Pointer) -> None:
        """This thread's vector: its first partial accumulators, its position in D, whether it is
        inside the tile.
        """
        k, config = self.k, self.config
        columns, chunks = self.columns, _ctas_per_tile(self.problem, config)
        number, chunk = k.ctaid.x // chunks, k.ctaid.x % chunks
        tile, rank = number // self.ctas, number % self.ctas
        corner = self._corner(self.parameters.full_tiles + tile, rank)
        row, column, batch = self.corner = self._moved(corner)
        base = (tile * (config.split * self.ctas) + rank).to("u64") * self.size
        line, along, vector = self._vector(chunk, columns // VECTOR)
        self.vector = vector
        first = partials.cast(self.problem.accumulator_type).aligned(16)
        self.partials = first + (base + self._offset(line, along, vector).to("u64"))
        self.position = row + line, column + along, batch

    def _vector(self, chunk: Any, per_row: int) -> tuple[Any, Any, Any]:
        """(row, column, number) of this thread's vector in the tile, whose rows have ``per_row``
        vectors; ``chunk``: the CTA's number for this tile.
        """
        k = self.k
        vector = chunk * THREADS + k.tid.x
        self.inside = vector < self.vectors
        vector = k.select(self.inside, vector, 0)
        return vector // per_row, vector % per_row * VECTOR, vector

    def _offset(self, line: Any, along: Any, vector: Any) -> Any:
        """Elements of the tile's partial accumulators before those of the vector."""
        return vector * VECTOR

    def _corner(self, tile: Any, rank: Any) -> tuple[Any, Any, Any]:
        """(row, column, batch) of D where the tile of a CTA of the cluster begins."""
        k, config, p = self.k, self.config, self.parameters
        (bm, bn, _), (cm, cn) = config.tile, config.cluster
        m, n = (p.n, p.m) if config.swap else (p.m, p.n)
        rows, columns = (m + (bm * cm - 1)) // (bm * cm), (n + (bn * cn - 1)) // (bn * cn)
        batch = None
        if self.problem.batched:
            batch, tile = tile // (rows * columns), tile % (rows * columns)
        row, column = tile_coordinates(k, tile, rows, columns, config.group)
        corner = (row * cm + rank % cm) * bm, (column * cn + rank // cm) * bn
        return (*(corner[::-1] if config.swap else corner), batch)

    def _moved(self, corner: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        """Where the tile begins whose corner this is: kernel ``simt`` has the last one end with D
        if D has a whole tile (``simt_edges.ends_inside``); ``owned`` is then the corner.
        """
        self.owned = None
        if not isinstance(self.config, SimtConfig) or not may_overlap(self.problem, self.config):
            return corner
        self.owned, p, k = corner[:2], self.parameters, self.k
        ends = zip(corner[:2], (p.m, p.n), self.config.tile, strict=False)
        row, column = (k.min(x, k.max(size, tile) - tile) for x, size, tile in ends)
        return row, column, corner[2]

    def _stores(self, side: int, place: Any) -> Any:
        """Whether D has this row (side 0) or column (1), and this tile stores it, not the one
        before it.
        """
        exists = place < (self.parameters.m, self.parameters.n)[side]
        return exists if self.owned is None else exists & (place >= self.owned[side])

    def _sum(self, partials: Any, stride: int) -> list[Any]:
        """Add the partial accumulators in order of K, ``stride`` elements from one to the next."""
        total: list[Any] = []
        for first in range(0, self.config.split, LOADS_IN_FLIGHT):
            count = min(LOADS_IN_FLIGHT, self.config.split - first)
            loaded = [
                partials.add_bytes((first + i) * stride * 4).aligned(16).load(VECTOR)
                for i in range(count)
            ]
            for values in loaded:
                total = [a + b for a, b in zip(total, values, strict=True)] if total else [*values]
        return total

    def _store(
        self, accumulators: list[Any], inside: Any, d: StridedMatrix, c: StridedMatrix
    ) -> None:
        """Scale, add β·C, round and store the vector, element by element at unaligned rows."""
        k, problem, values = self.k, self.problem, self._scaled(accumulators)
        target = d.at(problem.d, self.position)
        old = c.at(problem.d, self.position) if problem.with_c else None
        size = self.type.bits // 8
        count = VECTOR if problem.align_d >= VECTOR * size else 1
        for first in range(0, VECTOR, count):
            with k.if_(inside & self._stores(1, self.position[1] + first)):
                made = [self._result(values[i], old, i) for i in range(first, first + count)]
                target.aligned(count * size).store(made, index=first)

    def _store_staged(self, accumulators: list[Any], d: StridedMatrix, c: StridedMatrix) -> None:
        """The same by single elements, neighbours by neighbouring lanes of a warp."""
        k, problem = self.k, self.problem
        staged = k.shared(problem.accumulator_type, THREADS * VECTOR, align=16)
        warp = staged + k.warpid * (WARP * VECTOR)
        (warp + k.laneid * VECTOR).aligned(16).store(self._scaled(accumulators))
        k.syncwarp()
        (row, column, batch), columns = self.corner, d_tile(self.config)[1]
        first = (self.vector - k.laneid) * VECTOR + k.laneid
        for i in range(VECTOR):
            element = first + i * WARP
            position = row + element // columns, column + element % columns, batch
            old = c.at(problem.d, position) if problem.with_c else None
            with k.if_(self.inside & self._stores(0, position[0]) & self._stores(1, position[1])):
                value = self._result((warp + k.laneid)[i * WARP], old, 0)
                d.at(problem.d, position).store(value)

    def _scaled(self, accumulators: list[Any]) -> list[Any]:
        """α·accumulators; α of an integer result is 1."""
        if self.problem.accumulator_type == "s32":
            return accumulators
        return [self.alpha * v for v in accumulators]

    def _result(self, value: Any, old: Any, index: int) -> Any:
        """A value with its element of C, rounded to D's type."""
        result = value if old is None else self._with_c(value, old, index)
        return result if self.type.name in ("f32", "s32") else result.to(self.type.name)

    def _with_c(self, value: Any, c: Any, index: int) -> Any:
        """The value plus β times an element of C, which is read where β is not 0."""
        k, result = self.k, self.k.var(value)
        with k.if_(self.beta != 0.0):
            old = c[index]
            old = old if old.dtype.name in ("f32", "s32") else old.to("f32")
            integer = self.problem.accumulator_type == "s32"
            result.set(result + old if integer else k.fma(self.beta, old, result))
        return result


class SplitKUnitReduction(SplitKReduction):
    """The kernel where an epilogue function has reductions: a warp computes a unit of D, some rows
    at a time, and stores its partial results. Warps beyond the tile's units have rows beyond D.
    """

    def __init__(
        self, k: Builder, problem: Problem, config: SplitKConfig, p: SplitKParameters
    ) -> None:
        super().__init__(k, problem, config, p)
        self.unit = workspace.unit_shape(problem, config)
        self.lanes = self.unit[1] // VECTOR  # of a row
        self.rows = WARP // self.lanes  # at a time

    def _vector(self, chunk: Any, per_row: int) -> tuple[Any, Any, Any]:
        k, (rows, columns) = self.k, self.unit
        unit, across = chunk * (THREADS // WARP) + k.warpid, per_row // self.lanes
        self.inside = unit < self.size // (rows * columns)
        unit = k.select(self.inside, unit, 0)
        line = unit // across * rows + k.laneid // self.lanes
        vector = unit % across * self.lanes + k.laneid % self.lanes
        return line, vector * VECTOR, line * per_row + vector

    def _store_outputs(self, outputs: OutputStores) -> None:
        k, (row, column, batch) = self.k, self.position
        p, pitch = self.parameters, d_tile(self.config)[1] * 4
        position = k.select(self.inside, row, SIZE_LIMIT), column, batch
        for down in range(0, self.unit[0], self.rows):
            partials = self.partials.add_bytes(down * pitch)
            accumulators = self._sum(partials, self.ctas * self.size)
            exists = position[0] + down < p.m
            outputs.store(accumulators, position, exists, False, down)
        outputs.end_unit(position, self.unit, self.lanes)


class SplitKPairReduction(SplitKReduction):
    """The kernel where A is multiplied by two matrices of prepared weights: a thread adds the
    partial accumulators of both. In the workspace 64 columns of the tile of each alternate.
    """

    def __init__(
        self, k: Builder, problem: Problem, config: SplitKConfig, p: SplitKParameters
    ) -> None:
        super().__init__(k, problem, config, p)
        self.columns, self.vectors = self.columns // 2, self.vectors // 2

    def _offset(self, line: Any, along: Any, vector: Any) -> Any:
        block = along // WGMMA_ROWS * (2 * WGMMA_ROWS) + along % WGMMA_ROWS
        return line * (2 * self.columns) + block

    def _corner(self, tile: Any, rank: Any) -> tuple[Any, Any, Any]:
        row, column, batch = super()._corner(tile, rank)
        return row, column // 2, batch

    def _store_outputs(self, outputs: OutputStores) -> None:
        stride = self.ctas * self.size
        both = [self._sum(self.partials + i * WGMMA_ROWS, stride) for i in range(2)]
        exists = self.inside & (self.position[0] < self.parameters.m)
        outputs.store([*zip(*both, strict=True)], self.position, exists, False)
