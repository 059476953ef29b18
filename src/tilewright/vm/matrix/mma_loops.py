"""The loops that all cores share: over the columns of D, and the vectors of rows in each column.

A subclass implements the arithmetic of one vector. Elements of A are loaded as vectors, an element
of B is broadcast to all lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import llvmlite.ir as ir

from ...native.llvm_types import I32, POINTER
from ..llvm.expressions import Expr
from ..llvm.vector_memory import (
    Offset,
    at,
    broadcast,
    bytes_of,
    counted_loop,
    load_vector,
    scaled,
    stack_buffer,
    store_vector,
    vector,
)
from .mma_plan import MmaPlan

STEP = 16  # elements that are decoded at a time
Elements = Callable[[Offset], Expr]  # k → a vector


class MmaCore:
    """Emits the core of a plan as a function called ``name`` (default: the plan's name)."""

    def __init__(self, module: ir.Module, plan: MmaPlan, name: str = "") -> None:
        self.module, self.plan = module, plan
        kind = ir.FunctionType(ir.VoidType(), [POINTER] * (6 if plan.scales else 4))
        self.function = ir.Function(module, kind, name or plan.name)
        self.b = ir.IRBuilder(self.function.append_basic_block())
        for argument in self.function.args:
            argument.add_attribute("noalias")
        self.a, self.bb, self.c, self.d = self.function.args[:4]

    def emit(self) -> ir.Function:
        plan, word = self.plan, ir.IntType(self.plan.word)
        size = plan.word // 8
        self.prepare()
        with counted_loop(self.b, plan.n) as n, counted_loop(self.b, plan.m // plan.lanes) as block:
            row = scaled(self.b, block, plan.lanes)
            offset = scaled(self.b, self.b.add(scaled(self.b, n, plan.m), row), size)
            c = load_vector(self.b, self.c, offset, vector(word, plan.lanes))
            store_vector(self.dot_add(row, n, c), self.d, offset)
        self.b.ret_void()
        return self.function

    def prepare(self) -> None:
        """Emit the code before the loops."""

    def dot_add(self, row: ir.Value, n: ir.Value, c: Expr) -> Expr:
        """The elements of D in column ``n``, for the vector of rows from ``row`` on."""
        raise NotImplementedError

    def stack_buffer(self, count: int, type_: ir.Type) -> ir.Value:
        return stack_buffer(self.b, count * bytes_of(type_))

    def left(self, area: ir.Value, row: ir.Value, type_: ir.Type, first: ir.Value) -> Elements:
        """k → the elements of A at ``first`` + k, for the vector of rows."""
        lanes = vector(type_, self.plan.lanes)
        at_ = partial(load_vector, self.b, type_=lanes)
        return self._elements(area, row, self.plan.m, type_, first, at_)

    def right(
        self, area: ir.Value, n: ir.Value, type_: ir.Type, first: ir.Value, width: int = 0
    ) -> Elements:
        """k → the element of B at ``first`` + k, in all lanes. ``width``: the pitch of B's rows."""
        at_ = partial(broadcast, self.b, element=type_, lanes=self.plan.lanes)
        return self._elements(area, n, width or self.plan.n, type_, first, at_)

    def _elements(
        self,
        area: ir.Value,
        index: ir.Value,
        width: int,
        type_: ir.Type,
        first: ir.Value,
        load: Callable[..., Expr],
    ) -> Elements:
        size = bytes_of(type_)
        start = scaled(self.b, self.b.add(scaled(self.b, first, width), index), size)
        base = at(self.b, area, start)
        stride = width * size
        return lambda k: load(base, k * stride if isinstance(k, int) else scaled(self.b, k, stride))

    @contextmanager
    def words(
        self, area: ir.Value, rows: int, width: int, pitch: int = 0
    ) -> Iterator[tuple[ir.Value, Expr]]:
        """A loop over vectors of words of scratch: their index in a copy whose rows have the given
        ``pitch``, and the words.
        """
        if pitch in (0, width):
            rows, width = 1, rows * width
        assert width % STEP == 0
        with counted_loop(self.b, rows) as row, counted_loop(self.b, width // STEP) as i:
            column = scaled(self.b, i, STEP)
            index = self.b.add(scaled(self.b, row, width), column)
            words = load_vector(self.b, area, scaled(self.b, index, 4), vector(I32, STEP))
            yield self.b.add(scaled(self.b, row, pitch or width), column), words
