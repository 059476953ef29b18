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
from .epilogue.graph import ROUND, SOURCES, EpilogueGraph, Node
from .problem import Problem
from .shared_costs import CYCLE
from .tma.tma_geometry import TmaGeometry

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
SINGLE_BYTES = 1.0  # instructions per element of one byte, where swapped tiles stage them singly
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
    return EpilogueCost() if problem.epilogue is None else _cost(problem.epilogue.graph)


@lru_cache(maxsize=64)
def _cost(graph: EpilogueGraph) -> EpilogueCost:
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
    a factor ``pingpong`` is left, and hides the latency of its loads, but not the loads themselves.
    """
    if problem.epilogue is None:
        none = np.zeros(len(configs.stages))
        return none, none
    bound = problem.epilogue
    cost = _cost(bound.without_sum if problem.accumulates else bound.graph)
    by_tma = configs.loads_by_tma(problem)
    d_rows, d_columns = configs.d_tile(problem)
    elements = d_rows * d_columns
    loads = cost.vector_loads + np.where(by_tma, cost.copied_loads, cost.matrix_loads)
    shared = loads * elements
    singly = configs.swap * (problem.epilogue.output_bytes.count(1) * SINGLE_BYTES / ISSUE_LANES)
    instructions = (cost.instructions + singly) * elements * CYCLE
    latency = LOAD_LATENCY * ((cost.vector_loads > 0) | (cost.matrix_loads > 0) & ~by_tma)
    alone = latency + instructions
    hidden = np.where(configs.pingpong, pingpong * instructions, alone)
    return shared * CYCLE + hidden, shared * CYCLE + alone
