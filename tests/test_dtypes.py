"""Number formats: bits → number → bits is the identity, and rounding agrees with others."""

import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.bit_packing import pack, unpack
from tilewright.dtypes import DTYPES, dtype, from_numpy
from tilewright.errors import DtypeError
from tilewright.number_conversion import decode, decompose, encode, is_inf, is_nan, round_to

FLOATS = [t for t in DTYPES.values() if t.kind == "float"]
SMALL = [t for t in FLOATS if t.bits <= 16]


def every_code(t):
    count = 1 << (t.exponent + t.mantissa + t.signed)
    return np.arange(count).astype(t.storage)


@pytest.mark.parametrize("t", SMALL, ids=str)
def test_every_small_number_comes_back(t):
    codes = every_code(t)
    codes = codes[~is_nan(t, codes)]
    for rounding in ("rn", "rz", "rm", "rp", "rna"):
        assert np.array_equal(encode(t, decode(t, codes), rounding), codes)


@pytest.mark.parametrize("t", [t for t in SMALL if t.name != "ue4m3"], ids=str)
def test_decode_agrees_with_numpy_and_ml_dtypes(t):
    codes = every_code(t)
    with np.errstate(invalid="ignore"):
        theirs = codes.astype(t.storage).view(t.numpy).astype(np.float64)
    np.testing.assert_array_equal(decode(t, codes), theirs)
    assert np.array_equal(np.signbit(decode(t, codes[:1])), np.signbit(theirs[:1]))


@pytest.mark.parametrize("name", ["f16", "bf16", "e4m3", "e5m2", "f32"])
def test_nearest_even_agrees_with_numpy_and_ml_dtypes(name):
    t = dtype(name)
    rng = np.random.default_rng(0)
    spread = np.ldexp(rng.standard_normal(20_000), rng.integers(-160, 135, 20_000))
    neighbours = decode(t, np.sort(rng.integers(0, 1 << t.bits, 4000)))
    with np.errstate(invalid="ignore", over="ignore"):
        halves = (neighbours[1:] + neighbours[:-1]) / 2
        values = np.concatenate([spread, neighbours, halves])
        if t.bits < 32:  # ml_dtypes goes through f32
            values = values.astype(np.float32).astype(np.float64)
        theirs = values.astype(t.numpy)
        ours = encode(t, values).view(t.numpy)
        np.testing.assert_array_equal(ours.astype(np.float64), theirs.astype(np.float64))
    assert np.array_equal(np.signbit(ours)[values == 0], np.signbit(theirs)[values == 0])


def neighbours(t):
    """The finite magnitudes of a format as fractions, in order."""
    codes = np.arange(t.max_finite + 1, dtype=np.uint64) << np.uint64(t.unused)
    return [Fraction(float(v)) for v in decode(t, codes)]


@given(
    name=st.sampled_from(["e2m1", "e3m2", "e2m3", "e4m3", "e5m2", "ue4m3"]),
    significand=st.integers(0, 2**64 - 1),
    exponent=st.integers(-90, 20),
    negative=st.booleans(),
    rounding=st.sampled_from(["rn", "rz", "rm", "rp", "rna"]),
)
def test_rounding_is_that_of_exact_fractions(name, significand, exponent, negative, rounding):
    t = dtype(name)
    grid = neighbours(t)
    exact = Fraction(significand) * Fraction(2) ** exponent
    code = int(round_to(t, negative, np.uint64(significand), exponent, rounding, "max"))
    sign, magnitude = divmod(code, 1 << (t.exponent + t.mantissa))
    got = grid[magnitude]
    assert sign == (negative and t.signed)
    if exact >= grid[-1]:
        assert got == grid[-1]
        return
    low = max(i for i, v in enumerate(grid) if v <= exact)
    below, above = exact - grid[low], grid[low + 1] - exact
    up = {
        "rn": below > above or (below == above and low % 2 == 1),
        "rna": below >= above,
        "rz": False,
        "rm": negative,
        "rp": not negative,
    }[rounding]
    assert got == grid[low + (up and below != 0)]


def test_a_number_far_below_the_last_bit_is_less_than_half_of_it():
    whole = np.uint64(2**64 - 1)
    far = [int(round_to("f16", False, whole, e, "rn")) for e in (-88, -89, -90, -500)]
    assert far == [1, 0, 0, 0]
    tie = np.uint64(2**63)  # half of the least subnormal
    assert [int(round_to("f16", False, tie, -88, r)) for r in ("rn", "rna", "rp", "rz")] == [
        0, 1, 1, 0,
    ]  # fmt: skip
    assert int(round_to("f16", False, np.uint64(1), -500, "rp")) == 1


