"""wgmma's descriptor: its 64 bits, and the addresses that it stands for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import LayoutError
from tilewright.mma import MatrixDescriptor
from tilewright.mma.matrix_descriptor import MAJORS, SWIZZLES

SIXTEENS = st.integers(0, (1 << 14) - 1).map(lambda n: 16 * n)
DESCRIPTORS = st.builds(
    MatrixDescriptor,
    SIXTEENS,
    SIXTEENS,
    SIXTEENS,
    st.sampled_from(sorted(SWIZZLES)),
    st.integers(0, 7),
)


@given(DESCRIPTORS)
def test_bits_and_fields_are_inverse(d):
    assert MatrixDescriptor.parse(d.bits) == d
    assert MatrixDescriptor.parse(d.bits | 1 << 14 | 1 << 63 >> 8) == d  # bits that mean nothing


def address(d, bits, row, column, major):
    """The manual's words: core matrices, then 16-byte pieces XORed with their row of 128 bytes."""
    byte, wide = column * bits // 8, d.swizzle or 16
    if major == "MN":
        byte, row = row * bits // 8, column
    along, across = d.leading, d.stride
    if major == "MN" and not d.swizzle:
        along, across = across, along
    at = d.start + row % 8 * wide + row // 8 * across + byte % wide + byte // wide * along
    mask = {0: 0, 32: 1, 64: 3, 128: 7}[d.swizzle]
    piece = at >> 4 ^ ((at >> 7) - d.base_offset & mask)
    return 8 * (piece << 4 | at & 15) + column * bits % 8 * (major == "K")


@given(DESCRIPTORS, st.sampled_from([(1, "K"), (8, "K"), (16, "K"), (32, "K"), (16, "MN")]))
def test_addresses_are_the_manuals(d, form):
    bits, major = form
    columns = 256 // bits
    for row_of in (8, 40):
        found = d.addresses(bits, row_of, columns, major)
        expected = [
            [address(d, bits, r, c, major) for c in range(0, columns, 5)] for r in range(row_of)
        ]
        assert np.array_equal(found[:, ::5], expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MatrixDescriptor("x"), "start must be a multiple of 16 below 262144, got 'x'"),
        (lambda: MatrixDescriptor(0, 8), "leading must be a multiple of 16 below 262144, got 8"),
        (
            lambda: MatrixDescriptor(0, 0, 1 << 18),
            "stride must be a multiple of 16 below 262144, got 262144",
        ),
        (
            lambda: MatrixDescriptor(0, swizzle=16),
            r"swizzle must be one of \[0, 32, 64, 128\] bytes, got 16",
        ),
        (lambda: MatrixDescriptor(0, base_offset=8), "base_offset must be 0 … 7, got 8"),
        (lambda: MatrixDescriptor.parse("a"), "a 64-bit integer, got 'a'"),
        (lambda: MatrixDescriptor.parse(-1), "a 64-bit integer, got -1"),
        (lambda: MatrixDescriptor(0).layout(16, 12, 16), "rows must be a multiple of 8, got 12"),
        (lambda: MatrixDescriptor(0).layout(16, 8, 12), "columns must be a multiple of 8, got 12"),
        (lambda: MatrixDescriptor(0).layout(16, 8, 0), "columns must be a multiple of 8, got 0"),
        (lambda: MatrixDescriptor(0).layout(4, 8, 64), "must have 1, 8, 16 or 32 bits, got 4"),
        (
            lambda: MatrixDescriptor(0).layout(8, 16, 32, "MN"),
            "MN-major elements of wgmma must have 16 bits, got 8",
        ),
        (lambda: MatrixDescriptor(0).layout(16, 8, 16, "N"), "major must be K or MN, got 'N'"),
        (
            lambda: MatrixDescriptor(0, swizzle=64).layout(16, 8, 40),
            "columns must be at most 32 or a multiple of it .*, got 40",
        ),
    ],
)
def test_wrong_arguments_are_rejected(make, message):
    with pytest.raises(LayoutError, match=message):
        make()


def test_a_layout_is_of_bits():
    d = MatrixDescriptor(0, leading=4096, stride=1024, swizzle=128)
    k, mn = (d.layout(16, 64, 128, major) for major in MAJORS)
    assert str(k) == "((8,8),(64,2)):((1024,8192),(16,32768))"
    assert str(mn) == "((64,1),(8,16)):((16,32768),(1024,8192))"
