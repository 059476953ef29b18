"""The plan of a matrix instruction's core, and the layout of its operands in scratch memory.

In scratch each matrix is column-major, with one word for an element and right-aligned bits (64 bits
for f64; a word of b1 has 32 elements of a row). A fragment's layout gives the index of each
element, so all fragments, of registers or of shared memory, come to the same form:

    A[k][m]   B[k][n]   C, D[n][m]   scales [block][m], [block][n]     k in the order of ``columns``

Instructions with the same plan share one compiled core, whatever their fragments.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ...dtypes import DType
from ...mma import Arithmetic, Fragment, FusedDotAdd, MmaInstruction
from ...mma.block_scales import BlockScaledDotAdd
from ...mma.sparsity import sparsity_pattern

ScratchIndices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MmaPlan:
    """D (m×n) of A (m×k) and B (k×n). k is divided into ``groups`` equal runs, each one fused sum.

    ``sparse``: A has markers for elements that are not stored, at least half of all. ``scales``:
    the number of block scales of each row of A and column of B.
    """

    how: Arithmetic
    m: int
    n: int
    k: int
    groups: int = 1
    sparse: bool = False
    scales: int = 0

    @property
    def name(self) -> str:
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:16]
        return f"dot_{self.how.d}_{self.how.a}_{self.how.b}_{self.m}x{self.n}x{self.k}_{digest}"

    @property
    def word(self) -> int:
        """Bits of a word of scratch."""
        return 64 if self.how.d.bits == 64 else 32

    @property
    def lanes(self) -> int:
        """Rows that are computed at once."""
        return 16 if self.m % 16 == 0 else 8

    @property
    def bytes(self) -> dict[str, int]:
        """The bytes of scratch of each operand."""
        m, n, k = self.m, self.n, self.k
        words = {"a": m * k, "b": n * k, "c": m * n, "d": m * n}
        words |= {"scale_a": self.scales * m, "scale_b": self.scales * n}
        return {name: count * self.word // 8 for name, count in words.items()}


@cache
def sides(i: MmaInstruction) -> str:
    """``ab``, or ``ba`` if the accumulators hold the transpose of D, computed as BᵀAᵀ."""
    return "ba" if i.fragment("d").transposed else "ab"


@cache
def plan(i: MmaInstruction) -> MmaPlan:
    """The plan of one tile of an instruction."""
    how, m, n = _shared(i.arithmetic), i.m, i.n
    if sides(i) == "ba":
        how, m, n = replace(how, a=how.b, b=how.a), n, m
    groups = len(i.arithmetic.groups) if isinstance(i.arithmetic, FusedDotAdd) else 1
    return MmaPlan(how, m, n, len(columns(i)), groups, i.sparse, i.scales)


def _shared(how: Arithmetic) -> Arithmetic:
    """The arithmetic without the fields that do not affect the code."""
    how = replace(how, verified=True)
    if isinstance(how, BlockScaledDotAdd):
        return replace(how, fused=replace(how.fused, verified=True, groups=()))
    return replace(how, groups=()) if isinstance(how, FusedDotAdd) else how


@cache
def columns(i: MmaInstruction) -> tuple[int, ...]:
    """The k of each column in scratch (for b1: of each 32 columns).

    The columns of a fused sum are consecutive. Within a sum, those at the same position in the
    registers of B are consecutive, so that they are moved as vectors.
    """
    total = i.k // 32 if i.a == "b1" else i.k
    kept, of = sparsity_pattern(i.a, i.kind) if i.sparse else (1, 1)
    number = {k // kept: g for g, ks in enumerate(_sums(i)) for k in ks}
    group = {k: number.get(k // of, 0) for k in range(total)}
    first: dict[int, int] = {}
    if not i.asynchronous:
        ks = map_elements(i, "b", lambda k, n: k)
        per = elements_per_word(i.fragment("b"))
        first = {int(k): v % per for v in range(ks.shape[1]) for k in ks[:, v]}
    return tuple(sorted(range(total), key=lambda k: (group[k], first.get(k, 0), k)))


def _sums(i: MmaInstruction) -> Sequence[Sequence[int]]:
    """The columns of stored A of each fused sum."""
    how, stored = i.arithmetic, range(i.stored_k)
    if isinstance(how, BlockScaledDotAdd):
        return [stored[k : k + how.group] for k in stored[:: how.group] if how.group > 1]
    return how.groups if isinstance(how, FusedDotAdd) else ()


def stored_columns(i: MmaInstruction) -> tuple[int, ...]:
    """As ``columns``, for A in registers: sparse A has its stored columns, in order."""
    return tuple(range(i.stored_k)) if i.sparse else columns(i)


def elements_per_word(fragment: Fragment) -> int:
    """The elements in a register; a word of b1 counts as one element."""
    return 1 if fragment.type == "b1" else fragment.word // fragment.bits


def element(t: DType) -> int:
    """The bits of an element in a word of scratch."""
    return 32 if t.name == "b1" else t.bits


def map_elements(
    i: MmaInstruction, name: str, function: Callable[[Any, Any], Any]
) -> ScratchIndices:
    """``function(row, column)`` for each [thread][value] of an operand. For b1 values are words
    instead of bits; for several tiles the coordinates are those in one tile.
    """
    *_, rows, columns_ = i.fragment(name).coordinates()
    if i.fragment(name).type == "b1":
        rows, columns_ = rows[:, ::32], columns_[:, ::32]
        rows, columns_ = (rows // 32, columns_) if name == "b" else (rows, columns_ // 32)
    result: ScratchIndices = np.asarray(function(rows, columns_), np.int64)
    return result


@cache
def scratch_indices(i: MmaInstruction, name: str) -> ScratchIndices:
    """The index in scratch of each [thread][value] of an operand's fragment."""
    tile = i.fragment(name).coordinates()[0] if i.tiles > 1 else 0
    m, n = i.m, i.n
    if name in ("metadata", "scale_a"):
        return map_elements(i, name, lambda row, index: index * m + row)
    if name == "scale_b":
        return map_elements(i, name, lambda index, column: index * n + column)
    if name in "ab":
        order = stored_columns(i) if name == "a" else columns(i)
        position = np.argsort(order)
        if name == "a":
            return map_elements(i, name, lambda r, k: (tile * len(order) + position[k]) * m + r)
        return map_elements(i, name, lambda k, c: (tile * len(order) + position[k]) * n + c)
    if sides(i) == "ba":
        return map_elements(i, name, lambda r, c: r * n + c)
    return map_elements(i, name, lambda r, c: (tile * n + c) * m + r)


