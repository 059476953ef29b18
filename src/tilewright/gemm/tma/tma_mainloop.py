"""The main loop of kernel ``tma``: a warpgroup's products over K, of stages that copies fill.

A stage's products start when it is full; when those of the stage before have ended, that one is
free again, at all CTAs that fill it. Fast sums of 8-bit floats are added up in f32 stage by stage,
while the tensor cores are at the next ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...builder import PipelineState
from ...builder.tensors.wgmma_fragments import descriptor_start
from .tma_config import WARPGROUP, WGMMA_ROWS, has_two_accumulator_sets

if TYPE_CHECKING:
    from .tma_kernel import TmaKernel


class AccumulatorTile(NamedTuple):
    """What wgmmas one after another compute: ``columns`` from ``column`` on of a block of rows."""

    sums: list[Any]
    block: int
    column: int
    columns: int


class WgmmaMainloop:
    """A warpgroup's products over K: ``run`` gives the sums of its blocks of rows."""

    def __init__(self, body: TmaKernel, at: PipelineState) -> None:
        self.k, self.body, self.at = body.k, body, at
        config, problem = body.config, body.problem
        k, left, right, n = self.k, body.left, body.right, config.tile[1]
        self.blocks = range(config.warpgroup_rows // WGMMA_ROWS)
        self.kind = problem.accumulator_type
        self._registers()
        types = [problem.b, problem.a] if config.swap else [problem.a, problem.b]
        form = f"k{32 // left.size}.{self.kind}.{'.'.join(types)}"
        self.opcode = f"wgmma.mma_async.sync.aligned.m64n{{}}{form}"
        self.flags = (int(left.major == "MN"), int(right.major == "MN"))
        self.first_left = descriptor_start(body.at_left) | left.bits(WGMMA_ROWS)
        self.first_right = descriptor_start(body.at_right) | right.bits(n)
        if config.consumers > 1 and not config.pingpong:
            own = body.consumer * (left.start(config.warpgroup_rows, 0) >> 4)
            self.first_left = self.first_left + own.to("u64")
        self.release = self._releaser()
        self.previous = k.var("u32", 0)

    def _registers(self) -> None:
        self.chains = self._whole()

    def _whole(self) -> list[AccumulatorTile]:
        """Registers for the sums of all blocks."""
        n = self.body.config.tile[1]
        return [
            AccumulatorTile(list(self.k.array(self.kind, n // 2)), block, 0, n)
            for block in self.blocks
        ]

    def run(self, steps: Any, following: Any) -> list[list[Any]]:
        """``following``: steps that the other warpgroup takes before this one's next."""
        k, body, at = self.k, self.body, self.at
        for step in k.range(0, steps, unroll=False):
            later = step != 0
            body.pipeline.consumer_wait(at)
            k.wgmma_fence()
            self._products(self.chains, later)
            k.wgmma_commit()
            k.wgmma_wait(1)
            self.release(self.previous, later)
            k.mov(at.stage, into=self.previous)
            at.advance()
        self._pass_turn(following)
        k.wgmma_wait(0)
        self.release(self.previous, None)
        return [chain.sums for chain in self.chains]

    def _pass_turn(self, following: Any) -> None:
        """To the other warpgroup, where they take turns."""
        k, body = self.k, self.body
        if body.turns:
            with k.when(k.tid.x & 31 == 0):
                body.turns.arrive()
            self.at.advance_by(k.max(following, 1))

    def _products(self, chains: list[AccumulatorTile], accumulate: Any) -> None:
        """Those of a stage."""
        k, left, right, at = self.k, self.body.left, self.body.right, self.at
        a = self.first_left + (at.stage * (left.bytes >> 4)).to("u64")
        b = self.first_right + (at.stage * (right.bytes >> 4)).to("u64")
        for piece in range(left.steps):
            first_k = piece * 32 // left.size
            for sums, block, column, columns in chains:
                k.wgmma(
                    self.opcode.format(columns),
                    sums,
                    a + (left.start(block * WGMMA_ROWS, first_k) >> 4),
                    b + (right.start(column, first_k) >> 4),
                    accumulate=True if piece else accumulate,
                    trans=self.flags,
                )

    def _releaser(self) -> Any:
        """``release(stage, when)``: a thread for each CTA that fills our stages."""
        k, body = self.k, self.body
        cm, cn = body.config.cluster
        lane = k.tid.x & (WARPGROUP - 1)
        if cm * cn == 1:
            chosen = lane == 0

            def here(stage: Any, when: Any) -> None:
                with k.when(chosen if when is None else chosen & when):
                    body.pipeline.consumer_release(stage)

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


class PromotedMainloop(WgmmaMainloop):
    """The same where a stage's sums are fast and are added up in f32: two sets of registers take
    turns, the tensor cores are at one while the other is added. They hold the sums of stage after
    stage, or where registers don't do for that, of either half of the blocks or columns.
    """

    def _registers(self) -> None:
        config = self.body.config
        n = config.tile[1]
        self.by_stage = has_two_accumulator_sets(self.body.problem, config)
        whole = self._whole()
        if self.by_stage:
            self.sets = [whole, self._whole()]
        elif len(whole) > 1:
            self.sets = [whole[::2], whole[1::2]]
        else:
            low = n // 16 * 8
            sums = whole[0].sums
            self.sets = [
                [AccumulatorTile(sums[: low // 2], 0, 0, low)],
                [AccumulatorTile(sums[low // 2 :], 0, low, n - low)],
            ]
        self.total = [list(self.k.array("f32", n // 2)) for _ in self.blocks]

    def run(self, steps: Any, following: Any) -> list[list[Any]]:
        k = self.k
        for total in self.total:
            for t in total:
                t.set(0.0)
        self._issue(0)
        self._move_on(0)
        # Two ways to the end, each with its own wait: of one wait behind all products ptxas makes
        # the end of one long stage, in which sums must not be read, and serialises wgmma (C7514).
        even = (steps & 1) == 0
        if self.by_stage:
            for _ in k.range(0, (steps - 1) >> 1, unroll=False):
                self._next(1)
                self._next(0)
            with k.if_(even):
                self._next(1)
                self._finish(1)
            with k.else_():
                self._finish(0)
        else:
            self._next(1)
            for _ in k.range(1, steps, unroll=False):
                self._next(0)
                self._next(1)
            with k.if_(even):
                self._finish(1)
            with k.else_():
                self._finish(1)
        self._pass_turn(following)
        return self.total

    def _next(self, index: int) -> None:
        """Start one set's products, add up the other's, which have ended meanwhile."""
        self._issue(index)
        self.k.wgmma_wait(1)
        self._add(1 - index)
        self._move_on(index)

    def _finish(self, index: int) -> None:
        self.k.wgmma_wait(0)
        self._add(index)

    def _issue(self, index: int) -> None:
        k = self.k
        if self.by_stage or index == 0:
            self.body.pipeline.consumer_wait(self.at)
        k.wgmma_fence()
        self._products(self.sets[index], False)
        k.wgmma_commit()

    def _add(self, index: int) -> None:
        """A set's sums to the totals; what it read is free, if it was the last of its stage."""
        if self.by_stage or index == 1:
            self.release(self.previous, None)
        for sums, block, column, columns in self.sets[index]:
            total = self.total[block][column // 2 : (column + columns) // 2]
            for t, s in zip(total, sums, strict=True):
                self.k.add(t, s, into=t)

    def _move_on(self, index: int) -> None:
        """To the next stage, if that was all of this one's products."""
        if self.by_stage or index == 1:
            self.k.mov(self.at.stage, into=self.previous)
            self.at.advance()
