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
want it, and frees a stage at all that fill it. With ``split`` they share a tile's K instead: each
lays its sums down for the others, and finishes some columns, adding up in the order of K.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ..build import Builder, Traced, trace
from ..target import Device
from .arguments import Arguments, Lines, Shape
from .pipeline import Pipeline, Place, Turns
from .problem import Problem
from .scale import global_pointer, scalar
from .schedule import Schedule
from .tma_config import ROWS, WARPGROUP, TmaConfig
from .tma_epilogue import Epilogue, Target, Way
from .tma_operand import Matrix, Operand

MAP = "bytes 128 align 64"
PARAMETERS = {
    "map_a": MAP, "map_b": MAP, "map_c": MAP, "map_d": MAP,
    "c": "u64", "d": "u64", "ldc": "u64", "ldd": "u64", "apart_c": "u64", "apart_d": "u64",
    "m": "u32", "n": "u32", "k_total": "u32", "batches": "u32",
    "alpha": "f32", "beta": "f32", "alpha_ptr": "u64", "beta_ptr": "u64",
}  # fmt: skip
# registers of a thread of (the warpgroup that copies, one that multiplies), by how many multiply
REGISTERS = {2: (24, 240), 3: (32, 160)}
STAND_IN = 1 << 20  # for an address in a map that none is written to yet
BEYOND = 1 << 30  # where no matrix has elements along K


def operands(problem: Problem, config: TmaConfig) -> tuple[Operand, Operand]:
    """What stands left and right in the products: A and B, or with ``swap`` Bᵀ and Aᵀ."""
    (bm, bn, bk), (cm, cn) = config.tile, config.cluster
    given = [(problem.a, problem.a_major), (problem.b, problem.b_major)]
    (left, left_major), (right, right_major) = given[::-1] if config.swap else given
    return (
        Operand(left, bm, bk, "k" if left_major == "k" else "mn", cn),
        Operand(right, bn, bk, "k" if right_major == "k" else "mn", cm),
    )


def build(problem: Problem, config: TmaConfig) -> Traced:
    """The kernel for a problem and a configuration; sizes don't matter to it."""
    return _build(problem.sized(1, 1, 1), config)


@lru_cache(maxsize=256)
def _build(problem: Problem, config: TmaConfig) -> Traced:
    bm, bn, bk = config.tile
    name = f"gemm_tma_{problem.a}_{problem.layout}_{problem.d}_{bm}x{bn}x{bk}"

    def kernel(
        k: Any, map_a: Any, map_b: Any, map_c: Any, map_d: Any, c: Any, d: Any, ldc: Any, ldd: Any,
        apart_c: Any, apart_d: Any, m: Any, n: Any, k_total: Any, batches: Any,
        alpha: Any, beta: Any, alpha_ptr: Any, beta_ptr: Any,
    ) -> None:  # fmt: skip
        body = Tma(k, problem, config)
        body.begin((map_a, map_b))
        scale = scalar(k, alpha, alpha_ptr), scalar(k, beta, beta_ptr)
        depth = k.select(scale[0] == 0.0, 0, k_total)
        body.sizes((m, n), depth, batches if problem.batched else None)
        outputs = (
            Target(map_d, global_pointer(k, d), ldd, apart_d),
            Target(map_c, global_pointer(k, c), ldc, apart_c),
        )
        body.run((map_a, map_b), outputs, scale)

    bounds = {"block": config.threads, "min_ctas": 1}
    return trace(kernel, name=name, params=PARAMETERS, lines=False, **bounds)


