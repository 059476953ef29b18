"""Configuration of kernel ``tma``: tile, warpgroups, stages, cluster, schedule.

``tma:128x256x64:2:4/2x1`` is a CTA tile of 128×256, a k-tile of 64, two cooperative consumer
warpgroups (``2p``: pingpong, a tile each), 4 stages, and clusters of two CTAs along M.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

from ...errors import ConfigError
from ..config_checks import (
    MAX_SPLIT,
    check_flags,
    check_group,
    check_kinds,
    notation,
    numbers_of,
)
from ..problem import Problem
from .mainloop.warpgroup_sharing import JOINED, JOINED_COLUMNS
from .tma_geometry import WGMMA_ROWS, TmaGeometry

MAX_STAGES = 32
MAX_SLICES = 4  # warpgroups that share the k-blocks of a tile
SLICED_ROWS = WGMMA_ROWS, 2 * WGMMA_ROWS  # of tiles whose k-blocks MAX_SLICES warpgroups share

SCHEDULE = "(?:/#x#)?(?:([*+])#(c?)|[+]sk(?!0)#)?(?:@#)?(~?)"
_NOTATION = notation("tma:#x#x#:#(p?):#(d?)" + SCHEDULE)


@dataclass(frozen=True, slots=True)
class TmaConfig(TmaGeometry[int]):
    """Kernel ``tma``: a producer warp fills ``stages`` by TMA copies, consumers issue wgmma.

    ``tile``: M, N, K of a CTA's tile. ``consumers``: warpgroups that share the rows of a tile, or
    with ``pingpong`` two that process alternate tiles; several with a tile of 64 rows share its
    k-blocks (sliced-K), and so do 4 with 128 rows of a pair. ``cluster``: CTAs along M and along N,
    which multicast the operands they share. ``split``: split-K, whose partial accumulators a
    reduction kernel adds in order; with ``tail`` only the tiles of the tail wave are split, with
    ``in_cluster`` the CTAs that share a tile are a cluster and add them through distributed shared
    memory. ``group``: rows of tiles per rasterization group. ``swap``: Dᵀ = Bᵀ Aᵀ is computed, so
    the tile's M is the problem's N. ``dynamic``: CTAs take tiles from an atomic counter instead of
    a static stride. ``stream_k``: groups of this number of clusters share the k-blocks of the tail
    wave's tiles evenly; 0: none do. Raises ConfigError.
    """

    tile: tuple[int, int, int]
    consumers: int = 2
    stages: int = 4
    cluster: tuple[int, int] = (1, 1)
    pingpong: bool = False
    split: int = 1
    tail: bool = False
    group: int = 8
    swap: bool = False
    dynamic: bool = False
    stream_k: int = 0
    in_cluster: bool = False
    programmatic: ClassVar[bool] = True  # the kernel itself waits for prior grids

    def __post_init__(self) -> None:
        check_kinds(self, tile=3, cluster=2, consumers=0, stages=0, split=0, group=0, stream_k=0)
        check_flags(self, "pingpong", "tail", "swap", "dynamic", "in_cluster")
        bm, bn, bk = self.tile
        most = MAX_SLICES if bm in SLICED_ROWS else 3
        if not 1 <= self.consumers <= most or (self.pingpong and self.consumers != 2):
            raise ConfigError(
                f"{self}: consumer warpgroups must be 1 to 3, or {MAX_SLICES} for tile_m of "
                f"{' or '.join(map(str, SLICED_ROWS))}, and 2 for pingpong"
            )
        sliced = bm in SLICED_ROWS and self.slices > 1
        rows = WGMMA_ROWS * (1 if self.pingpong or sliced else self.consumers)
        if bm < WGMMA_ROWS or bm % rows:
            raise ConfigError(f"{self}: tile_m must be a multiple of {rows}, got {bm}")
        if not 8 <= bn <= 256 or bn % 8:
            raise ConfigError(f"{self}: tile_n must be a multiple of 8 up to 256, got {bn}")
        if bk < 1 or bk & (bk - 1) or not 2 <= self.stages <= MAX_STAGES:
            raise ConfigError(f"{self}: tile_k must be a power of two and stages 2 to {MAX_STAGES}")
        check_group(self)
        self._check_schedule()

    def _check_schedule(self) -> None:
        """Raises ConfigError for clusters, splits and schedulers that exclude one another."""
        if any(side < 1 or side & (side - 1) for side in self.cluster):
            raise ConfigError(f"{self}: cluster sizes must be powers of two, got {self.cluster}")
        if not 1 <= self.split <= MAX_SPLIT:
            raise ConfigError(f"{self}: split-K must be 1 to {MAX_SPLIT}, got {self.split}")
        if self.dynamic and (self.split > 1 or self.ctas > 1):
            raise ConfigError(f"{self}: the dynamic tile scheduler excludes split-K and clusters")
        if self.stream_k not in (0, *range(2, MAX_SPLIT + 1)):
            raise ConfigError(f"{self}: stream-K must be of 2 to {MAX_SPLIT} clusters")
        if self.stream_k and (self.split > 1 or self.dynamic):
            raise ConfigError(f"{self}: stream-K excludes split-K and the dynamic tile scheduler")
        if self.tail and self.split == 1:
            raise ConfigError(f"{self}: split-K of the tail wave must be at least 2")
        if self.in_cluster:
            self._check_joined()

    def _check_joined(self) -> None:
        """Raises ConfigError for what split-K in a cluster excludes."""
        here, bn = f"{self}: split-K in a cluster", self.tile[1]
        if self.split != JOINED:
            raise ConfigError(f"{here} must be by {JOINED}, got {self.split}")
        if self.tail:
            raise ConfigError(f"{here} is of all tiles, not of the tail wave")
        if self.ctas > 1:
            raise ConfigError(f"{here} excludes other clusters")
        if bn % JOINED_COLUMNS:
            raise ConfigError(f"{here}: tile_n must be a multiple of {JOINED_COLUMNS}, got {bn}")

    @classmethod
    def parse(cls, text: str) -> TmaConfig:
        """Parse ``tma:BMxBNxBK:CONSUMERS:STAGES``, with ``p`` after the consumers for pingpong and
        ``d`` after the stages for the dynamic tile scheduler; then optionally ``/CMxCN`` (cluster),
        ``*SPLIT`` (split-K), ``*SPLITc`` (in a cluster), ``+SPLIT`` (split-K of the
        tail wave) or ``+skCLUSTERS`` (stream-K), ``@GROUP``, ``~`` (swap). Raises ConfigError.
        """
        found = numbers_of(_NOTATION, text, "tma:128x256x64:2:4/2x1")
        bm, bn, bk, consumers = (int(found[i]) for i in range(1, 5))
        cluster = int(found[8] or 1), int(found[9] or 1)
        return cls(
            (bm, bn, bk), consumers, int(found[6]), cluster, bool(found[5]),
            int(found[11] or 1), found[10] == "+", int(found[14] or 8), bool(found[15]),
            bool(found[7]), int(found[13] or 0), bool(found[12]),
        )  # fmt: skip

    def __str__(self) -> str:
        tile, cluster = ("x".join(map(str, x)) for x in (self.tile, self.cluster))
        pingpong = "p" * self.pingpong
        split = f"{'+' if self.tail else '*'}{self.split}{'c' * self.in_cluster}"
        split *= self.split > 1
        split += f"+sk{self.stream_k}" * (self.stream_k > 0)
        shape = f"tma:{tile}:{self.consumers}{pingpong}:{self.stages}{'d' * self.dynamic}"
        return f"{shape}/{cluster}{split}@{self.group}{'~' * self.swap}"


def d_corner(problem: Problem, config: TmaConfig, row: Any, column: Any) -> tuple[Any, Any]:
    """Where a tile at (row, column) of the product begins in D, or in Dᵀ if swapped."""
    if not problem.pair:
        return row, column
    return (row // 2, column) if config.swap else (row, column // 2)


@lru_cache(maxsize=256)
def relayout_problem(problem: Problem) -> Problem:
    """The problem after relayout: A and B aligned for TMA, and 8- and 32-bit operands K-major, as
    wgmma requires. The dimension along which groups begin anywhere must not be the contiguous one.
    """
    any_major = problem.input.bits == 16
    if problem.has_k_groups:
        problem = replace(problem, a_major="m", b_major="n")
    if problem.has_row_groups:
        problem = replace(problem, a_major="k")
    return replace(
        problem,
        a_major=problem.a_major if any_major and problem.sparse != "a" else "k",
        b_major=problem.b_major if any_major and problem.sparse != "b" else "k",
        align_a=16,
        align_b=16,
    )
