"""The NumPy evaluator's floating point against rational numbers.

The law of rounding is checked on the result alone: which neighbours it has, and on which side of
them the exact number lies. Nothing here shares the evaluator's way of computing.
"""

from __future__ import annotations

import math
import operator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.dtypes import DType, dtype
from tilewright.errors import DtypeError
from tilewright.vm.step.numpy_primitives import LANES, NumpyValues

pytestmark = pytest.mark.vm

M = NumpyValues()
FORMATS = ("f16", "bf16", "f32", "f64")
MODES = ("rn", "rz", "rm", "rp", "rna")
few = settings(max_examples=12, deadline=None)
formats, modes, seeds = st.sampled_from(FORMATS), st.sampled_from(MODES), st.integers(0, 2**32 - 1)


def lanes(fmt: str, rng: np.random.Generator) -> np.ndarray:
    """Bits that meet one another: any, near one, near the extremes, and the special ones."""
    row = dtype(fmt)
    top, one = 1 << (row.bits - 1), row.bias << row.mantissa
    inf = row.max_finite + 1
    edges = [0, 1, 2, one, one - 1, one + 1, 1 << row.mantissa, (1 << row.mantissa) - 1]
    edges += [row.max_finite, row.max_finite - 1, inf, inf + 1, row.nan]
    made = []
    for kind in rng.integers(0, 5, LANES):
        bits = int.from_bytes(rng.bytes(row.bits // 8))
        near = one + (int(rng.integers(-4, 4)) << row.mantissa) | bits % (1 << row.mantissa)
        small = bits % (4 << row.mantissa)
        large = row.max_finite - bits % (2 << row.mantissa)
        edge = edges[rng.integers(len(edges))]
        made.append((bits, near | bits & top, small | bits & top, large, edge | bits & top)[kind])
    return np.array(made, dtype=object).astype(row.storage)


def number(row: DType, bits: int) -> Fraction | float:
    """What bits mean: a Fraction, or a float that is infinite or not a number."""
    sign, code = bits >> (row.bits - 1), bits & ((1 << (row.bits - 1)) - 1)
    field, mantissa = code >> row.mantissa, code & ((1 << row.mantissa) - 1)
    if field == (1 << row.exponent) - 1:
        return math.nan if mantissa else -math.inf if sign else math.inf
    hidden = (1 << row.mantissa) if field else 0
    size = (mantissa + hidden) * Fraction(2) ** (max(field, 1) - row.bias - row.mantissa)
    return -size if sign else size


def is_rounded(row: DType, exact: Fraction, bits: int, rnd: str) -> bool:
    """Whether bits are the exact number (not zero) rounded: the law of each mode."""
    sign, code = bits >> (row.bits - 1), bits & ((1 << (row.bits - 1)) - 1)
    if sign != (exact < 0):
        return False
    size, infinity = abs(exact), row.max_finite + 1
    directed = {"rm": "rp" if sign else "rz", "rp": "rz" if sign else "rp"}.get(rnd, rnd)
    low, here, high = (_size(row, c) for c in (code - 1, code, code + 1))
    if directed == "rz":
        return here <= size and (size < high or code == row.max_finite) and code < infinity
    if directed == "rp":
        return low < size and (size <= here or code == infinity)
    above, below = size - (low + here) / 2, (here + high) / 2 - size
    if code == infinity:
        below = Fraction(1)
    tie = code % 2 == 0 if directed == "rn" else None
    return (above > 0 or (above == 0 and tie is not False)) and (
        below > 0 or (below == 0 and tie is True)
    )


def _size(row: DType, code: int) -> Fraction:
    """The magnitude of a code; infinity counts as the next step after the largest."""
    field, mantissa = code >> row.mantissa, code & ((1 << row.mantissa) - 1)
    if code < 0:
        return Fraction(-1)
    hidden = (1 << row.mantissa) if field else 0
    return (mantissa + hidden) * Fraction(2) ** (max(field, 1) - row.bias - row.mantissa)


def agree(fmt: str, got: np.ndarray, expected: list, rnd: str, zeros: list[int]) -> None:
    """Each lane's bits are its number rounded; ``zeros`` are the signs of exact zeros."""
    row = dtype(fmt)
    assert got.dtype == row.storage
    for bits, want, zero in zip(map(int, got), expected, zeros, strict=True):
        if isinstance(want, Fraction) and want:
            assert is_rounded(row, want, bits, rnd), (hex(bits), want)
        elif isinstance(want, Fraction):
            assert bits == zero << (row.bits - 1)
        elif math.isnan(want):
            assert bits == row.nan
        else:
            assert bits == (row.max_finite + 1) | (want < 0) << (row.bits - 1)


def multiply(x, y):
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x * y
    if math.isnan(x) or math.isnan(y) or not x or not y:
        return math.nan
    return math.inf if (x < 0) == (y < 0) else -math.inf


def plus(x, y):
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x + y
    return sum(v for v in (x, y) if isinstance(v, float))


def divide(x, y, sign: int):
    if isinstance(x, Fraction) and isinstance(y, Fraction) and y:
        return x / y
    if math.isnan(x) or math.isnan(y) or (not x and not y):
        return math.nan
    if isinstance(y, float):
        return math.nan if isinstance(x, float) else Fraction(0)
    return -math.inf if sign else math.inf


def sign_of_sum(signs: tuple[int, int], rnd: str) -> int:
    return signs[0] if signs[0] == signs[1] else int(rnd == "rm")


def read(fmt: str, *values: np.ndarray) -> list[tuple]:
    row = dtype(fmt)
    return [tuple(number(row, int(b)) for b in bits) for bits in zip(*values, strict=True)]


def signs(fmt: str, *values: np.ndarray) -> list[tuple[int, ...]]:
    top = dtype(fmt).bits - 1
    return [tuple(int(b) >> top for b in bits) for bits in zip(*values, strict=True)]


@few
@given(formats, modes, seeds)
def test_add_multiply_divide(fmt: str, rnd: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = lanes(fmt, rng), lanes(fmt, rng)
    pairs, sign = read(fmt, a, b), signs(fmt, a, b)
    different = [s ^ t for s, t in sign]
    sums = [sign_of_sum(s, rnd) for s in sign]
    agree(fmt, M.fadd(fmt, a, b, rnd), [plus(x, y) for x, y in pairs], rnd, sums)
    agree(fmt, M.fmul(fmt, a, b, rnd), [multiply(x, y) for x, y in pairs], rnd, different)
    quotients = [divide(x, y, d) for (x, y), d in zip(pairs, different, strict=True)]
    agree(fmt, M.fdiv(fmt, a, b, rnd), quotients, rnd, different)


@few
@given(formats, modes, seeds)
def test_fma_rounds_once(fmt: str, rnd: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b, c = (lanes(fmt, rng) for _ in range(3))
    c[:8] = M.fmul(fmt, a, b, "rz")[:8] ^ dtype(fmt).storage.type(1 << (dtype(fmt).bits - 1))
    zeros = [sign_of_sum((s ^ t, u), rnd) for s, t, u in signs(fmt, a, b, c)]
    expected = [plus(multiply(x, y), z) for x, y, z in read(fmt, a, b, c)]
    agree(fmt, M.fma(fmt, a, b, c, rnd), expected, rnd, zeros)


@pytest.mark.parametrize("fmt", FORMATS)
def test_overflowing_product_plus_infinity(fmt: str) -> None:
    row = dtype(fmt)
    large = M.const(row.bits, row.max_finite)
    minus_inf = M.const(row.bits, (row.max_finite + 1) | 1 << (row.bits - 1))
    assert np.array_equal(M.fma(fmt, large, large, minus_inf), minus_inf)


@few
@given(formats, modes, seeds)
def test_square_root(fmt: str, rnd: str, seed: int) -> None:
    row = dtype(fmt)
    a = lanes(fmt, np.random.default_rng(seed))
    for bits, got in zip(map(int, a), map(int, M.fsqrt(fmt, a, rnd)), strict=True):
        x, top = number(row, bits), 1 << (row.bits - 1)
        if isinstance(x, Fraction) and x > 0:
            root = math.isqrt(int(x * Fraction(4) ** 1300)) if x else 0  # far below any half ulp
            above = Fraction(2 * root + (root * root != x * 4**1300)) / Fraction(2) ** 1301
            assert is_rounded(row, above, got, rnd), (hex(bits), hex(got))
        else:
            assert got == (bits if bits in (0, top, row.max_finite + 1) else row.nan)


@pytest.mark.parametrize("fmt", ["f32", "f64"])
@given(seed=seeds)
@few
def test_exact_arithmetic_agrees_with_numpy(fmt: str, seed: int) -> None:
    """``rn`` of f32 and f64 is NumPy's; the way of the other modes gives the same."""
    rng = np.random.default_rng(seed)
    a, b = lanes(fmt, rng), lanes(fmt, rng)
    row = dtype(fmt)
    one = M.const(row.bits, row.bias << row.mantissa)
    minus_zero = M.const(row.bits, 1 << row.bits - 1)
    assert np.array_equal(M.fma(fmt, a, one, b), M.fadd(fmt, a, b))
    product = M.fma(fmt, a, b, minus_zero)
    assert np.array_equal(product | minus_zero, M.fmul(fmt, a, b) | minus_zero)


CONVERSIONS = [(s, d) for s in FORMATS for d in (*FORMATS, "tf32", "e4m3", "e5m2") if s != d]


@few
@given(st.sampled_from(CONVERSIONS), modes, seeds)
def test_conversions(pair: tuple[str, str], rnd: str, seed: int) -> None:
    source, dest = pair
    to = dtype(dest)
    a = lanes(source, np.random.default_rng(seed))
    got = M.fcvt(source, dest, a, rnd)
    assert got.dtype == to.storage
    for bits, made in zip(map(int, a), map(int, got), strict=True):
        x, sign = number(dtype(source), bits), bits >> (dtype(source).bits - 1)
        if isinstance(x, float) or made == to.nan:
            inf = to.max_finite + 1 << to.unused | sign << (to.bits - 1)
            no_inf = not isinstance(x, float) and not to.has_inf and abs(x) > 448
            assert made == (to.nan if x != x or not to.has_inf else inf) or no_inf
        elif x:
            bare = DType("", "float", to.bits - to.unused, to.exponent, to.mantissa, to.bias,
                         to.has_inf, to.has_nan)  # fmt: skip
            assert is_rounded(bare, x, made >> to.unused, rnd), (hex(bits), hex(made))
            assert made % (1 << to.unused) == 0
        else:
            assert made == sign << (to.bits - 1)


def test_infinity_becomes_nan_where_a_format_has_none() -> None:
    for bits in (0x7F800000, 0xFF800000, 0x7FC00000, 0x43F00000):  # ±inf, a NaN, 480
        assert M.fcvt("f32", "e4m3", M.const(32, bits))[0] == 0x7F
    assert M.fcvt("f32", "e4m3", M.const(32, 0x43F00000), "rz")[0] == 0x7E


WHOLE = {
    "rn": round,
    "rz": math.trunc,
    "rm": math.floor,
    "rp": math.ceil,
    "rna": lambda x: math.floor(abs(x) + Fraction(1, 2)) * (1 if x > 0 else -1),
}


@few
@given(formats, modes, seeds, st.sampled_from([8, 16, 32, 64]), st.booleans())
def test_to_integers(fmt: str, rnd: str, seed: int, width: int, sign: bool) -> None:
    rng = np.random.default_rng(seed)
    row = dtype(fmt)
    a = lanes(fmt, rng)
    halves = M.i2f(rng.integers(0, 600, LANES, dtype=np.uint16), False, fmt)
    half = M.const(row.bits, (row.bias - 1) << row.mantissa)
    a[::2] = M.fmul(fmt, halves, half)[::2] ^ a[::2] & row.storage.type(1 << (row.bits - 1))
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if sign else (0, (1 << width) - 1)
    got, whole = M.f2i(fmt, a, width, sign, rnd), M.frint(fmt, a, rnd)
    for bits, made, near in zip(map(int, a), map(int, got), map(int, whole), strict=True):
        x, top = number(row, bits), 1 << (row.bits - 1)
        if x != x:
            assert (made, near) == (0, row.nan)
        elif isinstance(x, float):
            assert made == (high if x > 0 else low) % 2**width and near == bits
        else:
            n = WHOLE[rnd](x)
            assert made == min(max(n, low), high) % 2**width
            assert number(row, near) == n and near & top == bits & top


@few
@given(formats, modes, seeds, st.sampled_from([8, 16, 32, 64]), st.booleans())
def test_from_integers(fmt: str, rnd: str, seed: int, width: int, sign: bool) -> None:
    rng = np.random.default_rng(seed)
    raw = [int.from_bytes(rng.bytes(width // 8)) >> int(rng.integers(width)) for _ in range(LANES)]
    a = M.trunc(np.array([*raw[:-3], 0, 2**width - 1, 1 << width - 1], np.uint64), width)
    ints = [int(x) - (int(x) >> width - 1 << width) * sign for x in a]
    expected = [Fraction(x) for x in ints]
    agree(fmt, M.i2f(a, sign, fmt, rnd), expected, rnd, [0] * LANES)


@few
@given(formats, seeds)
def test_comparisons(fmt: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = lanes(fmt, rng), lanes(fmt, rng)
    b[:6] = a[:6]
    pairs = read(fmt, a, b)
    nan = [x != x or y != y for x, y in pairs]
    assert list(M.fcmp(fmt, "nan", a, b)) == nan
    assert list(M.fcmp(fmt, "num", a, b)) == [not n for n in nan]
    for op in ("eq", "ne", "lt", "le", "gt", "ge"):
        holds = [getattr(operator, op)(x, y) for x, y in pairs]
        holds = [h and not n for h, n in zip(holds, nan, strict=True)]
        assert list(M.fcmp(fmt, op, a, b)) == holds
        unordered = [h or n for h, n in zip(holds, nan, strict=True)]
        assert list(M.fcmp(fmt, op + "u", a, b)) == unordered


def f32(x: float) -> int:
    return int(np.float32(x).view(np.uint32))


@pytest.mark.parametrize(
    ("name", "x", "want"),
    [
        ("rcp", 4.0, 0.25),
        ("rcp", -0.0, -math.inf),
        ("rcp", 1e-40, math.inf),  # a subnormal is a zero
        ("rcp", 3e38, 0.0),  # and so is what would be one
        ("rsqrt", 0.25, 2.0),
        ("sqrt", 2.25, 1.5),
        ("ex2", -3.0, 0.125),
        ("lg2", 0.0, -math.inf),
        ("sin", -1e-40, -0.0),
        ("tanh", 1e-40, 1e-40),
        ("cos", 0.0, 1.0),
        ("tanh", -math.inf, -1.0),
    ],
)
def test_approximations(name: str, x: float, want: float) -> None:
    assert int(M.approx(name, M.const(32, f32(x)))[0]) == f32(want)


def test_an_unknown_rounding_is_an_error() -> None:
    with pytest.raises(DtypeError, match="unknown rounding mode 'up'"):
        M.frint("f32", M.const(32, 0), "up")
    with pytest.raises(DtypeError, match="unknown rounding mode 'up'"):
        M.fadd("f32", M.const(32, 0), M.const(32, 0), "up")