@cache
def scratch_indices_of_copy(i: MmaInstruction, name: str, copy: int) -> ScratchIndices:
    """``scratch_indices`` with each index only once: of several copies of an element, ``copy`` has
    its index and the others −1.
    """
    indices = scratch_indices(i, name)
    flat = indices.reshape(-1)
    order = np.argsort(flat, kind="stable").reshape(flat.max() + 1, -1)[:, copy]
    result = np.full(flat.shape, -1, np.int64)
    result[order] = flat[order]
    return result.reshape(indices.shape)


@cache
def selected(i: MmaInstruction, name: str, copy: int) -> tuple[tuple[int, ...], int]:
    """How to move a copy of metadata or scales to the position of copy 0: for each lane the lane
    whose register to take, and the bits to shift it right.
    """
    fragment = i.fragment(name)
    order = np.argsort(fragment.indices(), axis=None, kind="stable").reshape(-1, fragment.copies)
    (home, first), (lane, value) = (divmod(order[:, c], fragment.values) for c in (0, copy))
    lanes = np.arange(fragment.threads)
    lanes[home] = lane
    shift = set((value - first).tolist())
    assert len(shift) == 1, "all elements of a copy must have the same offset in their registers"
    return tuple(lanes.tolist()), shift.pop() * fragment.bits
