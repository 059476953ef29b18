"""Partial results of an epilogue's reductions within a GEMM kernel.

A thread combines its elements of a unit in their order; lanes that hold elements of the same
output exchange theirs by butterfly shuffles, and one of them stores the partial result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...builder import Builder
from ..kernel_scalars import global_pointer
from .bound_epilogue import BoundEpilogue
from .graph import EpilogueOutput
from .operand_loads import TileElements
from .reductions import DIMENSIONS

IDENTITY = {"max": float("-inf"), "sum": 0.0}


@dataclass(frozen=True)
class ReductionUnit:
    """A unit of a warp: ``rows`` × ``columns`` of D from (``row``, ``column``) on. Lanes that
    differ in a bit of ``row_lanes`` hold other rows, of ``column_lanes`` other columns.
    """

    rows: int
    columns: int
    row: Any
    column: Any
    row_lanes: tuple[int, ...]
    column_lanes: tuple[int, ...]


def combine(k: Builder, reduction: str, a: Any, b: Any) -> Any:
    """Two partial results as one. A NaN stays a NaN."""
    return k.emit("max.NaN.f32", a, b) if reduction == "max" else a + b


def butterfly(k: Builder, reduction: str, value: Any, lanes: Sequence[int]) -> Any:
    """The partial results of all lanes that differ in these bits, combined in every lane."""
    for mask in lanes:
        value = combine(k, reduction, value, k.shfl("bfly", value, mask))
    return value


class TileReductions:
    """The reductions of an epilogue within a kernel. ``parameters`` has ``partials``, the address
    of the workspace, and for each reduction ``x{i}_offset``; ``limits``: M and N.
    """

    def __init__(
        self, k: Builder, bound: BoundEpilogue, parameters: Any, limits: tuple[Any, Any]
    ) -> None:
        self.k, self.bound, self.parameters, self.limits = k, bound, parameters, limits

    def store(
        self, values: Sequence[Sequence[Any]], elements: TileElements, unit: ReductionUnit
    ) -> None:
        """Store the partial results of a unit. ``values``: for each output of the graph, those of
        this thread's elements. All lanes of the warp take part.
        """
        outputs = enumerate(self.bound.graph.outputs)
        numbers = [number for number, output in outputs if output.reduced]
        for number, (name, output) in zip(numbers, self.bound.named_reductions(), strict=True):
            self._store_one(name, output, values[number], elements, unit)

    def _store_one(
        self,
        name: str,
        output: EpilogueOutput,
        values: Sequence[Any],
        elements: TileElements,
        unit: ReductionUnit,
    ) -> None:
        k, reduction = self.k, output.reduction
        m, n = "m" not in output.reduced, "n" not in output.reduced  # the output's dimensions
        lanes = unit.row_lanes * (not m) + unit.column_lanes * (not n)
        writes = (k.laneid & sum(lanes)) == 0
        writes = writes & (unit.row < self.limits[0]) & (unit.column < self.limits[1])
        groups: dict[tuple[int, int], Any] = {}
        for (dr, dc), value in zip(elements.offsets, values, strict=True):
            inside = elements.row + dr < self.limits[0]
            inside = inside & (elements.column + dc < self.limits[1])
            value = k.select(inside, value, IDENTITY[reduction])
            key = dr * m, dc * n
            groups[key] = combine(k, reduction, groups[key], value) if key in groups else value
        for (dr, dc), value in groups.items():
            total = butterfly(k, reduction, value, lanes)
            row, column = elements.row + dr, elements.column + dc
            exists = writes
            if m:
                exists = exists & (row < self.limits[0])
            if n:
                exists = exists & (column < self.limits[1])
            pointer = self._address(name, output, (elements.batch, row, column), unit)
            with k.when(exists):
                pointer.store(total)

    def _address(
        self, name: str, output: EpilogueOutput, at: tuple[Any, Any, Any], unit: ReductionUnit
    ) -> Any:
        """partials[unit][element]"""
        k, p, (m, n) = self.k, self.parameters, self.limits
        batch = at[0] if at[0] is not None else k.const("u32", 0)
        coordinates = dict(zip(DIMENSIONS, (batch, *at[1:]), strict=True))
        extents = {"m": m, "n": n}
        blocks = {
            "b": (batch, None),
            "m": (unit.row // unit.rows, (m + (unit.rows - 1)) // unit.rows),
            "n": (unit.column // unit.columns, (n + (unit.columns - 1)) // unit.columns),
        }
        kept = [d for d in DIMENSIONS if d not in output.reduced]
        element = _linear(k, [(coordinates[d], extents.get(d)) for d in kept])
        number = _linear(k, [blocks[d] for d in output.reduced])
        count = getattr(p, f"{name}_elements")
        base = global_pointer(k, p.partials + getattr(p, f"{name}_offset")).cast("f32")
        return base + (number * count + element)


def _linear(k: Builder, terms: list[tuple[Any, Any]]) -> Any:
    """The index of coordinates in a row-major block; the first extent is not needed."""
    index = k.const("u64", 0)
    for coordinate, extent in terms:
        index = index * extent.to("u64") if extent is not None else index
        index = index + coordinate.to("u64")
    return index
