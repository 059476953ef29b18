"""Operands A and B of kernel ``simt``: MN-major in shared memory, from rows of any alignment.

K is counted from its end: where it is no multiple of the k-tile, the first k-tile begins ahead of
the matrix, and only its copies compare k. The last tile along M and along N ends with the matrix
where it can (``ends_inside``), and shares rows or columns with the tile before it. Elsewhere
elements beyond M and N are not copied; what is in their place in shared memory reaches no element
of D.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import Any

from ...builder import Reg, iterate_slices
from ...layout import Layout, Tensor, composition, make_layout
from ..problem import Problem
from .cp_async_operand import CpAsyncOperand, OperandTile
from .simt_config import PAD, TYPE, WARP, SimtConfig
from .simt_edges import copy_bytes, ends_inside

TRANSPOSED = 8  # neighbours along K that neighbouring threads copy: a sector of 32 bytes


class SimtOperand(CpAsyncOperand):
    """An operand that is MN-major in shared memory."""

    __slots__ = ()

    @property
    def pitch(self) -> int:
        """Elements from one k to the next."""
        return self.extent + (PAD if self.contiguous == "k" else 0)

    @property
    def layout(self) -> Any:
        """The tile in shared memory: (row, k) → element."""
        return Layout((self.extent, self.depth), (1, self.pitch))

    def thread_layout(self, share: Layout) -> Layout:
        """(thread, values, k) → element, of each thread's share of the tile's rows."""
        return make_layout(*composition(self.layout[0], share), self.layout[1])

    @property
    def bytes(self) -> int:
        return self.pitch * self.depth * self.size

    @property
    def row_chunks(self) -> int:
        """Those of a warp at most, where no copy compares its row: so one address serves a thread's
        chunks of a k.
        """
        if self.contiguous == "k":
            return min(super().row_chunks, TRANSPOSED)
        chunks = gcd(self.extent // self.chunk, self.threads)
        return gcd(chunks, WARP) if self.full_mn else chunks


def operands(problem: Problem, config: SimtConfig) -> tuple[SimtOperand, SimtOperand]:
    """The operands of a stage: tiles of A and B."""
    bm, bn, bk = config.tile
    full_k = problem.k % bk == 0

    def operand(side: int, name: str, tile: int, major: str) -> SimtOperand:
        contiguous = "k" if major == "k" else "mn"
        size, align = (problem.m, problem.n)[side], copy_bytes(problem, config, side)
        full = size % tile == 0 or ends_inside(problem, config, side)
        return SimtOperand(name, TYPE, tile, bk, contiguous, align, full_k, full, config.threads)

    return operand(0, "a", bm, problem.a_major), operand(1, "b", bn, problem.b_major)


class SimtTile(OperandTile):
    """An operand in the kernel."""

    batch = 32
    lead: Any = None  # of the next k-tile: this many k are ahead of the matrix; None: none are
    first_lead: Any = None

    def begin(self, lead: Reg, here: Reg) -> None:
        """Let k-tiles begin ``lead`` of K earlier, so that ``here`` of this CTA's first one are
        ahead of the matrix.
        """
        ahead = (lead * self.operand.size).to("u64")
        bytes_ahead = ahead if self.operand.major else ahead * self.matrix.stride[1]
        self.cursor.cast("b8").advance(0 - bytes_ahead)
        self.lead = self.first_lead = here

    def continue_at(self, first: Any) -> None:
        """Compare k in the next k-tile if it is the ``first``."""
        if self.first_lead is not None:
            self.lead = self.k.select(first, self.first_lead, 0)

    def copy(self, first_k: Any, stage: Any, enabled: Any) -> Iterator[None]:
        k = self.k
        source = Tensor(self.cursor.add_bytes(0), self.source.layout)
        enabled = enabled if self.copies_here is True else enabled & self.copies_here
        if self.looped:
            self._copy_in_loop(source, stage, enabled, self.lead)
            yield
        else:
            single = self.operand.chunk == 1
            chunks = zip(iterate_slices(source), self.targets, self.inside, strict=True)
            for i, (chunk, place, inside) in enumerate(chunks):
                depth = self._depth_inside(self.where[0, i], self.lead)
                here = enabled & inside if single and inside is not None else enabled
                valid = self._valid(None if single else inside, depth)
                there = Tensor(place.add_bytes(stage), self.chunk)
                k.copy(self.atom, chunk, there, pred=here, valid=valid)
                yield
        self.cursor.advance(self.onward)

    def _depth_inside(self, at: Any, lead: Any) -> Any:
        """Whether the chunk at (row, k) is not ahead of the matrix; None if none is."""
        return None if lead is None else self.k.compare("ge", at[1], lead)

    def _rows_inside(self, at: Any) -> Any:
        whole = self.operand.chunk == 1
        return self._inside(at[0], self.rows_left, self.operand.major == 0 and not whole)

    def _valid(self, rows: Any, depth: Any) -> Any:
        if self.operand.chunk == 1:
            exists = [x for x in (rows, depth) if x is not None]
            if not exists:
                return None
            both = exists[0] if len(exists) == 1 else exists[0] & exists[1]
            return self.k.select(both, self.operand.align, 0)
        if depth is None:
            return rows
        return self.k.select(depth, self.operand.align if rows is None else rows, 0)
