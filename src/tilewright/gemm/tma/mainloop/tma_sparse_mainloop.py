"""Consumer mainloop of kernel ``tma`` with a sparse operand.

wgmma.sp reads the registers of its metadata while it executes, not when it is issued (an H200 shows
it; the PTX manual does not name them). So the k-blocks use two sets of registers alternately, as
promotion uses two sets of accumulators: a set is loaded when the wgmmas that read it before have
completed, while those of the k-block between are in flight.
"""

from __future__ import annotations

from typing import Any

from .tma_mainloop import WgmmaMainloop


class SparseMainloop(WgmmaMainloop):
    """The mainloop, two k-blocks at a time."""

    def run(self, k_blocks: Any, next_k_blocks: Any) -> list[list[Any]]:
        k, pairs = self.k, k_blocks >> 1
        for pair in k.range(0, pairs, unroll=False):
            self._step(0, pair != 0)
            self._step(1, True)
        # Each branch has its own wait, as in PromotedMainloop.
        with k.if_((k_blocks & 1) != 0):
            self._step(0, pairs != 0)
            k.wgmma_wait(0)
            self._keep_registers(0)
        with k.else_():
            k.wgmma_wait(0)
            self._keep_registers(1)
        self._arrive(next_k_blocks)
        self.release(self.previous, None)
        return [tile.registers for tile in self.tiles]

    def _step(self, index: int, accumulate: Any) -> None:
        """Issue the wgmmas of a stage; release the stage before, whose wgmmas complete."""
        k, state = self.k, self.state
        self.stages.pipeline.consumer_wait(state)
        self._load_registers(index)
        k.wgmma_fence()
        self._issue_wgmmas(self.tiles, accumulate, index)
        k.wgmma_commit()
        k.wgmma_wait(1)
        self._keep_registers(1 - index)
        self.release(self.previous, None if accumulate is True else accumulate)
        k.mov(state.stage, into=self.previous)
        state.advance()
