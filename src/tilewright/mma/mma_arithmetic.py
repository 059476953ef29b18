"""The bit-exact arithmetic of tensor cores.

Floating point: one fused sum for each element of D. Products are exact. They and c are truncated
toward zero to a common unit, ``fraction`` bits below the largest exponent among them; these
integers are added exactly, and the sum is rounded once. f64 is a chain of IEEE 754 fused
multiply-adds; integers are exact, and wrap or saturate. ``generations`` has the parameters of each
architecture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..dtypes import DType, dtype
from ..exact import fma
from ..number_conversion import decode, decompose, encode, is_inf, is_nan, round_to
from .array_inputs import batch_shape
from .quadpair_arithmetic import lowered_sums

Bits = npt.NDArray[Any]

_QUIET = np.uint64(1 << 51)  # the quiet bit of an f64 NaN

OUTPUT_ROUNDING = {"f32": "rz", "f16": "rn"}  # type of D → rounding of the sum, on all generations

NOWHERE = np.int64(-1 << 20)  # the leading exponent of a zero

BLOCK_TILES = 256  # the size of a block of tiles that fits the CPU's cache


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The arithmetic of one instruction on one architecture, on matrices of bits."""

    a: DType
    b: DType
    c: DType
    d: DType
    verified: bool

    def dot(
        self,
        a: Bits,
        b: Bits,
        c: Bits,
        where: Bits | None = None,
        scale_a: Bits | None = None,
        scale_b: Bits | None = None,
    ) -> Bits:
        """D for A (…, M, K), B (…, K, N), C (…, M, N), all as bits. LayoutError if the leading axes
        don't broadcast.
        ``where`` (…, M, K) has the row of B by which each stored element of sparse A is multiplied;
        B then has more rows.
        """
        arrays = [np.asarray(x) for x in (a, b, c, where, scale_a, scale_b) if x is not None]
        shape = batch_shape(*arrays)
        flat = [np.broadcast_to(x, shape + x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in arrays]
        d = np.empty((len(flat[0]), *c.shape[-2:]), self.d.storage)
        for start in range(0, len(d), BLOCK_TILES):
            block = [x[start : start + BLOCK_TILES] for x in flat]
            d[start : start + BLOCK_TILES] = self._tiles(where is not None, *block)
        return d.reshape(*shape, *c.shape[-2:])

    def _tiles(self, sparse: bool, a: Bits, b: Bits, c: Bits, *more: Bits) -> Bits:
        columns = np.swapaxes(b, -1, -2)[..., None, :, :]  # (…, 1 or M, N, K)
        if sparse:
            rows = more[0][..., None, :]
            n = columns.shape[-2]
            spread = (*rows.shape[:-2], n, rows.shape[-1])
            index = np.broadcast_to(rows, spread)
            columns = np.take_along_axis(
                np.broadcast_to(columns, (*spread[:-1], columns.shape[-1])), index, -1
            )
        return self._sums(a[..., :, None, :], columns, c, *more[sparse:])

    def _sums(self, a: Bits, b: Bits, c: Bits, *scales: Bits) -> Bits:
        """D for A (…, M, 1, K), B (…, 1 or M, N, K), C (…, M, N)."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class IntegerDotAdd(Arithmetic):
    """Exact integer sums that wrap at 32 bits or saturate. ``operation`` is that of b1 products."""

    clamped: bool = False
    operation: str = ""

    def _sums(self, a: Bits, b: Bits, c: Bits, *scales: Bits) -> Bits:
        start = decode("s32", c).astype(np.int64)
        if self.operation:
            bits = a ^ b if self.operation == "xor" else a & b
            total = start + bits.sum(-1, dtype=np.int64)
        else:
            left, right = decode(self.a, a), decode(self.b, b)
            total = start + (left.astype(np.int64) * right).sum(-1)
        if self.clamped:
            total = np.clip(total, -(1 << 31), (1 << 31) - 1)
        return np.asarray(total.astype(np.uint64).astype(np.uint32))


@dataclass(frozen=True, slots=True)
class FmaChain(Arithmetic):
    """f64: fused multiply-adds in the order of k, each rounded.

    A NaN operand propagates, made quiet: on an H200 B's has priority over C's, and C's over A's.
    """

    rounding: str = "rn"

    def _sums(self, a: Bits, b: Bits, c: Bits, *scales: Bits) -> Bits:
        a, b = np.broadcast_arrays(a, b)
        for k in range(a.shape[-1]):
            x, y, z = a[..., k], b[..., k], c
            c = fma("f64", x, y, z, self.rounding)
            for operand in (x, z, y):
                c = np.where(is_nan("f64", operand), operand | _QUIET, c)
        return c


@dataclass(frozen=True, slots=True)
class FusedDotAdd(Arithmetic):
    """Fused dot product and addition: one fused sum for each of ``groups`` (columns of A), in turn.

    A and B are first converted to ``operand_type``, if any. Each sum has type ``sum_type`` with
    ``mantissa_bits`` bits of mantissa. The first sum starts with c; where ``starts_with_c`` is
    False it starts with zero, and c is added to the last sum, rounded to nearest. Terms are
    aligned to an exponent of at least ``min_exponent``.

    c is first converted to ``sum_type``. Where ``keeps_c_format``, the first sum takes c in its own
    format instead, and a subnormal c is aligned by that format's least exponent. Where
    ``saturate``, an infinite result of the last sum becomes the largest finite number, and a NaN
    becomes +0.
    """

    groups: tuple[tuple[int, ...], ...] = ()
    fraction_bits: int = 0
    sum_type: str = "f32"
    mantissa_bits: int = 23
    starts_with_c: bool = True
    operand_type: str = ""
    min_exponent: int = 0
    final_rounding: str = "rn"
    keeps_c_format: bool = False
    saturate: bool = False

    @property
    def rounding(self) -> str:
        return OUTPUT_ROUNDING[self.sum_type]

    def _sums(self, a: Bits, b: Bits, c: Bits, *scales: Bits) -> Bits:
        sum_type = dtype(self.sum_type)
        left, right = (FloatTerms.of(*self._operand(t, x)) for t, x in ((self.a, a), (self.b, b)))
        start = _converted(c, self.c, sum_type)
        total = start if self.starts_with_c else np.zeros_like(start)
        for number, group in enumerate(self.groups):
            part = np.s_[..., list(group)]
            products = left.at(part).times(right.at(part))
            own = self.keeps_c_format and number == 0
            addend = FloatTerms.of(self.c, c) if own else FloatTerms.of(sum_type, total)
            total = self.fuse(products.and_(addend.at(np.s_[..., None])))
        if not self.starts_with_c:
            total = _added(sum_type, total, start)
        if self.saturate:
            total = _saturated(sum_type, total)
        return _converted(total, sum_type, self.d, self.final_rounding)

    def fuse(self, t: FloatTerms) -> Bits:
        """One fused sum over the last axis, with infinities and NaNs."""
        return self._specials(t, self._sum(t))

    def _operand(self, t: DType, bits: Bits) -> tuple[DType, Bits]:
        """An operand converted to ``operand_type``: a subnormal fp8 number is normal in f16."""
        if not self.operand_type:
            return t, bits
        wide = dtype(self.operand_type)
        return wide, _converted(bits, t, wide)

    def _sum(self, t: FloatTerms) -> Bits:
        sum_type = dtype(self.sum_type)
        unit = np.maximum(t.lead.max(-1, keepdims=True), self.min_exponent) - self.fraction_bits
        shift = unit - t.exponent
        magnitude = t.significand >> np.clip(shift, 0, 63) << np.clip(-shift, 0, 63)
        total = np.where(t.negative, -magnitude, magnitude).sum(-1)
        args = (total < 0, np.abs(total), unit[..., 0], self.rounding, "inf")
        bits = round_to(sum_type, *args)
        if self.mantissa_bits < sum_type.mantissa:
            low = bits.dtype.type((1 << (sum_type.mantissa - self.mantissa_bits)) - 1)
            bits = bits & ~low
        return np.where(bits == 1 << (sum_type.bits - 1), bits.dtype.type(0), bits)  # no -0

    def _specials(self, t: FloatTerms, finite: Bits) -> Bits:
        """IEEE 754's infinity and NaN: inf - inf and 0 * inf are NaN; every NaN is canonical."""
        if not (t.infinite.any() or t.nan.any()):
            return finite
        d = dtype(self.sum_type)
        plus = (t.infinite & ~t.negative).any(-1)
        minus = (t.infinite & t.negative).any(-1)
        nan = t.nan.any(-1) | (plus & minus)
        signs = np.uint64(1 << (d.bits - 1)) * minus.astype(np.uint64)
        inf = (np.uint64(d.max_finite + 1) | signs).astype(finite.dtype)
        not_nan = np.where(plus | minus, inf, finite)
        return np.where(nan, finite.dtype.type(d.nan), not_nan)


@dataclass(frozen=True, slots=True)
class LoweredDotAdd(Arithmetic):
    """f32 additions, each rounded: ptxas lowers m8n8k4 of f16 to them from sm_80 on."""

    def _sums(self, a: Bits, b: Bits, c: Bits, *scales: Bits) -> Bits:
        return lowered_sums(a, b, c, self.c.name, self.d.name)


def _converted(bits: Bits, source: DType, dest: DType, rounding: str = "rn") -> Bits:
    """The conversion of F2FP and HADD2.F32: rounded, NaNs canonical."""
    if source == dest:
        return bits
    converted = encode(dest, decode(source, bits), rounding)
    return np.where(is_nan(source, bits), converted.dtype.type(dest.nan), converted)


def _saturated(t: DType, bits: Bits) -> Bits:
    """Infinities become the largest finite numbers, NaNs +0."""
    sign = bits & bits.dtype.type(1 << (t.bits - 1))
    finite: Bits = np.minimum(bits ^ sign, bits.dtype.type(t.max_finite)) | sign
    return np.where(is_nan(t, bits), bits.dtype.type(0), finite)


def _added(t: DType, x: Bits, y: Bits) -> Bits:
    """The sum of FADD and HADD2: IEEE 754, round to nearest, NaNs canonical."""
    one = np.full_like(x, encode(t, np.array(1.0)))
    return fma(t.name, x, one, y)


@dataclass(frozen=True, slots=True)
class FloatTerms:
    """Numbers (-1)^negative * significand * 2^exponent.

    ``lead`` is the exponent for alignment: that of the format (a subnormal number has that of the
    smallest normal number), of a product the sum of its factors' exponents, of a zero ``NOWHERE``.
    """

    negative: Bits
    significand: Bits
    exponent: Bits
    lead: Bits
    infinite: Bits
    nan: Bits

    @classmethod
    def of(cls, t: DType, bits: Bits) -> FloatTerms:
        negative, significand, exponent = decompose(t, bits)
        lead = np.where(significand != 0, exponent + t.mantissa, NOWHERE)
        return cls(negative, significand, exponent, lead, is_inf(t, bits), is_nan(t, bits))

    def at(self, index: Any) -> FloatTerms:
        return FloatTerms(*(field[index] for field in self._fields()))

    def times(self, other: FloatTerms) -> FloatTerms:
        zero = (self.significand == 0) & other.infinite | self.infinite & (other.significand == 0)
        return FloatTerms(
            self.negative ^ other.negative,
            self.significand * other.significand,
            self.exponent + other.exponent,
            self.lead + other.lead,
            self.infinite | other.infinite,
            self.nan | other.nan | zero,
        )

    def grouped(self, size: int) -> FloatTerms:
        """The last axis split into groups of ``size`` neighbours."""
        fields = np.broadcast_arrays(*self._fields())
        return FloatTerms(*(field.reshape(*field.shape[:-1], -1, size) for field in fields))

    def and_(self, last: FloatTerms) -> FloatTerms:
        both = zip(self._fields(), last._fields(), strict=True)
        return FloatTerms(*(np.concatenate(pair, axis=-1) for pair in both))

    def _fields(self) -> tuple[Bits, ...]:
        return (
            self.negative, self.significand, self.exponent, self.lead, self.infinite, self.nan,
        )  # fmt: skip
