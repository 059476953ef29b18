"""Products of integers and of bits, and f64's chains of fused multiply-adds."""

from __future__ import annotations

from functools import reduce

import llvmlite.ir as ir

from ...mma import Arithmetic, FmaChain, IntegerDotAdd
from ...native.llvm_types import I32, I64
from ..llvm.expressions import FLOAT, Expr
from ..llvm.float_arithmetic import arithmetic
from ..llvm.rounding import canonical
from ..llvm.vector_memory import any_of, counted_loop, scaled, store_vector, vector
from .mma_decode import integer
from .mma_fused import CHAINS, chained, merged
from .mma_loops import Elements, MmaCore

QUIET = 1 << 51  # the bit of an f64 NaN that says so


class IntegerCore(MmaCore):
    """Sums of integers as f32 numbers: none of them exceeds 24 bits."""

    def prepare(self) -> None:
        plan, how = self.plan, self.plan.how
        extremes = [max(map(abs, t.range)) for t in (how.a, how.b)]
        assert extremes[0] * extremes[1] * plan.k <= 1 << 24
        self.numbers = [
            self.stack_buffer(plan.m * plan.k, FLOAT),
            self.stack_buffer(plan.n * plan.k, FLOAT),
        ]
        operand_pointers = ((self.a, how.a, plan.m), (self.bb, how.b, plan.n))
        for place, (area, t, width) in zip(self.numbers, operand_pointers, strict=True):
            with self.words(area, plan.k, width) as (index, words):
                store_vector(integer(words, t), place, scaled(self.b, index, 4))

    def dot_add(self, row: ir.Value, n: ir.Value, c: Expr) -> Expr:
        a = self.left(self.numbers[0], row, FLOAT, I64(0))
        b = self.right(self.numbers[1], n, FLOAT, I64(0))
        dot_add: list[Expr] = []
        for k in range(self.plan.k):
            if k < CHAINS:
                dot_add.append(a(k) * b(k))
            else:
                dot_add[k % CHAINS] = a(k).intrinsic("fmuladd", b(k), dot_add[k % CHAINS])
        return accumulate(self.plan.how, c, reduce(Expr.__add__, dot_add).to_int(True, 32))


class BitCore(MmaCore):
    """One-bit products: population counts, 32 elements at a time."""

    def dot_add(self, row: ir.Value, n: ir.Value, c: Expr) -> Expr:
        how = self.plan.how
        assert isinstance(how, IntegerDotAdd)
        meet = Expr.__xor__ if how.operation == "xor" else Expr.__and__
        a, b = self.left(self.a, row, I32, I64(0)), self.right(self.bb, n, I32, I64(0))
        counts = (meet(a(k), b(k)).intrinsic("ctpop") for k in range(self.plan.k))
        return accumulate(how, c, chained(Expr.__add__, counts))


def accumulate(how: Arithmetic, c: Expr, total: Expr) -> Expr:
    """c + total, wrapping or clamped."""
    assert isinstance(how, IntegerDotAdd)
    return c.intrinsic("sadd.sat", total) if how.clamped else c + total


class ChainCore(MmaCore):
    """f64: fused multiply-adds in the order of k. NaNs, which stay themselves, are rare."""

    def prepare(self) -> None:
        how = self.plan.how
        assert isinstance(how, FmaChain)
        self.rounding = how.rounding
        self.total = self.b.alloca(vector(I64, self.plan.lanes))

    def dot_add(self, row: ir.Value, n: ir.Value, c: Expr) -> Expr:
        a, b = self.left(self.a, row, I64, I64(0)), self.right(self.bb, n, I64, I64(0))
        total = c
        for k in range(self.plan.k):
            total = self.step(a(k), b(k), total)
        before = self.b.block
        with self.b.if_then(any_of(total.float.is_nan), likely=False):
            there = self._with_nans(a, b, c)
            inside = self.b.block
        return merged(total, before, there, inside)

    def step(self, a: Expr, b: Expr, c: Expr) -> Expr:
        if self.rounding == "rn":
            return a.float.intrinsic("fma", b.float, c.float).bits
        return arithmetic("fma", "f64", (a, b, c), self.rounding)

    def _with_nans(self, a: Elements, b: Elements, c: Expr) -> Expr:
        """As an H200: B's NaN before C's before A's, made quiet; one that arises is canonical."""
        self.b.store(c.v, self.total)
        with counted_loop(self.b, self.plan.k) as k:
            x, y, z = a(k), b(k), Expr(self.b, self.b.load(self.total))
            made = canonical(self.step(x, y, z).float)
            for operand in (x, z, y):
                made = operand.float.is_nan.pick(operand | QUIET, made)
            self.b.store(made.v, self.total)
        return Expr(self.b, self.b.load(self.total))
