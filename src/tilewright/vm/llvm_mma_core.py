"""The compiled core of a matrix instruction: D = A B + C on scratch (see ``llvm_mma_plan``).

``void core(ptr a, ptr b, ptr c, ptr d[, ptr scale_a, ptr scale_b])``. Elements are made ready once,
then every vector of rows of D takes its sum over k, A's elements by the vector and B's one in all
lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, reduce

import llvmlite.ir as ir

from ..dtypes import DType, dtype
from ..mma import Arithmetic, Chain, Fused, Integers
from ..mma.scaled import Scaled
from .llvm_convert import convert, widen
from .llvm_expr import DOUBLE, FLOAT, Expr
from .llvm_floats import arithmetic
from .llvm_memory import (
    Offset,
    any_of,
    at,
    broadcast,
    bytes_of,
    counted,
    fetch,
    keep,
    room,
    scaled,
    vector,
)
from .llvm_mma_decode import Scale, decode, integer, mark
from .llvm_mma_fused import BIAS, CHAINS, NOWHERE, FusedSum, Term, chained, merged
from .llvm_mma_plan import Plan
from .llvm_round import canonical, storage
from .native import I32, I64, POINTER

STEP = 16  # elements made ready at once
ALIASED = 512  # rows that many bytes apart, or a multiple, share few of a cache's sets
Elements = Callable[[Offset], Expr]  # k → a vector
QUIET = 1 << 51  # the bit of an f64 NaN that says so


def kind(plan: Plan) -> ir.FunctionType:
    return ir.FunctionType(ir.VoidType(), [POINTER] * (6 if plan.scales else 4))


def core(module: ir.Module, plan: Plan) -> ir.Function:
    """Emit a plan's core into a module, once."""
    if plan.name in module.globals:
        return module.globals[plan.name]
    made = _kind(plan.how)(module, plan)
    return made.emit()


