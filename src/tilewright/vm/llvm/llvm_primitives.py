"""The pure primitives as LLVM IR, for the compiled evaluator.

A value is 32 lanes of an integer, ``<32 x iW>``; a predicate is ``<32 x i1>``. Each primitive emits
a few instructions at the position of the builder, or one call of an internal function that the
module has once. Where an operation of LLVM is undefined (shifts by the width or more, division by
zero, conversions that do not fit) its operands are guarded. Constants are folded by the builder
(``FoldingBuilder``) or by LLVM.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Any

import llvmlite.ir as ir

from . import float_arithmetic as floats
from . import llvm_conversions as conversions
from . import llvm_mufu
from .expressions import (
    LANES,
    Expr,
    TextConstant,
    first_only,
    lanes_of,
    lanewise,
    poison,
    shared,
    spill,
    splat,
    width_of,
)

Value = Any  # an ir.Value; llvmlite has no types

I32 = ir.IntType(32)


def _order(lanes: Iterable[int]) -> ir.Constant:
    order = list(lanes)
    return ir.Constant(ir.VectorType(I32, len(order)), order)


LANE = _order(range(LANES))
FIRST = first_only(LANES)
EVEN, ODD = _order(range(0, 2 * LANES, 2)), _order(range(1, 2 * LANES, 2))
INTERLEAVED = _order(i // 2 + i % 2 * LANES for i in range(2 * LANES))


class LlvmValues:
    """Emits at the position of ``builder``. ``mask`` (i32) has the active lanes whose guard holds.

    ``builder`` and ``mask`` may be replaced at any time.
    """

    def __init__(self, builder: ir.IRBuilder, module: ir.Module, mask: ir.Value) -> None:
        self.builder = builder
        self.module = module
        self.mask = mask

    def _x(self, a: Value) -> Expr:
        return Expr(self.builder, a)

    # --- making and reshaping ---

    def const(self, width: int, value: int) -> Value:
        return splat(lanes_of(width), value)

    def width(self, a: Value) -> int:
        return width_of(a.type)

    def trunc(self, a: Value, width: int) -> Value:
        return self._x(a).trunc(width).v

    def zext(self, a: Value, width: int) -> Value:
        return self._x(a).zext(width).v

    def sext(self, a: Value, width: int) -> Value:
        return self._x(a).sext(width).v

    def join(self, *parts: Value) -> Value:
        width = self.width(parts[0])
        if width * len(parts) == 128 and len(parts) > 1:
            half = len(parts) // 2
            return self._pair(self.join(*parts[:half]), self.join(*parts[half:]))
        joined = self._x(parts[0]).zext(width * len(parts))
        for place, part in enumerate(parts[1:], 1):
            joined = joined | self._x(part).zext(joined.width) << place * width
        return joined.v

    def split(self, a: Value, width: int) -> tuple[Value, ...]:
        from_width = self.width(a)
        if from_width == 128 and width < 128:
            return tuple(part for half in self._halves(a) for part in self.split(half, width))
        starts = range(0, from_width, width)
        return tuple((self._x(a) >> n if n else self._x(a)).trunc(width).v for n in starts)

    def _pair(self, low: Value, high: Value) -> Value:
        """Join two 64-bit values to one of 128 bits by shuffles: LLVM scalarizes i128 lanes."""
        flat = self.builder.shuffle_vector(low, high, INTERLEAVED)
        return self.builder.bitcast(flat, lanes_of(128))

    def _halves(self, a: Value) -> tuple[Value, Value]:
        flat = self.builder.bitcast(a, ir.VectorType(ir.IntType(64), 2 * LANES))
        low, high = (self.builder.shuffle_vector(flat, flat, order) for order in (EVEN, ODD))
        return low, high

    # --- integers ---

    def add(self, a: Value, b: Value) -> Value:
        return self.builder.add(a, b)

    def sub(self, a: Value, b: Value) -> Value:
        return self.builder.sub(a, b)

    def mul(self, a: Value, b: Value) -> Value:
        return self.builder.mul(a, b)

    def mul_high(self, a: Value, b: Value, signed: bool) -> Value:
        width = self.width(a)

        def high(x: Expr, y: Expr) -> Expr:
            x, y = x.resize(2 * width, signed), y.resize(2 * width, signed)
            return (x * y >> width).trunc(width)

        x, y = self._x(a), self._x(b)
        if width < 64:
            return high(x, y).v
        return lanewise(f"tw.mulhi.{'us'[signed]}64", high, 64, x, y).v

    def div(self, a: Value, b: Value, signed: bool) -> Value:
        return self._divide("div", a, b, signed)

    def rem(self, a: Value, b: Value, signed: bool) -> Value:
        return self._divide("rem", a, b, signed)

    def _divide(self, op: str, a: Value, b: Value, signed: bool) -> Value:
        x, y, width = self._x(a), self._x(b), self.width(a)
        name = f"tw.{op}.{'us'[signed]}{width}"
        if width == 64:
            return lanewise(name, lambda p, q: _divided(op, p, q, signed), 64, x, y).v
        return shared(name, lambda p, q: _divided(op, p, q, signed), a.type, x, y).v

    def and_(self, a: Value, b: Value) -> Value:
        return self.builder.and_(a, b)

    def or_(self, a: Value, b: Value) -> Value:
        return self.builder.or_(a, b)

    def xor(self, a: Value, b: Value) -> Value:
        return self.builder.xor(a, b)

    def not_(self, a: Value) -> Value:
        return (~self._x(a)).v

    def shl(self, a: Value, n: Value) -> Value:
        x, inside, count = self._shift(a, n)
        return inside.pick(x << count, 0).v

    def lshr(self, a: Value, n: Value) -> Value:
        x, inside, count = self._shift(a, n)
        return inside.pick(x >> count, 0).v

    def ashr(self, a: Value, n: Value) -> Value:
        width = self.width(a)
        return self._x(a).sar(self._x(n).umin(width - 1).resize(width)).v

    def _shift(self, a: Value, n: Value) -> tuple[Expr, Expr, Expr]:
        """The value, whether the count is less than its width, and the count modulo the width."""
        width = self.width(a)
        count = self._x(n)
        return self._x(a), count < width, (count & (width - 1)).resize(width)

    def popc(self, a: Value) -> Value:
        return self._x(a).intrinsic("ctpop").resize(32).v

    def clz(self, a: Value) -> Value:
        return self._x(a).clz().resize(32).v

    def brev(self, a: Value) -> Value:
        return self._x(a).intrinsic("bitreverse").v

    def cmp(self, op: str, a: Value, b: Value, signed: bool = False) -> Value:
        return self._x(a).cmp(op, self._x(b), signed).v

    def select(self, p: Value, a: Value, b: Value) -> Value:
        return self.builder.select(p, a, b)

    # --- floating point ---

    def _arithmetic(self, op: str, fmt: str, rnd: str, *operands: Value) -> Value:
        return floats.arithmetic(op, fmt, tuple(map(self._x, operands)), rnd).v

    def fadd(self, fmt: str, a: Value, b: Value, rnd: str = "rn") -> Value:
        return self._arithmetic("add", fmt, rnd, a, b)

    def fmul(self, fmt: str, a: Value, b: Value, rnd: str = "rn") -> Value:
        return self._arithmetic("mul", fmt, rnd, a, b)

    def fma(self, fmt: str, a: Value, b: Value, c: Value, rnd: str = "rn") -> Value:
        return self._arithmetic("fma", fmt, rnd, a, b, c)

    def fdiv(self, fmt: str, a: Value, b: Value, rnd: str = "rn") -> Value:
        return self._arithmetic("div", fmt, rnd, a, b)

    def fsqrt(self, fmt: str, a: Value, rnd: str = "rn") -> Value:
        return self._arithmetic("sqrt", fmt, rnd, a)

    def fcmp(self, fmt: str, op: str, a: Value, b: Value) -> Value:
        return floats.compare(fmt, op, self._x(a), self._x(b)).v

    def frint(self, fmt: str, a: Value, rnd: str) -> Value:
        return conversions.integral(fmt, self._x(a), rnd).v

    def fcvt(self, source: str, dest: str, a: Value, rnd: str = "rn") -> Value:
        return conversions.convert(source, dest, self._x(a), rnd).v

    def i2f(self, a: Value, signed: bool, fmt: str, rnd: str = "rn") -> Value:
        return conversions.from_integer(self._x(a), signed, fmt, rnd).v

    def f2i(self, fmt: str, a: Value, width: int, signed: bool, rnd: str = "rz") -> Value:
        return conversions.to_integer(fmt, self._x(a), width, signed, rnd).v

    def approx(self, name: str, a: Value) -> Value:
        return llvm_mufu.approximate(name, self._x(a)).v

    # --- lanes ---

    def lane(self) -> Value:
        return LANE

    def active(self) -> Value:
        return self._splat(self.mask)

    def ballot(self, p: Value) -> Value:
        return self._splat(self.builder.and_(self.builder.bitcast(p, I32), self.mask))

    def _splat(self, a: ir.Value) -> Value:
        """A scalar in every lane."""
        type_ = lanes_of(a.type)
        first = self.builder.insert_element(poison(type_), a, I32(0))
        return self.builder.shuffle_vector(first, poison(type_), FIRST)

    def shuffle(self, a: Value, lane: Value) -> Value:
        width = self.width(a)
        if width == 128:
            low, high = self._halves(a)
            return self._pair(self.shuffle(low, lane), self.shuffle(high, lane))
        if isinstance(lane, TextConstant) and lane.integer is not None:  # the same lane for all
            return self._splat(self.builder.extract_element(a, I32(lane.integer % LANES)))
        wide = self._x(a).resize(max(width, 32))
        name = f"tw.shuffle.{wide.width}"
        moved = shared(name, _gathered, wide.type, wide, self._x(lane))
        return moved.trunc(width).v


class Scalars(LlvmValues):
    """The primitives of one lane: a value is a scalar. There are no operations across lanes."""

    def const(self, width: int, value: int) -> Value:
        return splat(ir.IntType(width), value)

    def join(self, *parts: Value) -> Value:
        width = self.width(parts[0])
        shifted = [self._x(p).zext(width * len(parts)) << i * width for i, p in enumerate(parts)]
        return reduce(or_, shifted).v

    def split(self, a: Value, width: int) -> tuple[Value, ...]:
        return tuple((self._x(a) >> p).trunc(width).v for p in range(0, self.width(a), width))


def _gathered(a: Expr, lane: Expr) -> Expr:
    """Shuffle through memory: store the lanes in order, load them by index."""
    b, element = a.b, ir.IntType(a.width)
    pointer = spill(a)
    result = a.const(0)
    for i in range(LANES):
        index = b.zext(b.extract_element((lane & 31).v, I32(i)), ir.IntType(64))
        value = b.load(b.gep(pointer, [index], source_etype=element), typ=element)
        result = Expr(b, b.insert_element(result.v, value, I32(i)))
    return result


def _divided(op: str, a: Expr, b: Expr, signed: bool) -> Expr:
    """Division that does not trap.

    Up to 32 bits it is done in f64: a quotient that is not an integer differs from the next integer
    by at least 1/b, which is more than its rounding error, so truncating it is exact.
    """
    lowest = 1 << (a.width - 1)
    zero, wraps = b.eq(0), a.eq(lowest) & b.eq(-1)
    b = ((zero | wraps) if signed else zero).pick(1, b)
    if a.width == 64:
        quotient = a.op("sdiv" if signed else "udiv", b)
    else:
        wide = [x.resize(32, signed).from_int(signed, 64) for x in (a, b)]
        quotient = (wide[0] / wide[1]).to_int(signed, 32).trunc(a.width)
    return zero.pick(-1, quotient if op == "div" else a - quotient * b)
