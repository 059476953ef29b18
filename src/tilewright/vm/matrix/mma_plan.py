"""What a compiled product of matrices depends on, and the scratch that its operands lie in.

Scratch is plain: each matrix in column order, one word for an element, right-aligned bits (64 bits
for f64; b1 has 32 elements of a row in a word). So an element's place is what a fragment's layout
says it is, and all fragments, of registers or of shared memory, come to one form:

    A[k][m]   B[k][n]   C, D[n][m]   scales [block][m], [block][n]     k in ``columns``' order

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

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MmaPlan:
    """D (m×n) of A (m×k) and B (k×n), their k in ``groups`` equal runs, each a sum of its own.

    ``sparse``: A holds marks where nothing was kept, at least in half of its places. ``scales``:
    for each row of A and column of B, that many.
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
        """The size of each operand's scratch."""
        m, n, k = self.m, self.n, self.k
        words = {"a": m * k, "b": n * k, "c": m * n, "d": m * n}
        words |= {"scale_a": self.scales * m, "scale_b": self.scales * n}
        return {name: count * self.word // 8 for name, count in words.items()}


@cache
def sides(i: MmaInstruction) -> str:
    """``ab``, or ``ba`` where the accumulators hold the transpose of D, made as BᵀAᵀ."""
    return "ba" if i.fragment("d").transposed else "ab"


@cache
def plan(i: MmaInstruction) -> MmaPlan:
    """The plan of one of an instruction's ``tiles``."""
    how, m, n = _shared(i.arithmetic), i.m, i.n
    if sides(i) == "ba":
        how, m, n = replace(how, a=how.b, b=how.a), n, m
    groups = len(i.arithmetic.groups) if isinstance(i.arithmetic, FusedDotAdd) else 1
    return MmaPlan(how, m, n, len(columns(i)), groups, i.sparse, i.scales)


def _shared(how: Arithmetic) -> Arithmetic:
    """Without what makes no other code."""
    how = replace(how, verified=True)
    if isinstance(how, BlockScaledDotAdd):
        return replace(how, fused=replace(how.fused, verified=True, groups=()))
    return replace(how, groups=()) if isinstance(how, FusedDotAdd) else how


@cache
def columns(i: MmaInstruction) -> tuple[int, ...]:
    """[place in scratch]: which k stands there (of b1: which 32 of them).

    A fused sum's columns stand together. Within one, those that stand at the same place of B's
    registers do, for vectors of them to move at once.
    """
    total = i.k // 32 if i.a == "b1" else i.k
    kept, of = sparsity_pattern(i.a, i.kind) if i.sparse else (1, 1)
    number = {k // kept: g for g, ks in enumerate(_sums(i)) for k in ks}
    group = {k: number.get(k // of, 0) for k in range(total)}
    first: dict[int, int] = {}
    if not i.asynchronous:
        where = places(i, "b", lambda k, n: k)
        per = per_word(i.fragment("b"))
        first = {int(k): v % per for v in range(where.shape[1]) for k in where[:, v]}
    return tuple(sorted(range(total), key=lambda k: (group[k], first.get(k, 0), k)))


def _sums(i: MmaInstruction) -> Sequence[Sequence[int]]:
    """The columns of stored A that are summed before anything else happens to them."""
    how, stored = i.arithmetic, range(i.stored_k)
    if isinstance(how, BlockScaledDotAdd):
        return [stored[k : k + how.group] for k in stored[:: how.group] if how.group > 1]
    return how.groups if isinstance(how, FusedDotAdd) else ()


def stored_columns(i: MmaInstruction) -> tuple[int, ...]:
    """As ``columns``, of A in registers: sparse A has its own, in their order."""
    return tuple(range(i.stored_k)) if i.sparse else columns(i)


def per_word(fragment: Fragment) -> int:
    """Elements in a register; a word of b1 counts as one."""
    return 1 if fragment.type == "b1" else fragment.word // fragment.bits


def element(t: DType) -> int:
    """Bits of an element in a word of scratch."""
    return 32 if t.name == "b1" else t.bits


def places(i: MmaInstruction, name: str, place: Callable[[Any, Any], Any]) -> Places:
    """``place(row, column)`` of the operand as the mathematics has it: [thread][value]; of b1 its
    words instead of bits, of several tiles the coordinates in one.
    """
    *_, rows, columns_ = i.fragment(name).coordinates()
    if i.fragment(name).type == "b1":
        rows, columns_ = rows[:, ::32], columns_[:, ::32]
        rows, columns_ = (rows // 32, columns_) if name == "b" else (rows, columns_ // 32)
    made: Places = np.asarray(place(rows, columns_), np.int64)
    return made


@cache
def scratch(i: MmaInstruction, name: str) -> Places:
    """The place in scratch of each (thread, value) of an operand's fragment."""
    tile = i.fragment(name).coordinates()[0] if i.tiles > 1 else 0
    m, n = i.m, i.n
    if name in ("metadata", "scale_a"):
        return places(i, name, lambda row, index: index * m + row)
    if name == "scale_b":
        return places(i, name, lambda index, column: index * n + column)
    if name in "ab":
        order = stored_columns(i) if name == "a" else columns(i)
        rank = np.argsort(order)
        if name == "a":
            return places(i, name, lambda r, k: (tile * len(order) + rank[k]) * m + r)
        return places(i, name, lambda k, c: (tile * len(order) + rank[k]) * n + c)
    if sides(i) == "ba":
        return places(i, name, lambda r, c: r * n + c)
    return places(i, name, lambda r, c: (tile * n + c) * m + r)


@cache
def scratch_of_copy(i: MmaInstruction, name: str, copy: int) -> Places:
    """``scratch``, each place only once, −1 elsewhere: where several hold an element, that copy."""
    where = scratch(i, name)
    flat = where.reshape(-1)
    order = np.argsort(flat, kind="stable").reshape(flat.max() + 1, -1)[:, copy]
    made = np.full(flat.shape, -1, np.int64)
    made[order] = flat[order]
    return made.reshape(where.shape)


@cache
def selected(i: MmaInstruction, name: str, copy: int) -> tuple[tuple[int, ...], int]:
    """How a copy of metadata or scales comes to where copy 0 is: for each lane which one's
    register to take, and by how many bits to shift it right.
    """
    fragment = i.fragment(name)
    order = np.argsort(fragment.indices(), axis=None, kind="stable").reshape(-1, fragment.copies)
    (home, first), (lane, value) = (divmod(order[:, c], fragment.values) for c in (0, copy))
    lanes = np.arange(fragment.threads)
    lanes[home] = lane
    shift = set((value - first).tolist())
    assert len(shift) == 1, "a copy in other places of the registers"
    return tuple(lanes.tolist()), shift.pop() * fragment.bits
