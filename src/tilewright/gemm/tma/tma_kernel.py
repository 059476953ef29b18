"""Kernel ``tma``: tensor copies into a ring, wgmma, a warp that only copies. For sm_90a.

    one warp of the first warpgroup         the other warpgroups
        for each tile, for each step of K:      for each tile:
            wait until the stage is empty           for each step of K:
            start its copies                            wait until the stage is full
                                                        start its products
                                                        wait for the step's before, free its stage
                                                    write the sums out

A CTA goes from tile to tile; the ring knows no tiles, so the next one's copies are under way while
the last one is written out. With ``pingpong`` the warpgroups take tiles in turn, and one multiplies
while the other writes. CTAs of a cluster share what they load: each brings its part to all that
want it, and frees a stage at all that fill it. With ``split``, tiles are cut along K, too: the sums
of a part go to a workspace as they are, and ``finish`` adds them up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any

from ...builder import Builder, OrderedSequenceBarrier, PipelineTmaAsync, Traced, trace
from ...target import DeviceSpec
from ..kernel_launch import KernelArguments, LaunchShape, MatrixStrides
from ..kernel_scalars import global_pointer, scalar
from ..problem import Problem
from .dynamic_tile_scheduler import DynamicTileScheduler, TileQueue
from .splitk_reduction import tile_of
from .tile_scheduler import TileScheduler, WorkTileInfo
from .tma_config import TmaConfig
from .tma_epilogue import EpilogueTile, OutputTensor, TmaEpilogue
from .tma_mainloop import PromotedMainloop, WgmmaMainloop
from .tma_operand import GlobalMatrix, TmaOperand

MAP = "bytes 128 align 64"
PARAMETERS = {
    "map_a": MAP, "map_b": MAP, "map_c": MAP, "map_d": MAP, "map_w": MAP,
    "edge_a": MAP, "edge_b": MAP,
    "c": "u64", "d": "u64", "ldc": "u64", "ldd": "u64", "apart_c": "u64", "apart_d": "u64",
    "m": "u32", "n": "u32", "k_total": "u32", "batches": "u32",
    "whole": "u32", "counter": "u64",
    "alpha": "f32", "beta": "f32", "alpha_ptr": "u64", "beta_ptr": "u64",
}  # fmt: skip
# registers of a thread of (the warpgroup that copies, one that multiplies), by how many multiply
REGISTERS = {2: (24, 240), 3: (32, 160)}
Maps = tuple[tuple[Any, Any], tuple[Any, Any]]  # of A and of B: whole tiles', the last one's
STAND_IN = 1 << 20  # for an address in a map that none is written to yet
BEYOND = (1 << 32) - (1 << 16)  # along K, before the first element: copies bring zeros


def operands(problem: Problem, config: TmaConfig) -> tuple[TmaOperand, TmaOperand]:
    """What stands left and right in the products: A and B, or with ``swap`` Bᵀ and Aᵀ."""
    (bm, bn, bk), (cm, cn) = config.tile, config.cluster
    given = [(problem.a, problem.a_major), (problem.b, problem.b_major)]
    (left, left_major), (right, right_major) = given[::-1] if config.swap else given
    return (
        TmaOperand(left, bm, bk, "k" if left_major == "k" else "mn", cn),
        TmaOperand(right, bn, bk, "k" if right_major == "k" else "mn", cm),
    )


def problem_class(problem: Problem, config: TmaConfig) -> Problem:
    """The problem that stands for all with the same kernel: sizes don't matter to it, only whether
    there are several matrices.
    """
    return replace(problem, m=1, n=1, k=1, batch=min(problem.batch, 2))


def build(problem: Problem, config: TmaConfig) -> Traced:
    """The kernel for a problem and a configuration, traced once for all problems of its class."""
    return _build(problem_class(problem, config), config)


@lru_cache(maxsize=256)
def _build(problem: Problem, config: TmaConfig) -> Traced:
    bm, bn, bk = config.tile
    name = f"gemm_tma_{problem.a}_{problem.layout}_{problem.d}_{bm}x{bn}x{bk}"

    def kernel(
        k: Any, map_a: Any, map_b: Any, map_c: Any, map_d: Any, map_w: Any,
        edge_a: Any, edge_b: Any,
        c: Any, d: Any, ldc: Any, ldd: Any, apart_c: Any, apart_d: Any,
        m: Any, n: Any, k_total: Any, batches: Any, whole: Any, counter: Any,
        alpha: Any, beta: Any, alpha_ptr: Any, beta_ptr: Any,
    ) -> None:  # fmt: skip
        body, maps = TmaKernel(k, problem, config), ((map_a, edge_a), (map_b, edge_b))
        body.begin(maps)
        scale = (
            scalar(k, alpha, alpha_ptr, early=True), scalar(k, beta, beta_ptr, early=True)
        )  # fmt: skip
        depth = k.select(scale[0] == 0.0, 0, k_total)
        body.sizes((m, n), depth, batches if problem.batched else None, whole, counter)
        outputs = (
            OutputTensor(map_d, global_pointer(k, d), ldd, apart_d),
            OutputTensor(map_c, global_pointer(k, c), ldc, apart_c),
            OutputTensor(map_w, None, None, None),
        )
        body.run(maps, outputs, scale)

    bounds = {"block": config.threads, "min_ctas": 1}
    return trace(kernel, name=name, params=PARAMETERS, lines=False, **bounds)


def kernel_arguments(
    problem: Problem, config: TmaConfig, lines: Mapping[str, MatrixStrides], device: DeviceSpec
) -> KernelArguments:
    """The kernel's parameters for matrices that lie so; maps hold a stand-in for the address."""
    way, sums = EpilogueTile.of(problem, config), EpilogueTile.of_sums(problem, config)
    parts = operands(problem, config)
    left, right = parts[::-1] if config.swap else parts
    m, n, depth, whole = (
        problem.m,
        problem.n,
        max(problem.k, 1),
        config.unsplit_tiles(problem, device),
    )
    shapes = {
        "a": (m, depth) if problem.a_major == "k" else (depth, m),
        "b": (n, depth) if problem.b_major == "k" else (depth, n),
        "c": (m, n), "d": (m, n),
    }  # fmt: skip
    inputs = {"a": left, "b": right}
    edges = {name: of for name, of in inputs.items() if of.narrows}
    readers: dict[str, TmaOperand | EpilogueTile] = {**inputs}
    if way.copied:
        readers |= {"c": way, "d": way}
    values: dict[str, Any] = {f"map_{name}": bytes(128) for name in "abcdw"}
    values |= {"edge_a": bytes(128), "edge_b": bytes(128)}
    values |= {"m": m, "n": n, "k_total": problem.k, "batches": problem.batch, "whole": whole}
    for name, of in lines.items():
        if name in readers:
            stack = (problem.batch, of.apart) if problem.batched else ()
            matrix = GlobalMatrix(STAND_IN, *shapes[name], of.leading, *stack)
            values[f"map_{name}"] = readers[name].map(matrix).encode()
        if name in edges:
            values[f"edge_{name}"] = edges[name].edge(matrix).encode()
        if name in "cd":
            values |= {f"ld{name}": of.leading, f"apart_{name}": of.apart}
    cut = (config.cluster_tiles(problem) - whole) * config.ctas * config.split
    if config.split > 1 and cut:
        rows, columns = tile_of(config)
        matrix = GlobalMatrix(STAND_IN, rows, columns, columns, cut, rows * columns)
        values["map_w"] = sums.map(matrix).encode()
    places: dict[str, tuple[str, ...]] = {name: (f"map_{name}",) for name in "abw"}
    for name in edges:
        places[name] += (f"edge_{name}",)
    if config.dynamic:
        places["w"] = ("counter",)
    places |= {name: (f"map_{name}" if way.copied else name,) for name in "cd"}
    return KernelArguments.of(PARAMETERS, values, places)


