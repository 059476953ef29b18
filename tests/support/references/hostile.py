"""Input tiles that try to break a matrix instruction's arithmetic, made from a seed.

The same tiles go to the tensor core and to our arithmetic: ``tiles(instruction, kind, count)``
gives A (count, M, K), B (count, K, N), C (count, M, N) as bits, ``extras`` metadata and scales.
``Stream`` gives the same numbers with every version of NumPy, so what a GPU made of them can be
kept without them.
"""

from __future__ import annotations

import hashlib

import numpy as np

from tilewright.dtypes import DType, dtype
from tilewright.number_conversion import decode, encode


class Stream:
    """Random numbers by splitmix64, with the methods of ``numpy.random.Generator`` used here."""

    def __init__(self, *seed: int | str) -> None:
        digest = hashlib.blake2b(repr(seed).encode(), digest_size=8).digest()
        self.at = int.from_bytes(digest, "little")

    def words(self, count: int) -> np.ndarray:
        steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = np.uint64(self.at) + steps
        self.at = (self.at + count * 0x9E3779B97F4A7C15) % (1 << 64)
        x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        return x ^ x >> np.uint64(31)

    def integers(self, low, high, shape):
        words = self.words(int(np.prod(shape, dtype=np.int64)))
        span = int(high) - int(low)
        if span < 1 << 63:
            words = words % np.uint64(span)
        return (words + np.uint64(int(low) % (1 << 64))).astype(np.int64).reshape(shape)

    def random(self, shape):
        words = self.words(int(np.prod(shape, dtype=np.int64)))
        return ((words >> np.uint64(11)) * 2.0**-53).reshape(shape)

    def choice(self, choices, shape):
        return choices[self.integers(0, len(choices), shape)]

    def standard_normal(self, shape):
        """Roughly: twelve uniform numbers."""
        return self.random((12, *np.atleast_1d(shape))).sum(0) - 6


class Source:
    """Random bits of a format, of one sort."""

    def __init__(self, rng: np.random.Generator | Stream, t: DType) -> None:
        self.rng, self.t = rng, t

    def sign(self, shape):
        bits = self.rng.integers(0, 2, shape).astype(np.uint64)
        return (bits << np.uint64(self.t.bits - 1)).astype(self.t.storage)

    def signed(self, codes):
        return codes.astype(self.t.storage) | self.sign(np.shape(codes))

    def pick(self, choices, shape):
        return self.rng.choice(np.array(choices, dtype=self.t.storage), shape)

    def normal(self, shape, scale=1.0):
        return encode(self.t, self.rng.standard_normal(shape) * scale)

    def uniform(self, shape):
        """Any bits: NaN, infinity and subnormals as often as they occur among them."""
        return self.rng.integers(0, 1 << self.t.bits, shape).astype(self.t.storage)

    def finite(self, shape):
        return self.signed(self.rng.integers(0, self.t.max_finite + 1, shape))

    def between(self, low, high, shape):
        """Magnitudes of exponents low … high, any mantissa."""
        span = np.clip(np.array([low, high]) + self.t.bias, 1, (1 << self.t.exponent) - 2)
        exponent = self.rng.integers(span[0], span[1] + 1, shape)
        return self.signed(
            exponent << self.t.mantissa | self.rng.integers(0, 1 << self.t.mantissa, shape)
        )

    def subnormal(self, shape):
        return self.signed(self.rng.integers(0, 1 << self.t.mantissa, shape))

    def zero(self, shape):
        return self.sign(shape)

    def one_of(self, shape, *makers):
        """Each element from one of the makers, at random."""
        made = np.stack([make(shape) for make in makers])
        return np.take_along_axis(made, self.rng.integers(0, len(made), (1, *shape)), 0)[0]

    def special(self, shape):
        nan, inf, largest = self.t.nan, self.t.max_finite + 1, self.t.max_finite
        one = int(encode(self.t, 1.0))
        other_nan = inf + 1  # the least signalling NaN
        return self.signed(self.pick([0, one, one, largest, inf, nan, other_nan], shape))

    def largest(self, shape):
        return self.signed(self.t.max_finite - self.rng.integers(0, 2, shape))


def random_normal(a, b, c, shapes):
    """What a neural network would give."""
    return a.normal(shapes[0]), b.normal(shapes[1]), c.normal(shapes[2])


def random_bits(a, b, c, shapes):
    """Uniform bit patterns: nearly every tile has NaNs and infinities."""
    return a.uniform(shapes[0]), b.uniform(shapes[1]), c.uniform(shapes[2])


def random_finite(a, b, c, shapes):
    """Uniform bit patterns of finite numbers: exponents spread over the whole range."""
    return a.finite(shapes[0]), b.finite(shapes[1]), c.finite(shapes[2])


