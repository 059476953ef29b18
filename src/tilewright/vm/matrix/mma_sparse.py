"""Sparse A in scratch: what was kept goes where the metadata says, marks stand everywhere else.

``stored`` is [what was kept][m], ``codes`` [index][m], both in the order of the instruction; A
comes out dense. All rows at once, chunk after chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import llvmlite.ir as ir

from ...dtypes import dtype
from ...mma import MmaInstruction
from ...mma.sparse_metadata import FIRST, SECOND
from ...mma.sparsity import sparsity_pattern
from ...native.llvm_types import I32, I64
from ..llvm.expressions import Expr
from ..llvm.vector_memory import any_of, load_vector, store_vector, vector
from .mma_decode import sparse_marker
from .mma_plan import columns

CODE = 8  # a status is 1 + the row of invalid metadata, and from this bit on the metadata


def expand(
    b: ir.IRBuilder, i: MmaInstruction, stored: ir.Value, codes: ir.Value, out: ir.Value
) -> ir.Value:
    """Emit it; the status: 0, or which row's metadata selects nothing."""
    kept, of = sparsity_pattern(i.a, i.kind)
    rows = vector(I32, i.m)
    ranks = {k: place for place, k in enumerate(columns(i))}
    indices = i.metadata_columns * of // i.k
    wrong = Expr(b, ir.Constant(rows, None))
    for number in range(i.k // of):

        def line(area: ir.Value, index: int) -> Expr:
            return load_vector(b, area, index * i.m * 4, rows)

        values = [line(stored, number * kept + v) for v in range(kept)]
        code = [line(codes, number * indices + v) for v in range(indices)]
        for column, value in enumerate(_chunk(values, code, of, sparse_marker(dtype(i.a)))):
            store_vector(value, out, ranks[number * of + column] * i.m * 4)
        wrong = wrong.umax(_wrong(code, i.ordered))
    return _status(wrong)


def _chunk(values: Sequence[Expr], code: Sequence[Expr], of: int, poison: int) -> list[Expr]:
    """The columns of one chunk."""
    width = len(values) // len(code)
    made = []
    for column in range(of):
        place, part = divmod(column, width)
        wanted = (FIRST, SECOND)[place] if of == 2 else place
        value = values[0].const(poison)
        for number, one in enumerate(code):
            value = one.eq(wanted).pick(values[number * width + part], value)
        made.append(value)
    return made


def _wrong(code: Sequence[Expr], ordered: bool) -> Expr:
    """Per row, 0 or 16 + the metadata where that selects nothing."""
    if len(code) == 1:
        fine = code[0].eq(FIRST) | code[0].eq(SECOND)
        return fine.pick(0, code[0] | 16)
    low, high = code
    bad = low >= high if ordered else low.eq(high)
    return bad.pick(low | high << 2 | 16, low.const(0))


def _status(wrong: Expr) -> ir.Value:
    b = wrong.b
    largest = reduce(Expr.umax, (Expr(b, b.extract_element(wrong.v, I32(r))) for r in _rows(wrong)))
    row = wrong.eq(0).v
    mask = b.bitcast(b.not_(row), ir.IntType(wrong.lanes))
    first = b.zext(b.cttz(mask, ir.IntType(1)(0)), I64)
    code = b.shl(b.zext(b.and_(largest.v, I32(15)), I64), I64(CODE))
    status = b.or_(b.add(first, I64(1)), code)
    return b.select(any_of(wrong.ne(0)), status, I64(0))


def _rows(x: Expr) -> range:
    return range(x.lanes)
