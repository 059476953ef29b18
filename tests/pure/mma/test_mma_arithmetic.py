"""The tensor cores' arithmetic against a second derivation, in fractions, element by element."""

import struct
from fractions import Fraction

import numpy as np
import pytest

import hostile
from tilewright import mma
from tilewright.dtypes import dtype, encode
from tilewright.errors import DtypeError, LayoutError, TargetError, UnknownInstruction

FIELDS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23)}
FRACTION = {"sm_70": 23, "sm_75": 24, "sm_80": 24, "sm_89": 24, "sm_90a": 25, "sm_120": 25}
FUSED = {"sm_70": 4, "sm_75": 8, "sm_80": 8, "sm_89": 8, "sm_90a": 16, "sm_120": 16}
NAN, INF = "nan", "inf"


def number(name, bits):
    """(value as a fraction or NAN or INF, negative, exponent of the leading place)."""
    width, mantissa = FIELDS[name]
    top = 2**width - 1
    field, low = bits >> mantissa & top, bits & (2**mantissa - 1)
    negative = bool(bits >> (width + mantissa))
    if field == top:
        return (NAN if low else INF), negative, 0
    exponent = max(field, 1) - top // 2
    value = Fraction(low + (2**mantissa if field else 0), 2**mantissa) * Fraction(2) ** exponent
    return (-value if negative else value), negative, exponent


def product(x, y):
    (p, s, e), (q, t, f) = x, y
    if NAN in (p, q) or (INF in (p, q) and 0 in (p, q)):
        return NAN, s != t, 0
    return (INF if INF in (p, q) else p * q), s != t, e + f


def fused(terms, fraction):
    infinite = {negative for value, negative, _ in terms if value == INF}
    if any(value == NAN for value, _, _ in terms) or len(infinite) == 2:
        return NAN, False
    if infinite:
        return INF, infinite.pop()
    top = max([-133] + [e for value, _, e in terms if value])
    unit = Fraction(2) ** (top - fraction)
    total = sum(int(value / unit) for value, _, _ in terms) * unit  # int() cuts off toward zero
    return total, total < 0


def rounded(name, value, negative):
    if value == NAN:
        return 0x7FFF if name == "f16" else 0x7FFFFFFF
    if name == "f16":
        sign = negative << 15
        try:
            half = struct.pack("<e", abs(float(value)))  # a double holds the sum, or inf
            code = int.from_bytes(half, "little")
            return sign | code if code else 0  # an H200 gives no negative zero
        except OverflowError:
            return sign | 0x7C00
    sign = negative << 31
    if value == INF or abs(value) >= 2**128:
        return sign | 0x7F800000
    low, high = 0, 0x7F800000  # the largest bits whose number is not above
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if number("f32", middle)[0] <= abs(value) else (low, middle)
    return sign | low if low else 0


def reference(row, arch, a, b, c):
    """One element of D: a and b of K bits each, c bits."""
    step = FUSED[arch]
    for k in range(0, row.k, step):
        pairs = zip(a[k : k + step], b[k : k + step], strict=True)
        terms = [product(number(row.a, int(x)), number(row.b, int(y))) for x, y in pairs]
        c = rounded(row.d, *fused([*terms, number(row.c, int(c))], FRACTION[arch]))
    return c


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("kind", hostile.KINDS)
@pytest.mark.parametrize("row", [r for r in mma.ROWS if r.k == 16 or r.a == "f16"], ids=str)
def test_equals_the_fractions(row, kind, arch):
    a, b, c = hostile.tiles(row, kind, 3)
    d = mma.dot_accumulate(a, b, c, row, arch)
    assert d.dtype == dtype(row.d).storage
    rng = np.random.default_rng(2)
    for _ in range(40):
        t, m, n = rng.integers(3), rng.integers(row.m), rng.integers(row.n)
        expected = reference(row, arch, a[t, m], b[t, :, n], int(c[t, m, n]))
        assert int(d[t, m, n]) == expected, f"tile {t}, row {m}, column {n}"


@pytest.mark.parametrize("arch", FRACTION)
def test_the_facts_of_each_generation(arch):
    how = mma.arithmetic(mma.ROWS[1], arch)
    assert (how.facts.fraction, how.step) == (FRACTION[arch], FUSED[arch])


def bits(name, *values):
    return encode(name, np.array(values, dtype=float))


def tile(row, products, c):
    """One row times one column, the rest zero: bits of the first element of D."""
    a, b = np.zeros((row.m, row.k)), np.zeros((row.k, row.n))
    start = np.zeros((row.m, row.n))
    for k, (x, y) in enumerate(products):
        a[0, k], b[k, 0] = x, y
    start[0, 0] = c
    return encode(row.a, a), encode(row.b, b), encode(row.c, start)


F32 = mma.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
F16 = mma.instruction("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16")
BF16 = mma.instruction("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")


def first(row, products, c, arch):
    return int(mma.dot_accumulate(*tile(row, products, c), row, arch)[0, 0])


