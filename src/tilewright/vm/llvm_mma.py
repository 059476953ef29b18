"""The tensor core's arithmetic in vector code: one function for each matrix instruction and
architecture.

A warp's 32 lanes are the vector: for each accumulator register, every step of k multiplies one lane
shuffle of A by one of B, both derived from the fragments' layouts in ``mma/``, and all elements go
through alignment, cutting and summation at once. NaN and infinity are rare: one test sends a tile
that has any through a second, plain f32 sum of what is special.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import llvmlite.ir as ir

from ..dtypes import DType
from ..mma import LEAST, Instruction, arithmetic, generation
from .llvm_expr import LANES, Expr, lanes_of

POINTER, I64 = ir.PointerType(), ir.IntType(64)
NOTHING = -(1 << 14)  # the exponent of a zero: no product with it can be the largest
LINE = 4 * LANES  # bytes of a 32-bit register of a warp

Place = tuple[int, tuple[int, ...]]  # element of a lane's fragment, and for each lane whose


def symbol(instruction: Instruction) -> str:
    """The name of its function: architectures that compute alike share it."""
    plain = instruction.opcode.replace(".", "_").replace("::", "_")
    return f"tw_{plain}_sm_{generation(instruction.arch).first}"


@dataclass(frozen=True)
class Decoded:
    """One element of each lane: signed significand, exponent of its unit (far below all others for
    zero), and itself as a special number: NaN and infinities, ±1 for other numbers, 0.
    """

    significand: Expr
    exponent: Expr
    special: Expr


def decode(bits: Expr, t: DType) -> Decoded:
    """Split numbers of format ``t``, right-aligned in 32-bit lanes.

    Value = significand · 2^(exponent − mantissa bits).
    """
    raw = (bits >> t.mantissa) & ((1 << t.exponent) - 1)
    fraction = bits & ((1 << t.mantissa) - 1)
    significand = raw.ne(0).pick(fraction | (1 << t.mantissa), fraction)
    exponent = significand.eq(0).pick(NOTHING, raw.umax(1) - t.bias)
    negative = ((bits >> (t.bits - 1)) & 1).ne(0)
    finite = significand.eq(0).pick(0, bits.const(0x3F800000))
    odd = fraction.ne(0).pick(0x7FFFFFFF, bits.const(0x7F800000))
    special = raw.eq((1 << t.exponent) - 1).pick(odd, finite)
    special = special | negative.pick(1 << 31, special.const(0))
    return Decoded(negative.pick(0 - significand, significand), exponent, special.float)


def is_special(bits: Expr, t: DType) -> Expr:
    """Predicate: NaN or infinity."""
    mask = ((1 << t.exponent) - 1) << t.mantissa
    return (bits & mask).eq(mask)


class Emitter:
    """Emits one instruction's function: ``void f(ptr a, ptr b, ptr c, ptr d)`` over registers of
    32 lanes.
    """

    def __init__(self, module: ir.Module, instruction: Instruction) -> None:
        self.i, self.how = instruction, arithmetic(instruction, instruction.arch)
        self.places = [_where(instruction, side) for side in "ab"]
        type_ = ir.FunctionType(ir.VoidType(), [POINTER] * 4)
        self.function = ir.Function(module, type_, symbol(instruction))
        self.b = ir.IRBuilder(self.function.append_basic_block())
        self.shuffles: dict[tuple[int, Place], tuple[Expr, Expr]] = {}

    def emit(self) -> ir.Function:
        """The whole function: decode, the fast path, the special one behind a test."""
        types = (self.how.a, self.how.b, self.how.c)
        raw = [self.elements(name, p) for name, p in zip("abc", self.function.args, strict=False)]
        odd = [is_special(v, t) for values, t in zip(raw, types, strict=True) for v in values]
        special = reduce(Expr.__or__, odd)
        self.a, self.bb, self.c = (
            [decode(v, t) for v in x] for x, t in zip(raw, types, strict=True)
        )
        results = [self.element(v) for v in range(len(self.c))]
        place = self.b.alloca(lanes_of(32), size=len(results))
        for index, value in enumerate(results):
            self.b.store(value.v, self.at(place, index))
        word = ir.IntType(32)
        with self.b.if_then(
            self.b.icmp_unsigned("!=", self.b.bitcast(special.v, word), word(0)), likely=False
        ):
            for index in range(len(results)):
                self.b.store(
                    self.override(index, self.fetch(place, index)).v, self.at(place, index)
                )
        self.write([self.fetch(place, v) for v in range(len(results))])
        self.b.ret_void()
        return self.function

    # --- registers ---

    def at(self, base: ir.Value, line: int) -> ir.Value:
        return self.b.gep(base, [I64(line * LINE)], source_etype=ir.IntType(8))

    def fetch(self, base: ir.Value, line: int) -> Expr:
        return Expr(self.b, self.b.load(self.at(base, line), typ=lanes_of(32), align=64))

    def elements(self, name: str, base: ir.Value) -> list[Expr]:
        """The fragment's elements, each right-aligned in a 32-bit lane, in the fragment's order."""
        fragment = self.i.fragment(name)
        bits = fragment.dtype.bits
        words = [self.fetch(base, r) for r in range(fragment.count)]
        if bits == 32:
            return words
        return [(w >> s) & ((1 << bits) - 1) for w in words for s in range(0, 32, bits)]

    def write(self, values: list[Expr]) -> None:
        bits = self.how.d.bits
        per = 32 // bits
        for register in range(len(values) // per):
            parts = values[register * per : (register + 1) * per]
            word = reduce(Expr.__or__, (p << (k * bits) if k else p for k, p in enumerate(parts)))
            self.b.store(word.v, self.at(self.function.args[3], register), align=64)

    def shuffle(self, side: int, place: Place, of: Callable[[Decoded], Expr]) -> Expr:
        element, lanes = place
        source = of((self.a, self.bb)[side][element])
        mask = ir.Constant(lanes_of(32), list(lanes))
        return Expr(self.b, self.b.shuffle_vector(source.v, source.v, mask))

    def factor(self, side: int, place: Place) -> tuple[Expr, Expr]:
        """Significand and exponent of A's or B's element for each lane, shuffled once."""
        key = (side, place)
        if key not in self.shuffles:
            number = self.shuffle(side, place, lambda d: d.significand)
            self.shuffles[key] = number, self.shuffle(side, place, lambda d: d.exponent)
        return self.shuffles[key]

    # --- arithmetic ---

    def element(self, v: int) -> Expr:
        """All lanes' ``v``-th element of D: one fused sum, or several in a chain."""
        step, d = self.how.step, self.how.d
        bits = self.fused(v, range(min(step, self.i.k)), self.c[v], self.how.c)
        for first in range(step, self.i.k, step):
            following = self.fused(v, range(first, first + step), decode(bits, d), d)
            bits = is_special(bits, d).pick(bits, following)  # an overflow stays
        return bits

    def fused(self, v: int, ks: range, c: Decoded, c_type: DType) -> Expr:
        """c + Σ a·b over ``ks`` as one fused sum; the bits of the result."""
        factors = [[self.factor(side, self.places[side][v][k]) for side in (0, 1)] for k in ks]
        exponents = [a[1] + b[1] for a, b in factors]
        facts = self.how.facts
        top = reduce(
            lambda x, y: x.intrinsic("smax", y), exponents, c.exponent.intrinsic("smax", LEAST)
        )
        left = facts.fraction - self.how.a.mantissa - self.how.b.mantissa
        pairs = zip(factors, exponents, strict=True)
        terms = [align(a[0] * b[0], left, top - e) for (a, b), e in pairs]
        total = reduce(Expr.__add__, terms).sext(64)
        total = total + align(
            c.significand, facts.fraction - c_type.mantissa, top - c.exponent
        ).sext(64)
        return encode(total, (top - facts.fraction).sext(64), self.how.d, self.how.rounding)

    def override(self, v: int, normal: Expr) -> Expr:
        """The result where an operand is special: infinities and NaNs follow IEEE, the rest is
        ``normal``.
        """
        total = self.c[v].special
        for k in range(self.i.k):
            a, b = (
                self.shuffle(side, self.places[side][v][k], lambda d: d.special) for side in (0, 1)
            )
            total = total + a * b
        t = self.how.d
        negative = (total.bits >> 31) << (t.bits - 1)
        infinity = negative | (((1 << t.exponent) - 1) << t.mantissa)
        infinite = ((total.bits >> 23) & 255).eq(255)
        return infinite.pick(total.is_nan.pick(t.nan, infinity), normal)


