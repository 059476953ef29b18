"""One fused sum for a vector of D's elements: align, truncate, add, round once.

Two passes over k, without shifts. ``top``, the largest leading bit, is a maximum of products of
powers of two. Then each product is scaled by 2^fraction / top and converted to an integer; the
conversion truncates toward zero. Scaling is by a power of two and all numbers stay normal, so each
step is exact. The integers are added as integers, then c as f64, where rounding concerns a few bits
only.
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

BIAS, BIAS64 = 127, 1023  # ``top`` is an exponent with the bias of f32
CHAINS = 4  # independent partial sums, for instruction-level parallelism
SIGN64 = 1 << 63
ZERO_LEAD = -(1 << 12)  # the exponent of zero

Term = Callable[[int], tuple[Expr, Expr]]  # k → elements of A and B


@dataclass(frozen=True)
class FusedSum:
    """Emits the fused sums of a plan. ``count``: the number of products that may be nonzero."""

    how: FusedDotAdd
    count: int
    known: Range | None = None  # of the products, if it is smaller than that of the formats

    @property
    def range(self) -> Range:
        return self.known or Range.of(self.lead_format(self.how.a), self.lead_format(self.how.b))

    def lead_format(self, t: DType) -> DType:
        """The format that determines the exponents of an operand's leading bits."""
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
        """The bits (in 32-bit lanes) of the sum of ``ks`` products, scaled by 2^shift, and of c.
        ``least_c``: the least exponent to which c is aligned, if not that of the sum's type.
        """
        product = chained(_larger, (x * y for x, y in map(powers, range(ks))))
        lead = self._exponent(product)
        if shift is not None:
            lead = product.eq(0.0).pick(ZERO_LEAD, lead + shift)
        top = self.top(lead, c, least_c)
        total = self._products(ks, values, top if shift is None else top - shift)
        return self.rounded(total + self.addend(c, top), top)

    def top(self, lead: Expr, c: Expr, least_c: Expr | None = None) -> Expr:
        """The exponent to which all terms are aligned."""
        lead_c = self._lead(c, least_c)
        return lead.intrinsic("smax", lead_c).intrinsic("smax", self.how.min_exponent + BIAS)

    def rounded(self, total: Expr, top: Expr) -> Expr:
        """The bits of a sum that is given in units of the last bit of alignment."""
        unit = (top.sext(64) + (BIAS64 - BIAS - self.how.fraction_bits)) << 52
        value = total * unit.float
        return self._to_f32(value) if self.sum_type == F32 else self._to_f16(value)

    # --- alignment ---

    def _exponent(self, power: Expr) -> Expr:
        """The exponent of a power of two, with the bias of f32; 0 or less for 0."""
        if power.width == 32:
            return power.bits >> 23
        return (power.bits >> 52).trunc(32) - (BIAS64 - BIAS)

    def _lead(self, c: Expr, least_c: Expr | None) -> Expr:
        """The exponent of the leading bit of c."""
        t = self.sum_type
        code = c & ((1 << (t.bits - 1)) - 1)
        field = (code >> t.mantissa).umax(1) + (BIAS - t.bias)
        if least_c is not None:
            field = field.umax(least_c)
        return code.eq(0).pick(ZERO_LEAD, field)

    def scale(self, top: Expr) -> Expr:
        """2^fraction / top as f64."""
        return (((BIAS64 + BIAS + self.how.fraction_bits) - top.sext(64)) << 52).float

    def _scale(self, top: Expr) -> Expr:
        """``scale`` in the type in which products are computed.

        f32 can't represent all scales; beyond these bounds all products are zero, or truncated to
        zero.
        """
        f = self.how.fraction_bits
        if self.range.work != FLOAT:
            return self.scale(top)
        low, high = self.range.least + BIAS, self.range.most + f + BIAS
        bounded = top.intrinsic("smax", low).intrinsic("smin", high)
        return (((2 * BIAS + f) - bounded) << 23).float

    def _products(self, ks: int, values: Term, top: Expr) -> Expr:
        """The sum of all products in units of the last bit of alignment, as f64."""
        scale = self._scale(top)
        limit = 1 << (31 - self.how.fraction_bits - 2)  # terms whose sum fits 32 bits
        step = ks if self.count <= limit else limit
        sums = []
        for first in range(0, ks, step):
            pairs = map(values, range(first, min(ks, first + step)))
            terms = ((x * y * scale).to_int(True, 32) for x, y in pairs)
            sums.append(chained(Expr.__add__, terms).from_int(True, 64))
        return reduce(Expr.__add__, sums)

    def addend(self, c: Expr, top: Expr) -> Expr:
        """c in units of the last bit of alignment, as f64."""
        value = c if self.sum_type == F32 else widened(c, self.sum_type)
        return self.truncate(value.float.to_double() * self.scale(top), self.how.fraction_bits + 1)

    def truncate(self, x: Expr, bits: int) -> Expr:
        """An f64, less than 2^bits in magnitude, without its fraction."""
        return x.to_int(True, 32).from_int(True, 64) if bits < 32 else x.intrinsic("trunc")

    # --- rounding ---

    def _to_f32(self, total: Expr) -> Expr:
        """Toward zero, with ``mantissa_bits``; overflow gives infinity. Subnormals are rare: a test
        selects the path for them.
        """
        b, dropped = total.b, 52 - self.how.mantissa_bits
        bits = (total.bits & -(1 << dropped)).float.to_float().bits
        small = (total.bits & (SIGN64 - 1)) - 1 < ((BIAS64 - BIAS + 1) << 52) - 1
        fast_block = b.block
        with b.if_then(any_of(small), likely=False):
            steps = (total * 2.0**149).to_int(True, 32)
            slow = small.pick(_signed(steps, self.how.mantissa_bits), bits)
            slow_block = b.block
        return phi_merged(bits, fast_block, slow, slow_block)

    def _to_f16(self, total: Expr) -> Expr:
        """To nearest even. The last bit of a subnormal is the last bit of an f64 near 2^28."""
        magnitude = total.bits & (SIGN64 - 1)
        rounded = (magnitude + ((magnitude >> 42) & 1) + ((1 << 41) - 1)) >> 42
        normal = rounded - ((BIAS64 - 15) << 10)
        subnormal = (magnitude.float + 2.0**28).bits - ((BIAS64 + 28) << 52)
        code = (magnitude < (BIAS64 - 14) << 52).pick(subnormal, normal).trunc(32)
        code = code.intrinsic("smin", 0x7C00)
        negative = total.bits.slt(0) & code.ne(0)
        return code | negative.pick(1 << 15, code.const(0))


def _signed(steps: Expr, mantissa_bits: int) -> Expr:
    """Subnormal f32 numbers from multiples of the smallest one; excess low bits truncated."""
    sign = steps & (1 << 31)
    magnitude = steps.slt(0).pick(0 - steps, steps) & -(1 << (23 - mantissa_bits))
    return magnitude.eq(0).pick(0, magnitude | sign)


def phi_merged(x: Expr, block_x: ir.Block, y: Expr, block_y: ir.Block) -> Expr:
    """``x`` if control arrives from ``block_x``, ``y`` if it arrives from ``block_y``."""
    phi = x.b.phi(x.type)
    phi.add_incoming(x.v, block_x)
    phi.add_incoming(y.v, block_y)
    return Expr(x.b, phi)


def chained(f: Callable[[Expr, Expr], Expr], terms: Iterable[Expr]) -> Expr:
    """Reduce the terms by ``f`` in ``CHAINS`` independent chains."""
    chains: list[Expr] = []
    for number, term in enumerate(terms):
        if number < CHAINS:
            chains.append(term)
        else:
            chains[number % CHAINS] = f(chains[number % CHAINS], term)
    return reduce(f, chains)


def _larger(x: Expr, y: Expr) -> Expr:
    return (x > y).pick(x, y)
