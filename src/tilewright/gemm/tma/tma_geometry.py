"""Quantities that follow from a configuration of kernel ``tma``: bytes, registers, tile counts.

``TmaGeometry`` is the base of ``TmaConfig``, one configuration, and of ``TmaColumns``, all
candidates of a problem at once: the fields are numbers of one or columns of the other, and the
formulas are the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...dtypes import dtype
from ...mma.metadata_blocks import BLOCK_BYTES, BLOCK_ROWS, block_k
from ...quantization.weight_format import UNIT_ROWS, WeightFormat
from ...target import DEFAULT_DEVICE, DeviceSpec
from ..columns import N, larger, power_of_two_divisor, select
from ..problem import Problem
from .mainloop.scale_run import ScaleRun
from .mainloop.warpgroup_sharing import ACCUMULATOR_BYTES, JOINED, WarpgroupSharing
from .mainloop.warpgroup_sharing import WARPGROUP as WARPGROUP
from .mainloop.warpgroup_sharing import WGMMA_ROWS as WGMMA_ROWS

GROUP = 4  # elements of a thread that an epilogue function evaluates together: 2 rows × 2 columns
EPILOGUE_BUFFERS = 2  # epilogue tiles of D in shared memory per warpgroup
MAX_STORED_TOGETHER = 3  # epilogue tiles of a warpgroup, at most, that are all stored at once
LOAD_STAGES = 2  # epilogue tiles of matrix operands in shared memory per warpgroup
VECTOR_BYTES = 4  # of an element of a vector operand in shared memory, in its compute type
MAX_LOADED_TOGETHER = 3  # the same where a warpgroup has so few epilogue tiles: all of them
SWIZZLE_BYTES, MIN_SWIZZLE_BYTES = 128, 32  # the longest and the shortest swizzled row
SHARED_ALIGNMENT = 1024  # bytes, of a warpgroup's epilogue buffers in shared memory
LINES_AT_ONCE = 4  # of 128 bytes, that the gather warp copies
FRAGMENT_REGISTERS = 16  # of prepared weights while they are converted
BARRIER_BYTES = 1024  # bytes of shared memory for barriers, at most
MAX_SHARED_BYTES = DEFAULT_DEVICE.limits.shared_per_block  # of a CTA on all devices with wgmma


class TmaGeometry(WarpgroupSharing[N]):
    """The fields of a configuration, as numbers or as columns, and what follows from them."""

    __slots__ = ()

    def stage_bytes(self, problem: Problem) -> N:
        """Bytes of a stage: a k-tile of A and of B; of sparse A half, and metadata."""
        (bm, bn, bk), bits, weights = self.tile, problem.input.bits, problem.weights
        if weights is not None:
            units = bm // UNIT_ROWS * (bk // weights.unit_k)
            of_units: N = bn * bk * bits // 8 + units * weights.unit_bytes
            return of_units
        if problem.sparse:
            of_sparse: N = (bm + 2 * bn) * bk * bits // 16 + self.metadata_bytes(problem)
            return of_sparse
        size: N = (bm + bn) * bk * bits // 8
        return size

    def metadata_bytes(self, problem: Problem) -> N:
        """Bytes of a stage's metadata of a sparse operand, which has the tile's rows."""
        bm, _, bk = self.tile
        size: N = bm // BLOCK_ROWS * (bk // block_k(problem.a)) * BLOCK_BYTES
        return size

    def weight_registers(self, weights: WeightFormat) -> N:
        """Registers of a thread with prepared weights: of the totals, of a row block's products and
        of their float zero points, and of fragments.
        """
        each = self.tile[1] // 2
        taken = self.accumulator_registers + each * (1 + weights.has_float_zeros)
        registers: N = taken + FRAGMENT_REGISTERS
        return registers

    def epilogue_width(self, bits: int) -> N:
        """Columns of an epilogue tile of ``bits``: rows of at most 128 bytes, or (swapped) at most
        64 columns.
        """
        limit = select(self.swap, 64, 64 if bits == 16 else 32)
        width: N = power_of_two_divisor(self.tile[1], limit)
        return width

    def epilogue_tiles(self, bits: int) -> N:
        """Epilogue tiles of a warpgroup's accumulator."""
        elements = self.accumulator_registers * WARPGROUP
        tiles: N = elements // (WGMMA_ROWS * self.epilogue_width(bits))
        return tiles

    def stores_together(self, bits: int) -> Any:
        """Whether all epilogue tiles of a warpgroup are stored at once: they are few, and no other
        tile's mainloop overlaps the epilogue.
        """
        fits_together = self.epilogue_tiles(bits) <= MAX_STORED_TOGETHER
        return select(self.pingpong, False, (self.consumers > 1) & fits_together)

    def epilogue_buffers(self, bits: int) -> N:
        """Epilogue tiles of ``bits`` that a warpgroup stages in shared memory."""
        all_tiles = larger(EPILOGUE_BUFFERS, self.epilogue_tiles(bits))
        buffers: N = select(self.stores_together(bits), all_tiles, EPILOGUE_BUFFERS)
        return buffers

    def epilogue_bytes(self, bits: int) -> N:
        """Bytes of shared memory that stage epilogue tiles: of D, whose elements have ``bits``, and
        of 32-bit partial accumulators with split-K.
        """
        d, partial = (
            self.epilogue_buffers(b) * WGMMA_ROWS * self.epilogue_width(b) * b // 8
            for b in (bits, 32)
        )
        size: N = select(self.split > 1, select(self.tail, larger(d, partial), partial), d)
        total: N = self.epilogue_warpgroups * -(-size // SHARED_ALIGNMENT) * SHARED_ALIGNMENT
        return total

    def d_tile(self, problem: Problem) -> tuple[N, N]:
        """The tile's M and N in D: half of what B's rows give where two matrices B are
        multiplied.
        """
        bm, bn, _ = self.tile
        if not problem.pair:
            return bm, bn
        return select(self.swap, bm // 2, bm), select(self.swap, bn, bn // 2)

    def d_warpgroup_rows(self, problem: Problem) -> N:
        """Rows of the tile in D that a consumer warpgroup stores."""
        shared = select(self.pingpong, 1, self.storing_warpgroups(problem))
        rows: N = self.d_tile(problem)[0] // shared
        return rows

    def graph_epilogue_width(self, problem: Problem) -> N:
        """Columns of an epilogue function's epilogue tiles, the same for all tensor outputs: rows
        of at most 128 bytes, or (swapped) at most 64 columns.
        """
        assert problem.epilogue is not None
        limit = SWIZZLE_BYTES // max(problem.epilogue.output_bytes)
        width: N = power_of_two_divisor(self.d_tile(problem)[1], select(self.swap, 64, limit))
        return width

    def epilogue_shared_bytes(self, problem: Problem) -> N:
        """Bytes of shared memory that stage epilogue tiles of all outputs."""
        plain: N = self.stored.epilogue_bytes(problem.output.bits) + self.joined_bytes
        if problem.epilogue is None:
            return plain
        sizes = problem.epilogue.output_bytes
        elements = WGMMA_ROWS * self.graph_epilogue_width(problem)
        tiles = sum(-(-elements * size // SHARED_ALIGNMENT) * SHARED_ALIGNMENT for size in sizes)
        graph = self.storing_warpgroups(problem) * EPILOGUE_BUFFERS * tiles
        total: N = select(self.split > 1, larger(graph, self.epilogue_bytes(32)), graph)
        return total

    @property
    def stored(self) -> Any:
        """The configuration of the tile that a CTA stores: half of the columns where the CTAs of a
        cluster have parts of its k-blocks.
        """
        joined = self.in_cluster
        if joined is False:
            return self
        bm, bn, bk = self.tile
        fields: dict[str, Any] = {
            "tile": (bm, select(joined, bn // JOINED, bn), bk),
            "split": select(joined, 1, self.split),
            "in_cluster": joined & False,
        }
        return replace(self, **fields)  # type: ignore[type-var]

    @property
    def joined_bytes(self) -> N:
        """Bytes of shared memory for the accumulators of the other CTA that has a part of the
        tile's k-blocks.
        """
        of_half = self.accumulator_registers // JOINED * WARPGROUP * ACCUMULATOR_BYTES
        size: N = select(self.in_cluster, self.epilogue_warpgroups * of_half, 0)
        return size

    def graph_epilogue_tiles(self, problem: Problem) -> N:
        """Epilogue tiles of a warpgroup, of an epilogue function."""
        columns = self.d_tile(problem)[1] // self.graph_epilogue_width(problem)
        tiles: N = self.d_warpgroup_rows(problem) // WGMMA_ROWS * columns
        return tiles

    def tensor_copy_loads(self, problem: Problem, type_: str) -> Any:
        """Whether a tensor copy can load an epilogue tile of this type: its rows have 32 bytes."""
        row = self.graph_epilogue_width(problem) * dtype(type_).bits // 8
        return select(self.swap, True, row >= MIN_SWIZZLE_BYTES)

    def load_stage_bytes(self, problem: Problem) -> N:
        """Bytes of an epilogue tile of all matrix operands that tensor copies can load."""
        total: Any = 0 * self.stages
        for _, source in problem.epilogue.tensor_inputs() if problem.epilogue else ():
            row = self.graph_epilogue_width(problem) * dtype(source.type).bits // 8
            size = -(-WGMMA_ROWS * row // SHARED_ALIGNMENT) * SHARED_ALIGNMENT
            total = total + select(self.tensor_copy_loads(problem, source.type), size, 0)
        together: N = select(self.stores_partial, 0, total)
        return together

    def load_stages(self, problem: Problem) -> N:
        """Epilogue tiles of matrix operands that a warpgroup has in shared memory; they divide its
        epilogue tiles, so that each has its stage.
        """
        tiles = self.graph_epilogue_tiles(problem)
        some = select(tiles % LOAD_STAGES == 0, LOAD_STAGES, 1)
        stages: N = select(tiles <= MAX_LOADED_TOGETHER, tiles, some)
        return stages

    def load_bytes(self, problem: Problem) -> N:
        """Bytes of shared memory for the matrix operands of an epilogue."""
        if problem.epilogue is None or not any(problem.epilogue.tensor_inputs()):
            none: N = 0 * self.stages
            return none
        warpgroups = self.storing_warpgroups(problem)
        return warpgroups * self.load_stages(problem) * self.load_stage_bytes(problem)

    def loads_by_tma(self, problem: Problem) -> Any:
        """Whether tensor copies load matrix operands of the epilogue: there are some, and their
        buffers fit beside the stages. Else threads load them from global memory.
        """
        size = self.load_bytes(problem)
        return (size > 0) & (self._shared_bytes_without_loads(problem) + size <= MAX_SHARED_BYTES)

    def vector_length(self, problem: Problem, varies: str) -> N:
        """Elements that a tile of D meets of a vector operand that ``varies`` along M or N."""
        rows, columns = self.d_tile(problem)
        own, other = (rows, columns) if "m" in varies else (columns, rows)
        length: N = select(self.swap, other, own)
        return length

    def vector_bytes(self, problem: Problem) -> N:
        """Bytes of shared memory for the vector operands of an epilogue: those of a tile, with
        pingpong of two.
        """
        total: Any = 0 * self.stages
        for _, source, _ in problem.epilogue.shared_vectors() if problem.epilogue else ():
            total = total + VECTOR_BYTES * self.vector_length(problem, source.varies)
        size: N = select(self.stores_partial, 0, total * select(self.pingpong, 2, 1))
        return size

    def shares_vectors(self, problem: Problem) -> Any:
        """Whether the vector operands of the epilogue go through shared memory: there are some, and
        their buffers fit into shared memory. Else threads load them from global memory.
        """
        size = self.vector_bytes(problem)
        return (size > 0) & (self._shared_bytes_without_vectors(problem) + size <= MAX_SHARED_BYTES)

    def scale_runs(self, problem: Problem) -> tuple[ScaleRun, ScaleRun]:
        """The block scales of A and of B in a stage."""
        scaling, (rows, columns) = problem.scaling, self.d_tile(problem)
        assert scaling is not None
        m, n = select(self.swap, columns, rows), select(self.swap, rows, columns)
        (a, b), joined = scaling.contiguous, problem.has_row_groups
        matrices, stacked = 2 if problem.pair else 1, not problem.has_k_groups
        return (
            ScaleRun.of(m, scaling.rows, a, 1, stacked and not joined, joined),
            ScaleRun.of(n, scaling.columns, b, matrices, stacked),
        )

    def scale_stage_bytes(self, problem: Problem) -> N:
        """Bytes of a stage's block scales in f32."""
        if problem.scaling is None:
            return 0 * self.stages
        a, b = self.scale_runs(problem)
        size: N = a.bytes + b.bytes
        return size

    def shared_bytes(self, problem: Problem) -> N:
        """Bytes of shared memory of a CTA."""
        vectors = select(self.shares_vectors(problem), self.vector_bytes(problem), 0)
        total: N = self._shared_bytes_without_vectors(problem) + vectors
        return total

    def handed_buffers(self, problem: Problem) -> N:
        """Buffers for the accumulators that warpgroups hand over: one for each of them where they
        fit beside the rest, else one for all.
        """
        others = self.handing_warpgroups(problem)
        more = (others - 1) * self.handed_bytes(problem)
        fits_all = self.shared_bytes(problem) + more <= MAX_SHARED_BYTES
        buffers: N = select((others > 1) & fits_all, others, 1)
        return buffers

    def _shared_bytes_without_vectors(self, problem: Problem) -> N:
        loads = select(self.loads_by_tma(problem), self.load_bytes(problem), 0)
        total: N = self._shared_bytes_without_loads(problem) + loads
        return total

    def _shared_bytes_without_loads(self, problem: Problem) -> N:
        return self.stages * self._whole_stage_bytes(problem) + self._bytes_outside_stages(problem)

    def _whole_stage_bytes(self, problem: Problem) -> N:
        """Bytes of a stage with its block scales."""
        return self.stage_bytes(problem) + self.scale_stage_bytes(problem)

    def _bytes_outside_stages(self, problem: Problem) -> N:
        more = 0 if problem.weights is None else SHARED_ALIGNMENT + self.handed_bytes(problem)
        total: N = self.epilogue_shared_bytes(problem) + BARRIER_BYTES + more
        return total + self.gather_bytes(problem)

    def gather_bytes(self, problem: Problem) -> N:
        """Bytes of the offsets of a tile's rows of A, if they are gathered: ``LINES_AT_ONCE`` runs,
        each of a multiple of 16 bytes, and of 16 bytes more so that they begin in different banks.
        """
        if not problem.gathers:
            return self.stages * 0
        rows = select(self.swap, self.tile[1], self.tile[0])
        bytes_: N = 4 * LINES_AT_ONCE * self.gather_run(rows)
        return bytes_

    @staticmethod
    def gather_run(rows: Any) -> Any:
        """Offsets of a run, where a tile has this many rows of A."""
        unit = 4 * LINES_AT_ONCE
        return (rows + (unit - 1)) // unit * 4 + 4

    def max_stages(self, problem: Problem, device: DeviceSpec) -> N:
        """Stages that fit into the shared memory of a CTA, beside the operands of an epilogue; with
        sliced-K as many for each slice.
        """
        operands = self.load_bytes(problem) + self.vector_bytes(problem)
        taken = self._bytes_outside_stages(problem) + operands
        ring = device.limits.shared_per_block - taken
        most = ring // self._whole_stage_bytes(problem)
        stages: N = most - most % self.slices
        return stages

    def resident_clusters(self, device: DeviceSpec) -> N:
        """Resident clusters of the device."""
        return resident_clusters(self.ctas, device)

    def tile_grid(self, problem: Problem) -> tuple[N, N]:
        """Work tiles along the tile's M and N; a cluster's tiles are one work tile."""
        (bm, bn, _), (cm, cn) = self.tile, self.cluster
        m = select(self.swap, problem.n, problem.m)
        n = select(self.swap, problem.m, problem.n)
        return -(-m // (bm * cm)), -(-n // (bn * cn))

    def cluster_tiles(self, problem: Problem) -> N:
        """Work tiles of the whole batch; a cluster's tiles are one work tile."""
        down, across = self.tile_grid(problem)
        return down * across * problem.batch

    def unsplit_tiles(self, problem: Problem, device: DeviceSpec) -> N:
        """Work tiles that are not split along K."""
        tiles, resident = self.cluster_tiles(problem), self.resident_clusters(device)
        whole_waves = select(self.tail, tiles // resident * resident, 0)
        parts = select(self.in_cluster, False, self.split > 1)
        unsplit: N = select(parts, whole_waves, tiles)
        return unsplit


def resident_clusters(ctas: N, device: DeviceSpec) -> N:
    """Resident clusters of this number of CTAs on the device. Those of 4 and more leave
    some SMs empty: an H200's 132 SMs hold 66 clusters of 2, 30 of 4 or 15 of 8.
    """
    usable = select(ctas > 2, device.sms * 10 // 11, device.sms)
    resident: N = larger(1, usable // ctas)
    return resident


def swizzle_bytes(extent: N, bits: int) -> N:
    """Bytes of the longest swizzled row that divides an MN-major operand's extent; 32 at least."""
    row: N = larger(power_of_two_divisor(extent * bits // 8, SWIZZLE_BYTES), MIN_SWIZZLE_BYTES)
    return row
