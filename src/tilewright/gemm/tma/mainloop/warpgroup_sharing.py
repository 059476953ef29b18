"""How the consumer warpgroups of a CTA share the rows and the k-blocks of a tile."""

from __future__ import annotations

from typing import Any, Generic

from ...columns import N, larger, select
from ...problem import Problem

WARPGROUP = 128
WGMMA_ROWS = 64  # rows of D per wgmma
ACCUMULATOR_BYTES = 4
# CTAs of a cluster that have the parts of split-K; tile_n is a multiple of JOINED_COLUMNS, as each
# CTA stores half of it, by 8.
JOINED, JOINED_COLUMNS = 2, 16


class WarpgroupSharing(Generic[N]):
    """The fields of a configuration, as numbers or as columns, and what follows for warpgroups."""

    __slots__ = ()

    tile: tuple[N, N, N]
    consumers: N
    stages: N
    cluster: tuple[N, N]
    pingpong: Any
    split: N
    tail: Any
    group: N
    swap: Any
    dynamic: Any
    stream_k: N
    in_cluster: Any

    @property
    def threads(self) -> N:
        """Threads of a CTA."""
        return WARPGROUP * (1 + self.consumers)

    @property
    def ctas(self) -> N:
        """CTAs of a cluster."""
        return self.cluster[0] * self.cluster[1]

    @property
    def slices(self) -> N:
        """Warpgroups that compute the same rows, each from some of the k-blocks (sliced-K)."""
        shared = larger(1, WGMMA_ROWS * self.consumers // self.tile[0])
        slices: N = select(self.pingpong, 1, shared)
        return slices

    @property
    def epilogue_warpgroups(self) -> N:
        """Consumer warpgroups that store tiles, or rows of tiles: one of those that share rows."""
        return self.consumers // self.slices

    @property
    def warpgroup_rows(self) -> N:
        """Rows of the tile that a consumer warpgroup computes."""
        rows: N = self.tile[0] // select(self.pingpong, 1, self.epilogue_warpgroups)
        return rows

    @property
    def accumulator_registers(self) -> N:
        """Accumulator registers of a thread."""
        return self.warpgroup_rows * self.tile[1] // WARPGROUP

    @property
    def stores_partial(self) -> Any:
        """Whether every tile is split along K: the epilogue stores 32-bit partial accumulators, and
        the split-K reduction kernel writes D, or the cluster's CTAs do (``in_cluster``).
        """
        return select(self.tail, False, self.split > 1)

    @property
    def mixes_partials(self) -> Any:
        """Whether some work tiles give D, and others partial accumulators."""
        return self.tail | (self.stream_k > 0)

    def may_join(self, problem: Problem) -> Any:
        """Whether split-K by 2 may be in clusters: of prepared weights, of one matrix, without an
        epilogue function.
        """
        if problem.weights is None or problem.pair or problem.epilogue or problem.groups:
            return False
        plain = (self.split == JOINED) & (self.ctas == 1) & (self.tile[1] % JOINED_COLUMNS == 0)
        return select(self.tail, False, plain)

    def divides_pair(self, problem: Problem) -> Any:
        """Whether a consumer warpgroup has rows of one of two matrices of prepared weights, not of
        both: those of the second one hand their accumulators to those of the first.
        """
        if not problem.pair or problem.weights is None:
            return False
        return self.warpgroup_rows == WGMMA_ROWS

    def hands_over(self, problem: Problem) -> Any:
        """Whether the first consumer warpgroup gets the accumulators of all others, and stores the
        tile: with sliced-K, or where they divide a pair.
        """
        return (self.slices > 1) | self.divides_pair(problem)

    def storing_warpgroups(self, problem: Problem) -> N:
        """Consumer warpgroups that store tiles, or rows of tiles."""
        count: N = select(self.divides_pair(problem), 1, self.epilogue_warpgroups)
        return count

    def handed_bytes(self, problem: Problem) -> N:
        """Bytes of shared memory for the accumulators that a warpgroup hands over."""
        own = self.accumulator_registers * WARPGROUP * ACCUMULATOR_BYTES
        size: N = select(self.hands_over(problem), own, 0)
        return size

    def handing_warpgroups(self, problem: Problem) -> N:
        """Consumer warpgroups that hand their accumulators over, where some do."""
        count: N = self.slices * select(self.divides_pair(problem), 2, 1) - 1
        return count
