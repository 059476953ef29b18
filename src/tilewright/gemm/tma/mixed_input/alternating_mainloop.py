"""The mainloop with prepared weights where two sets of accumulators alternate: the tensor cores
write one while the other one, of the group before, is promoted. A k-block is a group.

    k-block 0       k-block 1           k-block 2           …
    set 0           set 1               set 0
                    promote set 0       promote set 1       …

So no wait is for all wgmmas, but the last one. The conversions of the next chunk alternate between
two sets of fragments, which a k-block of one chunk leaves in the order in which it found them.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from ....quantization.weight_format import UNIT_K, WeightFormat
from ...problem import accumulator_type_of
from ..tma_config import TmaConfig
from ..tma_geometry import WGMMA_ROWS
from .mixed_input_mainloop import CHUNK_K, FRAGMENT, MixedInputMainloop, _Numbers

LEAST_COLUMNS = 32  # of a tile; fewer are multiplied faster than they are converted
MOST_REGISTERS = 176  # of accumulators and fragments


def alternates(weights: WeightFormat, config: TmaConfig) -> bool:
    """Whether two sets of accumulators alternate: of two warpgroups that do not share k-blocks, of
    few enough columns for the registers. More warpgroups hide each other's waits.
    """
    if weights.groups != 1 or weights.sparse or weights.has_float_zeros or config.pingpong:
        return False
    two = config.consumers == 2 and config.slices == 1 and config.warpgroup_rows == WGMMA_ROWS
    few = config.tile[1] >= LEAST_COLUMNS and _registers(config, CHUNK_K, weights) <= MOST_REGISTERS
    return two and few and config.tile[2] == weights.unit_k


def _registers(config: TmaConfig, chunk_k: int, weights: WeightFormat) -> int:
    """Registers of the totals, the sets of accumulators and the sets of fragments."""
    return 3 * config.tile[1] // 2 + 2 * FRAGMENT * (chunk_k // weights.step)


class AlternatingMainloop(MixedInputMainloop):
    """The mainloop with two sets of accumulators."""

    def _chunk_steps(self) -> int:
        """All of a k-block's, where the registers suffice."""
        fits = _registers(self.config, UNIT_K, self.weights) <= MOST_REGISTERS
        return UNIT_K // self.weights.step if fits else super()._chunk_steps()

    def _allocate(self) -> None:
        super()._allocate()
        kind, n = accumulator_type_of(self.problem.a), self.config.tile[1]
        self.parts = [self.part, list(self.k.array(kind, n // 2))]

    def _multiply_all(self, k_blocks: Any) -> None:
        """Multiply this warpgroup's k-blocks of the work tile. From one wait after all wgmmas ptxas
        concludes that accumulators are read while they are written, and serializes wgmma (C7514):
        each end has its own.
        """
        k = self.k
        self.sets = self.fragments, self.fragments[::-1]
        self.stages.pipeline.consumer_wait(self.state)
        self.numbers: list[_Numbers] = []
        first = self._load(0, self.state.stage, None)
        for _ in range(2):
            self.numbers.append(_Numbers(*([k.var(x) for x in group] for group in first)))
        with k.if_(k_blocks == 1):
            self._block(0, first=True, last=True)
        with k.else_():
            self._block(0, first=True)
            for _ in k.range(0, (k_blocks - 2) >> 1, unroll=False):
                self._block(1)
                self._block(0)
            with k.if_((k_blocks & 1) == 0):
                self._block(1, last=True)
            with k.else_():
                self._block(1)
                self._block(0, last=True)

    def _block(self, index: int, first: bool = False, last: bool = False) -> None:
        """Multiply a k-block, whose first chunk is in registers, into a set, and promote the other
        one; then the first chunk of the next k-block is in registers.
        """
        k, state, right = self.k, self.state, self.stages.right.operand
        before = k.var("u32", self.previous)
        k.mov(state.stage, into=self.previous)
        x = self.right_descriptor + (state.stage * (right.bytes >> 4)).to("u64")
        state.advance()
        count, following = len(self.chunks), self.numbers[index]
        for i in range(count):
            own = i + index * count  # of the two k-blocks of the loop
            self.part, self.fragments = self.parts[index], self.sets[(own - i) % 2]
            k.wgmma_fence()
            self._issue(i, x)
            k.wgmma_commit()
            k.wgmma_wait(1)
            if i == 0 and not first:
                self.release(before, None)
            if i + 1 < count:
                self._load(i + 1, self.previous, self.numbers[index])
            elif not last:
                self.stages.pipeline.consumer_wait(state)
                self.fragments = self.sets[(index + 1) * count % 2]
                following = self._load(0, state.stage, None)
            if i == 0 and not first:
                self._promote_set(1 - index)
        if last:
            k.wgmma_wait(0)
            self.release(self.previous, None)
            self._promote_set(index)
            return
        pairs = zip(chain(*self.numbers[1 - index]), chain(*following), strict=True)
        for variable, value in pairs:
            k.mov(value, into=variable)

    def _promote_set(self, index: int) -> None:
        self.part = self.parts[index]
        self._promote(0, self.numbers[index])