@given(st.floats(width=64, allow_nan=False))
def test_double_keeps_every_bit(x):
    bits = struct.unpack("<Q", struct.pack("<d", x))[0]
    assert int(encode("f64", x)) == bits
    negative, significand, exponent = decompose("f64", bits)
    if not np.isinf(x):
        number = Fraction(int(significand)) * Fraction(2) ** int(exponent)
        assert (-number if negative else number) == Fraction(x)


def test_infinity_nan_and_overflow():
    inf, nan = np.inf, np.nan
    assert [hex(v) for v in encode("f16", [inf, -inf, nan, 65520.0, 65519.9])] == [
        "0x7c00", "0xfc00", "0x7fff", "0x7c00", "0x7bff",
    ]  # fmt: skip
    assert list(encode("f16", [1e6, -1e6], "rz")) == [0x7BFF, 0xFBFF]
    assert list(encode("f16", [1e6, -1e6], "rp")) == [0x7C00, 0xFBFF]
    assert list(encode("f16", [1e6, -1e6], "rm")) == [0x7BFF, 0xFC00]
    assert list(encode("e4m3", [1e6, -inf], satfinite=True)) == [0x7E, 0xFE]
    assert list(encode("e4m3", [1e6, nan])) == [0x7F, 0x7F]
    assert list(encode("e2m1", [1e6, -9.0, nan])) == [7, 15, 7]
    assert encode("f32", nan) == 0x7FFFFFFF
    assert encode("tf32", 1 + 2**-11, "rna") == 0x3F802000
    assert list(encode("ue8m0", [0.0, 1.5, 2.0**-140, nan], "rp")) == [0, 128, 0, 255]


def test_tf32_ignores_its_low_bits():
    assert decode("tf32", 0x3F801FFF) == 1.0
    assert not is_nan("tf32", 0x7F800001)
    assert is_inf("tf32", 0x7F800001)


def test_integers():
    assert list(decode("s4", [7, 8, 15])) == [7, -8, -1]
    assert list(encode("s8", [127, 128, -129])) == [127, 128, 127]
    assert list(encode("s8", [127, 128, -129], satfinite=True)) == [127, 127, 128]
    assert list(encode("u8", [2.5, -3.0, 300.0, np.nan, 3.5])) == [2, 0, 255, 0, 4]
    assert list(encode("s64", [1e30, -1e30])) == [2**63 - 1, 2**63]
    assert encode("f32", 2**24 + 1) == 0x4B800000
    assert encode("f64", -(2**53) + 1) == encode("f64", -(2.0**53) + 1)


@pytest.mark.parametrize("name", ["b1", "s4", "e3m2", "e4m3", "bf16", "f32", "f64"])
def test_packing_comes_back(name):
    t = dtype(name)
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 2**64 - 1, (3, 64), np.uint64) >> np.uint64(64 - t.bits)
    codes = codes.astype(t.storage)
    words = pack(t, codes)
    assert words.dtype == np.uint32
    assert words.shape == (3, 64 * t.bits // 32)
    assert np.array_equal(unpack(t, words), codes)


def test_the_first_value_is_the_lowest():
    assert list(pack("f16", [0x1111, 0x2222])) == [0x22221111]
    assert list(pack("s4", [1, 2, 3, 4, 5, 6, 7, 8])) == [0x87654321]
    assert encode("f16x2", [1.0, 2.0]) == 0x40003C00
    assert list(decode("e2m1x2", 0x21)) == [0.5, 1.0]


def test_names():
    assert dtype(".f16") is dtype("f16")
    assert dtype("bf16").ptx == ".bf16"
    assert all(from_numpy(t.numpy) is t for t in (dtype("bf16"), dtype("e4m3"), dtype("u4")))
    with pytest.raises(DtypeError, match=r"unknown number format 'f17'; known are pred, b1.*"):
        dtype("f17")
    with pytest.raises(DtypeError, match="complex64"):
        from_numpy(np.complex64)
    with pytest.raises(DtypeError, match="rn, rz"):
        encode("f16", 1.0, "up")
    with pytest.raises(DtypeError, match="do not fill"):
        pack("f16", [1])
    with pytest.raises(DtypeError, match="not a floating-point format"):
        decompose("s8", 1)
