"""Hostile numbers for random scalar programs: registers of 16, 32 and 64 bits, and predicates.

``sample`` gives some registers' values in all threads; each thread's are of another sort: NaNs,
infinities, ties, ends and powers of two of every format of the width, halves of such, small
integers, floats near 1, random bits. Some registers hold the same in all threads, or in most.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ptx_kernels.conversion_kernels import floats, integers
from references.hostile import Stream

THREADS = 32
FORMATS = {16: ("f16", "bf16"), 32: ("f32",), 64: ("f64",)}
FIELDS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}


@cache
def pool(width: int) -> list[int]:
    """Numbers that instructions may get wrong: NaNs, ends, ties, powers of two, small ones."""
    stream, made = Stream("pool", width), []
    for fmt in FORMATS[width]:
        made += floats(fmt, stream)
    made += integers(width, stream)
    made += [n % (1 << width) for n in (1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, -1, -2, -32)]
    return made


def sample(stream: Stream, width: int, count: int) -> np.ndarray:
    """(count, THREADS) values: of each thread another sort, or of all the same, but for a few."""
    shape = count, THREADS
    if width == 1:
        often = stream.integers(0, 4, (count, 1))
        return (stream.integers(0, 4, shape) <= often).astype(np.uint64)
    sorts = [_special(stream, width, shape), _random(stream, width, shape)]
    sorts += [_small(stream, width, shape), _special(stream, width, shape)]
    sorts += [_ordinary(stream, width, fmt, shape) for fmt in FORMATS[width]]
    if width > 16:
        low, high = (_special(stream, width // 2, shape) for _ in range(2))
        sorts.append(low | high << np.uint64(width // 2))
    which = stream.integers(0, len(sorts), (1, *shape))
    made = np.take_along_axis(np.stack(sorts), which, 0)[0]
    same = (stream.random((count, 1)) < 0.15) & (stream.random(shape) < 0.97)
    return np.where(same, made[:, :1], made)


def _special(stream: Stream, width: int, shape: tuple[int, ...]) -> np.ndarray:
    return stream.choice(np.array(pool(width), np.uint64), shape)


def _random(stream: Stream, width: int, shape: tuple[int, ...]) -> np.ndarray:
    return stream.words(int(np.prod(shape))).reshape(shape) >> np.uint64(64 - width)


def _small(stream: Stream, width: int, shape: tuple[int, ...]) -> np.ndarray:
    return stream.integers(-40, 260, shape).astype(np.uint64) & np.uint64((1 << width) - 1)


def _ordinary(stream: Stream, width: int, fmt: str, shape: tuple[int, ...]) -> np.ndarray:
    """Floats of a few neighbouring exponents around 1."""
    exponent, mantissa = FIELDS[fmt]
    field = (1 << exponent - 1) - 1 + stream.integers(-3, 4, shape)
    digits = _random(stream, mantissa, shape)
    sign = stream.integers(0, 2, shape).astype(np.uint64) << np.uint64(width - 1)
    return sign | field.astype(np.uint64) << np.uint64(mantissa) | digits
