"""Products of floats: fused sums, in turn or scaled.

Sums of bf16 and tf32 need f64's exponents at worst, and hardly ever: a look at the operands says
whether f32 will do.
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
from .mma_fused import BIAS, NOWHERE, FusedSum, Term, chained, merged
from .mma_loops import STEP, MmaCore
from .mma_plan import MmaPlan

ALIASED = 512  # rows that many bytes apart, or a multiple, share few of a cache's sets


class FusedCore(MmaCore):
    """Sums of floats. NaN and infinity are rare: one test finds them."""

    def __init__(
        self, module: ir.Module, plan: MmaPlan, name: str = "", range_: Range | None = None
    ) -> None:
        super().__init__(module, plan, name)
        how = plan.how.fused if isinstance(plan.how, BlockScaledDotAdd) else plan.how
        assert isinstance(how, FusedDotAdd)
        self.how, self.size = how, plan.k // plan.groups
        self.least_c: Expr | None = None  # of the sum that is being emitted
        self.sum = FusedSum(how, self.size // 2 if plan.sparse else self.size, range_)
        self.work = self.sum.range.work

    def prepare(self) -> None:
        plan, how = self.plan, self.how
        aliased = plan.n * bytes_of(self.work) % ALIASED == 0
        self.apart = {"a": plan.m, "b": plan.n + STEP * aliased}
        self.values, self.powers = (
            {
                side: self.stack_buffer(apart * plan.k, self.work)
                for side, apart in self.apart.items()
            }
            for _ in "vp"
        )
        self.flags = self.b.alloca(vector(I32, STEP))
        self.total = self.b.alloca(vector(I32, plan.lanes))
        self.odd = self.b.alloca(vector(self.work, plan.lanes))
        self.b.store(ir.Constant(vector(I32, STEP), None), self.flags)
        self._decode("a", self.a, how.a, plan.m)
        self._decode("b", self.bb, how.b, plan.n)
        self.special = any_of(Expr(self.b, self.b.load(self.flags)).ne(0))

    def _decode(self, side: str, area: ir.Value, t: DType, width: int) -> None:
        with self.words(area, self.plan.k, width, self.apart[side]) as (index, words):
            made = decode(words, t, self.sum.seen(t), self.work)
            place = scaled(self.b, index, bytes_of(self.work))
            store_vector(made.value, self.values[side], place)
            store_vector(made.power, self.powers[side], place)
            flags = Expr(self.b, self.b.load(self.flags)) | made.special.zext(32)
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
        """The least exponent that c is aligned by: in the first sum, which takes c unconverted,
        that of its own type.
        """
        own, later = (t.least + BIAS for t in (self.how.c, self.sum.sum_type))
        first = self.b.icmp_unsigned("==", group, I64(0))
        return broadcast_scalar(
            Expr(self.b, self.b.select(first, I32(own), I32(later))), self.plan.lanes
        )

    def one(self, row: ir.Value, n: ir.Value, first: ir.Value, c: Expr) -> Expr:
        """One fused sum, specials included."""
        values, powers = (self._terms(x, row, n, first) for x in (self.values, self.powers))
        made = self.fused(powers, values, c)
        t = self.sum.sum_type
        odd = self.b.or_(self.special, any_of((c & (t.nan | t.max_finite)) > t.max_finite))
        before = self.b.block
        with self.b.if_then(odd, likely=False):
            there = self._specials(row, n, first, c, made)
            inside = self.b.block
        return merged(made, before, there, inside)

    def fused(self, powers: Term, values: Term, c: Expr) -> Expr:
        return self.sum(self.size, powers, values, c, least_c=self.least_c)

    def _terms(
        self, areas: dict[str, ir.Value], row: ir.Value, n: ir.Value, first: ir.Value
    ) -> Term:
        a = self.left(areas["a"], row, self.work, first)
        b = self.right(areas["b"], n, self.work, first, self.apart["b"])
        return lambda k: (a(k), b(k))

    def _specials(self, row: ir.Value, n: ir.Value, first: ir.Value, c: Expr, made: Expr) -> Expr:
        """What IEEE arithmetic says wherever it says infinity or NaN: finite sums don't overflow
        in this type.
        """
        b, t, how = self.b, self.sum.sum_type, self.how
        x, y = self.left(self.a, row, I32, first), self.right(self.bb, n, I32, first)
        b.store(self._wide(c, t).v, self.odd)
        with counted_loop(b, self.size) as k:
            left = x(k)
            term = self._wide(left, how.a) * self._wide(y(k), how.b)
            if self.plan.sparse:  # what was not kept meets nothing
                term = left.eq(sparse_marker(how.a)).pick(0.0, term)
            b.store((Expr(b, b.load(self.odd)) + term).v, self.odd)
        total = Expr(b, b.load(self.odd))
        negative = total.negative.pick(1 << (t.bits - 1), made.const(0))
        infinite = (total.bits << 1).eq(0xFFE << 52 if total.width == 64 else 0xFF << 24)
        bits = infinite.pick(negative | (t.max_finite + 1), made)
        return total.is_nan.pick(t.nan, bits)

    def _wide(self, words: Expr, t: DType) -> Expr:
        value = widen(words.trunc(storage(t)), t)
        return value.to_double() if self.work == DOUBLE else value


class WideCore(MmaCore):
    """Sums that need f64's exponents, or not: two cores, and the test which will do."""

    def emit(self) -> ir.Function:
        b, plan, how = self.b, self.plan, self.plan.how
        assert isinstance(how, FusedDotAdd)
        flags = b.alloca(vector(I32, STEP))
        b.store(ir.Constant(vector(I32, STEP), None), flags)
        for area, t, width in ((self.a, how.a, plan.m), (self.bb, how.b, plan.n)):
            with self.words(area, plan.k, width) as (_, words):
                some = Expr(b, b.load(flags)) | outside(words, t).zext(32)
                b.store(some.v, flags)
        far = any_of(Expr(b, b.load(flags)).ne(0))
        narrow = Range.within(NARROW, how.a, how.b)
        with b.if_else(far, likely=False) as (wide, near):
            for where, name, range_ in ((wide, "wide", None), (near, "near", narrow)):
                with where:
                    core = FusedCore(self.module, plan, f"{plan.name}_{name}", range_).emit()
                    core.linkage = "internal"
                    b.call(core, self.function.args)
        b.ret_void()
        return self.function


