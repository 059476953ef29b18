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
    stream_k: Column
    in_cluster: Column

    @classmethod
    def of(cls, configs: Sequence[TmaConfig]) -> TmaColumns:
        """The columns of configurations."""
        rows = [
            (*c.tile, c.consumers, c.stages, *c.cluster, c.pingpong, c.split, c.tail, c.group,
             c.swap, c.dynamic, c.stream_k, c.in_cluster)
            for c in configs
        ]  # fmt: skip
        numbers = np.array(rows, np.int64).reshape(-1, 15).T
        bm, bn, bk, consumers, stages, cm, cn, pingpong, split, tail, group, *more = numbers
        swap, dynamic, stream_k, in_cluster = more
        return cls(
            (bm, bn, bk), consumers, stages, (cm, cn), pingpong != 0, split, tail != 0, group,
            swap != 0, dynamic != 0, stream_k, in_cluster != 0,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.stages)

    def config(self, index: int) -> TmaConfig:
        """The configuration of one candidate."""
        (bm, bn, bk), (cm, cn) = self.tile, self.cluster
        return TmaConfig(
            (int(bm[index]), int(bn[index]), int(bk[index])),
            int(self.consumers[index]),
            int(self.stages[index]),
            (int(cm[index]), int(cn[index])),
            bool(self.pingpong[index]),
            int(self.split[index]),
            bool(self.tail[index]),
            int(self.group[index]),
            bool(self.swap[index]),
            bool(self.dynamic[index]),
            int(self.stream_k[index]),
            bool(self.in_cluster[index]),
        )

    def take(self, index: Column) -> TmaColumns:
        """The candidates of these indices."""
        (bm, bn, bk), (cm, cn) = self.tile, self.cluster
        return TmaColumns(
            (bm[index], bn[index], bk[index]),
            self.consumers[index],
            self.stages[index],
            (cm[index], cn[index]),
            self.pingpong[index],
            self.split[index],
            self.tail[index],
            self.group[index],
            self.swap[index],
            self.dynamic[index],
            self.stream_k[index],
            self.in_cluster[index],
        )

    def cluster_tiles(self, problem: Problem) -> Column:
        """Work tiles of the whole batch, as ``columns.tile_count`` has them."""
        return tile_count(problem, *self.tile_grid(problem))
