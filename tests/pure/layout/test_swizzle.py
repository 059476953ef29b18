"""Swizzles and composed layouts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pure.layout.strategies import spread_layouts
from tilewright.errors import LayoutError
from tilewright.layout import (
    ComposedLayout,
    Layout,
    Swizzle,
    _,
    coalesce,
    composition,
    flatten,
    logical_divide,
    zipped_divide,
)


@st.composite
def swizzles(draw):
    bits = draw(st.integers(0, 3))
    shift = draw(st.integers(bits, 4)) * draw(st.sampled_from([1, -1]))
    return Swizzle(bits, draw(st.integers(0, 4)), shift)


@given(swizzles())
def test_is_its_own_inverse_and_a_bijection(swizzle):
    offsets = np.arange(swizzle.size())
    once = swizzle(offsets)
    assert sorted(once.tolist()) == offsets.tolist()
    assert swizzle(once).tolist() == offsets.tolist()
    assert [swizzle(i) for i in range(swizzle.size())] == once.tolist()
    assert (swizzle(offsets + 5 * swizzle.size()) == once + 5 * swizzle.size()).all()


@given(swizzles(), st.integers(0, 1 << 14))
def test_changes_only_its_bits(swizzle, offset):
    changed = swizzle(offset) ^ offset
    assert changed & ~swizzle.zzz_msk == 0
    moved = offset & swizzle.yyy_msk
    assert changed == (moved >> swizzle.shift if swizzle.shift >= 0 else moved << -swizzle.shift)


def test_the_128_byte_swizzle_by_hand():
    """Row r of 8, chunk c of 16 bytes: chunk c stands at c ^ r."""
    swizzle = Swizzle(3, 4, 3)
    for row in range(8):
        for chunk in range(8):
            assert swizzle(row * 128 + chunk * 16 + 5) == row * 128 + (chunk ^ row) * 16 + 5


def test_prints_and_composes():
    swizzle, layout = Swizzle(3, 4, 3), Layout((64, 64), (64, 1))
    tile = composition(swizzle, layout)
    assert str(swizzle) == "Sw<3,4,3>"
    assert str(tile) == "Sw<3,4,3> o (64,64):(64,1)"
    assert str(ComposedLayout(swizzle, 16, layout)) == "Sw<3,4,3> o 16 o (64,64):(64,1)"
    assert composition(Swizzle(0, 4, 3), layout) is layout
    assert tile == composition(Swizzle(3, 4, 3), Layout((64, 64), (64, 1)))
    assert hash(tile) == hash(composition(Swizzle(3, 4, 3), Layout((64, 64), (64, 1))))


@given(swizzles(), spread_layouts, st.integers(0, 200))
def test_a_composed_layout_is_the_composition(swizzle, layout, offset):
    composed = ComposedLayout(swizzle, offset, layout)
    each = [composed(i) for i in range(layout.size())]
    assert each == [swizzle(offset + layout(i)) for i in range(layout.size())]
    assert composed.indices().tolist() == each
    assert max(each) < composed.cosize()
    assert len(set(each)) == layout.size()


@given(swizzles(), spread_layouts)
def test_the_algebra_acts_on_the_layout_inside(swizzle, layout):
    composed = ComposedLayout(swizzle, 0, layout)
    assert coalesce(composed).indices().tolist() == composed.indices().tolist()
    assert flatten(composed).inner == flatten(layout)
    divided = logical_divide(composed, layout.size())
    assert divided.indices().tolist() == composed.indices().tolist()


def test_slices_start_where_they_should():
    tile = composition(Swizzle(3, 3, 3), Layout((64, 64, 2), (64, 1, 4096)))
    part, outside = tile.slice_and_offset((5, _, 1))
    assert (part.offset, outside) == (5 * 64, 4096)
    assert [part((c,)) + outside for c in range(64)] == [tile(5, c, 1) for c in range(64)]
    assert str(tile(5, _, 1)) == "Sw<3,3,3> o (64):(1)"
    assert str(zipped_divide(tile, (8, 8))[0]) == "Sw<3,3,3> o (8,8):(64,1)"
    assert (tile.size(), tile.rank(), tile.depth(), len(tile)) == (8192, 3, 1, 3)


def test_an_outer_layout():
    composed = ComposedLayout(Layout((4, 4), (4, 1)), 1, Layout(3, 2))
    assert [composed(i) for i in range(3)] == [4, 12, 5]
    assert str(composed) == "(4,4):(4,1) o 1 o 3:2"
    assert composed.cosize() == 16


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Swizzle(3, 4, 2), "Sw<3,4,2>: the shift moves by at least"),
        (lambda: Swizzle(-1, 4, 2), "not negative"),
        (lambda: composition(Swizzle(3, 4, 3), Layout((4, 4)))((1, 2, 3)), "does not fit"),
    ],
)
def test_refusals_say_why(call, says):
    with pytest.raises(LayoutError, match=says):
        call()
