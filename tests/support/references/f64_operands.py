"""f64 operands of middling size, which are rounded otherwise than to nearest by the error of that
(``vm/llvm/directed_rounding.py``), and which try to break it.
"""

from __future__ import annotations

import numpy as np

from tilewright.vm.llvm.directed_rounding import LEAST, MOST

COUNT = 32 * 150
COUNTS = {"fadd": 2, "fmul": 2, "fdiv": 2, "fma": 3, "fsqrt": 1}  # operands
FLOAT = np.float64


def mid_range(rng: np.random.Generator, count: int) -> np.ndarray:
    """Any significands, many of them short, of any exponent in range; its ends too."""
    length = rng.choice([1, 2, 12, 26, 27, 53], count)
    ones = np.floor(rng.random(count) * 2.0**length) + 2.0**length
    low, high = rng.choice([(LEAST, MOST), (-2, 2), (-60, 60)], count).T
    exponents = (low + np.floor(rng.random(count) * (high - low))).astype(int)
    values = np.ldexp(ones, exponents - length)
    ends = rng.random(count)
    values[ends < 0.05] = 2.0**LEAST
    values[ends > 0.95] = np.nextafter(2.0**MOST, 0)
    return values * rng.choice([-1, 1], count)


def steps(rng: np.random.Generator, a: np.ndarray) -> np.ndarray:
    """The same, or a few units off."""
    return (a.view(np.int64) + rng.integers(-2, 3, len(a))).view(FLOAT)


def operands(op: str, rng: np.random.Generator) -> list[np.ndarray]:
    """Random ones; then such that the result is exact, a tie, or nothing is left of it; zeros."""
    a, b, c = (mid_range(rng, COUNT) for _ in range(3))
    related = slice(0, COUNT, 2)
    if op == "fadd":
        scale = 2.0 ** rng.choice([0, 0, -52, -53, -54, -106], COUNT)
        b[related] = steps(rng, -a * scale)[related]
    elif op == "fma":
        scale = 2.0 ** rng.choice([0, 0, 1, -53, -54, 53, 54, -106], COUNT)
        c[related] = steps(rng, -a * b * scale)[related]
    elif op == "fdiv":
        a[related] = steps(rng, a * b)[related]
        a[np.abs(a) > 2.0**MOST] = 1.0
        a[np.abs(a) < 2.0**LEAST] = -3.0
    elif op == "fsqrt":
        a = np.abs(a)
        root = np.sqrt(a)
        a[related] = steps(rng, root * root)[related]
        a = np.clip(a, 2.0**LEAST, np.nextafter(2.0**MOST, 0))
    given = [a, b, c][: COUNTS[op]]
    for i, x in enumerate(given):
        if (op, i) != ("fdiv", 1):
            zeros = rng.random(COUNT) < 0.03
            x[zeros] = rng.choice([0.0, -0.0], zeros.sum())
    return [np.ascontiguousarray(x).view(np.uint64) for x in given]