def near_one(a, b, c, shapes):
    """Terms within a few bits of each other: every rounding counts."""
    return a.between(-2, 2, shapes[0]), b.between(-2, 2, shapes[1]), c.between(-3, 5, shapes[2])


def spread(a, b, c, shapes):
    """Products whose exponents lie on both sides of where alignment cuts them off."""
    return a.between(-13, 1, shapes[0]), b.between(-13, 1, shapes[1]), c.between(-30, 3, shapes[2])


def carry(a, b, c, shapes):
    """One large term, and others just around its last bit kept."""
    made = a.between(-12, -9, shapes[0]), b.between(-14, -11, shapes[1])
    return *made, c.between(-1, 1, shapes[2])


def cancellation(a, b, c, shapes):
    """Products in pairs p, -p (the second a bit off at times), so small terms decide."""
    left, right = a.between(-2, 2, shapes[0]), b.between(-2, 2, shapes[1])
    half, of_b = shapes[0][-1] // 2, shapes[1][-2] // 2
    left[..., half:] = left[..., :half] ^ a.t.storage.type(1 << (a.t.bits - 1))
    right[..., of_b:, :] = right[..., :of_b, :]
    flips = (a.rng.random(left.shape) < 0.02).astype(a.t.storage)
    return left ^ flips, right, c.between(-28, -12, shapes[2])


def cancelled_by_c(a, b, c, shapes):
    """c is about minus the sum of the products."""
    left, right = a.between(-2, 2, shapes[0]), b.between(-2, 2, shapes[1])
    exact = decode(a.t, left) @ decode(b.t, right[..., : shapes[0][-1], :])
    return left, right, encode(c.t, -exact, "rz")


def subnormals(a, b, c, shapes):
    """Subnormal inputs times large ones, beside products of the same size."""
    least, most = a.t.least, b.t.bias
    left = a.one_of(shapes[0], a.subnormal, a.subnormal, lambda s: a.between(least, least + 4, s))
    right = b.one_of(shapes[1], b.subnormal, lambda s: b.between(most - 6, most, s))
    return left, right, c.one_of(shapes[2], c.subnormal, c.zero, lambda s: c.between(-30, 0, s))


def tiny(a, b, c, shapes):
    """Results around and below the least normal number of the output."""
    low = c.t.least // 2
    left = a.one_of(shapes[0], lambda s: a.between(low - 13, low + 2, s), a.zero)
    right = b.between(low - 13, low + 2, shapes[1])
    return left, right, c.one_of(shapes[2], c.subnormal, c.zero)


def zeros(a, b, c, shapes):
    """Mostly zeros of both signs: the sign of an exact zero."""
    left = a.one_of(shapes[0], a.zero, a.zero, a.zero, lambda s: a.between(0, 0, s))
    left[::2] = a.zero(left[::2].shape)
    right = b.one_of(shapes[1], b.zero, lambda s: b.between(0, 0, s))
    return left, right, c.one_of(shapes[2], c.zero, c.zero, lambda s: c.between(0, 0, s))


def zero_times_large(a, b, c, shapes):
    """Zeros against large numbers, beside small products: a zero's exponent must not count."""
    left, right = a.between(-12, -9, shapes[0]), b.between(-12, -9, shapes[1])
    gone = a.rng.random(shapes[1][-2]) < 0.5
    of_a = gone[: shapes[0][-1]]
    left[..., of_a] = a.zero(left[..., of_a].shape)
    right[..., gone, :] = b.between(b.t.bias - 1, b.t.bias, right[..., gone, :].shape)
    return left, right, c.one_of(shapes[2], c.zero, c.subnormal, lambda s: c.between(-30, -12, s))


def negative_zeros(a, b, c, shapes):
    """Every product -0, c either zero."""
    top = a.t.storage.type(1 << (a.t.bits - 1))
    return np.full(shapes[0], top), encode(b.t, np.ones(shapes[1])), c.zero(shapes[2])


def specials(a, b, c, shapes):
    """A few infinities, NaNs, zeros and largest numbers among ordinary ones."""

    def few(source, shape, chance):
        ordinary = source.between(-2, 2, shape)
        return np.where(source.rng.random(shape) < chance, source.special(shape), ordinary)

    return few(a, shapes[0], 0.02), few(b, shapes[1], 0.02), few(c, shapes[2], 0.1)


def largest(a, b, c, shapes):
    """Largest numbers: sums that overflow, or would but for c."""
    few = a.one_of(shapes[0], a.zero, a.zero, a.largest)
    return few, b.one_of(shapes[1], b.largest, b.zero), c.one_of(shapes[2], c.largest, c.zero)


def edge_of_overflow(a, b, c, shapes):
    """c at the largest number, and small products that may or may not push it over."""
    top = c.t.least + 2 * c.t.bias - 1  # the exponent of the largest number
    low = (top - c.t.mantissa - 3) // 2
    made = a.between(low - 1, low + 1, shapes[0]), b.between(low - 1, low + 1, shapes[1])
    return *made, c.largest(shapes[2])


