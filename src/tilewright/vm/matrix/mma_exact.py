"""Cores for integers, for bits, and for f64 (a chain of fused multiply-adds)."""

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
from .mma_fused import CHAINS, chained, phi_merged
from .mma_loops import Elements, MmaCore

QUIET = 1 << 51  # the quiet bit of an f64 NaN


class IntegerCore(MmaCore):
    """Sums of integers, computed in f32: no sum exceeds 24 bits."""

    def prepare(self) -> None:
        plan, how = self.plan, self.plan.how
        extremes = [max(map(abs, t.range)) for t in (how.a, how.b)]
        assert extremes[0] * extremes[1] * plan.k <= 1 << 24
        self.numbers = [
            self.stack_buffer(plan.m * plan.k, FLOAT),
            self.stack_buffer(plan.n * plan.k, FLOAT),
        ]
        operands = ((self.a, how.a, plan.m), (self.bb, how.b, plan.n))
        for buffer, (area, t, width) in zip(self.numbers, operands, strict=True):
            with self.words(area, plan.k, width) as (index, words):
                store_vector(integer(words, t), buffer, scaled(self.b, index, 4))

    def dot_add(self, row: ir.Value, n: ir.Value, c: Expr) -> Expr:
        a = self.left(self.numbers[0], row, FLOAT, I64(0))
        b = self.right(self.numbers[1], n, FLOAT, I64(0))
        sums: list[Expr] = []
        for k in range(self.plan.k):
            if k < CHAINS:
                sums.append(a(k) * b(k))
            else:
                sums[k % CHAINS] = a(k).intrinsic("fmuladd", b(k), sums[k % CHAINS])
        return accumulate(self.plan.how, c, reduce(Expr.__add__, sums).to_int(True, 32))


class BitCore(MmaCore):
    """Products of b1: population counts, 32 elements at a time."""

    def dot_add(self, row: ir.Value, n: ir.Value, c: Expr) -> Expr:
        how = self.plan.how
        assert isinstance(how, IntegerDotAdd)
        operation = Expr.__xor__ if how.operation == "xor" else Expr.__and__
        a, b = self.left(self.a, row, I32, I64(0)), self.right(self.bb, n, I32, I64(0))
        counts = (operation(a(k), b(k)).intrinsic("ctpop") for k in range(self.plan.k))
        return accumulate(how, c, chained(Expr.__add__, counts))


def accumulate(how: Arithmetic, c: Expr, total: Expr) -> Expr:
    """c + total, wrapping or saturating."""
    assert isinstance(how, IntegerDotAdd)
    return c.intrinsic("sadd.sat", total) if how.clamped else c + total


class ChainCore(MmaCore):
    """f64: fused multiply-adds in the order of k. NaN operands propagate; since they are rare, a
    test selects the path for them.
    """

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
        fast_block = self.b.block
        with self.b.if_then(any_of(total.float.is_nan), likely=False):
            slow = self._with_nans(a, b, c)
            slow_block = self.b.block
        return phi_merged(total, fast_block, slow, slow_block)

    def step(self, a: Expr, b: Expr, c: Expr) -> Expr:
        if self.rounding == "rn":
            return a.float.intrinsic("fma", b.float, c.float).bits
        return arithmetic("fma", "f64", (a, b, c), self.rounding)

    def _with_nans(self, a: Elements, b: Elements, c: Expr) -> Expr:
        """NaNs as on an H200: that of B before C before A, made quiet; a new one is canonical."""
        self.b.store(c.v, self.total)
        with counted_loop(self.b, self.plan.k) as k:
            x, y, z = a(k), b(k), Expr(self.b, self.b.load(self.total))
            result = canonical(self.step(x, y, z).float)
            for operand in (x, z, y):
                result = operand.float.is_nan.pick(operand | QUIET, result)
            self.b.store(result.v, self.total)
        return Expr(self.b, self.b.load(self.total))