def _where(i: Instruction, side: str) -> list[list[Place]]:
    """[v][k]: the factor of D's v-th element at step k: A's or B's element, and for each lane the
    lane that has it.
    """
    rows, columns = i.fragment("d").coordinates()
    r, c = i.fragment(side).coordinates()
    home = {(int(r[t, v]), int(c[t, v])): (t, v) for t in range(LANES) for v in range(r.shape[1])}

    def place(v: int, k: int) -> Place:
        keys = [
            (int(rows[t, v]), k) if side == "a" else (k, int(columns[t, v])) for t in range(LANES)
        ]
        found = [home[key] for key in keys]
        assert len({e for _, e in found}) == 1, "a fragment whose elements differ from lane to lane"
        return found[0][1], tuple(t for t, _ in found)

    return [[place(v, k) for k in range(i.k)] for v in range(rows.shape[1])]


def align(significand: Expr, left: int, distance: Expr) -> Expr:
    """Scale by 2^(left − distance), cut off toward zero. The scaled magnitude is below 2^31."""
    sign = significand.sar(31)
    magnitude = (significand ^ sign) - sign
    magnitude = magnitude << left if left >= 0 else magnitude >> -left
    magnitude = magnitude >> distance.umin(31)
    return (magnitude ^ sign) - sign


def encode(total: Expr, unit: Expr, t: DType, rounding: str) -> Expr:
    """The number ``total`` · 2^unit (64-bit lanes) rounded into format ``t``; its bits in 32-bit
    lanes.
    """
    sign = total.sar(63)
    magnitude = (total ^ sign) - sign
    least = 1 - t.bias - t.mantissa
    low = (unit + (63 - t.mantissa) - magnitude.clz()).intrinsic("smax", least)
    right = (low - unit).intrinsic("smax", 0).umin(63)
    kept = (magnitude << (unit - low).intrinsic("smax", 0).umin(63)) >> right
    if rounding == "rn":
        rest = magnitude - (kept << right)
        half = (right.const(1) << right) >> 1
        up = (rest > half) | (rest.eq(half) & (kept & 1).ne(0))
        kept = kept + (up & right.ne(0)).zext(64)
    infinity = ((1 << t.exponent) - 1) << t.mantissa
    bits = (kept + ((low - least) << t.mantissa)).umin(infinity)
    signed = bits | (sign & (1 << (t.bits - 1)))
    return (magnitude.eq(0) | bits.eq(0)).pick(0, signed).trunc(32)
