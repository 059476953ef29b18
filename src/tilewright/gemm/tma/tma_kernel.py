"""Kernel ``tma``: warp-specialized GEMM with tensor copies and wgmma, for sm_90a.

    producer warp (tma_producer)            consumer warpgroups (tma_mainloop, tma_epilogue)
        for each work tile, k-block:            for each work tile:
            wait until the stage is empty           for each k-block:
            issue its copies                            wait until the stage is full
                                                        issue its wgmmas
                                                        wait for the wgmmas of the k-block before,
                                                        release its stage
                                                    epilogue: store D

The kernel is persistent: the tile scheduler gives a CTA work tile after work tile, and the pipeline
runs across tiles, so the loads of the next tile overlap the epilogue. Cooperative warpgroups share
a tile; with ``pingpong`` they take tiles alternately, and the mainloop of one overlaps the epilogue
of the other. Free warps of the producer warpgroup load the matrix operands of an epilogue
(epilogue_load). With ``split`` (split-K) the partial accumulators go to a workspace, and the
split-K reduction adds them up, or the CTAs of a cluster do (mixed_input/joined_accumulators).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from ...builder import (
    Builder,
    OrderedSequenceBarrier,
    PipelineState,
    PipelineTmaAsync,
    Reg,
    Traced,
)
from ..epilogue.operand_loads import EpilogueOperands
from ..kernel_scalars import global_pointer, scalar
from ..problem import UNIT_SIZES, Problem
from .dynamic_tile_scheduler import DynamicTileScheduler, TileQueue
from .epilogue_load.epilogue_load_warp import EpilogueLoadWarp
from .epilogue_load.operand_stages import OperandStages
from .epilogue_load.vector_stages import VectorStages
from .grouped.gather_warp import GatherPipeline
from .grouped.schedulers import grouped_tile_scheduler, row_scatter
from .launch.tma_parameters import TmaParameters, tma_parameters
from .mainloop.copy_warp import run_copy_warp
from .mainloop.scale_load_warp import LANES, SCALE_WARP
from .mainloop.stage_copies import stage_copies
from .mainloop.stage_scales import StageScales
from .mainloop.tma_mainloop import WgmmaMainloop
from .mainloop.tma_scaled_mainloop import ScaledMainloop
from .mixed_input.alternating_mainloop import AlternatingMainloop, alternates
from .mixed_input.joined_accumulators import JoinedAccumulators
from .mixed_input.mixed_input_mainloop import MixedInputMainloop
from .mixed_input.weight_prefetch import PREFETCH_THREAD, prefetch_weights, prefetched_k_blocks
from .problem_list.problem_epilogue import epilogue_class
from .sparse.metadata_stages import MetadataStages
from .stage_operands import SharedStages, StageCopy, StageOperand
from .stream_k.partial_exchange import PartialExchange
from .stream_k.stream_k_tile_scheduler import StreamKTileScheduler
from .tile_scheduler import JoinedTileScheduler, TileScheduler, WorkTileInfo
from .tma_config import TmaConfig, d_corner
from .tma_epilogue import EpilogueTile, OutputTensor, TmaEpilogue
from .tma_geometry import WARPGROUP
from .tma_graph_epilogue import more_outputs
from .tma_mainloops import mainloop_class
from .tma_operand import operands
from .tma_producer import TmaProducer

# Registers of a thread (producer warpgroup, consumer warpgroup), by the number of consumers.
REGISTERS = {2: (24, 240), 3: (32, 160), 4: (24, 112)}
COPY_REGISTERS = {2: (40, 232), 4: (40, 112)}  # with a scale load warp, or a gather warp


def problem_class(problem: Problem, config: TmaConfig) -> Problem:
    """The problem that represents all with the same kernel: sizes are parameters, except whether
    the problem is batched.
    """
    m, n, k = UNIT_SIZES
    return replace(problem, m=m, n=n, k=k, batch=2 if problem.groups else min(problem.batch, 2))


def build(problem: Problem, config: TmaConfig) -> Traced:
    """Trace the kernel, once for all problems of the same class."""
    return _build(problem_class(problem, config), config)


@lru_cache(maxsize=256)
def _build(problem: Problem, config: TmaConfig) -> Traced:
    bm, bn, bk = config.tile
    weights = problem.weights
    right = "" if weights is None else f"{'_sparse' * weights.sparse}_{weights.type}"
    right += "_grouped" if problem.groups else ""
    name = f"gemm_tma_{problem.a}{right}_{problem.layout}_{problem.d}_{bm}x{bn}x{bk}"

    def kernel(k: Builder, p: TmaParameters) -> None:
        TmaKernel(k, problem, config, p).run()

    parameters = tma_parameters(problem)
    return parameters.trace(kernel, name, problem.scalar_type, block=config.threads, min_ctas=1)


class WarpRole(NamedTuple):
    """What some warpgroups do: ``registers`` of a thread (None: as launched), and the code."""

    registers: int | None
    body: Callable[[], None]


class TmaKernel:
    """The body of the kernel; ``run`` emits it."""

    def __init__(self, k: Builder, problem: Problem, config: TmaConfig, p: TmaParameters) -> None:
        self.k, self.problem, self.config, self.parameters = k, problem, config, p
        stages, (cm, cn) = config.stages, config.cluster
        left, right = operands(problem, config)
        left_address = k.dynamic_shared(stages * left.bytes, 1024).address()
        right_address = k.dynamic_shared(stages * right.bytes, 1024).address()
        self.epilogue_address = k.dynamic_shared(
            config.epilogue_shared_bytes(problem), 1024
        ).address()
        self.loads = OperandStages(k, problem, config) if config.loads_by_tma(problem) else None
        self.vectors = VectorStages(k, problem, config) if config.shares_vectors(problem) else None
        self.scales = None if problem.scaling is None else StageScales.of(k, problem, config)
        readers = 1 if config.pingpong else config.epilogue_warpgroups
        readers *= WARPGROUP // mainloop_class(problem).release_threads
        self.scales_by_warp = problem.scaling is not None and problem.scaling.loaded_by_warp
        arrivals = 1 + LANES if self.scales_by_warp or problem.gathers else 1
        pipelines = GatherPipeline if problem.gathers else PipelineTmaAsync
        pipeline = pipelines(k, stages, readers * (cm + cn - 1), arrivals)
        metadata = None
        if problem.sparse:
            address = k.dynamic_shared(stages * config.metadata_bytes(problem), 16).address()
            never = p.k == (1 << 32) - 1
            metadata = MetadataStages(problem, config, address, never)
        self.stages = SharedStages(
            StageOperand(left, left_address), StageOperand(right, right_address), pipeline, metadata
        )
        self.handed_address = None
        if config.hands_over(problem):
            size = config.handed_bytes(problem) * config.handed_buffers(problem)
            self.handed_address = k.dynamic_shared(size, 16).address()
        self.joined_barriers = None
        if config.in_cluster:
            count = 2 * config.epilogue_warpgroups
            self.joined_barriers = k.dynamic_shared(8 * count, 8, dtype="b64")
        self.c_barriers = k.dynamic_shared(8 * config.consumers, 8, dtype="b64")
        self.warpgroup = k.shfl("idx", k.tid.x >> 7, 0)
        self.order = OrderedSequenceBarrier(k, self.warpgroup - 1) if config.pingpong else None
        self.queue = None
        if config.dynamic:
            loads = self.loads is not None or self.vectors is not None
            self.queue = TileQueue(k, config, loads=loads, scales=self.scales_by_warp)

    def run(self) -> None:
        """Emit the kernel: prologue, then the roles of the warpgroups."""
        k, config, p = self.k, self.config, self.parameters
        self._prologue()
        self.d_limits = p.m, p.n // 2 if self.problem.pair else p.n
        self.scalars = (
            scalar(k, p.alpha, p.alpha_ptr, early=True), scalar(k, p.beta, p.beta_ptr, early=True)
        )  # fmt: skip
        self.operands = None
        if self.problem.epilogue:
            bound, accumulates = self.problem.epilogue, self.problem.accumulates
            self.operands = EpilogueOperands(k, bound, p, self.d_limits, accumulates=accumulates)
            self.operands.load_scalars(early=True)
        depth = k.select(self.scalars[0] == 0.0, 0, p.k)
        self.scheduler = self._tile_scheduler(depth)
        d = OutputTensor(p.map_d, global_pointer(k, p.d), p.ldd, p.batch_stride_d)
        c = OutputTensor(p.map_c, global_pointer(k, p.c), p.ldc, p.batch_stride_c)
        copies = self.scales_by_warp or self.problem.gathers
        table = REGISTERS | COPY_REGISTERS if copies else REGISTERS
        registers = table.get(config.consumers, (None, None))
        self._run_roles(
            WarpRole(registers[0], self._produce),
            WarpRole(registers[1], lambda: self._consume(d, c)),
        )

    def _run_roles(self, producer: WarpRole, math: WarpRole) -> None:
        """Emit the roles: the first warpgroup is the producer's, the others multiply."""
        with self.k.if_(self.warpgroup == 0):
            self._run_role(producer, more=False)
        with self.k.else_():
            self._run_role(math, more=True)

    def _run_role(self, role: WarpRole, *, more: bool) -> None:
        """Emit a role, which has ``more`` registers than at launch, or fewer."""
        if role.registers:
            self.k.setmaxnreg(role.registers, inc=more)
        if self.config.ctas > 1:
            self.k.cluster_wait()  # until all CTAs of the cluster have initialized their barriers
        role.body()
        if self.joined_barriers and not more:
            self.k.cluster_wait()  # all threads that have arrived wait

    def _prologue(self) -> None:
        """Initialize the barriers. With programmatic dependent launch the previous grids may still
        run: a warp waits for them before it accesses global memory.
        """
        k, p = self.k, self.parameters
        if prefetched_k_blocks(self.problem, self.config):
            with k.if_(k.tid.x == PREFETCH_THREAD):
                scheduler = self._tile_scheduler(p.k)
                prefetch_weights(k, self.problem, self.config, p, scheduler, self.stages)
        with k.if_(k.tid.x == 0):
            for map_ in p.prefetched_maps:
                k.tma_prefetch_map(map_)
            self.stages.pipeline.init()
            for loads in (self.loads, self.vectors):
                if loads:
                    loads.pipeline.init()
            if self.order:
                self.order.init()
            if self.queue:
                self.queue.pipeline.init()
            for i in range(self.config.consumers):
                k.mbarrier_init(self.c_barriers + i, 1)
            if self.joined_barriers:
                warpgroups = self.config.epilogue_warpgroups
                JoinedAccumulators.init(k, self.joined_barriers, warpgroups)
            k.fence_mbarrier_init()
        if self.config.ctas > 1 or self.joined_barriers:
            k.cluster_arrive()
        if self.config.ctas == 1:
            k.barrier()
        k.launch_dependent_grids()

    def _swapped(self, a: Any, b: Any) -> tuple[Any, Any]:
        """(left, right) of wgmma from what belongs to A (or M) and to B (or N)."""
        return (b, a) if self.config.swap else (a, b)

    def _tile_scheduler(self, depth: Reg) -> TileScheduler:
        k, config, p = self.k, self.config, self.parameters
        m, n = self._swapped(p.m, p.n)
        k_blocks = (depth + (config.tile[2] - 1)) // config.tile[2]
        if self.problem.groups is not None:
            return grouped_tile_scheduler(k, self.problem, config, p, k_blocks)
        batches = p.batches if self.problem.batched else None
        sizes = m, n, k_blocks, batches, p.full_tiles
        if self.queue is not None:
            return DynamicTileScheduler(self.queue, p.counter, k, config, *sizes)
        scheduler = StreamKTileScheduler if config.stream_k else TileScheduler
        if self.joined_barriers:
            return JoinedTileScheduler(k, config, *sizes)
        return scheduler(k, config, *sizes)

    def _produce(self) -> None:
        """The roles of the producer warpgroup: one thread of its first warp issues all copies of A
        and B; the next warps load operands of the epilogue, one for each consumer warpgroup; the
        last one loads block scales that no tensor copy loads.
        """
        k, stages, config = self.k, self.stages, self.config
        warp = k.shfl("idx", k.tid.x >> 5, 0)
        with k.if_(warp == 0):
            with k.if_(k.elect()):
                producer = TmaProducer(k, config, stages.pipeline, self.scheduler)
                producer.run(self._copies())
            k.syncwarp()
        if self.scales_by_warp or self.problem.gathers:
            with k.if_(warp == SCALE_WARP):
                run_copy_warp(
                    k, self.problem, config, self.parameters, stages, self.scales, self.scheduler
                )
        if self.operands and (self.loads or self.vectors):
            with k.if_((warp > 0) & (warp <= config.storing_warpgroups(self.problem))):
                EpilogueLoadWarp(
                    k, self.problem, config, self.operands, self.loads, self.vectors,
                    self.scheduler, warp - 1,
                ).run()  # fmt: skip

    def _copies(self) -> list[StageCopy]:
        """The copies that fill a stage."""
        return stage_copies(
            self.k, self.problem, self.config, self.parameters, self.scheduler, self.stages,
            self.scales,
        )  # fmt: skip

    def _consume(self, d: OutputTensor, c: OutputTensor) -> None:
        """The role of a consumer warpgroup: mainloop and epilogue of each work tile."""
        k, config = self.k, self.config
        k.wait_for_prior_grids()
        consumer = self.warpgroup - 1 if config.consumers > 1 else k.const("u32", 0)
        one_stores = config.hands_over(self.problem)
        alone = config.pingpong or one_stores
        first_row = 0 if alone else consumer * config.d_warpgroup_rows(self.problem)
        state = self.stages.pipeline.make_consumer_state()
        mainloop = self._mainloop(consumer, state)
        epilogue, partials = self._epilogues(consumer, d, c)
        exchange, joined = self._exchange(consumer), self._joined(consumer)
        split = config.split > 1 and not joined
        if self.order:
            self.order.start()
            with k.if_(consumer == 1):
                state.advance_by(k.max(self.scheduler.first_tile_k_blocks(), 1))

        def process(tile: WorkTileInfo, next_k_blocks: Any) -> None:
            if self.order:
                self.order.wait()
            mainloop.begin(tile, first_row)
            accumulators = mainloop.run(k.max(tile.k_blocks, 1), next_k_blocks)
            with k.if_(consumer == 0 if one_stores else True):
                store(tile, accumulators)

        def store(tile: WorkTileInfo, accumulators: list[list[Any]]) -> None:
            if joined:
                accumulators = joined.run(accumulators)
            if split:
                with k.if_(tile.partial >= 0 if config.tail else True):
                    zero = k.const("u32", 0)
                    first = first_row * 2 if self.problem.pair else first_row  # both blocks
                    partials.run(accumulators, zero + first, zero, tile.partial.view("u32"))
            if exchange:
                with k.if_(tile.partial >= 0):
                    exchange.store(accumulators, tile.partial.view("u32"))
            if not split or config.tail:
                with k.if_(tile.partial < 0 if config.mixes_partials else True):
                    if exchange:
                        exchange.add_all(accumulators, tile)
                    row, column = d_corner(self.problem, config, tile.row, tile.column)
                    if joined:
                        column = column + joined.rank * (config.tile[1] // config.split)
                    epilogue.begin(tile)
                    epilogue.run(accumulators, row + first_row, column, tile.batch)

        if config.pingpong:
            self.scheduler.for_each_tile(process, consumer, 2)
        else:
            self.scheduler.for_each_tile(process)
        if not split or config.tail:
            epilogue.drain()
        if joined:
            self._drain_joined(joined, consumer)
        partials.drain()

    def _drain_joined(self, joined: JoinedAccumulators, consumer: Any) -> None:
        """Let no CTA of the cluster end before the other has its accumulators; a warpgroup that
        stores none has not waited for the cluster's start either.
        """
        k, one_stores = self.k, self.config.hands_over(self.problem)
        with k.if_(consumer == 0 if one_stores else True):
            joined.drain()
        if one_stores:
            with k.if_(consumer != 0):
                k.cluster_wait()

    def _mainloop(self, consumer: Any, state: PipelineState) -> WgmmaMainloop:
        k, problem, config = self.k, self.problem, self.config
        more = self.stages, self.scheduler, consumer, self.order, state
        if self.scales:
            return ScaledMainloop(k, problem, config, self.scales, *more)
        if problem.weights is not None:
            kind = MixedInputMainloop
            if alternates(problem.weights, config):
                kind = AlternatingMainloop
            return kind(k, problem, config, self.handed_address, *more)
        return mainloop_class(problem)(k, problem, config, *more)

    def _exchange(self, consumer: Any) -> PartialExchange | None:
        k, scheduler, p = self.k, self.scheduler, self.parameters
        if not isinstance(scheduler, StreamKTileScheduler):
            return None
        return PartialExchange(k, self.problem, self.config, scheduler, p.counter, consumer)

    def _joined(self, consumer: Any) -> JoinedAccumulators | None:
        """The exchange with the CTA that has the other part of the tile's k-blocks."""
        if not self.joined_barriers:
            return None
        problem, config = self.problem, self.config
        each = config.joined_bytes // config.epilogue_warpgroups
        staging = config.epilogue_shared_bytes(problem) - config.joined_bytes
        part = 0 if config.slices > 1 else consumer
        address = self.epilogue_address + staging + part * each
        return JoinedAccumulators(self.k, address, self.joined_barriers + 2 * part)

    def _epilogues(
        self, consumer: Any, d: OutputTensor, c: OutputTensor
    ) -> tuple[TmaEpilogue, TmaEpilogue]:
        """The epilogue that stores D, and the one that stores partial accumulators of split-K."""
        k, problem, config, p = self.k, self.problem, self.config, self.parameters
        of_all = config.epilogue_shared_bytes(problem) - config.joined_bytes
        size = of_all // config.storing_warpgroups(problem)
        staging = self.epilogue_address + consumer * size
        barrier, limits = self.c_barriers + consumer, self.d_limits
        workspace = OutputTensor(p.map_workspace, None, None, None)
        more = self.scalars, limits, barrier
        epilogue: TmaEpilogue
        if self.operands is None:
            tile = EpilogueTile.of(problem, config.stored)
            epilogue = TmaEpilogue(k, tile, staging, consumer, d, c, *more)
        else:
            tensors = [d, *more_outputs(k, self.operands)]
            stages = [x for x in (self.loads, self.vectors) if x]
            epilogue = epilogue_class(problem)(
                k, problem, config, staging, consumer, tensors, self.operands, limits, barrier,
                stages,
            )  # fmt: skip
            epilogue.scatter = row_scatter(k, problem, p)
        partial = EpilogueTile.of_partials(problem, config)
        return epilogue, TmaEpilogue(k, partial, staging, consumer, workspace, c, *more)
