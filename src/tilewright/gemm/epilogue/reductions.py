"""Reductions of an epilogue: where the kernels keep their partial results, and how many there are.

A kernel combines the elements of a unit, a few rows by a few columns of D, and stores one partial
result per unit and element of the output: every address is written once, in no particular order.
The reduction kernel (``reduction_kernel``) then combines the units in order, so the result does not
depend on timing. A partial is ``partials[unit][element]``, f32. Maxima over all rows and columns
have none (``atomic_maxima``).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from ..problem import Problem
from .graph import EpilogueOutput

PARTIAL_BYTES, REGION_ALIGN = 4, 16
DIMENSIONS = "bmn"


class ReductionRegion(NamedTuple):
    """The partial results of one reduction. ``name``: of the output's address parameter;
    ``number``: among the graph's outputs; ``kept``: the dimensions of the output. ``elements`` of
    the output have ``units`` partial results each, ``offset`` bytes from the first region.
    """

    name: str
    number: int
    output: EpilogueOutput
    kept: str
    elements: int
    units: int
    offset: int

    @property
    def end(self) -> int:
        """Bytes from the first region to the end of this one."""
        size = self.elements * self.units * PARTIAL_BYTES
        return self.offset + -(-size // REGION_ALIGN) * REGION_ALIGN


def reduction_regions(problem: Problem, rows: int, columns: int) -> tuple[ReductionRegion, ...]:
    """The regions of all reductions for units of ``rows`` × ``columns`` of D."""
    return tuple(_regions(problem, rows, columns))


def _regions(problem: Problem, rows: int, columns: int) -> Iterator[ReductionRegion]:
    if problem.epilogue is None:
        return
    extents = {"b": problem.d_batch, "m": problem.m, "n": problem.d_columns}
    blocks = {"b": extents["b"], "m": -(-extents["m"] // rows), "n": -(-extents["n"] // columns)}
    offset = 0
    for name, number, output in problem.epilogue.partial_reductions:
        kept = "".join(d for d in DIMENSIONS if d not in output.reduced)
        elements = prod(extents[d] for d in kept)
        units = prod(blocks[d] for d in output.reduced)
        region = ReductionRegion(name, number, output, kept, elements, units, offset)
        yield region
        offset = region.end
