"""Philox4x32-10 and dropout in an epilogue: random bits that depend on an element's index alone.

Philox (Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3, 2011) maps a
counter of four words and a key of two to four random words. The counter is (column, row, batch,
offset), the key is the seed: so a mask depends neither on the tile shape nor on the number of
columns, and a backward kernel computes it again instead of loading it.
"""

from __future__ import annotations

from typing import Any

from ....errors import EpilogueError
from ..tracing import TracedValue, apply, constant, index
from .elementwise import static
from .selection import where

ROUNDS = 10
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85  # the key's increments: the golden ratio, √3 − 1
_WORD = 0xFFFFFFFF
Words = tuple[Any, Any, Any, Any]


def philox4x32(counter: Words, key: tuple[Any, Any], rounds: int = ROUNDS) -> Words:
    """Philox4x32 of u32 values, of which at least one is traced; a key's words may be numbers.

    8 operations a round, and 2 more for a key that is traced (these are the same for all elements).
    """
    for i in range(rounds):
        if i:
            key = (_raised(key[0], WEYL[0]), _raised(key[1], WEYL[1]))
        counter = _round(counter, key)
    return counter


def _round(counter: Words, key: tuple[Any, Any]) -> Words:
    c0, c1, c2, c3 = counter
    low0, low1 = apply("mul", c0, MULTIPLIERS[0]), apply("mul", c2, MULTIPLIERS[1])
    high0, high1 = apply("mul_hi", c0, MULTIPLIERS[0]), apply("mul_hi", c2, MULTIPLIERS[1])
    return high1 ^ c1 ^ key[0], low1, high0 ^ c3 ^ key[1], low0


def _raised(word: Any, increment: int) -> Any:
    return (word + increment) & _WORD if isinstance(word, int) else word + increment


@static("seed")
def random_bits(x: Any, seed: Any, offset: Any = 0) -> Any:
    """32 random bits (u32) for each element of D: the first word of Philox4x32-10. 70 operations.

    ``x``: a value of the epilogue, or an array of D's shape; its numbers do not matter. ``seed``
    and ``offset``: integers of 64 and 32 bits, or operands, which may change without another
    kernel. A floating-point operand is rounded to an integer and must be below 2^24.
    """
    if not isinstance(x, TracedValue):
        raise EpilogueError(f"random bits need a value of the epilogue, got {x!r:.60}")
    word = constant(x.builder, offset, "u32") if isinstance(offset, int) else _unsigned(offset)
    counter = (index(x, "column"), index(x, "row"), index(x, "batch"), word)
    return philox4x32(counter, _key(x, seed))[0]


def _key(x: TracedValue, seed: Any) -> tuple[Any, Any]:
    if isinstance(seed, TracedValue):
        return _unsigned(seed), 0
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise EpilogueError(f"seed must be an integer below 2^64 or an operand, got {seed!r:.60}")
    return seed & _WORD, seed >> 32


def _unsigned(x: TracedValue) -> TracedValue:
    if x.dtype == "u32":
        return x
    return apply("bits", x if x.dtype == "s32" else apply("to_s32", x))


@static("p", "seed")
def dropout(x: Any, p: Any, seed: Any, offset: Any = 0) -> Any:
    """``x / (1 − p)`` with probability 1 − p, else 0. 73 operations, 84 for a seed
    that is an operand.

    An element is kept where ``random_bits(x, seed, offset) >= p·2^32``, so the gradient is
    ``dropout(dy, p, seed, offset)`` with the same seed and offset. Raises EpilogueError for a
    probability outside of 0 to 1.
    """
    if not isinstance(p, float | int) or not 0 <= p <= 1:
        raise EpilogueError(f"p must be a number from 0 to 1, got {p!r:.60}")
    if p == 0:
        return x
    if p == 1:
        return constant(x.builder, 0.0, "f32")
    kept = random_bits(x, seed, offset) >= min(round(p * 2**32), _WORD)
    return where(kept, x * (1 / (1 - p)), 0.0)