def launch_shape(problem: Problem, config: TmaConfig, device: DeviceSpec) -> LaunchShape:
    """The launch: a cluster for each block of tiles, or for each place that the device has."""
    pieces = config.cluster_tiles(problem)
    if config.split > 1:
        whole = config.unsplit_tiles(problem, device)
        pieces = whole + (pieces - whole) * config.split
    clusters = min(pieces, config.resident_clusters(device))
    cluster = (config.ctas, 1, 1) if config.ctas > 1 else None
    return LaunchShape((clusters * config.ctas, 1, 1), (config.threads, 1, 1), cluster, True)


class TmaKernel:
    """The kernel's parts, in the order they run."""

    def __init__(self, k: Builder, problem: Problem, config: TmaConfig) -> None:
        self.k, self.problem, self.config = k, problem, config
        self.left, self.right = operands(problem, config)
        self.way, self.way_of_sums = (
            EpilogueTile.of(problem, config),
            EpilogueTile.of_sums(problem, config),
        )
        stages, (cm, cn) = config.stages, config.cluster
        self.at_left = k.dynamic_shared(stages * self.left.bytes, 1024).address()
        self.at_right = k.dynamic_shared(stages * self.right.bytes, 1024).address()
        self.staged = k.dynamic_shared(config.epilogue_bytes(problem.output.bits), 1024).address()
        fills = 1 if config.pingpong else config.consumers
        self.pipeline = PipelineTmaAsync(k, stages, fills * (cm + cn - 1))
        self.c_barriers = k.dynamic_shared(8 * config.consumers, 8, dtype="b64")
        self.warpgroup = k.shfl("idx", k.tid.x >> 7, 0)
        self.turns = OrderedSequenceBarrier(k, self.warpgroup - 1) if config.pingpong else None
        self.queue = TileQueue(k, config) if config.dynamic else None

    def begin(self, maps: Maps) -> None:
        """Barriers are ready. The kernels before may still run: who touches global memory waits for
        them first, and does before that what needs none of it.
        """
        k = self.k
        with k.if_(k.tid.x == 0):
            for map_ in chain(*maps):
                k.tma_prefetch_map(map_)
            self.pipeline.init()
            if self.turns:
                self.turns.init()
            if self.queue:
                self.queue.ring.init()
            for i in range(self.config.consumers):
                k.mbarrier_init(self.c_barriers + i, 1)
            k.fence_mbarrier_init()
        if self.config.ctas > 1:
            k.cluster_sync()
        else:
            k.barrier()
        k.launch_dependent_grids()

    def sizes(
        self, limits: tuple[Any, Any], depth: Any, batches: Any, whole: Any, counter: Any
    ) -> None:
        """This CTA's work."""
        k, config = self.k, self.config
        self.limits = limits
        m, n = limits[::-1] if config.swap else limits
        steps = (depth + (config.tile[2] - 1)) // config.tile[2]
        self.schedule = TileScheduler(k, config, m, n, steps, batches, whole)
        if self.queue:
            self.schedule = DynamicTileScheduler(
                self.queue, counter, k, config, m, n, steps, batches, whole
            )

    def run(self, maps: Maps, outputs: tuple[OutputTensor, OutputTensor], scale: Any) -> None:
        """Each warpgroup does its own."""
        k, config = self.k, self.config
        registers = REGISTERS.get(config.consumers)
        with k.if_(self.warpgroup == 0):
            if registers:
                k.setmaxnreg(registers[0], inc=False)
            with k.if_(k.shfl("idx", k.tid.x >> 5, 0) == 0):
                with k.if_(k.elect()):
                    self._produce(*(maps[::-1] if config.swap else maps))
                k.syncwarp()
        with k.else_():
            if registers:
                k.setmaxnreg(registers[1], inc=True)
            self._consume(outputs, scale)
        if config.ctas > 1:
            k.cluster_sync()

    # --- the warp that copies ---

    def _produce(self, left_maps: tuple[Any, Any], right_maps: tuple[Any, Any]) -> None:
        k, config = self.k, self.config
        (cm, cn), bk = config.cluster, config.tile[2]
        down, across = self.schedule.down, self.schedule.across
        at = self.pipeline.make_producer_state()
        m, n = self.limits[::-1] if config.swap else self.limits
        to_left = to_right = None
        if cn > 1:
            to_left = (k.const("u32", sum(1 << j * cm for j in range(cn))) << down).to("u16")
        if cm > 1:
            to_right = (k.const("u32", (1 << cm) - 1) << (across * cm)).to("u16")

        def piece(work: WorkTileInfo, _: Any) -> None:
            begin = k.select(work.steps == 0, BEYOND, work.first * bk)
            map_left, bytes_left = self.left.source(k, left_maps, work.row, m)
            map_right, bytes_right = self.right.source(k, right_maps, work.column, n)
            size = bytes_left + bytes_right
            k.wait_on_dependent_grids()
            for step in k.range(0, k.max(work.steps, 1), unroll=False):
                self.pipeline.producer_acquire(at)
                full = self.pipeline.producer_expect_transaction(at, size)
                left = self.at_left + at.stage * self.left.bytes
                right = self.at_right + at.stage * self.right.bytes
                first_k, batch = step * bk + begin, work.batch
                places = (work.row, first_k, batch), (work.column, first_k, batch)
                self.left.load(k, left, map_left, places[0], full, across, to_left)
                self.right.load(k, right, map_right, places[1], full, down, to_right)
                at.advance()

        self.schedule.produce(piece)

    # --- the warpgroups that multiply ---

    def _consume(self, outputs: tuple[OutputTensor, OutputTensor], scale: Any) -> None:
        k, config = self.k, self.config
        k.wait_on_dependent_grids()
        self.consumer = self.warpgroup - 1 if config.consumers > 1 else k.const("u32", 0)
        own = 0 if config.pingpong else self.consumer * config.warpgroup_rows
        at = self.pipeline.make_consumer_state()
        mainloop = (PromotedMainloop if self.problem.promoted else WgmmaMainloop)(self, at)
        ways = self._ways_out(outputs, scale)
        if self.turns:
            self.turns.start()
            with k.if_(self.consumer == 1):
                at.advance_by(k.max(self.schedule.first_steps(), 1))

        def piece(work: WorkTileInfo, following: Any) -> None:
            if self.turns:
                self.turns.wait()
            sums = mainloop.run(k.max(work.steps, 1), following)
            if config.split > 1:
                with k.if_(work.part >= 0 if config.tail else True):
                    zero = k.const("u32", 0)
                    ways[1].run(sums, zero + own, zero, work.part.view("u32"))
            if config.split == 1 or config.tail:
                with k.if_(work.part < 0 if config.tail else True):
                    ways[0].run(sums, work.row + own, work.column, work.batch)

        if config.pingpong:
            self.schedule.walk(piece, self.consumer, 2)
        else:
            self.schedule.walk(piece)
        for way in ways if config.tail else ways[config.split > 1 :]:
            way.end()

    def _ways_out(
        self, outputs: tuple[OutputTensor, ...], scale: Any
    ) -> tuple[TmaEpilogue, TmaEpilogue]:
        """Of D, and of the sums of a part of K."""
        d, c, w = outputs
        staging = self._staging()
        barrier = self.c_barriers + self.consumer
        more = scale, self.limits, barrier
        return (
            TmaEpilogue(self.k, self.way, staging, self.consumer, d, c, *more),
            TmaEpilogue(self.k, self.way_of_sums, staging, self.consumer, w, c, *more),
        )

    def _staging(self) -> Any:
        """Where this warpgroup's D leaves from."""
        size = self.config.epilogue_bytes(self.problem.output.bits) // self.config.consumers
        return self.staged + self.consumer * size
