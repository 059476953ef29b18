"""Matrix operands of an epilogue in shared memory: stages of epilogue tiles, and their pipeline.

    epilogue load warp (epilogue_load_warp)         math warps of its consumer warpgroup
        for each work tile, epilogue tile:              for each work tile, epilogue tile:
            wait until the stage is empty                   wait until the stage is full
            issue a tensor copy of each operand             read it in the accumulators' layout,
                                                            compute and stage the outputs
                                                            release the stage

The stages of a warpgroup divide its epilogue tiles, so an epilogue tile has the same stage in every
work tile: its address and mostly its phase are constants.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from ....builder import Builder, PipelineTmaAsync, Pointer, fragment_registers
from ....dtypes import dtype
from ....layout import Tensor, local_tile, make_tensor
from ...epilogue.graph import EpilogueInput
from ...epilogue.operand_loads import load_vector, widened_elements
from ...problem import Problem
from ..tma_config import TmaConfig
from ..tma_epilogue import EpilogueTile, copy_fragment, tile_fragment
from ..tma_geometry import SHARED_ALIGNMENT, WGMMA_ROWS

MATRIX_COLUMNS, COLUMNS = 16, 8  # columns that are read together: by one ldmatrix, else


class LoadedOperand(NamedTuple):
    """A matrix operand that tensor copies load: its parameter, its epilogue tile, and the bytes
    before it in a stage.
    """

    name: str
    source: EpilogueInput
    tile: EpilogueTile
    offset: int


@lru_cache(maxsize=256)
def loaded_operands(problem: Problem, config: TmaConfig) -> tuple[LoadedOperand, ...]:
    """The operands of the epilogue that tensor copies load."""
    if problem.epilogue is None or not config.loads_by_tma(problem):
        return ()
    tile = replace(
        EpilogueTile.of(problem, config), width=config.graph_epilogue_width(problem),
        columns=config.d_tile(problem)[1], with_c=False, by_tma=True,
        buffers=config.load_stages(problem), together=False, align=16, accumulates=False,
    )  # fmt: skip
    found, offset = [], 0
    for name, source in problem.epilogue.tensor_inputs():
        if config.tensor_copy_loads(problem, source.type):
            own = replace(tile, type=dtype(source.type))
            found.append(LoadedOperand(name, source, own, offset))
            offset += -(-own.bytes // SHARED_ALIGNMENT) * SHARED_ALIGNMENT
    return tuple(found)


class OperandStages:
    """The stages of all consumer warpgroups: ``stages`` of each, ``tiles`` epilogue tiles of a
    warpgroup and work tile.
    """

    def __init__(self, k: Builder, problem: Problem, config: TmaConfig) -> None:
        self.k, self.operands = k, loaded_operands(problem, config)
        self.stages, self.tiles = config.load_stages(problem), config.graph_epilogue_tiles(problem)
        self.stage_bytes = config.load_stage_bytes(problem)
        shared = k.dynamic_shared(config.load_bytes(problem), SHARED_ALIGNMENT)
        self.address = shared.address()
        warpgroups = config.storing_warpgroups(problem)
        self.pipeline = PipelineTmaAsync(k, warpgroups * self.stages, 1)


class WarpgroupStages:
    """The stages of one consumer warpgroup, as its math warps or its load warp (``loads``) go
    through them.
    """

    def __init__(self, stages: OperandStages, consumer: Any, *, loads: bool) -> None:
        self.k, self.stages, self.loads = stages.k, stages, loads
        self.first = consumer * stages.stages
        self.address = stages.address + consumer * (stages.stages * stages.stage_bytes)
        self.uses = stages.tiles // stages.stages  # of a stage in a work tile
        self.turn = self.k.var("u32", int(loads)) if self.uses % 2 else None

    def full(self, number: int) -> Pointer:
        """The full barrier of the stage of epilogue tile ``number``."""
        barrier: Pointer = self.stages.pipeline.full + self.first + number % self.stages.stages
        return barrier

    def empty(self, number: int) -> Pointer:
        """The empty barrier of the stage of epilogue tile ``number``."""
        barrier: Pointer = self.stages.pipeline.empty + self.first + number % self.stages.stages
        return barrier

    def wait(self, number: int) -> None:
        """Wait until the stage of epilogue tile ``number`` is full, or empty if this side loads."""
        odd = number // self.stages.stages % 2
        if self.turn is None:
            phase: Any = odd ^ self.loads
        else:
            phase = self.turn ^ 1 if odd else self.turn
        self.k.mbarrier_wait(self.empty(number) if self.loads else self.full(number), phase)

    def advance(self) -> None:
        """Go to the next work tile."""
        if self.turn is not None:
            self.k.xor(self.turn, 1, into=self.turn)

    def buffer(self, number: int, operand: LoadedOperand) -> Tensor:
        """The shared memory of an operand's epilogue tile ``number``."""
        bytes_ = number % self.stages.stages * self.stages.stage_bytes + operand.offset
        first = self.k.pointer("shared", operand.tile.type, self.address)
        return make_tensor(first + bytes_ // operand.tile.size, operand.tile.layout)


class OperandReader:
    """The math warps' side: the operands' elements in the accumulators' layout."""

    def __init__(self, stages: OperandStages, consumer: Any, thread: Any) -> None:
        self.k, self.thread, self.operands = stages.k, thread, stages.operands
        self.stages = WarpgroupStages(stages, consumer, loads=False)

    def wait(self, number: int) -> None:
        """Wait until epilogue tile ``number`` is loaded."""
        self.stages.wait(number)
        self.loaded: dict[str, list[Any]] = {operand.source.name: [] for operand in self.operands}

    def values(self, number: int, first: int, count: int) -> dict[str, list[Any]]:
        """``count`` elements from ``first`` on of a thread's elements of epilogue tile ``number``,
        for each operand by its name, as their compute type. Calls go through a tile in order.
        """
        for operand in self.operands:
            loaded = self.loaded[operand.source.name]
            while len(loaded) < first + count:
                loaded += self._columns(number, operand, len(loaded) // 4 * 8)
        return {name: loaded[first : first + count] for name, loaded in self.loaded.items()}

    def _columns(self, number: int, operand: LoadedOperand, first: int) -> list[Any]:
        """A thread's elements of some columns of an operand's tile, from ``first`` on."""
        k, tile = self.k, operand.tile
        width = MATRIX_COLUMNS if tile.size == 2 and tile.width % MATRIX_COLUMNS == 0 else COLUMNS
        part = replace(tile, width=width)
        buffer = local_tile(
            self.stages.buffer(number, operand), (WGMMA_ROWS, width), (0, first // width)
        )
        elements = WGMMA_ROWS * width // 128
        if tile.size == 2:
            fragment = tile_fragment(k, part)
            copy_fragment(k, self.thread, fragment, buffer, part, loads=True)
            words = list(fragment_registers(fragment))
            return widened_elements(k, words, operand.source.type, elements)
        own = part.mma.thr_slice(self.thread).partition_C(buffer)
        neighbours = 1 if tile.swap else 2
        return [
            value
            for i in range(0, elements, neighbours)
            for value in load_vector(k, own.at(i), operand.source.type, neighbours)
        ]

    def release(self, number: int) -> None:
        """One thread releases the stage of epilogue tile ``number``, after all have read it, have
        issued a fence of the async proxy and are synchronized.
        """
        self.k.mbarrier_arrive(self.stages.empty(number))

    def advance(self) -> None:
        """Go to the next work tile."""
        self.stages.advance()
