"""Layouts in shared memory: what a derived descriptor gathers is the tile that was laid out.

``test_tiled_reference`` compares atoms, layouts and descriptors with CuTe's.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from rows import every_row
from tilewright.dtypes import dtype
from tilewright.errors import DtypeError, LayoutError
from tilewright.layout import (
    ComposedLayout,
    Layout,
    Swizzle,
    Tensor,
    coalesce,
    make_identity_layout,
    make_layout,
    zipped_divide,
)
from tilewright.mma import (
    MatrixDescriptor,
    MmaAtom,
    TiledMma,
    make_descriptor,
    make_descriptor_tensor,
    make_smem_layout,
    make_smem_layout_atom,
    smem_selector,
)

TYPES = {"b1": 256, "e4m3": 32, "s8": 32, "f16": 16, "bf16": 16, "tf32": 8}  # type: K of wgmma
WIDTHS = [1, 2, 4, 8, 16, 32, 64]
SWIZZLES = [0, 32, 64, 128]


@every_row("major", ["K", "MN"])
@every_row("swizzle", SWIZZLES)
@every_row("bits", WIDTHS)
def test_an_atom_keeps_columns_of_pieces_apart(major, swizzle, bits):
    """Eight rows at the same 16 bytes lie in different groups of banks, as many as rows cover."""
    atom = make_smem_layout_atom(f"b{bits}" if bits < 64 else "f64", major, swizzle)
    along = 1 if major == "K" else 0
    assert atom.size(along) * bits == 8 * (swizzle or 16)
    assert sorted(atom.indices()) == list(range(8 * (swizzle or 16) * 8 // bits))
    per = 128 // bits
    for first in range(0, atom.size(along), per):
        crds = [(row, first) if major == "K" else (first, row) for row in range(8)]
        byte = [atom(crd) * bits // 8 for crd in crds]
        assert len({b // 16 % 8 for b in byte}) == 8  # all 128 bytes of the banks are hit once
        assert all(b % 16 == 0 for b in byte)


@st.composite
def laid_out(draw):
    """(type, major, swizzle, whole layout, tile of one instruction)"""
    type_ = draw(st.sampled_from(sorted(TYPES)))
    bits, k = dtype(type_).bits, TYPES[type_]
    major = draw(st.sampled_from(["K", "MN"])) if bits == 16 else "K"
    swizzle = draw(st.sampled_from(SWIZZLES))
    atom = make_smem_layout_atom(type_, major, swizzle)
    rows = draw(st.sampled_from([8, 24, 64, 96, 192]))
    if major == "MN":
        rows = -(-rows // atom.size(0)) * atom.size(0)
    columns = max(atom.size(1), k) * draw(st.sampled_from([1, 2, 3]))
    order = draw(st.sampled_from([(0, 1), (1, 0)]))
    unit = atom.size(0)  # a tile ends where rows of M do, or lies within one
    fits = [n for n in (8, 16, 24, 64, 96, 192) if rows % n == 0 and 0 in (n % unit, unit % n)]
    whole = make_smem_layout(type_, major, (rows, columns), swizzle, order)
    return type_, major, whole, (draw(st.sampled_from(fits or [rows])), k)


def stored(whole, base, bits):
    """Where (row, column) stands, in bits: the layout counted from ``base`` bytes."""
    at = 8 * base + whole.indices() * bits
    return at.reshape((whole.size(0), whole.size(1)), order="F")


def tile_at(tiles, crd):
    """A tile away from the first: its layout begins at an offset."""
    if isinstance(tiles, ComposedLayout):
        return ComposedLayout(tiles.outer, tiles.inner((0, crd)), tiles.inner[0])
    return ComposedLayout(Swizzle(0, 0, 0), tiles((0, crd)), tiles[0])


@examples(150)
@given(laid_out(), st.integers(0, 31))
def test_a_descriptor_addresses_each_element_of_a_layout(case, rows_of_128):
    """Every tile of the whole, wherever the pattern begins."""
    type_, major, whole, (m, k) = case
    bits, base = dtype(type_).bits, 128 * rows_of_128
    where = stored(whole, base, bits)
    tiles = zipped_divide(whole, (m, k))
    for i in range(whole.size(0) // m):
        for j in range(whole.size(1) // k):
            made = make_descriptor(tile_at(tiles, (i, j)), type_, major, base)
            assert MatrixDescriptor.parse(made.bits) == made
            expected = where[i * m : i * m + m, j * k : j * k + k]
            assert np.array_equal(made.addresses(bits, m, k, major), expected)


class Place:
    """An engine that only knows its offset."""

    def __init__(self, at=0):
        self.at = at

    def __add__(self, offset):
        return Place(self.at + offset)


WIDE = MmaAtom("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16")


@examples(40)
@given(
    st.sampled_from(["K", "MN"]),
    st.sampled_from(SWIZZLES),
    st.sampled_from("AB"),
    st.sampled_from([(1, 1, 1), (2, 1, 1), (1, 2, 1)]),
    st.integers(0, 255),
)
def test_a_tensor_of_descriptors_moves_their_start(major, swizzle, operand, atoms, thread):
    """Each descriptor of what a thread has of two stages gathers its own tile of A or B."""
    whole = make_smem_layout("f16", major, (128, 64, 2), swizzle)
    one = TiledMma(WIDE, atoms).thr_slice(thread % (128 * atoms[0] * atoms[1]))
    part = getattr(one, f"partition_{operand}")(Tensor(Place(), whole))
    made = make_descriptor_tensor(part, "f16", major, 1024 + 2 * part.engine.at)
    where = 8 * 1024 + 16 * whole.indices().reshape((128, 64, 2), order="F")
    side = 1 if operand == "A" else 2
    first, step = one.thr_vmnk[side], atoms[side - 1]
    for m, k, stage in np.ndindex(made.size(1), made.size(2), 2):
        rows, columns = 64 * (first + step * m), 16 * k
        read = MatrixDescriptor.parse(made[0, m, k, stage]).addresses(16, 64, 16, major)
        expected = where[rows : rows + 64, columns : columns + 16, stage]
        assert np.array_equal(read, expected)


@st.composite
def anything(draw):
    """Tiles of f16 that may be canonical: their modes in some order, some distance apart."""
    swizzle = draw(st.sampled_from(SWIZZLES))
    length = (swizzle or 16) // 2
    inner, outer = draw(st.sampled_from([(8, 1), (8, 2), (8, 8)])), (length, 1)
    gaps = [draw(st.sampled_from([8, 64, length * 8, length * 16, 4, 1])) for _ in range(3)]
    row = draw(st.sampled_from([length, 8, 16]))
    lines = Layout((8, inner[1]), (row, gaps[0]))
    across = Layout((min(16, length), max(1, 16 // outer[0])), (1, gaps[1]))
    modes = (lines, across) if draw(st.booleans()) else (across, lines)
    return swizzle, draw(st.sampled_from(["K", "MN"])), make_layout(*modes)


@examples(300)
@given(anything())
def test_a_layout_has_an_exact_descriptor_or_is_rejected(case):
    swizzle, major, inner = case
    bits = {0: 0, 32: 1, 64: 2, 128: 3}[swizzle]
    tile = ComposedLayout(Swizzle(bits, 3, 3), 0, inner)
    try:
        made = make_descriptor(tile, "f16", major)
    except LayoutError:
        return
    read = made.addresses(16, inner.size(0), inner.size(1), major)
    assert np.array_equal(read, stored(tile, 0, 16))


def test_the_widest_swizzle_that_divides():
    assert smem_selector("f16", "K", (128, 64)) == 128
    assert smem_selector("f16", "K", (128, 96)) == 64
    assert smem_selector("f16", "MN", (16, 64)) == 32
    assert smem_selector("e4m3", "K", (8, 16)) == 0
    assert coalesce(make_smem_layout("f16", "K", (8, 64))) == coalesce(make_smem_layout_atom("f16"))


F16 = make_smem_layout("f16", "K", (64, 64))
STEP = zipped_divide(F16, (64, 16))[0]


@every_row(
    ("make", "error", "message"),
    [
        (lambda: make_smem_layout_atom("e2m3"), DtypeError, r"must be a power of two, got 6 bits"),
        (lambda: make_smem_layout_atom("f16", "M"), LayoutError, "major must be K or MN, got 'M'"),
        (lambda: make_smem_layout_atom("f16", "K", 16), LayoutError, r"\[0, 32, 64, 128\] bytes"),
        (
            lambda: make_smem_layout("f16", "K", (64, 12)),
            LayoutError,
            r"no K-major layout atom of f16 divides \(64, 12\)\n.*smallest is \(8, 8\)",
        ),
        (
            lambda: make_smem_layout("f16", "K", (64, 32), 128),
            LayoutError,
            "mode 1: the block's size 64 does not divide 32",
        ),
        (lambda: make_descriptor(STEP, "f16", start=64), LayoutError, "multiple of 128 bytes"),
        (lambda: make_descriptor(STEP, "f16", start=1 << 18), LayoutError, "16 below 262144"),
        (lambda: make_descriptor(STEP, "tf32"), LayoutError, "wgmma's swizzle of 32-bit"),
        (
            lambda: make_descriptor(STEP, "f16", "MN"),
            LayoutError,
            r"not a canonical MN-major layout swizzled by 128 bytes: \(0,1\) must be at byte 128,"
            " got 2",
        ),
        (
            lambda: make_descriptor(Layout((64, 16), (16, 1)), "f16"),
            LayoutError,
            r"K-major layout without swizzle: \(1,0\) must be at byte 16, got 32",
        ),
        (
            lambda: make_descriptor(Layout((12, 16), (16, 1)), "f16"),
            LayoutError,
            "rows must be a multiple of 8, got 12",
        ),
        (
            lambda: make_descriptor(Layout((8, 12), (16, 1)), "f16"),
            LayoutError,
            "columns must be a multiple of 8, got 12",
        ),
        (
            lambda: make_descriptor(Layout((32, 8), (1, 32)), "tf32", "MN"),
            LayoutError,
            "must have 16 bits, got 32",
        ),
        (
            lambda: make_descriptor(Layout(((8, 2), 8), ((8, 71), 1)), "f16"),
            LayoutError,
            "stride must be a multiple of 16 below 262144, got 142",
        ),
        (lambda: make_descriptor(Layout((8, 2, 8)), "f16"), LayoutError, "static tile"),
        (lambda: make_descriptor(64, "f16"), LayoutError, "got 64:1"),
        (lambda: make_descriptor(make_identity_layout((8, 8)), "f16"), LayoutError, "static tile"),
        (lambda: make_smem_layout("f16", "K", 64), LayoutError, "got 64"),
        (lambda: make_smem_layout("f16", "K", (64, 64), [128]), LayoutError, r"got \[128\]"),
        (lambda: make_smem_layout("f16", np.zeros(2), (64, 64)), LayoutError, "K or MN, got array"),
        (
            lambda: make_descriptor(make_smem_layout_atom("f16"), "f16", start="x"),
            LayoutError,
            "start must be a byte address, got 'x'",
        ),
    ],
)
def test_wrong_arguments_are_rejected(make, error, message):
    with pytest.raises(error, match=message):
        make()