def arguments(problem: Problem, config: TmaConfig, lines: Mapping[str, Lines]) -> Arguments:
    """The kernel's parameters for matrices that lie so; their maps hold a stand-in for the address.
    """
    traced, way = build(problem, config), Way.of(problem, config)
    parts = operands(problem, config)
    left, right = parts[::-1] if config.swap else parts
    m, n, depth = problem.m, problem.n, max(problem.k, 1)
    a = (m, depth) if problem.a_major == "k" else (depth, m)
    b = (n, depth) if problem.b_major == "k" else (depth, n)

    def map_of(part: Operand | Way, shape: tuple[int, int], of: Lines, size: int) -> bytes:
        batches = problem.batch if problem.batched else 0
        leading = max(of.leading, -(-shape[1] * size // 16) * 16 // size)
        return part.map(Matrix(STAND_IN, *shape, leading, batches, of.apart)).encode()

    maps = {
        "map_a": map_of(left, a, lines["a"], left.size),
        "map_b": map_of(right, b, lines["b"], right.size),
    }
    for name in "cd" if way.copied else "":
        if name in lines:
            maps[f"map_{name}"] = map_of(way, (m, n), lines[name], way.size)
    empty = {f"map_{name}": bytes(128) for name in "abcd"}
    sizes = {"m": m, "n": n, "k_total": problem.k, "batches": problem.batch}
    for name in "cd":
        if name in lines:
            sizes |= {f"ld{name}": lines[name].leading, f"apart_{name}": lines[name].apart}
    places = {x: (f"map_{x}",) for x in "abcd"}
    for name in "cd":
        places[name] = (*(places[name] if way.copied else ()), name)
    return Arguments(traced, {**empty, **maps, **sizes}, places)


def shape(problem: Problem, config: TmaConfig, device: Device) -> Shape:
    """The launch: a cluster for each block of tiles, or for each place that the device has."""
    (bm, bn, _), (cm, cn) = config.tile, config.cluster
    m, n = (problem.n, problem.m) if config.swap else (problem.m, problem.n)
    blocks = -(-m // (bm * cm)) * -(-n // (bn * cn)) * problem.batch
    if config.split == 1:
        blocks = min(blocks, max(1, device.sms // config.ctas))
    cluster = (config.ctas, 1, 1) if config.ctas > 1 else None
    return Shape((blocks * config.ctas, 1, 1), (config.threads, 1, 1), cluster, True)


class Tma:
    """The kernel's parts, in the order they run."""

    def __init__(self, k: Builder, problem: Problem, config: TmaConfig) -> None:
        self.k, self.problem, self.config = k, problem, config
        self.left, self.right = operands(problem, config)
        self.way = Way.of(problem, config)
        stages, (cm, cn) = config.stages, config.cluster
        self.at_left = k.dynamic_shared(stages * self.left.bytes, 1024).address()
        self.at_right = k.dynamic_shared(stages * self.right.bytes, 1024).address()
        self.staged = k.dynamic_shared(config.staged_bytes(problem.output.bits), 1024).address()
        fills = 1 if config.pingpong else config.consumers
        self.pipeline = Pipeline(k, stages, fills * (cm + cn - 1))
        self.c_barriers = k.dynamic_shared(8 * config.consumers, 8, dtype="b64")
        self.warpgroup = k.shfl("idx", k.tid.x >> 7, 0)
        self.turns = Turns(k, self.warpgroup - 1) if config.pingpong else None

    def begin(self, maps: tuple[Any, Any]) -> None:
        """Barriers are ready, and what the kernels before wrote is there."""
        k = self.k
        with k.if_(k.tid.x == 0):
            for map_ in maps:
                k.tma_prefetch_map(map_)
            self.pipeline.init()
            if self.turns:
                self.turns.init()
            for i in range(self.config.consumers):
                k.mbarrier_init(self.c_barriers + i, 1)
            k.fence_mbarrier_init()
        if self.config.ctas > 1:
            k.cluster_sync()
        else:
            k.barrier()
        k.grid_wait()
        k.grid_launch()

    def sizes(self, limits: tuple[Any, Any], depth: Any, batches: Any) -> None:
        """This CTA's tiles, and its steps along K."""
        k, config = self.k, self.config
        bk = config.tile[2]
        self.limits = limits
        m, n = limits[::-1] if config.swap else limits
        self.schedule = Schedule(k, config, m, n, batches)
        first, steps = 0, (depth + (bk - 1)) // bk
        if config.split > 1:
            first, end = (steps * (k.cluster_rank + i) // config.split for i in range(2))
            steps = end - first
        none = steps == 0  # then a step of zeros, from beyond the matrices
        self.first_k = k.select(none, BEYOND, first * bk)
        self.steps = k.max(steps, 1)

    def run(self, maps: Any, outputs: tuple[Target, Target], scale: Any) -> None:
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
            if config.split > 1:
                k.cluster_sync()
        with k.else_():
            if registers:
                k.setmaxnreg(registers[1], inc=True)
            self._consume(outputs, scale)
        if config.ctas > 1:
            k.cluster_sync()

    # --- the warp that copies ---

    def _produce(self, map_left: Any, map_right: Any) -> None:
        k, config = self.k, self.config
        (cm, cn), bk = config.cluster, config.tile[2]
        down, across = self.schedule.down, self.schedule.across
        at, size = self.pipeline.producer(), self.left.bytes + self.right.bytes
        to_left = to_right = None
        if cn > 1:
            to_left = (k.const("u32", sum(1 << j * cm for j in range(cn))) << down).to("u16")
        if cm > 1:
            to_right = (k.const("u32", (1 << cm) - 1) << (across * cm)).to("u16")

        def tile(row: Any, column: Any, batch: Any) -> None:
            for step in k.range(0, self.steps, unroll=False):
                self.pipeline.acquire(at)
                full = self.pipeline.commit(at, size)
                left = self.at_left + at.stage * self.left.bytes
                right = self.at_right + at.stage * self.right.bytes
                first_k = step * bk + self.first_k
                self.left.load(k, left, map_left, (row, first_k, batch), full, across, to_left)
                self.right.load(k, right, map_right, (column, first_k, batch), full, down, to_right)
                at.advance()

        self.schedule.walk(tile)

    # --- the warpgroups that multiply ---

    def _consume(self, outputs: tuple[Target, Target], scale: Any) -> None:
        k, config = self.k, self.config
        self.consumer = self.warpgroup - 1 if config.consumers > 1 else k.const("u32", 0)
        own = 0 if config.pingpong else self.consumer * config.rows
        at = self.pipeline.consumer()
        mainloop = Mainloop(self, at)
        way_out = Epilogue(k, self.way, self._staging(), self.consumer, *outputs, scale,
                           self.limits, self.c_barriers + self.consumer)  # fmt: skip
        if self.turns:
            self.turns.begin()
            with k.if_(self.consumer == 1):
                at.skip(self.steps)

        def tile(row: Any, column: Any, batch: Any) -> None:
            if self.turns:
                self.turns.wait()
            sums = mainloop.run()
            if config.split > 1:
                sums = self._exchange(sums)
                column = column + k.cluster_rank * config.columns
            way_out.run(sums, row + own, column, batch)

        if config.pingpong:
            self.schedule.walk(tile, self.consumer, 2)
        else:
            self.schedule.walk(tile)
        way_out.end()

    def _staging(self) -> Any:
        """Where this warpgroup's D leaves from."""
        size = self.config.staged_bytes(self.problem.output.bits) // self.config.consumers
        return self.staged + self.consumer * size

    def _exchange(self, sums: list[list[Any]]) -> list[list[Any]]:
        """The sums over all of K of the columns that this CTA finishes: from each CTA of the
        cluster, in order, what its thread of the same number laid down where stages were.
        """
        k, config = self.k, self.config
        split, count = config.split, len(sums[0]) // config.split
        thread = k.tid.x - WARPGROUP
        pitch = 16 * WARPGROUP * config.consumers  # bytes of four sums of each thread
        k.emit("bar.sync", 8, WARPGROUP * config.consumers)  # all have read the stages
        mine = k.pointer("shared", self.problem.sums, self.at_left + thread * 16)
        pieces = [(b, i) for i in range(0, len(sums[0]), 4) for b in range(len(sums))]
        for number, (block, i) in enumerate(pieces):
            mine.add_bytes(number * pitch).aligned(16).store(tuple(sums[block][i : i + 4]))
        k.cluster_sync()
        step = len(pieces) // split * pitch
        first = self.at_left + thread * 16 + k.cluster_rank * step
        total: list[list[Any]] = [[None] * count for _ in sums]
        for rank in range(split):
            there = k.pointer("shared::cluster", self.problem.sums, k.mapa(first, rank))
            for number, (block, i) in enumerate(pieces[: len(pieces) // split]):
                values = there.add_bytes(number * pitch).aligned(16).load(4)
                for j, value in enumerate(values):
                    old = total[block][i + j]
                    total[block][i + j] = value if old is None else old + value
        return total


class Mainloop:
    """A warpgroup's products over K: ``run`` gives the sums of its blocks of rows."""

    def __init__(self, body: Tma, at: Place) -> None:
        self.k, self.body, self.at = body.k, body, at
        config, problem = body.config, body.problem
        k, left, right, n = self.k, body.left, body.right, config.tile[1]
        self.blocks = range(config.rows // ROWS)
        kind = problem.sums
        self.sums = [list(k.array(kind, n // 2)) for _ in self.blocks]
        self.promoted = problem.promoted
        if self.promoted:
            self.total = [list(k.array("f32", n // 2)) for _ in self.blocks]
        depth = 32 // left.size
        types = [problem.b, problem.a] if config.swap else [problem.a, problem.b]
        self.opcode = f"wgmma.mma_async.sync.aligned.m64n{n}k{depth}.{kind}.{'.'.join(types)}"
        self.flags = (int(left.major == "MN"), int(right.major == "MN"))
        self.first_left = (body.at_left >> 4).to("u64") | left.bits(ROWS)
        self.first_right = (body.at_right >> 4).to("u64") | right.bits(n)
        if config.consumers > 1 and not config.pingpong:
            own = body.consumer * (left.start(config.rows, 0) >> 4)
            self.first_left = self.first_left + own.to("u64")
        self.release = self._releaser()
        self.previous = k.var("u32", 0)

    def run(self) -> list[list[Any]]:
        k, body, at = self.k, self.body, self.at
        for step in k.range(0, body.steps, unroll=False):
            later = step != 0
            body.pipeline.wait(at)
            k.wgmma_fence()
            self._products(False if self.promoted else later)
            k.wgmma_commit()
            if self.promoted:
                k.wgmma_wait(0)
                self.release(at.stage, None)
                self._promote(later)
            else:
                k.wgmma_wait(1)
                self.release(self.previous, later)
                k.mov(at.stage, into=self.previous)
            at.advance()
        if body.turns:
            with k.when(k.tid.x & (WARPGROUP - 1) == 0):
                body.turns.pass_on()
            at.skip(body.steps)
        if self.promoted:
            return self.total
        k.wgmma_wait(0)
        self.release(self.previous, None)
        return self.sums

    def _products(self, accumulate: Any) -> None:
        """Those of a stage."""
        k, left, right, at = self.k, self.body.left, self.body.right, self.at
        a = self.first_left + (at.stage * (left.bytes >> 4)).to("u64")
        b = self.first_right + (at.stage * (right.bytes >> 4)).to("u64")
        for part in range(left.steps):
            first_k = part * 32 // left.size
            for block in self.blocks:
                k.wgmma(
                    self.opcode,
                    self.sums[block],
                    a + (left.start(block * ROWS, first_k) >> 4),
                    b + (right.start(0, first_k) >> 4),
                    accumulate=True if part else accumulate,
                    trans=self.flags,
                )

    def _promote(self, later: Any) -> None:
        k = self.k
        for total, sums in zip(self.total, self.sums, strict=True):
            for t, s in zip(total, sums, strict=True):
                k.mov(k.select(later, t + s, s), into=t)

    def _releaser(self) -> Any:
        """``release(stage, when)``: a thread for each CTA that fills our stages."""
        k, body = self.k, self.body
        cm, cn = body.config.cluster
        lane = k.tid.x & (WARPGROUP - 1)
        if cm * cn == 1:
            chosen = lane == 0

            def here(stage: Any, when: Any) -> None:
                with k.when(chosen if when is None else chosen & when):
                    body.pipeline.release(stage)

            return here
        down, across = body.schedule.down, body.schedule.across
        other = lane - cn
        other = other + k.select(other >= down, 1, 0)
        peer = k.select(lane < cn, down + lane * cm, other + across * cm)
        chosen = lane < cm + cn - 1
        empty = k.mapa(body.pipeline.empty, k.select(chosen, peer, 0))

        def there(stage: Any, when: Any) -> None:
            opcode = "mbarrier.arrive.shared::cluster.b64"
            with k.when(chosen if when is None else chosen & when):
                k.emit(opcode, (empty + stage * 8, 0))

        return there