def test_hopper_keeps_one_bit_more_than_ampere():
    small = [(2.0**-12, 2.0**-13)] * 2  # two of 2^-25 beside 1 and −1: kept or lost
    terms = [(1.0, 1.0), (-1.0, 1.0), *small]
    assert first(F32, terms, 0.0, "sm_90a") == bits("f32", 2.0**-24)
    assert first(F32, terms, 0.0, "sm_80") == 0


def test_ampere_rounds_between_the_halves():
    terms = [(2.0**4, 1.0)] + [(0.0, 0.0)] * 7 + [(-(2.0**4), 1.0)]
    assert first(F32, terms, 2.0**-20, "sm_90a") == bits("f32", 2.0**-20)
    assert first(F32, terms, 2.0**-20, "sm_80") == 0


def test_output_is_cut_off_in_f32_and_nearest_in_f16():
    assert first(F32, [(1.0, 1.0)], 2.0**-24 * 1.5, "sm_90a") == bits("f32", 1.0)
    assert first(F16, [(1.0, 1.0)], 2.0**-11 * 1.5, "sm_90a") == bits("f16", 1 + 2.0**-10)
    assert first(F16, [(1.0, 1.0)], 2.0**-11, "sm_90a") == bits("f16", 1.0)  # half to even


def test_overflow_zero_and_specials():
    big = [(65504.0, 65504.0)] * 2
    assert first(F16, big, 0.0, "sm_90a") == 0x7C00
    huge = [(2.0**127, 1.5)]
    assert first(BF16, huge, 2.0**127, "sm_90a") == 0x7F800000
    assert first(BF16, huge, -(2.0**127), "sm_90a") == bits("f32", 2.0**126)
    assert first(F32, [(1.0, 1.0), (-1.0, 1.0)], -0.0, "sm_90a") == 0
    assert first(F32, [(np.inf, 1.0)], -np.inf, "sm_90a") == 0x7FFFFFFF
    assert first(F32, [(np.inf, 0.0)], 1.0, "sm_90a") == 0x7FFFFFFF
    assert first(F16, [(np.nan, 1.0)], 1.0, "sm_90a") == 0x7FFF
    assert first(F16, [(-np.inf, 1.0)], 1.0, "sm_90a") == 0xFC00


def test_subnormals_are_exact():
    least = 2.0**-24
    assert first(F32, [(least, least)], 0.0, "sm_90a") == bits("f32", 2.0**-48)
    assert first(F16, [(least, 1.0)], least, "sm_90a") == 2
    assert first(BF16, [(2.0**-75, 2.0**-74)], 0.0, "sm_90a") == 1


def test_call_takes_arrays_of_the_types_or_bits():
    a, b, c = hostile.tiles(F32, "random_normal", 2)
    d = F32(a, b, c)
    assert np.array_equal(d, mma.dot_accumulate(a, b, c, F32, "sm_90a"))
    typed = F32(a.view(np.float16), b.view(np.float16), c.view(np.float32))
    assert typed.dtype == np.float32
    assert np.array_equal(typed.view(np.uint32), d)
    exact = a.view(np.float16).astype(float) @ b.view(np.float16) + c.view(np.float32)
    np.testing.assert_allclose(typed, exact, atol=1e-5)
    with pytest.raises(DtypeError, match="float16 or its bits as uint16, not float64"):
        F32(a.astype(float), b, c)
    with pytest.raises(LayoutError, match=r"B of .* is \(16, 8\), not \(2, 8, 16\)"):
        F32(a, b.transpose(0, 2, 1), c)


@pytest.mark.parametrize("row", mma.ROWS, ids=str)
def test_registers_give_what_matrices_give(row):
    a, b, c = hostile.tiles(row, "near_one", 2)
    registers = [row.fragment(x).registers(y) for x, y in zip("abc", (a, b, c), strict=True)]
    d = row.execute(*registers)
    assert d.shape == (2, 32, row.fragment("d").count)
    assert np.array_equal(row.fragment("d").matrix(d), row(a, b, c))


def test_finding_rows():
    assert len(mma.catalogue()) == len(mma.ROWS) == 6
    assert {r.shape for r in mma.catalogue("sm_75")} == {"m16n8k8"}
    assert mma.catalogue(a="bf16", k=16) == (BF16,)
    assert mma.instruction(F32.opcode, "sm_80").arch == "sm_80"
    with pytest.raises(UnknownInstruction, match=r"m16n8k16\.row\.col\.f32\.f16\.f16\.f32"):
        mma.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f16")
    with pytest.raises(TargetError, match="needs sm_80, not sm_75"):
        mma.instruction(F32.opcode, "sm_75")
    with pytest.raises(TargetError, match="sm_60 has no tensor cores"):
        mma.generation("sm_60")
    with pytest.raises(TargetError, match="unknown target 'hopper'"):
        mma.generation("hopper")
