"""The operands of a stage of kernel ``tma``, and the copies that fill them.

A stage is a list of operands. Each has its shared memory and a copy: ``begin`` chooses what a work
tile needs and gives the bytes of a stage, ``issue`` fills one stage. A kernel with more operands
(scales, metadata) adds copies to the list; the producer does not change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from ...builder import Builder, PipelineTmaAsync, Pointer, Reg
from .grouped.row_window import window_coordinates
from .sparse.metadata_stages import MetadataStages
from .tile_scheduler import WorkTileInfo
from .tma_operand import TmaOperand

OperandMaps = tuple[Pointer, Pointer]  # of full tiles, of the last tile


@dataclass(frozen=True)
class StageOperand:
    """An operand in shared memory; ``address``: of the first stage."""

    operand: TmaOperand
    address: Reg


@dataclass(frozen=True)
class SharedStages:
    """The stages in shared memory: the operands of wgmma, and the pipeline."""

    left: StageOperand
    right: StageOperand
    pipeline: PipelineTmaAsync
    metadata: MetadataStages | None = None  # of a sparse left operand


class StageCopy(ABC):
    """The producer's copy of one operand."""

    @abstractmethod
    def begin(self, tile: WorkTileInfo) -> Any:
        """Prepare for a work tile. Returns the bytes that a stage receives."""

    @abstractmethod
    def target(self, stage: Any) -> Any:
        """The shared address of a stage."""

    @abstractmethod
    def issue(self, target: Any, first_k: Any, barrier: Pointer) -> None:
        """Fill a stage with the k-block that begins at ``first_k``; arrives at ``barrier``."""


class TmaCopy(StageCopy):
    """Tensor copies of A or B. ``limit``: the rows of the matrix; ``along_n``: its rows are the
    tile's columns; ``share``: which part of the tile this CTA loads, ``multicast``: for whom.
    ``places``: where the matrices of a list are.
    """

    places: Pointer | None = None

    def __init__(
        self, k: Builder, stage: StageOperand, maps: OperandMaps, limit: Any, *, along_n: bool,
        share: Any, multicast: Any,
    ) -> None:  # fmt: skip
        self.k, self.operand, self.address = k, stage.operand, stage.address
        self.maps, self.limit, self.along_n = maps, limit, along_n
        self.share, self.multicast = share, multicast

    def begin(self, tile: WorkTileInfo) -> Any:
        self.row, self.batch = self._row(tile), tile.batch if self.operand.batched else None
        if self.places is not None:
            self.batch = (self.places + tile.batch).load(1)[0]
        self.map, size = self.operand.map_and_bytes(self.k, self.maps, self.row, self.limit)
        self.window = tile.window
        return size

    def _row(self, tile: WorkTileInfo) -> Any:
        return tile.column if self.along_n else tile.row

    def target(self, stage: Any) -> Any:
        return self.address + stage * self.operand.bytes

    def issue(self, target: Any, first_k: Any, barrier: Pointer) -> None:
        if self.window is not None:
            first_k = window_coordinates(first_k, self.window.first, self.window.count)
        at = self.row, first_k, self.batch
        self.operand.load(self.k, target, self.map, at, barrier, self.share, self.multicast)


class SparseCopy(TmaCopy):
    """Tensor copies of a sparse operand, of which half of K is stored."""

    def issue(self, target: Any, first_k: Any, barrier: Pointer) -> None:
        super().issue(target, first_k >> 1, barrier)


class PairCopy(TmaCopy):
    """Tensor copies of two matrices B, one into each half of the tile. CTAs of a cluster that share
    the tile load one each; a CTA alone loads both.
    """

    def begin(self, tile: WorkTileInfo) -> Any:
        self.row, self.batch = self._row(tile) // 2, tile.batch
        return self.operand.bytes

    def issue(self, target: Any, first_k: Any, barrier: Pointer) -> None:
        k, at = self.k, (self.row, first_k, self.batch)
        halves: list[tuple[Any, Any]] = list(enumerate(self.maps))
        if self.multicast is not None:
            chosen = k.select(self.share == 0, *(k.map_address(map_) for map_ in self.maps))
            halves = [(self.share, chosen)]
        for share, map_ in halves:
            self.operand.load(k, target, map_, at, barrier, share, self.multicast, advances=False)


class SparsePairCopy(PairCopy):
    """The same of two sparse matrices, of which half of K is stored."""

    def issue(self, target: Any, first_k: Any, barrier: Pointer) -> None:
        super().issue(target, first_k >> 1, barrier)