def structured(a, b, c, shapes):
    """Every place has its own small integer: a wrong fragment shows."""
    m, n = (np.arange(x) for x in shapes[2][-2:])
    k, of_b = np.arange(shapes[0][-1]), np.arange(shapes[1][-2])
    left = np.broadcast_to((m[:, None] * 3 + k) % 31 - 15, shapes[0])
    right = np.broadcast_to((of_b[:, None] * 5 + n) % 29 - 14, shapes[1])
    start = np.broadcast_to(m[:, None] * 16 + n, shapes[2])
    return encode(a.t, left), encode(b.t, right), encode(c.t, start)


KINDS = {
    make.__name__: make
    for make in (
        random_normal, random_bits, random_finite, near_one, spread, carry, cancellation,
        cancelled_by_c, subnormals, tiny, zeros, zero_times_large, negative_zeros, specials,
        largest, edge_of_overflow, structured,
    )
}  # fmt: skip


def integer_bits(a, b, c, shapes):
    return a.uniform(shapes[0]), b.uniform(shapes[1]), c.uniform(shapes[2])


def extremes(a, b, c, shapes):
    """Zero, one, minus one, the least and the largest: c wraps or is clamped at both ends."""

    def ends(source, shape):
        top = 1 << (source.t.bits - 1)
        return source.pick([0, 1, top - 1, top, 2 * top - 1], shape)

    return ends(a, shapes[0]), ends(b, shapes[1]), ends(c, shapes[2])


def edge_of_range(a, b, c, shapes):
    """c a few products away from where 32 bits end."""
    near = c.rng.integers(-40, 40, shapes[2]) * c.rng.integers(1, 1000, shapes[2])
    edge = np.where(c.rng.random(shapes[2]) < 0.5, (1 << 31) - 1, -(1 << 31)) + near
    return a.uniform(shapes[0]), b.uniform(shapes[1]), edge.astype(np.uint64).astype(np.uint32)


INTEGER_KINDS = {make.__name__: make for make in (integer_bits, extremes, edge_of_range)}

PAIRS = (0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110)
UNORDERED = (0b0001, 0b0010, 0b0110, 0b0011, 0b0111, 0b1011)


def one_of_each(rows) -> list:
    """The first instruction of each family with its types, layouts, kind and number of scales."""
    made = {}
    for row in rows:
        types = (row.family, row.a, row.b, row.d, row.c, row.alayout, row.blayout)
        made.setdefault((*types, row.kind, row.scale_vec, row.tiles), row)
    return list(made.values())


def kinds(instruction) -> tuple[str, ...]:
    """The kinds of tiles that suit an instruction's types."""
    return tuple(KINDS if dtype(instruction.a).kind == "float" else INTEGER_KINDS)


def tiles(instruction, kind: str, count: int, seed: int = 0):
    """``count`` tiles of a kind: the bits of A (count, M, K), B (count, K, N), C (count, M, N).

    Sparse A is what is stored of it.
    """
    rng = Stream(seed, kind, instruction.opcode)
    sources = [Source(rng, dtype(t)) for t in (instruction.a, instruction.b, instruction.c)]
    shapes = [(count, *instruction.matrix_shape(x)) for x in "abc"]
    made = (KINDS | INTEGER_KINDS)[kind](*sources, shapes)
    return tuple(noise(rng, s.t, x) for s, x in zip(sources, made, strict=True))


def noise(rng: Stream, t: DType, bits):
    """Bits that the format ignores, at random."""
    if not t.unused:
        return bits
    return bits | rng.integers(0, 1 << t.unused, bits.shape).astype(t.storage)


def extras(instruction, count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Random metadata and scales for as many tiles, by the names that instructions call them."""
    rng, made = Stream(seed, "extras", instruction.opcode), {}
    if instruction.sparse:
        made["metadata"] = metadata(instruction, rng, count)
    if instruction.stype:
        scale = Source(rng, dtype(instruction.stype))
        for name in ("scale_a", "scale_b"):
            shape = (count, *instruction.matrix_shape(name))
            near = encode(scale.t, 2.0 ** rng.integers(-6, 7, shape))
            made[name] = np.where(rng.random(shape) < 0.8, near, scale.uniform(shape))
    return made


def metadata(instruction, rng: Stream, count: int):
    shape = (count, *instruction.matrix_shape("metadata"))
    if instruction.a == "tf32":
        return rng.choice(np.array([0b0100, 0b1110], np.uint8), shape)
    choices = np.array(PAIRS if instruction.ordered else PAIRS + UNORDERED, np.uint8)
    if instruction.asynchronous:
        choices = np.array(PAIRS, np.uint8)
    pairs = rng.choice(choices, (*shape[:-1], shape[-1] // 2))
    return np.stack([pairs & 3, pairs >> 2], -1).reshape(shape)
