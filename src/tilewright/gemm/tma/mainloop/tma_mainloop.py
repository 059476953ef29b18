"""Consumer mainloop of kernel ``tma``: a warpgroup's wgmmas over the k-blocks of a work tile.

The wgmmas of a stage are issued when it is full; when those of the stage before have completed,
that stage is released to all CTAs that fill it. Promoted accumulation adds the tensor core's
accumulators of 8-bit floats in f32 k-block by k-block, while the tensor core works on the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ....builder import Builder, OrderedSequenceBarrier, PipelineState
from ....builder.tensors.wgmma_fragments import descriptor_start
from ...problem import Problem, accumulator_type_of
from ..sparse.metadata_stages import MetadataReader
from ..stage_operands import SharedStages
from ..tile_scheduler import TileScheduler, WorkTileInfo
from ..tma_checks import has_two_accumulator_sets
from ..tma_config import TmaConfig
from ..tma_geometry import WARPGROUP, WGMMA_ROWS
from ..tma_operand import WGMMA_K


class AccumulatorTile(NamedTuple):
    """The accumulator of a chain of wgmmas: ``columns`` from ``column`` on of a 64-row block."""

    registers: list[Any]
    block: int
    column: int
    columns: int


class WgmmaMainloop:
    """The mainloop; ``run`` returns the accumulators of the 64-row blocks.

    ``consumer``: the index of the warpgroup. ``order``: with pingpong, the barrier that orders the
    warpgroups' mainloops. ``state``: the consumer's position in the pipeline.
    """

    release_threads = WARPGROUP  # of these one arrives to release a stage

    def __init__(
        self, k: Builder, problem: Problem, config: TmaConfig, stages: SharedStages,
        scheduler: TileScheduler, consumer: Any, order: OrderedSequenceBarrier | None,
        state: PipelineState,
    ) -> None:  # fmt: skip
        self.k, self.problem, self.config, self.stages = k, problem, config, stages
        self.scheduler, self.order, self.state = scheduler, order, state
        left = stages.left.operand
        self.blocks = range(config.warpgroup_rows // WGMMA_ROWS)
        self._allocate()
        types = [problem.b, problem.a] if config.swap else [problem.a, problem.b]
        per = 2 if problem.has_sparse_wgmma else 1
        self.right_k = WGMMA_K * per  # bytes along K of an instruction
        form = f"k{self.right_k // left.size}.{accumulator_type_of(problem.a)}.{'.'.join(types)}"
        name = "wgmma.mma_async.sp" if problem.has_sparse_wgmma else "wgmma.mma_async"
        self.opcode = f"{name}.sync.aligned.m64n{{}}{form}"
        self._describe(consumer)
        self.release = self._release_function()
        self.previous = k.var("u32", 0)  # the stage of the wgmmas before

    def _describe(self, consumer: Any) -> None:
        """Where this warpgroup's operands are in a stage."""
        problem, config, stages = self.problem, self.config, self.stages
        left, right = stages.left.operand, stages.right.operand
        self.transposed: tuple[int, ...] = (int(left.major == "MN"), int(right.major == "MN"))
        left_bits, right_bits = (
            left.descriptor_bits(WGMMA_ROWS),
            right.descriptor_bits(config.tile[1], self.right_k),
        )
        self.left_descriptor = descriptor_start(stages.left.address) | left_bits
        self.right_descriptor = descriptor_start(stages.right.address) | right_bits
        self.block_rows = self._block_rows()
        self.metadata = self._metadata(consumer)
        if config.consumers > 1 and not config.pingpong:
            own = consumer * (left.byte_offset(config.d_warpgroup_rows(problem), 0) >> 4)
            self.left_descriptor = self.left_descriptor + own.to("u64")

    def _block_rows(self) -> list[int]:
        """The row of the tile where each 64-row block of the first warpgroup begins. The rows of
        two matrices B are the halves of a swapped tile; each warpgroup has the same part of both.
        """
        rows = [block * WGMMA_ROWS for block in self.blocks]
        if not (self.problem.pair and self.config.swap):
            return rows
        first = rows[: len(rows) // 2]
        return first + [row + self.config.tile[0] // 2 for row in first]

    def _allocate(self) -> None:
        """Allocate the accumulator registers."""
        self.tiles = self._accumulator_tiles()

    def _accumulator_tiles(self) -> list[AccumulatorTile]:
        n = self.config.tile[1]
        kind = self.problem.accumulator_type
        return [
            AccumulatorTile(list(self.k.array(kind, n // 2)), block, 0, n) for block in self.blocks
        ]

    def begin(self, tile: WorkTileInfo, first_row: Any) -> None:
        """Go to a work tile, of which this warpgroup computes the rows from ``first_row`` on."""

    def run(self, k_blocks: Any, next_k_blocks: Any) -> list[list[Any]]:
        """Multiply ``k_blocks`` k-blocks. ``next_k_blocks``: with pingpong, those of the other
        warpgroup's work tile, which comes next.
        """
        k, state = self.k, self.state
        for block in k.range(0, k_blocks, unroll=False):
            accumulate = block != 0
            self.stages.pipeline.consumer_wait(state)
            k.wgmma_fence()
            self._issue_wgmmas(self.tiles, accumulate)
            k.wgmma_commit()
            k.wgmma_wait(1)
            self.release(self.previous, accumulate)
            k.mov(state.stage, into=self.previous)
            state.advance()
        self._arrive(next_k_blocks)
        k.wgmma_wait(0)
        self.release(self.previous, None)
        return [tile.registers for tile in self.tiles]

    def _arrive(self, next_k_blocks: Any) -> None:
        """With pingpong, let the other warpgroup's mainloop start, and skip its stages."""
        k = self.k
        if self.order:
            with k.when(k.tid.x & 31 == 0):
                self.order.arrive()
            self.state.advance_by(k.max(next_k_blocks, 1))

    def _metadata(self, consumer: Any) -> MetadataReader | None:
        stages = self.stages.metadata
        if stages is None:
            return None
        config, first = self.config, 0
        if not config.pingpong:
            first = consumer * (config.d_warpgroup_rows(self.problem) // WGMMA_ROWS)
        blocks = [row // WGMMA_ROWS for row in self.block_rows]
        return MetadataReader(self.k, stages, first, blocks)

    def _load_registers(self, index: int) -> None:
        """Load what the wgmmas of the current stage read in registers, into set ``index``."""
        if self.metadata:
            self.metadata.load(self.state.stage, index)

    def _keep_registers(self, index: int) -> None:
        """The wgmmas that read set ``index`` have completed."""
        if self.metadata:
            self.metadata.keep(index)

    def _issue_wgmmas(self, tiles: list[AccumulatorTile], accumulate: Any, index: int = 0) -> None:
        """Issue the wgmmas of the current stage; they read set ``index`` of registers."""
        k, stage = self.k, self.state.stage
        left, right = self.stages.left.operand, self.stages.right.operand
        a = self.left_descriptor + (stage * (left.bytes >> 4)).to("u64")
        b = self.right_descriptor + (stage * (right.bytes >> 4)).to("u64")
        for i in range(left.wgmmas_per_stage):
            left_k, right_k = i * WGMMA_K // left.size, i * self.right_k // left.size
            for registers, block, column, columns in tiles:
                k.wgmma(
                    self.opcode.format(columns),
                    registers,
                    a + (left.byte_offset(self.block_rows[block], left_k) >> 4),
                    b + (right.byte_offset(column, right_k) >> 4),
                    accumulate=True if i else accumulate,
                    trans=self.transposed,
                    metadata=self.metadata.operand(index, block, i) if self.metadata else None,
                )

    def _release_function(self) -> Callable[[Any, Any], None]:
        """``release(stage, when)``: one thread of ``release_threads`` arrives for each CTA that
        fills our stages.
        """
        k, pipeline = self.k, self.stages.pipeline
        cm, cn = self.config.cluster
        lane = k.tid.x & (self.release_threads - 1)
        if cm * cn == 1:
            chosen = lane == 0

            def release_here(stage: Any, when: Any) -> None:
                with k.when(chosen if when is None else chosen & when):
                    pipeline.consumer_release(stage)

            return release_here
        rank_m, rank_n = self.scheduler.rank_m, self.scheduler.rank_n
        other = lane - cn
        other = other + k.select(other >= rank_m, 1, 0)
        peer = k.select(lane < cn, rank_m + lane * cm, other + rank_n * cm)
        chosen = lane < cm + cn - 1
        empty = k.mapa(pipeline.empty, k.select(chosen, peer, 0))

        def release_in_cluster(stage: Any, when: Any) -> None:
            opcode = "mbarrier.arrive.shared::cluster.b64"
            with k.when(chosen if when is None else chosen & when):
                k.emit(opcode, (empty + stage * 8, 0))

        return release_in_cluster


class PromotedMainloop(WgmmaMainloop):
    """The mainloop with promotion to f32: two accumulator sets alternate, the tensor core writes
    one while the other is added to the total. The sets hold whole stages alternately
    (``by_stage``), or, where the registers do not suffice, either half of the blocks or columns.
    """

    def _allocate(self) -> None:
        config = self.config
        n = config.tile[1]
        self.by_stage = has_two_accumulator_sets(self.problem, config)
        tiles = self._accumulator_tiles()
        if self.by_stage:
            self.sets = [tiles, self._accumulator_tiles()]
        elif len(tiles) > 1:
            self.sets = [tiles[::2], tiles[1::2]]
        else:
            low = n // 16 * 8
            registers = tiles[0].registers
            self.sets = [
                [AccumulatorTile(registers[: low // 2], 0, 0, low)],
                [AccumulatorTile(registers[low // 2 :], 0, low, n - low)],
            ]
        self.total = [list(self.k.array("f32", n // 2)) for _ in self.blocks]

    def run(self, k_blocks: Any, next_k_blocks: Any) -> list[list[Any]]:
        k = self.k
        for total in self.total:
            for t in total:
                t.set(0.0)
        self._issue(0)
        self._read_ahead(0)
        self._advance(0)
        # The drain has two branches, each with its own wait: from one wait after all wgmmas ptxas
        # concludes that the accumulators are read within the stage, and serializes wgmma (C7514).
        even = (k_blocks & 1) == 0
        if self.by_stage:
            for _ in k.range(0, (k_blocks - 1) >> 1, unroll=False):
                self._next(1)
                self._next(0)
            with k.if_(even):
                self._next(1)
                self._finish(1)
            with k.else_():
                self._finish(0)
        else:
            self._next(1)
            for _ in k.range(1, k_blocks, unroll=False):
                self._next(0)
                self._next(1)
            with k.if_(even):
                self._finish(1)
            with k.else_():
                self._finish(1)
        self._arrive(next_k_blocks)
        return self.total

    def _next(self, index: int) -> None:
        """Issue the wgmmas of one set; add the other set, which has completed meanwhile."""
        self._issue(index)
        self.k.wgmma_wait(1)
        self._keep_registers(1 - index)
        self._add(1 - index, index)
        self._advance(index)

    def _finish(self, index: int) -> None:
        self.k.wgmma_wait(0)
        self._keep_registers(index)
        self._add(index)

    def _issue(self, index: int) -> None:
        k = self.k
        if self.by_stage or index == 0:
            self.stages.pipeline.consumer_wait(self.state)
        self._load_registers(index)
        k.wgmma_fence()
        self._issue_wgmmas(self.sets[index], False, index)
        k.wgmma_commit()

    def _read_ahead(self, index: int) -> None:
        """Read what the promotion of a set needs, whose wgmmas have just been issued."""

    def _add(self, index: int, following: int | None = None) -> None:
        """Add a set to the total. ``following``: the next one, whose wgmmas have been issued."""
        self._release_read(index)
        for registers, block, column, columns in self.sets[index]:
            total = self.total[block][column // 2 : (column + columns) // 2]
            for t, s in zip(total, registers, strict=True):
                self.k.add(t, s, into=t)

    def _reads_last(self, index: int) -> bool:
        """Whether a set's wgmmas are the last ones that read their stage."""
        return self.by_stage or index == 1

    def _release_read(self, index: int) -> None:
        """Release the stage of a set's wgmmas, which have completed, if they were its last."""
        if self._reads_last(index):
            self.release(self.previous, None)

    def _advance(self, index: int) -> None:
        """Go to the next stage if all wgmmas of this one are issued."""
        if self._reads_last(index):
            self.k.mov(self.state.stage, into=self.previous)
            self.state.advance()
