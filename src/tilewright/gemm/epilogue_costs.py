"""Costs of an epilogue function, per element of D, that the cost models of all kernels share.

The rates are the hardware's; other constants are fitted to 13 measurements on an H200
(``benchmarks/NOTES.md``).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..dtypes import dtype
from .columns import Column
from .epilogue.bound_epilogue import BoundEpilogue
from .epilogue.graph import ROUND, SOURCES, EpilogueGraph, Node
from .problem import Problem
from .shared_costs import CYCLE
from .tma.tma_geometry import WARPGROUP, WGMMA_ROWS, TmaGeometry

ISSUE_LANES, MUFU_LANES = 128, 16  # of an SM: lanes that issue per cycle, lanes of MUFU
MUFU_OPERATIONS = ("div", "sqrt", "rcp")  # and those that end in ``_approx``
EXACT_INSTRUCTIONS = 8  # of these three: MUFU's result is corrected to the rounded one
ROUND_INSTRUCTIONS, STORE_INSTRUCTIONS = 2, 2  # of a rounding to a storage type; of a tensor output
REDUCTION_INSTRUCTIONS = 4  # of a reduction: the element is tested against D's edges and combined
# Requests to the L1 of a warp that loads 64 elements of a matrix, in the accumulators' layout: one
# for each row. They delay the tensor cores' reads of shared memory, which take the same way.
MATRIX_REQUESTS, VECTOR_REQUESTS, REQUEST_ELEMENTS = 8, 1, 64
LOAD = 0.75  # cycles of such a request
LOAD_LATENCY = 0.5e-6  # seconds from the last product until loaded elements are there
# Kernel ``tma``:
BYTE_ROWS = {64: 8_600, 32: 19_000}  # cycles of a 128×192 tile whose outputs of one byte are stored
# in rows of 64 bytes, or of 32
FREE_REGISTERS = 208  # of a thread, for accumulators and what is live in an epilogue tile
SPILL_BYTE = 2.5  # cycles per byte of spills per thread
REDUCTION_WORDS = 12  # registers of a reduction's partial results
SHARED_BYTES_PER_CYCLE = 128


class EpilogueCost(NamedTuple):
    """What an epilogue function adds to the epilogue of a product: cycles of an SM per element of D
    for its instructions, for loads of matrices and vectors by threads, and of matrices by tensor
    copies; and bytes of the matrix inputs per element of D.
    """

    instructions: float = 0.0
    matrix_loads: float = 0.0
    vector_loads: float = 0.0
    copied_loads: float = 0.0
    input_bytes: float = 0.0

    def tile_seconds(self, elements: Column) -> Column:
        """Seconds for a tile of this many elements of D, where nothing overlaps them."""
        loads = self.matrix_loads + self.vector_loads
        cycles = self.instructions + loads
        seconds: Column = cycles * CYCLE * elements + LOAD_LATENCY * (loads > 0)
        return seconds


def epilogue_cost(problem: Problem) -> EpilogueCost:
    """The cost of a problem's epilogue function; zeros where it has none."""
    return EpilogueCost() if problem.epilogue is None else _cost(problem.epilogue)


@lru_cache(maxsize=64)
def _cost(bound: BoundEpilogue) -> EpilogueCost:
    graph = bound.graph
    issued = sum(map(_instructions, graph.nodes)) + STORE_INSTRUCTIONS * len(graph.tensors)
    issued += REDUCTION_INSTRUCTIONS * len(graph.reductions)
    mufu = sum(map(_is_mufu, graph.nodes))
    matrices, vectors = epilogue_loads(graph)
    bytes_ = sum(dtype(type_).bits / 8 for type_ in matrices)
    return EpilogueCost(
        issued / ISSUE_LANES + mufu / MUFU_LANES,
        LOAD * MATRIX_REQUESTS * len(matrices) / REQUEST_ELEMENTS,
        LOAD * VECTOR_REQUESTS * vectors / REQUEST_ELEMENTS,
        2 * bytes_ / SHARED_BYTES_PER_CYCLE,
        bytes_,
    )


def epilogue_loads(graph: EpilogueGraph) -> tuple[list[str], int]:
    """The types of the matrices that are loaded, and the number of vectors."""
    matrices = [x.type for x in graph.inputs if {"m", "n"} <= set(x.varies)]
    varying = [x for x in graph.inputs if {"m", "n"} & set(x.varies)]
    return matrices, len(varying) - len(matrices)


def _instructions(node: Node) -> int:
    if node.op in SOURCES:
        return 0
    if node.op == ROUND:
        return ROUND_INSTRUCTIONS
    return EXACT_INSTRUCTIONS if node.op in MUFU_OPERATIONS else 1


def _is_mufu(node: Node) -> bool:
    return node.op in MUFU_OPERATIONS or node.op.endswith("_approx")


# --- kernel ``tma`` -------------------------------------------------------------------------------


def tma_function_seconds(
    problem: Problem, configs: TmaGeometry[Column], pingpong: float
) -> tuple[Column, Column]:
    """Seconds that an epilogue function adds to a tile that another one follows, and to the last
    tile of a CTA. With pingpong the other warpgroup's mainloop overlaps its instructions, of which
    a factor ``pingpong`` is left, and hides the latency of its loads, but not the loads themselves,
    nor spills.
    """
    if problem.epilogue is None:
        none = np.zeros(len(configs.stages))
        return none, none
    cost, by_tma = epilogue_cost(problem), configs.loads_by_tma(problem)
    d_rows, d_columns = configs.d_tile(problem)
    elements = d_rows * d_columns
    loads = cost.vector_loads + np.where(by_tma, cost.copied_loads, cost.matrix_loads)
    shared = loads * elements + SPILL_BYTE * _spilled_bytes(problem, configs)
    width = configs.graph_epilogue_width(problem)
    if 1 in problem.epilogue.output_bytes:
        wide = ~configs.swap & (width >= 64)  # swapped tiles are staged byte by byte
        shared = shared + np.where(wide, BYTE_ROWS[64], BYTE_ROWS[32]) / (128 * 192) * elements
    instructions = cost.instructions * elements * CYCLE
    latency = LOAD_LATENCY * ((cost.vector_loads > 0) | (cost.matrix_loads > 0) & ~by_tma)
    alone = latency + instructions
    hidden = np.where(configs.pingpong, pingpong * instructions, alone)
    return shared * CYCLE + hidden, shared * CYCLE + alone


def _spilled_bytes(problem: Problem, configs: TmaGeometry[Column]) -> Column:
    """Bytes of a thread's spills, as ptxas reported them: where the accumulators, an epilogue
    tile's outputs and the addresses of its inputs exceed the register budget.
    """
    assert problem.epilogue is not None
    graph, width = problem.epilogue.graph, configs.graph_epilogue_width(problem)
    elements = width * WGMMA_ROWS // WARPGROUP
    words = elements * sum(problem.epilogue.output_bytes) // 4
    words = words + REDUCTION_WORDS * len(graph.reductions)
    matrices, vectors = epilogue_loads(graph)
    per_matrix, per_vector = np.where(configs.swap, 16, 4), np.where(configs.swap, 4, 2)
    addresses = per_matrix * len(matrices) + per_vector * vectors
    live = configs.accumulator_registers + words + addresses
    tiles = configs.graph_epilogue_tiles(problem)
    spilled: Column = 8 * np.maximum(0, live - FREE_REGISTERS) * tiles
    return spilled
