"""Scatter of D's rows: the epilogue stores row i of the product to the row that an index names."""

from __future__ import annotations

from typing import Any

from ....builder import Builder
from ...kernel_scalars import global_pointer, limited


class RowScatter:
    """The array of indices, of type ``index``, for ``m`` rows; D has ``rows`` rows."""

    def __init__(self, k: Builder, indices: Any, index: str, m: Any, rows: Any) -> None:
        self.k, self.m, self.rows = k, m, rows
        self.indices = global_pointer(k, indices).cast(index)

    def target(self, row: Any) -> tuple[Any, Any]:
        """The row of D that row ``row`` goes to, and whether there is one: a row whose index is
        negative, or not less than the rows of D, is not stored.
        """
        k = self.k
        index = (self.indices + k.min(row, self.m - 1)).load(1)[0]
        nearest = limited(k, index, k.const("u32", 0), self.rows)
        return nearest, (index >= 0) & (nearest < self.rows)
