"""Expands sparse A in scratch: stored elements go to the columns that the metadata names, all other
elements become markers.

``stored`` is [stored column][m], ``codes`` [index][m], both in the order of the instruction; the
result is dense A. All rows are expanded at once, chunk after chunk.
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

CODE = 8  # a status is 1 + the row of invalid metadata, with the metadata from this bit on


def expand(
    b: ir.IRBuilder, i: MmaInstruction, stored: ir.Value, codes: ir.Value, out: ir.Value
) -> ir.Value:
    """Emit the expansion; returns the status: 0, or the first row with invalid metadata."""
    kept, of = sparsity_pattern(i.a, i.kind)
    rows = vector(I32, i.m)
    positions = {k: position for position, k in enumerate(columns(i))}
    indices = i.metadata_columns * of // i.k
    invalid = Expr(b, ir.Constant(rows, None))
    for number in range(i.k // of):

        def column_of(area: ir.Value, index: int) -> Expr:
            return load_vector(b, area, index * i.m * 4, rows)

        values = [column_of(stored, number * kept + v) for v in range(kept)]
        code = [column_of(codes, number * indices + v) for v in range(indices)]
        for column, value in enumerate(_chunk(values, code, of, sparse_marker(dtype(i.a)))):
            store_vector(value, out, positions[number * of + column] * i.m * 4)
        invalid = invalid.umax(_invalid(code, i.ordered))
    return _status(invalid)


def _chunk(values: Sequence[Expr], code: Sequence[Expr], of: int, marker: int) -> list[Expr]:
    """The dense columns of one chunk."""
    width = len(values) // len(code)
    columns_ = []
    for column in range(of):
        position, part = divmod(column, width)
        selector = (FIRST, SECOND)[position] if of == 2 else position
        value = values[0].const(marker)
        for number, index in enumerate(code):
            value = index.eq(selector).pick(values[number * width + part], value)
        columns_.append(value)
    return columns_


def _invalid(code: Sequence[Expr], ordered: bool) -> Expr:
    """For each row, 0 or, if its metadata is invalid, 16 + the metadata."""
    if len(code) == 1:
        valid = code[0].eq(FIRST) | code[0].eq(SECOND)
        return valid.pick(0, code[0] | 16)
    low, high = code
    invalid = low >= high if ordered else low.eq(high)
    return invalid.pick(low | high << 2 | 16, low.const(0))


def _status(invalid: Expr) -> ir.Value:
    b, rows = invalid.b, range(invalid.lanes)
    largest = reduce(Expr.umax, (Expr(b, b.extract_element(invalid.v, I32(r))) for r in rows))
    valid = invalid.eq(0).v
    mask = b.bitcast(b.not_(valid), ir.IntType(invalid.lanes))
    first = b.zext(b.cttz(mask, ir.IntType(1)(0)), I64)
    code = b.shl(b.zext(b.and_(largest.v, I32(15)), I64), I64(CODE))
    status = b.or_(b.add(first, I64(1)), code)
    return b.select(any_of(invalid.ne(0)), status, I64(0))
