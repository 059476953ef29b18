"""What a tensor core computes, to the bit: one fused sum for each element of D.

Products of floats are exact. They and c are cut off, toward zero, at a common unit ``fraction``
bits below the largest exponent among them; these integers are added exactly, and the sum is
rounded once. What differs between architectures is in ``GENERATIONS`` and ``OUTPUT`` and nowhere
else. Each fact there is "published" (MMA-Sim, arXiv 2511.10909; Fasi et al., 2021) until a
``source`` says who confirmed it.

The same in 32-bit and 64-bit integers, for a compiled version (f16 or bf16 products, F = 25 or
24; lanes are columns of D; m is a type's mantissa bits, f = ma + mb):

1. Once for each element of A and B: the signed significand ``s`` (1.m or 0.m as an integer,
   ±2^(m+1) at most) and the exponent ``e`` of its leading place (a subnormal's is the least
   normal one's). A zero gets e = -2^14, so that no product with it can be the largest.
2. ``top`` = max(-133, ec, ea + eb for all k).
3. Each product: p = sa * sb, E = ea + eb, sh = min(top - E, 31); t = (abs(p) << (F - f)) >> sh,
   with p's sign. |t| < 2^(F+2), so 16 products of F = 25 fit in a signed 32-bit sum: (2^11 - 1)^2
   * 2^5 * 16 < 2^31 for f16, (2^8 - 1)^2 * 2^11 * 16 < 2^31 for bf16. A shift of the magnitude,
   not of the signed number: it must cut toward zero.
4. c: t = (abs(sc) << (F - mc)) >> min(top - ec, 31), with c's sign. Sum + c needs 33 bits: use 64.
5. The sum S stands for S * 2^(top - F). |S| < 2^53, so a double holds it, and scaling by a power
   of two (its exponent is at least -151) is exact. To f32: clear the low 29 bits of the double
   and convert (subnormal results: shift |S| right by -149 - (top - F) instead); 2^128 and above
   gives infinity. To f16: round |S| to 11 bits (to a multiple of 2^-24 below 2^-14) with
   integers, half to even.
6. What becomes zero is +0, a negative S that is cut or rounded to it included. Infinities and NaNs:
   test once for each row of A, column of B and c (exponent field all ones), and send elements that
   have any through a slow path with ``_specials``' rule.
7. Where the instruction's K is longer than ``step``, the first ``step`` products go with c, their
   rounded result is the next ones' c.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..dtypes import DType, dtype, is_inf, is_nan, parts, round_to
from ..errors import DtypeError, LayoutError, TargetError
from ..target import Target

if TYPE_CHECKING:
    from .rows import Instruction

Bits = npt.NDArray[Any]

TILES_AT_ONCE = 256  # a block of tiles that stays in the cache


@dataclass(frozen=True, slots=True)
class Generation:
    """The facts of one family of tensor cores.

    ``first`` is its lowest compute capability (90 for sm_90), ``fraction`` the bits kept below
    the largest exponent, ``width`` the bits of a row of A that one fused sum takes.
    """

    name: str
    first: int
    fraction: int
    width: int
    source: str = "published"


GENERATIONS = (
    Generation("Volta", 70, fraction=23, width=64),
    Generation("Turing", 75, fraction=24, width=128),
    Generation("Ampere", 80, fraction=24, width=128),
    Generation("Ada", 89, fraction=24, width=128),
    Generation("Hopper", 90, fraction=25, width=256, source="H200"),
    Generation("Blackwell", 100, fraction=25, width=256),
)

# The largest exponent is never below this one. MMA-Sim has -126 (as the exponent of a zero); an
# H200 shows -133: sums of bf16 products near f32's least numbers tell it from its neighbours.
LEAST = -133

OUTPUT = {"f32": "rz", "f16": "rn"}  # type of D → rounding of the sum, on all generations


def generation(arch: str) -> Generation:
    """The tensor cores of an architecture such as ``sm_90a``. TargetError where it has none."""
    known = [g for g in GENERATIONS if g.first <= Target.parse(arch).number]
    if not known:
        names = ", ".join(f"sm_{g.first} ({g.name})" for g in GENERATIONS)
        raise TargetError(f"{arch} has no tensor cores; those that have begin with {names}")
    return known[-1]


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How one instruction computes on one architecture: ``arithmetic(b_row, arch)`` makes it."""

    a: DType
    b: DType
    c: DType
    d: DType
    step: int
    rounding: str
    facts: Generation

    def dot(self, a: Bits, b: Bits, c: Bits) -> Bits:
        """A (…, M, K), B (…, K, N), C (…, M, N) → D (…, M, N), all as bits."""
        columns = np.swapaxes(b, -1, -2)
        for k in range(0, a.shape[-1], self.step):
            part = slice(k, k + self.step)
            terms = self._terms(a[..., part], columns[..., part], c)
            c = self._specials(terms, self._sum(terms))
        return c

    def _terms(self, a: Bits, b: Bits, c: Bits) -> _Terms:
        """Every product and then c, on the last axis: (…, M, N, K + 1)."""
        left = _Terms.of(self.a, a).at(np.s_[..., :, None, :])
        right = _Terms.of(self.b, b).at(np.s_[..., None, :, :])
        return left.times(right).and_(_Terms.of(self.c, c).at(np.s_[..., None]))

    def _sum(self, t: _Terms) -> Bits:
        top = np.where(t.significand != 0, t.lead, np.int64(LEAST)).max(-1, keepdims=True)
        unit = np.maximum(top, LEAST) - self.facts.fraction
        cut = unit - t.exponent
        size = t.significand >> np.clip(cut, 0, 63) << np.clip(-cut, 0, 63)
        total = np.where(t.negative, -size, size).sum(-1)
        made = round_to(self.d, total < 0, np.abs(total), unit[..., 0], self.rounding, "inf")
        return np.where(made == 1 << (self.d.bits - 1), made.dtype.type(0), made)  # no -0

    def _specials(self, t: _Terms, finite: Bits) -> Bits:
        """Infinity and NaN as in IEEE: inf - inf and 0 * inf are NaN, any NaN the canonical one."""
        if not (t.infinite.any() or t.nan.any()):
            return finite
        plus = (t.infinite & ~t.negative).any(-1)
        minus = (t.infinite & t.negative).any(-1)
        nan = t.nan.any(-1) | (plus & minus)
        signs = np.uint64(1 << (self.d.bits - 1)) * minus.astype(np.uint64)
        inf = (np.uint64(self.d.max_finite + 1) | signs).astype(finite.dtype)
        made = np.where(plus | minus, inf, finite)
        return np.where(nan, finite.dtype.type(self.d.nan), made)


