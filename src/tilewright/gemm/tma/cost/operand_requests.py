"""Rows of A and B that the copies of a k-block request from the L2, as columns.

An SM's copies are slow where its rows straddle multiples of 128 bytes, and where other SMs request
much at the same time. In one wave without clusters, consecutive CTAs run on the SMs of one GPC and
advance together: rows that several of them request are then read from the L2 about once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...columns import Column
from ...problem import Problem
from ..tma_columns import TmaColumns
from ..tma_geometry import SWIZZLE_BYTES, swizzle_bytes
from .coefficients import Coefficients

GPC_SMS, GPCS = 16, 8


class OperandCosts(NamedTuple):
    """Of A or B, what does not depend on the problem's sizes."""

    extent: Column
    share: Column  # rows of the extent that this CTA loads
    sharers: Column
    edge_map: Column  # whether copies load only rows that exist
    row_bytes: Column  # contiguous bytes of a copy
    rows: Column  # of these rows, per stage and CTA

    @classmethod
    def of(cls, operand: Any) -> OperandCosts:
        """Of a ``TmaOperand`` with columns."""
        extent, sharers = operand.extent, operand.sharers
        row = (
            np.full_like(extent, SWIZZLE_BYTES)
            if operand.major == "K"
            else swizzle_bytes(extent, 8 * operand.size)
        )
        edge_map = np.broadcast_to(operand.has_edge_map, len(extent))
        rows = operand.bytes / sharers / row
        return cls(extent, extent / sharers, sharers, edge_map, row, rows)

    def take(self, index: Column) -> OperandCosts:
        """The costs of these candidates."""
        return OperandCosts(*(column[index] for column in self))

    def requests(self, pitch: int, c: Coefficients) -> Any:
        """Requests to the L2 of a CTA's copies in a k-block: one for each row of a copy; more where
        rows straddle multiples of 128 bytes.
        """
        rows = self.rows * np.where(self.sharers > 1, c.multicast, 1.0)
        if pitch >= SWIZZLE_BYTES:
            return rows
        straddling = np.maximum(0, self.row_bytes - pitch) / (SWIZZLE_BYTES - pitch)
        return rows * (1 + (c.straddle[pitch] - 1) * straddling)

    def zero_filled_rows(self, rows: int, beyond_k: Column) -> Any:
        """Rows that a CTA's copies fill with zeros in a k-block, on average over tiles and
        k-blocks, for a matrix with ``rows``: beyond the last row, except where the last tile has a
        tensor map of its own; and beyond K.
        """
        tiles = np.maximum(1, -(-rows // self.extent))
        filled = -rows % self.extent / self.sharers / tiles
        filled = np.where(self.edge_map, 0.0, filled)
        return filled + (self.share - filled) * beyond_k


def distinct_requests(
    configs: TmaColumns, grid: tuple[Column, Column], resident: Column
) -> tuple[Column, Column]:
    """The fractions of the requests of a GPC's SMs for A and for B that are for different rows.

    ``grid``: work tiles along the tile's M and N. Without clusters a GPC has consecutive work tiles
    in rasterization order, with clusters every eighth one.
    """
    down, across = grid
    clustered = configs.ctas > 1
    work_tiles = np.minimum(down * across, resident) / np.where(clustered, GPCS, 1)
    ours = np.clip(work_tiles, 1, np.maximum(1, GPC_SMS // configs.ctas))
    height = np.maximum(1, np.minimum(configs.group, down))
    consecutive = 1 + (ours - np.gcd(height, GPC_SMS)) / height
    columns = np.where(clustered, ours, np.maximum(1, consecutive))
    columns = np.maximum(1, np.minimum(columns, across))
    rows = np.minimum(ours, height / np.gcd(height, np.where(clustered, GPCS, 1)))
    rows = np.minimum(down, np.maximum(rows, ours / columns))
    a, b = rows / ours, columns / ours
    return np.where(configs.swap, b, a), np.where(configs.swap, a, b)


def memory_waits(
    problem: Problem, operands: tuple[OperandCosts, OperandCosts], requests: tuple[Any, Any],
    alone: Any, c: Coefficients,
) -> Any:  # fmt: skip
    """The requests of a k-block that wait for memory: most of those for the larger matrix, fewer
    where one request serves several CTAs. ``alone``: one warpgroup waits, in one wave of clusters.
    """
    shared_a, shared_b = (np.where(alone & (x.sharers > 1), c.memory_shared, 1.0) for x in operands)
    (a, b), share = requests, _share_of_a(problem)
    return share * shared_a * a + (1 - share) * shared_b * b


def lockstep(
    problem: Problem, operands: tuple[OperandCosts, OperandCosts], alone: Any, c: Coefficients
) -> Any:
    """Cycles of a k-block that CTAs of a cluster wait for one another: each also for the rows that
    only the others load from memory. Less than none where they share those of the larger matrix:
    these come from memory, and to all at the same time.
    """
    shared_a, shared_b = (x.sharers > 1 for x in operands)
    own_b = 1 - 2 * _share_of_a(problem)  # of the rows, those of B less those of A
    own = np.where(shared_a & shared_b, 1.0, np.where(shared_a, own_b, -own_b))
    return np.where(alone, c.lockstep * own, 0.0)


def _share_of_a(problem: Problem) -> float:
    """The fraction of the rows of both matrices that are A's."""
    return (problem.m + 1) / (problem.m + problem.n + 2)
