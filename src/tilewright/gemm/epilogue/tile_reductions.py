"""Partial results of an epilogue's reductions within a GEMM kernel.

A thread combines its elements of a unit in their order; lanes that hold elements of the same
output exchange theirs by butterfly shuffles, and one of them stores the partial result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...builder import Builder
from ..kernel_scalars import global_pointer
from .bound_epilogue import BoundEpilogue
from .graph import EpilogueOutput
from .operand_loads import Offset, TileElements
from .reductions import DIMENSIONS

IDENTITY = {"max": float("-inf"), "sum": 0.0}
WARP_LANES = (16, 8, 4, 2, 1)


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


def in_register(k: Builder, value: Any) -> Any:
    """A node's value in a register; a constant is a number."""
    return value if hasattr(value, "dtype") else k.const("f32", value)


class TileReductions:
    """The partial results of reductions within a kernel. ``parameters`` has ``partials``, the
    address of the workspace, and for each reduction ``x{i}_offset``; ``limits``: M and N.

    ``add`` the elements of a unit, a few at a time, then ``store``. After ``begin``, a partial
    result is stored with the last of its elements instead. ``row_end``: of the rows that are
    stored, if fewer than M; ``joined``: groups are rows of one matrix.
    """

    def __init__(
        self, k: Builder, bound: BoundEpilogue, parameters: Any, limits: tuple[Any, Any]
    ) -> None:
        self.k, self.parameters, self.limits = k, parameters, limits
        self.outputs = bound.partial_reductions
        self.unit: ReductionUnit | None = None
        self.row_end, self.joined = limits[0], False
        self._totals: list[dict[Offset, Any]] = [{} for _ in self.outputs]
        self._left: list[Counter[Offset]] = [Counter() for _ in self.outputs]

    def begin(self, elements: TileElements, unit: ReductionUnit) -> None:
        """Begin a unit, of which ``elements`` are this thread's."""
        self.unit = unit
        self._left = [Counter(_keys(output, elements)) for _, _, output in self.outputs]

    def add(self, values: Sequence[Sequence[Any]], elements: TileElements) -> None:
        """Combine elements of this thread; after ``begin`` all lanes of the warp take part.
        ``values``: for each output of the graph.
        """
        states = zip(self.outputs, self._totals, self._left, strict=True)
        for (name, number, output), totals, left in states:
            keys = _keys(output, elements)
            for key, offset, value in zip(keys, elements.offsets, values[number], strict=True):
                value = self._inside(output, elements, offset, in_register(self.k, value))
                known = totals.get(key)
                totals[key] = (
                    value if known is None else combine(self.k, output.reduction, known, value)
                )
                left[key] -= 1
            for key in dict.fromkeys(keys):
                if self.unit is not None and not left[key]:
                    self._store(name, output, elements, key, totals.pop(key), self.unit)

    def store(self, elements: TileElements, unit: ReductionUnit) -> None:
        """Store the partial results of a unit. All lanes of the warp take part."""
        for (name, _, output), totals in zip(self.outputs, self._totals, strict=True):
            for key, value in totals.items():
                self._store(name, output, elements, key, value, unit)
            totals.clear()

    def _inside(
        self, output: EpilogueOutput, elements: TileElements, offset: Offset, value: Any
    ) -> Any:
        """The value of an element of D, without effect outside: along the reduced dimensions, since
        no result outside is stored.
        """
        starts, exists = (elements.row, elements.column), None
        for start, step, limit, kept in zip(
            starts, offset, self.limits, _dimensions(output), strict=True
        ):
            if not kept:
                inside = start + step < limit
                exists = inside if exists is None else exists & inside
        return value if exists is None else self.k.select(exists, value, IDENTITY[output.reduction])

    def _store(
        self, name: str, output: EpilogueOutput, elements: TileElements, key: Offset, value: Any,
        unit: ReductionUnit,
    ) -> None:  # fmt: skip
        k, (m, n) = self.k, _dimensions(output)
        lanes = unit.row_lanes * (not m) + unit.column_lanes * (not n)
        writes = (k.laneid & sum(lanes)) == 0
        writes = writes & (unit.row < self.limits[0]) & (unit.column < self.limits[1])
        total = butterfly(k, output.reduction, value, lanes)
        row, column = elements.row + key[0], elements.column + key[1]
        if m:
            writes = writes & (row < self.row_end)
        if n:
            writes = writes & (column < self.limits[1])
        pointer = self._address(name, output, (elements.batch, row, column), unit)
        with k.when(writes):
            pointer.store(total)

    def _address(
        self, name: str, output: EpilogueOutput, at: tuple[Any, Any, Any], unit: ReductionUnit
    ) -> Any:
        """partials[unit][element]"""
        k, p, (m, n) = self.k, self.parameters, self.limits
        has_batch = at[0] is not None and not self.joined
        batch = at[0] if has_batch else k.const("u32", 0)
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


def _dimensions(output: EpilogueOutput) -> tuple[bool, bool]:
    """Whether the output has rows and columns."""
    return "m" not in output.reduced, "n" not in output.reduced


def _keys(output: EpilogueOutput, elements: TileElements) -> list[Offset]:
    """For each element the offset of the output's element that it belongs to."""
    m, n = _dimensions(output)
    return [(dr * m, dc * n) for dr, dc in elements.offsets]


def _linear(k: Builder, terms: list[tuple[Any, Any]]) -> Any:
    """The index of coordinates in a row-major block; the first extent is not needed."""
    index = k.const("u64", 0)
    for coordinate, extent in terms:
        index = index * extent.to("u64") if extent is not None else index
        index = index + coordinate.to("u64")
    return index