@dataclass(frozen=True, slots=True)
class _Terms:
    """Numbers (-1)^negative * significand * 2^exponent; ``lead`` is the leading place's own."""

    negative: Bits
    significand: Bits
    exponent: Bits
    lead: Bits
    infinite: Bits
    nan: Bits

    @classmethod
    def of(cls, t: DType, bits: Bits) -> _Terms:
        negative, significand, exponent = parts(t, bits)
        lead = exponent + t.mantissa
        return cls(negative, significand, exponent, lead, is_inf(t, bits), is_nan(t, bits))

    def at(self, index: Any) -> _Terms:
        return _Terms(*(field[index] for field in self._fields()))

    def times(self, other: _Terms) -> _Terms:
        zero = (self.significand == 0) & other.infinite | self.infinite & (other.significand == 0)
        return _Terms(
            self.negative ^ other.negative,
            self.significand * other.significand,
            self.exponent + other.exponent,
            self.lead + other.lead,
            self.infinite | other.infinite,
            self.nan | other.nan | zero,
        )

    def and_(self, last: _Terms) -> _Terms:
        both = zip(self._fields(), last._fields(), strict=True)
        return _Terms(*(np.concatenate(pair, axis=-1) for pair in both))

    def _fields(self) -> tuple[Bits, ...]:
        return (
            self.negative, self.significand, self.exponent, self.lead, self.infinite, self.nan,
        )  # fmt: skip


@cache
def arithmetic(instruction: Instruction, arch: str) -> Arithmetic:
    """The arithmetic of an instruction on an architecture. Raises TargetError, DtypeError."""
    facts = generation(arch)
    types = [dtype(t) for t in (instruction.a, instruction.b, instruction.c, instruction.d)]
    if any(t.kind != "float" for t in types) or instruction.d not in OUTPUT:
        raise DtypeError(f"no arithmetic is known for {instruction.opcode} on {arch}")
    a, b, c, d = types
    return Arithmetic(a, b, c, d, facts.width // a.bits, OUTPUT[d.name], facts)


def dot_accumulate(
    a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike, instruction: Instruction, arch: str
) -> Bits:
    """D = A B + C as ``arch`` computes it: A (…, M, K), B (…, K, N), C (…, M, N), all as bits.

    Leading axes are a batch of tiles and broadcast. Raises LayoutError for a wrong shape.
    """
    m, n, k = instruction.m, instruction.n, instruction.k
    how = arithmetic(instruction, arch)
    given = [np.asarray(x) for x in (a, b, c)]
    shapes = [(m, k), (k, n), (m, n)]
    for name, array, shape in zip("ABC", given, shapes, strict=True):
        if array.shape[-2:] != shape:
            raise LayoutError(f"{name} of {instruction.opcode} is {shape}, not {array.shape}")
    batch = np.broadcast_shapes(*(x.shape[:-2] for x in given))
    flat = [
        np.broadcast_to(x, batch + s).reshape(-1, *s) for x, s in zip(given, shapes, strict=True)
    ]
    made = np.empty((len(flat[0]), m, n), how.d.storage)
    for start in range(0, len(made), TILES_AT_ONCE):
        block = slice(start, start + TILES_AT_ONCE)
        made[block] = how.dot(*(x[block] for x in flat))
    return made.reshape(*batch, m, n)
