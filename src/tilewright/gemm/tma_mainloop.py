"""The main loop of kernel ``tma``: a warpgroup's products over K, of stages that copies fill.

A stage's products start when it is full; when those of the stage before have ended, that one is
free again, at all CTAs that fill it. Fast sums of 8-bit floats are added up in f32 stage by stage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..build import Place
from ..build.descriptors import start_address
from .tma_config import ROWS, WARPGROUP

if TYPE_CHECKING:
    from .tma import Tma


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
        self.first_left = start_address(body.at_left) | left.bits(ROWS)
        self.first_right = start_address(body.at_right) | right.bits(n)
        if config.consumers > 1 and not config.pingpong:
            own = body.consumer * (left.start(config.rows, 0) >> 4)
            self.first_left = self.first_left + own.to("u64")
        self.release = self._releaser()
        self.previous = k.var("u32", 0)

    def run(self, steps: Any, following: Any) -> list[list[Any]]:
        """``following``: steps that the other warpgroup takes before this one's next."""
        k, body, at = self.k, self.body, self.at
        if self.promoted:
            for total in self.total:
                for t in total:
                    t.set(0.0)
        for step in k.range(0, steps, unroll=False):
            later = step != 0
            body.pipeline.wait(at)
            k.wgmma_fence()
            self._products(False if self.promoted else later)
            k.wgmma_commit()
            if self.promoted:
                k.wgmma_wait(0)
                self.release(at.stage, None)
                for total, sums in zip(self.total, self.sums, strict=True):
                    for t, s in zip(total, sums, strict=True):
                        k.add(t, s, into=t)
            else:
                k.wgmma_wait(1)
                self.release(self.previous, later)
                k.mov(at.stage, into=self.previous)
            at.advance()
        if body.turns:
            with k.when(k.tid.x & 31 == 0):
                body.turns.pass_on()
            at.skip(k.max(following, 1))
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