def float_core(module: ir.Module, plan: MmaPlan) -> MmaCore:
    """What makes a plan's fused sums."""
    assert isinstance(plan.how, FusedDotAdd)
    wide = FusedSum(plan.how, plan.k).range.work != FLOAT
    return WideCore(module, plan) if wide else FusedCore(module, plan)


class ScaledCore(FusedCore):
    """Fused sums of scaled terms: of products, or of exact sums of a ``group`` of them."""

    def dot_add(self, row: ir.Value, n: ir.Value, c: Expr) -> Expr:
        how = self.plan.how
        assert isinstance(how, BlockScaledDotAdd)
        left = self.left(self.function.args[4], row, I32, I64(0))
        right = self.right(self.function.args[5], n, I32, I64(0))
        self.scales = [
            BlockScale.of(left(s), how.stype) * BlockScale.of(right(s), how.stype)
            for s in range(self.plan.scales)
        ]
        made = super().dot_add(row, n, c)
        wrong = reduce(Expr.__or__, (s.nan for s in self.scales))
        return wrong.pick(how.d.nan, made)

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
            self._sum(powers, g).eq(0.0).pick(NOWHERE, scale.lead + BIAS)
            for g, scale in enumerate(scales)
        ]
        top = self.sum.top(reduce(lambda x, y: x.intrinsic("smax", y), leads), c)
        unit = self.sum.scale(top)
        total = self.sum.addend(c, top)
        for g, scale in enumerate(scales):
            term = self._sum(values, g).to_double() * scale.value * unit
            total = total + self.sum.cut(term, 64)
        return self.sum.rounded(total, top)

    @property
    def step(self) -> int:
        """Places of k in a group, those where nothing was kept included."""
        how = self.plan.how
        assert isinstance(how, BlockScaledDotAdd)
        return how.group * (2 if self.plan.sparse else 1)

    def _sum(self, terms: Term, group: int) -> Expr:
        """Exact: a few quarters."""
        ks = range(group * self.step, (group + 1) * self.step)
        return chained(Expr.__add__, (x * y for x, y in map(terms, ks)))


def converted(bits: Expr, source: DType, dest: DType, rounding: str = "rn") -> Expr:
    """Rounded, NaNs canonical; bits right-aligned in 32-bit lanes."""
    if source == dest:
        return bits
    return convert(source.name, dest.name, bits.resize(source.bits), rounding).resize(32)


def saturated(t: DType, bits: Expr) -> Expr:
    """Infinities become the largest finite numbers, NaNs +0; bits right-aligned in their lanes."""
    sign = bits & (1 << (t.bits - 1))
    size = bits & ((1 << (t.bits - 1)) - 1)
    return (size > t.max_finite + 1).pick(0, size.umin(t.max_finite) | sign)


def added(t: DType, x: Expr, y: Expr) -> Expr:
    """IEEE's sum, to nearest, NaNs canonical."""
    return arithmetic("add", t.name, (x.resize(t.bits), y.resize(t.bits))).resize(32)
