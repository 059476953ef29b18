"""The rows of A that indices name."""

from __future__ import annotations

from typing import Any

from ....builder import Builder
from ...kernel_scalars import global_pointer, limited


class GatheredRows:
    """``indices``: the address of the array, of type ``index``; A has ``rows`` rows."""

    def __init__(self, k: Builder, indices: Any, index: str, rows: Any) -> None:
        self.k, self.rows = k, rows
        self.indices = global_pointer(k, indices).cast(index)

    def row(self, row: Any) -> Any:
        """The row of A that a row of the product has: an index that is no row of A is taken for the
        nearest row.
        """
        index = (self.indices + row).load(1)[0]
        return limited(self.k, index, self.k.const("u32", 0), self.rows - 1)
