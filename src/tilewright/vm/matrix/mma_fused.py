"""One fused sum for a vector of D's elements: align, cut off, add, round once.

Two passes over k, with no shifts: ``top``, the largest leading place, is a maximum of products of
powers of two; then each product, scaled by 2^fraction / top, is converted to an integer, and that
conversion is the cut toward zero. What a product is scaled by is a power of two and everything
stays normal, so each step is exact. The integers are added as such, c's after them as f64, where
rounding is a matter of a few bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce

import llvmlite.ir as ir

from ...dtypes import DType, dtype
from ...mma import FusedDotAdd
from ..llvm.expressions import FLOAT, Expr
from ..llvm.llvm_conversions import widened
from ..llvm.rounding import F32
from ..llvm.vector_memory import any_of
from .mma_decode import Range

BIAS, BIAS64 = 127, 1023  # tops are exponents as f32 counts them
CHAINS = 4  # sums under way at once
SIGN64 = 1 << 63
NOWHERE = -(1 << 12)  # a zero's exponent

Term = Callable[[int], tuple[Expr, Expr]]  # k → elements of A and B


@dataclass(frozen=True)
class FusedSum:
    """How vectors of a plan's sums are made. ``count``: products in each that aren't zero."""

    how: FusedDotAdd
    count: int
    known: Range | None = None  # of the products, where it is less than what the formats have

    @property
    def range(self) -> Range:
        return self.known or Range.of(self.seen(self.how.a), self.seen(self.how.b))

    def seen(self, t: DType) -> DType:
        """The format that an operand's leading places are of."""
        return dtype(self.how.operand_type) if self.how.operand_type else t

    @property
    def sum_type(self) -> DType:
        return dtype(self.how.sum_type)

    def __call__(
        self,
        ks: int,
        powers: Term,
        values: Term,
        c: Expr,
        shift: Expr | None = None,
        least_c: Expr | None = None,
    ) -> Expr:
        """The bits of a sum (in 32-bit lanes) of ``ks`` products, c's bits among its terms; the
        products are scaled by 2^shift. ``least_c`` is the least exponent that c is aligned by, if
        not that of the sum's type.
        """
        product = chained(_larger, (x * y for x, y in map(powers, range(ks))))
        lead = self._exponent(product)
        if shift is not None:
            lead = product.eq(0.0).pick(NOWHERE, lead + shift)
        top = self.top(lead, c, least_c)
        total = self._products(ks, values, top if shift is None else top - shift)
        return self.rounded(total + self.addend(c, top), top)

    def top(self, lead: Expr, c: Expr, least_c: Expr | None = None) -> Expr:
        """The exponent that all is aligned to."""
        of_c = self._lead(c, least_c)
        return lead.intrinsic("smax", of_c).intrinsic("smax", self.how.min_exponent + BIAS)

    def rounded(self, total: Expr, top: Expr) -> Expr:
        """The bits of a sum in units of the last bit kept."""
        unit = (top.sext(64) + (BIAS64 - BIAS - self.how.fraction_bits)) << 52
        made = total * unit.float
        return self._to_f32(made) if self.sum_type == F32 else self._to_f16(made)

    # --- alignment ---

    def _exponent(self, power: Expr) -> Expr:
        """Of a power of two, as f32 counts; far down for 0."""
        if power.width == 32:
            return power.bits >> 23
        return (power.bits >> 52).trunc(32) - (BIAS64 - BIAS)

    def _lead(self, c: Expr, least_c: Expr | None) -> Expr:
        """The exponent of c's leading place."""
        t = self.sum_type
        code = c & ((1 << (t.bits - 1)) - 1)
        field = (code >> t.mantissa).umax(1) + (BIAS - t.bias)
        if least_c is not None:
            field = field.umax(least_c)
        return code.eq(0).pick(NOWHERE, field)

    def scale(self, top: Expr) -> Expr:
        """2^fraction / top as f64."""
        return (((BIAS64 + BIAS + self.how.fraction_bits) - top.sext(64)) << 52).float

    def _scale(self, top: Expr) -> Expr:
        """The same in the type that products are made in.

        f32 can't hold all of them; beyond these bounds products are all zero, or cut to it.
        """
        f = self.how.fraction_bits
        if self.range.work != FLOAT:
            return self.scale(top)
        low, high = self.range.least + BIAS, self.range.most + f + BIAS
        bounded = top.intrinsic("smax", low).intrinsic("smin", high)
        return (((2 * BIAS + f) - bounded) << 23).float

    def _products(self, ks: int, values: Term, top: Expr) -> Expr:
        """The sum of all products in units of the last bit kept, as f64."""
        scale = self._scale(top)
        stack_buffer = 1 << (31 - self.how.fraction_bits - 2)  # as many fit 32 bits
        step = ks if self.count <= stack_buffer else stack_buffer
        made = []
        for first in range(0, ks, step):
            some = map(values, range(first, min(ks, first + step)))
            terms = ((x * y * scale).to_int(True, 32) for x, y in some)
            made.append(chained(Expr.__add__, terms).from_int(True, 64))
        return reduce(Expr.__add__, made)

    def addend(self, c: Expr, top: Expr) -> Expr:
        """c in units of the last bit kept, as f64."""
        value = c if self.sum_type == F32 else widened(c, self.sum_type)
        return self.cut(value.float.to_double() * self.scale(top), self.how.fraction_bits + 1)

    def cut(self, x: Expr, bits: int) -> Expr:
        """An f64 below 2^bits without its fraction."""
        return x.to_int(True, 32).from_int(True, 64) if bits < 32 else x.intrinsic("trunc")

    # --- rounding ---

    def _to_f32(self, total: Expr) -> Expr:
        """Toward zero, ``kept`` bits; overflow is infinity. Subnormals are rare: behind a test."""
        b, cut = total.b, 52 - self.how.mantissa_bits
        bits = (total.bits & -(1 << cut)).float.to_float().bits
        small = (total.bits & (SIGN64 - 1)) - 1 < ((BIAS64 - BIAS + 1) << 52) - 1
        before = b.block
        with b.if_then(any_of(small), likely=False):
            steps = (total * 2.0**149).to_int(True, 32)
            there = small.pick(_signed(steps, self.how.mantissa_bits), bits)
            inside = b.block
        return merged(bits, before, there, inside)

    def _to_f16(self, total: Expr) -> Expr:
        """To nearest even. A subnormal's last bit is that of an f64 near 2^28."""
        size = total.bits & (SIGN64 - 1)
        near = (size + ((size >> 42) & 1) + ((1 << 41) - 1)) >> 42
        normal = near - ((BIAS64 - 15) << 10)
        tiny = (size.float + 2.0**28).bits - ((BIAS64 + 28) << 52)
        code = (size < (BIAS64 - 14) << 52).pick(tiny, normal).trunc(32)
        code = code.intrinsic("smin", 0x7C00)
        negative = total.bits.slt(0) & code.ne(0)
        return code | negative.pick(1 << 15, code.const(0))


def _signed(steps: Expr, kept: int) -> Expr:
    """Subnormal f32 numbers from multiples of the smallest one; excess low bits truncated."""
    sign = steps & (1 << 31)
    size = steps.slt(0).pick(0 - steps, steps) & -(1 << (23 - kept))
    return size.eq(0).pick(0, size | sign)


def merged(x: Expr, before: ir.Block, y: Expr, inside: ir.Block) -> Expr:
    """``x``, or ``y`` where the block ``inside`` was run."""
    phi = x.b.phi(x.type)
    phi.add_incoming(x.v, before)
    phi.add_incoming(y.v, inside)
    return Expr(x.b, phi)


def chained(f: Callable[[Expr, Expr], Expr], terms: Iterable[Expr]) -> Expr:
    """The terms joined in a few chains side by side."""
    made: list[Expr] = []
    for number, term in enumerate(terms):
        if number < CHAINS:
            made.append(term)
        else:
            made[number % CHAINS] = f(made[number % CHAINS], term)
    return reduce(f, made)


def _larger(x: Expr, y: Expr) -> Expr:
    return (x > y).pick(x, y)
