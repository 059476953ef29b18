"""Maxima over all rows and columns of an epilogue: an atomic maximum of each warp and work tile.

A maximum does not depend on the order, so no partial results are stored, and split-K is possible:
every kernel that stores elements of D combines its own with the output. The kernel before them
(``maxima_reset``) writes −∞ there in each call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...builder import Builder
from ..kernel_scalars import global_pointer
from .bound_epilogue import BoundEpilogue
from .operand_loads import TileElements
from .tile_reductions import IDENTITY, WARP_LANES, butterfly, combine, in_register

MAX = "max"
NOTHING = IDENTITY[MAX]


class AtomicMaxima:
    """The maxima over all rows and columns within a kernel. ``parameters`` has the outputs'
    addresses; ``limits``: M and N; ``by_rows``: a thread has elements of few rows and many columns;
    ``together``: the number of neighbouring columns that D's edge never separates.

    ``begin`` a work tile; ``add`` a few elements at a time; ``end_lines`` after those of the same
    rows (or columns); ``store``.
    """

    def __init__(
        self, k: Builder, bound: BoundEpilogue, parameters: Any, limits: tuple[Any, Any],
        *, by_rows: bool = True, together: int = 1,
    ) -> None:  # fmt: skip
        self.k, self.limits = k, limits
        self.line, self.along = (0, 1) if by_rows else (1, 0)
        self.together = together
        self.parameters, self.outputs = parameters, bound.maxima
        self.begin()

    def begin(self) -> None:
        """Begin a work tile."""
        self.totals: list[Any] = [NOTHING] * len(self.outputs)
        self._lines: list[dict[int, Any]] = [{} for _ in self.outputs]

    def add(self, values: Sequence[Sequence[Any]], elements: TileElements) -> None:
        """Combine a few elements of this thread. ``values``: for each output of the graph."""
        k = self.k
        at = [(o[self.line], o[self.along] & -self.together) for o in elements.offsets]
        inside = self._inside(elements, self.along, {along for _, along in at})
        for (_, number, _), lines in zip(self.outputs, self._lines, strict=True):
            found: dict[tuple[int, int], Any] = {}
            for key, given in zip(at, values[number], strict=True):
                value = in_register(k, given)
                found[key] = combine(k, MAX, found[key], value) if key in found else value
            for (line, along), value in found.items():
                if line not in lines:
                    lines[line] = k.var("f32", NOTHING)
                with k.when(inside[along]):
                    k.emit("max.NaN.f32", lines[line], value, into=lines[line])

    def end_lines(self, elements: TileElements) -> None:
        """End rows (or columns) of elements, those outside of D without effect."""
        for i, lines in enumerate(self._lines):
            for line, exists in self._inside(elements, self.line, set(lines)).items():
                value = self.k.select(exists, lines[line], NOTHING)
                first = self.totals[i] is NOTHING
                self.totals[i] = value if first else combine(self.k, MAX, self.totals[i], value)
            lines.clear()

    def store(self, batch: Any) -> None:
        """Combine the maxima of this warp with the outputs. All its lanes take part."""
        k = self.k
        first = k.laneid == 0
        for (name, _, output), total in zip(self.outputs, self.totals, strict=True):
            total = butterfly(k, MAX, total, WARP_LANES)
            at = global_pointer(k, getattr(self.parameters, name)).cast("f32")
            at = at if batch is None or "b" in output.reduced else at + batch
            positive = total.view("s32") >= 0  # of floats with their sign, −0 and below are less
            with k.when(first & positive):
                at.cast("s32").reduce("max", total.view("s32"))
            with k.when(first & ~positive):  # as unsigned integers in descending order
                at.cast("u32").reduce("min", total.view("u32"))

    def _inside(self, elements: TileElements, axis: int, offsets: set[int]) -> dict[int, Any]:
        """For each offset along an axis whether its elements are in D."""
        if elements.inside:
            return dict.fromkeys(offsets, True)
        start = (elements.row, elements.column)[axis]
        left = self.limits[axis].view("s32") - start.view("s32")
        return {offset: left > offset for offset in sorted(offsets)}