class Core:
    """Emits the loops; a subclass has the arithmetic."""

    def __init__(self, module: ir.Module, plan: Plan) -> None:
        self.plan = plan
        self.function = ir.Function(module, kind(plan), plan.name)
        self.b = ir.IRBuilder(self.function.append_basic_block())
        for argument in self.function.args:
            argument.add_attribute("noalias")
        self.a, self.bb, self.c, self.d = self.function.args[:4]

    def emit(self) -> ir.Function:
        plan, word = self.plan, ir.IntType(self.plan.word)
        size = plan.word // 8
        self.prepare()
        with counted(self.b, plan.n) as n, counted(self.b, plan.m // plan.lanes) as block:
            row = scaled(self.b, block, plan.lanes)
            place = scaled(self.b, self.b.add(scaled(self.b, n, plan.m), row), size)
            c = fetch(self.b, self.c, place, vector(word, plan.lanes))
            keep(self.sums(row, n, c), self.d, place)
        self.b.ret_void()
        return self.function

    def prepare(self) -> None:
        """What is done once, before the loops."""

    def sums(self, row: ir.Value, n: ir.Value, c: Expr) -> Expr:
        """D of the vector of rows from ``row`` on, in column n."""
        raise NotImplementedError

    def room(self, count: int, type_: ir.Type) -> ir.Value:
        return room(self.b, count * bytes_of(type_))

    def left(self, area: ir.Value, row: ir.Value, type_: ir.Type, first: ir.Value) -> Elements:
        """k → A's elements, of the vector of rows, at ``first`` + k."""
        lanes = vector(type_, self.plan.lanes)
        at_ = partial(fetch, self.b, type_=lanes)
        return self._elements(area, row, self.plan.m, type_, first, at_)

    def right(
        self, area: ir.Value, n: ir.Value, type_: ir.Type, first: ir.Value, width: int = 0
    ) -> Elements:
        """k → B's element at ``first`` + k, in all lanes; rows of B are ``width`` apart."""
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
        self, area: ir.Value, rows: int, width: int, apart: int = 0
    ) -> Iterator[tuple[ir.Value, Expr]]:
        """A loop over words of scratch: where they go if rows are to be ``apart``, the words."""
        if apart in (0, width):
            rows, width = 1, rows * width
        assert width % STEP == 0
        with counted(self.b, rows) as row, counted(self.b, width // STEP) as i:
            column = scaled(self.b, i, STEP)
            index = self.b.add(scaled(self.b, row, width), column)
            words = fetch(self.b, area, scaled(self.b, index, 4), vector(I32, STEP))
            yield self.b.add(scaled(self.b, row, apart or width), column), words


class FusedCore(Core):
    """Sums of floats. NaN and infinity are rare: one test finds them."""

    how: Fused

    def prepare(self) -> None:
        plan, how = self.plan, self.plan.how
        how = how.fused if isinstance(how, Scaled) else how
        assert isinstance(how, Fused)
        self.how, self.size = how, plan.k // plan.groups
        self.sum = FusedSum(how, self.size // 2 if plan.sparse else self.size)
        self.work = self.sum.range.work
        aliased = plan.n * bytes_of(self.work) % ALIASED == 0
        self.apart = {"a": plan.m, "b": plan.n + STEP * aliased}
        self.values, self.powers = (
            {side: self.room(apart * plan.k, self.work) for side, apart in self.apart.items()}
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
            keep(made.value, self.values[side], place)
            keep(made.power, self.powers[side], place)
            flags = Expr(self.b, self.b.load(self.flags)) | made.special.zext(32)
            self.b.store(flags.v, self.flags)

    def sums(self, row: ir.Value, n: ir.Value, c: Expr) -> Expr:
        how, b, sum_type = self.how, self.b, dtype(self.how.sum_type)
        start = converted(c, how.c, sum_type)
        b.store((start if how.begins else start.const(0)).v, self.total)
        with counted(b, self.plan.groups) as group:
            total = Expr(b, b.load(self.total))
            b.store(self.one(row, n, scaled(b, group, self.size), total).v, self.total)
        total = Expr(b, b.load(self.total))
        if not how.begins:
            total = added(sum_type, total, start)
        made = converted(total, sum_type, how.d)
        return finite(how.d, made) if how.clamped else made

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
        return self.sum(self.size, powers, values, c)

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
        with counted(b, self.size) as k:
            left = x(k)
            term = self._wide(left, how.a) * self._wide(y(k), how.b)
            if self.plan.sparse:  # what was not kept meets nothing
                term = left.eq(mark(how.a)).pick(0.0, term)
            b.store((Expr(b, b.load(self.odd)) + term).v, self.odd)
        total = Expr(b, b.load(self.odd))
        negative = total.negative.pick(1 << (t.bits - 1), made.const(0))
        infinite = (total.bits << 1).eq(0xFFE << 52 if total.width == 64 else 0xFF << 24)
        bits = infinite.pick(negative | (t.max_finite + 1), made)
        return total.is_nan.pick(t.nan, bits)

    def _wide(self, words: Expr, t: DType) -> Expr:
        value = widen(words.trunc(storage(t)), t)
        return value.to_double() if self.work == DOUBLE else value


class ScaledCore(FusedCore):
    """Fused sums of scaled terms: of products, or of exact sums of a ``group`` of them."""

    def sums(self, row: ir.Value, n: ir.Value, c: Expr) -> Expr:
        how = self.plan.how
        assert isinstance(how, Scaled)
        left = self.left(self.function.args[4], row, I32, I64(0))
        right = self.right(self.function.args[5], n, I32, I64(0))
        self.scales = [
            Scale.of(left(s), how.stype) * Scale.of(right(s), how.stype)
            for s in range(self.plan.scales)
        ]
        made = super().sums(row, n, c)
        wrong = reduce(Expr.__or__, (s.nan for s in self.scales))
        return wrong.pick(how.d.nan, made)

    def fused(self, powers: Term, values: Term, c: Expr) -> Expr:
        how = self.plan.how
        assert isinstance(how, Scaled)
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
        assert isinstance(how, Scaled)
        return how.group * (2 if self.plan.sparse else 1)

    def _sum(self, terms: Term, group: int) -> Expr:
        """Exact: a few quarters."""
        ks = range(group * self.step, (group + 1) * self.step)
        return chained(Expr.__add__, (x * y for x, y in map(terms, ks)))


def converted(bits: Expr, source: DType, dest: DType) -> Expr:
    """To nearest, NaNs canonical; bits right-aligned in 32-bit lanes."""
    if source == dest:
        return bits
    return convert(source.name, dest.name, bits.resize(source.bits)).resize(32)


def finite(t: DType, bits: Expr) -> Expr:
    """Infinities are the largest number of their sign, NaNs +0: the old .satfinite of f16."""
    code = bits & ((1 << (t.bits - 1)) - 1)
    bounded = (bits & (1 << (t.bits - 1))) | code.umin(t.max_finite)
    return (code > t.max_finite + 1).pick(0, bounded)


def added(t: DType, x: Expr, y: Expr) -> Expr:
    """IEEE's sum, to nearest, NaNs canonical."""
    return arithmetic("add", t.name, (x.resize(t.bits), y.resize(t.bits))).resize(32)


class IntegerCore(Core):
    """Sums of integers as f32 numbers: none of them exceeds 24 bits."""

    def prepare(self) -> None:
        plan, how = self.plan, self.plan.how
        extremes = [max(map(abs, t.range)) for t in (how.a, how.b)]
        assert extremes[0] * extremes[1] * plan.k <= 1 << 24
        self.numbers = [self.room(plan.m * plan.k, FLOAT), self.room(plan.n * plan.k, FLOAT)]
        given = ((self.a, how.a, plan.m), (self.bb, how.b, plan.n))
        for place, (area, t, width) in zip(self.numbers, given, strict=True):
            with self.words(area, plan.k, width) as (index, words):
                keep(integer(words, t), place, scaled(self.b, index, 4))

    def sums(self, row: ir.Value, n: ir.Value, c: Expr) -> Expr:
        a = self.left(self.numbers[0], row, FLOAT, I64(0))
        b = self.right(self.numbers[1], n, FLOAT, I64(0))
        sums: list[Expr] = []
        for k in range(self.plan.k):
            if k < CHAINS:
                sums.append(a(k) * b(k))
            else:
                sums[k % CHAINS] = a(k).intrinsic("fmuladd", b(k), sums[k % CHAINS])
        return accumulate(self.plan.how, c, reduce(Expr.__add__, sums).to_int(True, 32))


class BitCore(Core):
    """One-bit products: population counts, 32 elements at a time."""

    def sums(self, row: ir.Value, n: ir.Value, c: Expr) -> Expr:
        how = self.plan.how
        assert isinstance(how, Integers)
        meet = Expr.__xor__ if how.operation == "xor" else Expr.__and__
        a, b = self.left(self.a, row, I32, I64(0)), self.right(self.bb, n, I32, I64(0))
        counts = (meet(a(k), b(k)).intrinsic("ctpop") for k in range(self.plan.k))
        return accumulate(how, c, chained(Expr.__add__, counts))


def accumulate(how: Arithmetic, c: Expr, total: Expr) -> Expr:
    """c + total, wrapping or clamped."""
    assert isinstance(how, Integers)
    return c.intrinsic("sadd.sat", total) if how.clamped else c + total


class ChainCore(Core):
    """f64: fused multiply-adds in the order of k. NaNs, which stay themselves, are rare."""

    def prepare(self) -> None:
        how = self.plan.how
        assert isinstance(how, Chain)
        self.rounding = how.rounding
        self.total = self.b.alloca(vector(I64, self.plan.lanes))

    def sums(self, row: ir.Value, n: ir.Value, c: Expr) -> Expr:
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
        with counted(self.b, self.plan.k) as k:
            x, y, z = a(k), b(k), Expr(self.b, self.b.load(self.total))
            made = canonical(self.step(x, y, z).float)
            for operand in (x, z, y):
                made = operand.float.is_nan.pick(operand | QUIET, made)
            self.b.store(made.v, self.total)
        return Expr(self.b, self.b.load(self.total))


def _kind(how: Arithmetic) -> type[Core]:
    if isinstance(how, Integers):
        return BitCore if how.operation else IntegerCore
    return _KINDS[type(how)]


_KINDS: dict[type[Arithmetic], type[Core]] = {
    Fused: FusedCore, Chain: ChainCore, Scaled: ScaledCore,
}  # fmt: skip


def compiled(how: Arithmetic) -> bool:
    """Whether there is a core for it."""
    return isinstance(how, Integers) or type(how) in _KINDS
