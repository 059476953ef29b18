"""Cores for floats: fused sums, in groups one after another, and block-scaled.

Sums of bf16 and tf32 rarely need the exponent range of f64: a test of the operands decides whether
f32 suffices.
"""

from __future__ import annotations

from functools import reduce

import llvmlite.ir as ir

from ...dtypes import DType, dtype
from ...mma import FusedDotAdd
from ...mma.block_scales import BlockScaledDotAdd
from ...native.llvm_types import I32, I64
from ..llvm.expressions import DOUBLE, FLOAT, Expr
from ..llvm.float_arithmetic import arithmetic
from ..llvm.llvm_conversions import convert, widen
from ..llvm.rounding import storage
from ..llvm.vector_memory import (
    any_of,
    broadcast_scalar,
    bytes_of,
    counted_loop,
    scaled,
    store_vector,
    vector,
)
from .mma_decode import NARROW, BlockScale, Range, decode, outside, sparse_marker
from .mma_fused import BIAS, ZERO_LEAD, FusedSum, Term, chained, phi_merged
from .mma_loops import STEP, MmaCore
from .mma_plan import MmaPlan

ALIASED = 512  # bytes; rows with a pitch of a multiple of it share few sets of the cache


class FusedCore(MmaCore):
    """Fused sums of floats. NaN and infinity are rare: one test selects the path for them."""

    def __init__(
        self, module: ir.Module, plan: MmaPlan, name: str = "", range_: Range | None = None
    ) -> None:
        super().__init__(module, plan, name)
        how = plan.how.fused if isinstance(plan.how, BlockScaledDotAdd) else plan.how
        assert isinstance(how, FusedDotAdd)
        self.how, self.size = how, plan.k // plan.groups
        self.least_c: Expr | None = None  # the least exponent of c in the sum being emitted
        self.sum = FusedSum(how, self.size // 2 if plan.sparse else self.size, range_)
        self.work = self.sum.range.work

    def prepare(self) -> None:
        plan, how = self.plan, self.how
        aliased = plan.n * bytes_of(self.work) % ALIASED == 0
        self.pitch = {"a": plan.m, "b": plan.n + STEP * aliased}
        self.values, self.powers = (
            {
                side: self.stack_buffer(pitch * plan.k, self.work)
                for side, pitch in self.pitch.items()
            }
            for _ in "vp"
        )
        self.flags = self.b.alloca(vector(I32, STEP))
        self.total = self.b.alloca(vector(I32, plan.lanes))
        self.ieee_sum = self.b.alloca(vector(self.work, plan.lanes))
        self.b.store(ir.Constant(vector(I32, STEP), None), self.flags)
        self._decode("a", self.a, how.a, plan.m)
        self._decode("b", self.bb, how.b, plan.n)
        self.special = any_of(Expr(self.b, self.b.load(self.flags)).ne(0))

    def _decode(self, side: str, area: ir.Value, t: DType, width: int) -> None:
        with self.words(area, self.plan.k, width, self.pitch[side]) as (index, words):
            decoded = decode(words, t, self.sum.lead_format(t), self.work)
            offset = scaled(self.b, index, bytes_of(self.work))
            store_vector(decoded.value, self.values[side], offset)
            store_vector(decoded.power, self.powers[side], offset)
            flags = Expr(self.b, self.b.load(self.flags)) | decoded.special.zext(32)
            self.b.store(flags.v, self.flags)

    def dot_add(self, row: ir.Value, n: ir.Value, c: Expr) -> Expr:
        how, b, sum_type = self.how, self.b, dtype(self.how.sum_type)
        start = converted(c, how.c, sum_type)
        b.store((start if how.starts_with_c else start.const(0)).v, self.total)
        with counted_loop(b, self.plan.groups) as group:
            total = Expr(b, b.load(self.total))
            self.least_c = self._least_c(group) if how.keeps_c_format else None
            b.store(self.one(row, n, scaled(b, group, self.size), total).v, self.total)
        total = Expr(b, b.load(self.total))
        if not how.starts_with_c:
            total = added(sum_type, total, start)
        if how.saturate:
            total = saturated(sum_type, total)
        return converted(total, sum_type, how.d, how.final_rounding)

    def _least_c(self, group: ir.Value) -> Expr:
        """The least exponent to which c is aligned: that of the sum's type, but in the first sum,
        which takes c unconverted, that of c's type.
        """
        own, later = (t.least + BIAS for t in (self.how.c, self.sum.sum_type))
        first = self.b.icmp_unsigned("==", group, I64(0))
        return broadcast_scalar(
            Expr(self.b, self.b.select(first, I32(own), I32(later))), self.plan.lanes
        )

    def one(self, row: ir.Value, n: ir.Value, first: ir.Value, c: Expr) -> Expr:
        """One fused sum, with NaNs and infinities."""
        values, powers = (self._terms(x, row, n, first) for x in (self.values, self.powers))
        result = self.fused(powers, values, c)
        t = self.sum.sum_type
        special = self.b.or_(self.special, any_of((c & (t.nan | t.max_finite)) > t.max_finite))
        fast_block = self.b.block
        with self.b.if_then(special, likely=False):
            slow = self._specials(row, n, first, c, result)
            slow_block = self.b.block
        return phi_merged(result, fast_block, slow, slow_block)

    def fused(self, powers: Term, values: Term, c: Expr) -> Expr:
        return self.sum(self.size, powers, values, c, least_c=self.least_c)

    def _terms(
        self, areas: dict[str, ir.Value], row: ir.Value, n: ir.Value, first: ir.Value
    ) -> Term:
        a = self.left(areas["a"], row, self.work, first)
        b = self.right(areas["b"], n, self.work, first, self.pitch["b"])
        return lambda k: (a(k), b(k))

    def _specials(self, row: ir.Value, n: ir.Value, first: ir.Value, c: Expr, result: Expr) -> Expr:
        """The result where IEEE arithmetic gives infinity or NaN, else ``result``. Finite sums do
        not overflow in this type.
        """
        b, t, how = self.b, self.sum.sum_type, self.how
        x, y = self.left(self.a, row, I32, first), self.right(self.bb, n, I32, first)
        b.store(self._wide(c, t).v, self.ieee_sum)
        with counted_loop(b, self.size) as k:
            left = x(k)
            term = self._wide(left, how.a) * self._wide(y(k), how.b)
            if self.plan.sparse:  # an element that is not stored has no product
                term = left.eq(sparse_marker(how.a)).pick(0.0, term)
            b.store((Expr(b, b.load(self.ieee_sum)) + term).v, self.ieee_sum)
        total = Expr(b, b.load(self.ieee_sum))
        negative = total.negative.pick(1 << (t.bits - 1), result.const(0))
        infinite = (total.bits << 1).eq(0xFFE << 52 if total.width == 64 else 0xFF << 24)
        bits = infinite.pick(negative | (t.max_finite + 1), result)
        return total.is_nan.pick(t.nan, bits)

    def _wide(self, words: Expr, t: DType) -> Expr:
        value = widen(words.trunc(storage(t)), t)
        return value.to_double() if self.work == DOUBLE else value


class WideCore(MmaCore):
    """Two cores, with and without the exponent range of f64, and the test that selects one."""

    def emit(self) -> ir.Function:
        b, plan, how = self.b, self.plan, self.plan.how
        assert isinstance(how, FusedDotAdd)
        flags = b.alloca(vector(I32, STEP))
        b.store(ir.Constant(vector(I32, STEP), None), flags)
        for area, t, width in ((self.a, how.a, plan.m), (self.bb, how.b, plan.n)):
            with self.words(area, plan.k, width) as (_, words):
                any_outside = Expr(b, b.load(flags)) | outside(words, t).zext(32)
                b.store(any_outside.v, flags)
        needs_f64 = any_of(Expr(b, b.load(flags)).ne(0))
        narrow = Range.within(NARROW, how.a, how.b)
        with b.if_else(needs_f64, likely=False) as (wide, near):
            for branch, name, range_ in ((wide, "wide", None), (near, "near", narrow)):
                with branch:
                    core = FusedCore(self.module, plan, f"{plan.name}_{name}", range_).emit()
                    core.linkage = "internal"
                    b.call(core, self.function.args)
        b.ret_void()
        return self.function


def float_core(module: ir.Module, plan: MmaPlan) -> MmaCore:
    """The core for a plan of fused sums."""
    assert isinstance(plan.how, FusedDotAdd)
    wide = FusedSum(plan.how, plan.k).range.work != FLOAT
    return WideCore(module, plan) if wide else FusedCore(module, plan)


class ScaledCore(FusedCore):
    """Fused sums of block-scaled terms: products, or exact sums of a ``group`` of products."""

    def dot_add(self, row: ir.Value, n: ir.Value, c: Expr) -> Expr:
        how = self.plan.how
        assert isinstance(how, BlockScaledDotAdd)
        left = self.left(self.function.args[4], row, I32, I64(0))
        right = self.right(self.function.args[5], n, I32, I64(0))
        self.scales = [
            BlockScale.of(left(s), how.stype) * BlockScale.of(right(s), how.stype)
            for s in range(self.plan.scales)
        ]
        result = super().dot_add(row, n, c)
        nan = reduce(Expr.__or__, (s.nan for s in self.scales))
        return nan.pick(how.d.nan, result)

    def fused(self, powers: Term, values: Term, c: Expr) -> Expr:
        how = self.plan.how
        assert isinstance(how, BlockScaledDotAdd)
        if how.group == 1:
            (scale,) = self.scales
            return self.sum(self.size, powers, values, c, scale.lead)
        return self._of_groups(powers, values, c)

    def _of_groups(self, powers: Term, values: Term, c: Expr) -> Expr:
        count = self.size // self.step
        scales = [self.scales[g * self.plan.scales // count] for g in range(count)]
        leads = [
            self._sum(powers, g).eq(0.0).pick(ZERO_LEAD, scale.lead + BIAS)
            for g, scale in enumerate(scales)
        ]
        top = self.sum.top(reduce(lambda x, y: x.intrinsic("smax", y), leads), c)
        unit = self.sum.scale(top)
        total = self.sum.addend(c, top)
        for g, scale in enumerate(scales):
            term = self._sum(values, g).to_double() * scale.value * unit
            total = total + self.sum.truncate(term, 64)
        return self.sum.rounded(total, top)

    @property
    def step(self) -> int:
        """The number of k in a group, including elements that sparse A does not store."""
        how = self.plan.how
        assert isinstance(how, BlockScaledDotAdd)
        return how.group * (2 if self.plan.sparse else 1)

    def _sum(self, terms: Term, group: int) -> Expr:
        """The exact sum of a group's terms (multiples of 1/4, few bits)."""
        ks = range(group * self.step, (group + 1) * self.step)
        return chained(Expr.__add__, (x * y for x, y in map(terms, ks)))


def converted(bits: Expr, source: DType, dest: DType, rounding: str = "rn") -> Expr:
    """Convert with rounding and canonical NaNs; bits are right-aligned in 32-bit lanes."""
    if source == dest:
        return bits
    return convert(source.name, dest.name, bits.resize(source.bits), rounding).resize(32)


def saturated(t: DType, bits: Expr) -> Expr:
    """Infinities become the largest finite numbers, NaNs +0; bits are right-aligned."""
    sign = bits & (1 << (t.bits - 1))
    magnitude = bits & ((1 << (t.bits - 1)) - 1)
    return (magnitude > t.max_finite + 1).pick(0, magnitude.umin(t.max_finite) | sign)


def added(t: DType, x: Expr, y: Expr) -> Expr:
    """The IEEE sum, rounded to nearest, with canonical NaNs."""
    return arithmetic("add", t.name, (x.resize(t.bits), y.resize(t.bits))).resize(32)
