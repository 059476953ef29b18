"""Input tiles that try to break a matrix instruction's arithmetic, made from a seed.

The same tiles go to the tensor core and to our arithmetic: ``tiles(instruction, kind, count)``
gives A (count, M, K), B (count, K, N), C (count, M, N) as bits. Needs NumPy and ``dtypes`` alone.
"""

from __future__ import annotations

import numpy as np

from tilewright.dtypes import DType, decode, dtype, encode


class Source:
    """Random bits of a format, of one sort."""

    def __init__(self, rng: np.random.Generator, t: DType) -> None:
        self.rng, self.t = rng, t

    def sign(self, shape):
        return (self.rng.integers(0, 2, shape) << (self.t.bits - 1)).astype(self.t.storage)

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
    half = shapes[0][-1] // 2
    left[..., half:] = left[..., :half] ^ a.t.storage.type(1 << (a.t.bits - 1))
    right[..., half:, :] = right[..., :half, :]
    flips = (a.rng.random(left.shape) < 0.02).astype(a.t.storage)
    return left ^ flips, right, c.between(-28, -12, shapes[2])


def cancelled_by_c(a, b, c, shapes):
    """c is about minus the sum of the products."""
    left, right = a.between(-2, 2, shapes[0]), b.between(-2, 2, shapes[1])
    exact = decode(a.t, left) @ decode(b.t, right)
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
    gone = a.rng.random(shapes[0][-1]) < 0.5
    left[..., gone] = a.zero(left[..., gone].shape)
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
    m, n, k = (np.arange(x) for x in (*shapes[2][-2:], shapes[0][-1]))
    left = np.broadcast_to((m[:, None] * 3 + k) % 31 - 15, shapes[0])
    right = np.broadcast_to((k[:, None] * 5 + n) % 29 - 14, shapes[1])
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


def tiles(instruction, kind: str, count: int, seed: int = 0):
    """``count`` tiles of a kind: the bits of A (count, M, K), B (count, K, N), C (count, M, N)."""
    rng = np.random.default_rng([seed, list(KINDS).index(kind)])
    sources = [Source(rng, dtype(t)) for t in (instruction.a, instruction.b, instruction.c)]
    m, n, k = instruction.m, instruction.n, instruction.k
    return KINDS[kind](*sources, [(count, m, k), (count, k, n), (count, m, n)])
