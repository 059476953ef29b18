"""Candidates of kernel ``tma`` as columns: an array for each field of a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..columns import Column, tile_count
from ..problem import Problem
from .tma_config import TmaConfig
from .tma_geometry import TmaGeometry


@dataclass(frozen=True, slots=True, eq=False)
class TmaColumns(TmaGeometry[Column]):
    """The fields of ``TmaConfig``, each a column with an element for each candidate."""

    tile: tuple[Column, Column, Column]
    consumers: Column
    stages: Column
    cluster: tuple[Column, Column]
    pingpong: Column
    split: Column
    tail: Column
    group: Column
    swap: Column
    dynamic: Column

    @classmethod
    def of(cls, configs: Sequence[TmaConfig]) -> TmaColumns:
        """The columns of configurations."""
        return cls(
            _columns([c.tile for c in configs], 3),
            np.array([c.consumers for c in configs], np.int64),
            np.array([c.stages for c in configs], np.int64),
            _columns([c.cluster for c in configs], 2),
            np.array([c.pingpong for c in configs], bool),
            np.array([c.split for c in configs], np.int64),
            np.array([c.tail for c in configs], bool),
            np.array([c.group for c in configs], np.int64),
            np.array([c.swap for c in configs], bool),
            np.array([c.dynamic for c in configs], bool),
        )

    def __len__(self) -> int:
        return len(self.stages)

    def config(self, index: int) -> TmaConfig:
        """The configuration of one candidate."""
        return TmaConfig(
            tuple(int(x[index]) for x in self.tile),
            int(self.consumers[index]),
            int(self.stages[index]),
            tuple(int(x[index]) for x in self.cluster),
            bool(self.pingpong[index]),
            int(self.split[index]),
            bool(self.tail[index]),
            int(self.group[index]),
            bool(self.swap[index]),
            bool(self.dynamic[index]),
        )

    def take(self, index: Column) -> TmaColumns:
        """The candidates of these indices."""
        return TmaColumns(
            tuple(x[index] for x in self.tile),
            self.consumers[index],
            self.stages[index],
            tuple(x[index] for x in self.cluster),
            self.pingpong[index],
            self.split[index],
            self.tail[index],
            self.group[index],
            self.swap[index],
            self.dynamic[index],
        )

    def cluster_tiles(self, problem: Problem) -> Column:
        """Work tiles of the whole batch, as ``columns.tile_count`` has them."""
        return tile_count(problem, *self.tile_grid(problem))


def _columns(rows: Sequence[tuple[int, ...]], width: int) -> tuple[Column, ...]:
    return tuple(np.array(rows, np.int64).reshape(-1, width).T)
