"""Partial configurations of kernel ``tma``: parts that are left out are completed by candidates.

``tma:128x256x64`` has all schedules, clusters and splits of the search space, with as many stages
as fit; ``tma:128x256x64:2p/2x1`` those with two pingpong warpgroups and clusters of 2×1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...errors import ConfigError
from ...target import DeviceSpec
from ..columns import Column
from ..config_checks import notation
from ..problem import Problem
from . import tma_search_space
from .schedule_grid import ALL_CLUSTERS, Clusters, schedules
from .tma_columns import TmaColumns
from .tma_config import SCHEDULE, TmaConfig

# (consumers, pingpong); the last takes every tile that is valid, so its error says why none is.
WARPGROUPS = ((2, False), (2, True), (3, False), (1, False))
EXAMPLE_TILE = (64, 64, 64)
MIN_STAGES = 2
_NOTATION = notation("tma(?::#x#x#(?::(?:#(p?))?(?::(?:#(d?))?)?)?)?" + SCHEDULE)


class PartialTmaConfig(NamedTuple):
    """The fields of ``TmaConfig``; None where one is left out. ``pingpong``, ``tail`` and
    ``dynamic`` belong to consumers, split and stages; ``stream_k`` excludes a split.
    """

    tile: tuple[int, int, int] | None
    consumers: int | None
    pingpong: bool
    stages: int | None
    dynamic: bool
    cluster: tuple[int, int] | None
    split: int | None
    tail: bool
    in_cluster: bool
    stream_k: int
    group: int | None
    swap: bool

    @classmethod
    def parse(cls, text: str) -> PartialTmaConfig | None:
        """Parse the notation of ``TmaConfig`` without some parts; None for any other text."""
        found = _NOTATION.fullmatch(text)
        if not found:
            return None
        return cls(
            tile=(int(found[1]), int(found[2]), int(found[3])) if found[1] else None,
            consumers=int(found[4]) if found[4] else None,
            pingpong=bool(found[5]),
            stages=int(found[6]) if found[6] else None,
            dynamic=bool(found[7]),
            cluster=(int(found[8]), int(found[9])) if found[8] else None,
            split=int(found[11]) if found[11] else None,
            tail=found[10] == "+",
            in_cluster=bool(found[12]),
            stream_k=int(found[13] or 0),
            group=int(found[14]) if found[14] else None,
            swap=bool(found[15]),
        )

    @property
    def is_complete(self) -> bool:
        """Whether schedule and stages are written: ``TmaConfig`` has defaults for the rest."""
        return self.consumers is not None and self.stages is not None

    def candidates(self, problem: Problem, device: DeviceSpec) -> TmaColumns:
        """The candidates that agree; not all fit. Raises ConfigError where a part is invalid."""
        tiles, clusters = self._tiles(problem, device), self._clusters()
        row, column, split = schedules(problem.balanced, tiles, clusters, device)
        cm, cn, _, tail, stream_k = np.array(clusters.columns()).T
        if self.split is not None or self.dynamic or self.stream_k:
            whole = (split == 1) & (stream_k[column] == 0)
            row, column = row[whole], column[whole]
            split = np.full(len(row), self.split or 1)
        bm, bn, bk, consumers, pingpong, swap = tiles[:, row]
        cm, cn, stream_k = cm[column], cn[column], stream_k[column]
        stream_k = np.full(len(row), self.stream_k) if self.stream_k else stream_k
        tail = np.full(len(row), self.tail) if self.split else tail[column] != 0
        group = self.group or tma_search_space.rasterization_group(problem)
        found = TmaColumns(
            (bm, bn, bk), consumers, np.full(len(row), self.stages or MIN_STAGES), (cm, cn),
            pingpong != 0, split, tail, np.full(len(row), group), swap != 0,
            np.full(len(row), self.dynamic), stream_k, np.zeros(len(row), bool),
        )  # fmt: skip
        found.in_cluster[:] = self.in_cluster if self.split else found.may_join(problem)
        if self.stages is None:
            most = found.max_stages(problem, device)
            np.clip(most, MIN_STAGES, tma_search_space.MAX_STAGES, out=found.stages)
        return found

    def _tiles(self, problem: Problem, device: DeviceSpec) -> Column:
        """(6, tiles) of M, N, K, consumers, pingpong, swap."""
        warpgroups = self._warpgroups()
        if self.tile:
            return np.array([(*self.tile, *pair, self.swap) for pair in warpgroups]).T
        tiles = tma_search_space.tiles(problem, device)
        return tiles[:, tiles[5] != 0] if self.swap else tiles

    def _warpgroups(self) -> list[tuple[int, bool]]:
        """(consumers, pingpong) with which a configuration is valid. Raises ConfigError."""
        written = [] if self.consumers is None else [(self.consumers, self.pingpong)]
        valid, reason = [], ConfigError("")
        for consumers, pingpong in written or WARPGROUPS:
            try:
                TmaConfig(
                    self.tile or EXAMPLE_TILE, consumers, _or(self.stages, MIN_STAGES),
                    self.cluster or (1, 1), pingpong, _or(self.split, 1), self.tail,
                    _or(self.group, 1), self.swap, self.dynamic, self.stream_k, self.in_cluster,
                )  # fmt: skip
            except ConfigError as error:
                reason = error
            else:
                valid.append((consumers, pingpong))
        if not valid:
            raise reason
        return valid

    def _clusters(self) -> Clusters:
        if self.cluster is None and not self.dynamic:
            return ALL_CLUSTERS
        m, n = self.cluster or (1, 1)
        return Clusters(np.array([m]), np.array([n]), 1, any_tile=True)


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
