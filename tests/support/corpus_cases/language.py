"""The corpus's table: what the language has; calls of functions."""

from __future__ import annotations

from math import factorial

import numpy as np

from corpus_cases.table import Gives, case, whole

LANGUAGE = ("language", "language_debug")


def each(x, function, dtype=np.int32):
    """Gives function(t, x[t]) of each thread, wrapped as int."""
    values = [function(t, int(v)) % 2**32 for t, v in enumerate(x)]
    return [x, Gives(np.array(values, np.uint32).view(dtype))]


# --- language ---


@case(*LANGUAGE, grid=1, block=64)
def switches(rng):
    x = whole(rng, 64, low=-1, high=9)
    x[5] = 1000

    def one(t: int, v: int) -> int:
        known = {0: 11, 1: v * 5 + t, 2: 102, 3: 103, 4: v << t % 8, 5: -v, 6: t // 3, 7: t % 5}
        return {**known, 1000: 1}.get(v, 7777)

    return each(x, one)


@case(*LANGUAGE, grid=1, block=64)
def local_arrays(rng):
    def one(t: int, v: int) -> int:
        digits = np.base_repr(v, 3) if v else ""
        value = 5381
        for d in digits[:16]:
            value = (value * 33 ^ ord(d)) % 2**32
        return value + (int(digits[::-1][t % len(digits)]) if digits else 0)

    return each(whole(rng, 64, low=0, high=100_000), one)


@case(*LANGUAGE, grid=1, block=64)
def uneven_loops(rng):
    def one(t: int, v: int) -> int:
        total = 0
        for i in range(v):
            j = 0 if i % 3 == t % 3 else i
            while j > 0:
                if j & t == 5:
                    return total
                total, j = total + j, j // 2
            if i % 3 != t % 3 and total > 1000:
                break
        return 2 * total

    return each(whole(rng, 64, low=0, high=60), one)


@case(*LANGUAGE, grid=1, block=64)
def early_exit(rng):
    def one(t: int, v: int) -> int:
        return v + sum(k % 2 for k in range(t + 1, 64)) if v >= 0 else 0

    return each(whole(rng, 64), one)


@case(
    *LANGUAGE,
    grid=1,
    block=16,
    says="3 of 16:  0.25 low 369d0369d01 d%\n11 of 16: -1.50 high c83fb72ea59 l%\n",
)
def prints():
    x = np.zeros(16)
    x[3], x[11] = 0.25, -1.5
    return [x]


@case(
    *LANGUAGE, grid=1, block=32, fails=r"thread: \[9,0,0\] Assertion `x\[threadIdx.x\] != 7` failed"
)
def asserts():
    return [np.arange(32, dtype=np.int32) - 2]


@case(*LANGUAGE, grid=1, block=32, fails="trap")
def traps():
    return [np.arange(32, dtype=np.int32)]


@case(*LANGUAGE, grid=1, block=64)
def clocks():
    lanes = np.arange(64, dtype=np.uint32)
    return [Gives(np.full(64, 3)), Gives(lanes % 32 + lanes // 32 * 100)]


@case(*LANGUAGE, grid=1, block=32)
def operators():
    a = np.array([[1, 2], [-1, 1]], np.float32)
    powers = [np.linalg.matrix_power(a, 3 + t % 4) for t in range(32)]
    return [a.tobytes(), 3, Gives(np.array(powers))]


@case(*LANGUAGE, grid=1, block=64)
def templates():
    t = np.arange(64, dtype=np.int32)
    return [Gives(6765 + (1 + t) + (2 + t) + (2 + t))]


@case(*LANGUAGE, grid=2, block=1)
def volatiles():
    return [Gives(np.array([43, 42], np.int32))]


# --- calls ---


def gcd(a: int, b: int) -> int:
    return int(np.gcd(a, b))


@case("calls", grid=1, block=64)
def direct(rng):
    x = whole(rng, 64, low=1, high=100)
    pairs, y = np.zeros(64, [("low", "i4"), ("high", "i4"), ("real", "f8")]), x.copy()
    for t, a in enumerate(x.tolist()):
        y[t] = a = gcd(a, 36) * 10 + (gcd(t, 12) + 1 if t > 3 else t) if t % 2 else a
        low, high, real = 1, 2, 3.0
        for _ in range(t % 4):
            low, high, real = high, a + low, real / 2
        pairs[t] = (*sorted((low, high)), real)
    return [x, Gives(y), Gives(pairs)]


@case("pointers", grid=1, block=64)
def pointers(rng):
    x, t = whole(rng, 64, low=0, high=3), np.arange(64, dtype=np.int32)
    return [x, Gives(np.choose(x, [2 * t, t * t, t - 1]))]


@case("pointers", grid=1, block=64)
def virtuals():
    t = np.arange(64, dtype=np.float32)
    return [Gives(np.where(t % 3, t * t + 3 * t, 2 * t * t))]


@case("calls", grid=1, block=32)
def recursive():
    return [Gives(2 * (np.arange(32, dtype=np.int32) % 5) + 3)]


@case("calls", kernel="sorted", grid=1, block=32)
def quicksorts(rng):
    x = whole(rng, 32, 20, low=-50, high=50)
    return [20, Gives(np.sort(x), x)]


# --- linked modules ---


@case("linked", linked=("parts",), grid=1, block=64)
def linked():
    t = np.arange(64, dtype=np.int32)
    sums = 2 * t + 7 + 10 * (t % 4 + 1) + t + 3 + 1000 * t + [factorial(n % 6) for n in t]
    return [Gives(sums.astype(np.int32)), Gives(np.full(64, 2.5 * 6 + 64, np.float32))]


@case("parts", linked=("linked",), grid=1, block=64)
def part():
    return [Gives(np.array([factorial(t % 5 + 1) for t in range(64)], np.int32))]


# --- what the driver gives ---


@case("system", grid=3, block=64)
def grid_sync():
    t = np.arange(192, dtype=np.int32)
    sums = sum(i + (t + 33 * i) % 192 for i in range(4))
    return [np.zeros(192, np.int32), Gives(sums), 4]


@case("system", grid=2, block=48)
def lists():
    def one(t: int) -> int:
        total = 0
        for i in reversed(range(t % 7)):
            total = 3 * total + (i if (i + t) % 2 else 2 * i + 2)
        return total

    return [Gives(np.array([one(t) for t in range(96)], np.int32))]


@case("system", grid=1, block=40)
def spin():
    return [Gives(np.ones(40, np.int32))]
