"""Swizzles and composed layouts."""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from layout_strategies import compact_layouts, nested, spread_layouts, swizzles
from tilewright.errors import LayoutError
from tilewright.layout import (
    ComposedLayout,
    Layout,
    Swizzle,
    _,
    coalesce,
    complement,
    composition,
    flatten,
    left_inverse,
    logical_divide,
    make_composed_layout,
    right_inverse,
    swizzle_after,
    zipped_divide,
)


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
    assert [part((c,)) + outside for c in range(64)] == [tile(5, c, 1) for c in range(64)]
    assert (str(part), outside) == ("((8,2,2,2)):((1,-8,16,-32))", 4096 + 5 * 64 + 5 * 8)
    part, outside = tile.slice_and_offset((_, _, 1))
    assert (str(part), outside) == ("Sw<3,3,3> o (64,64):(64,1)", 4096)
    assert str(zipped_divide(tile, (8, 8))[0]) == "Sw<3,3,3> o (8,8):(64,1)"
    assert (tile.size(), tile.rank(), tile.depth(), len(tile)) == (8192, 3, 1, 3)


powers_of_two = (
    nested(st.sampled_from([1, 2, 4, 8]))
    .filter(lambda s: len(flatten(s)) <= 4)
    .flatmap(lambda s: compact_layouts(st.sampled_from([1, 1, 2, 4]), s))
)


@given(st.one_of(powers_of_two, spread_layouts), swizzles())
def test_a_swizzle_after_a_layout_is_equivalent_to_one_before(layout, swizzle):
    try:
        after = swizzle_after(layout, swizzle)
    except LayoutError:
        assume(False)
    numbers = range(layout.size())
    assert all(after(layout(i)) == layout(swizzle(i)) for i in numbers if swizzle(i) in numbers)


@given(powers_of_two, st.one_of(powers_of_two, spread_layouts), swizzles())
@example(Layout((2, 4), (4, 1)), Layout((6, 2), (1, 6)), Swizzle(1, 1, 3))
@example(Layout(((2, 4), 1), ((1, 2), 0)), Layout((6,), (4,)), Swizzle(3, 1, -4))
def test_a_layout_after_a_swizzled_one_also_beyond_its_domain(a, inner, swizzle):
    b = ComposedLayout(swizzle, 0, inner)
    try:
        made = composition(a, b)
    except LayoutError:
        return
    assert made.indices().tolist() == [a(int(i)) for i in b.indices()]


@pytest.mark.parametrize(
    ("inner", "says"),
    [(Layout(1 << 50), "elements, over"), (Layout((8, 2), (1, 1 << 58)), "may be beyond")],
)
def test_a_swizzled_layout_too_large_to_compare_is_rejected(inner, says):
    b = ComposedLayout(Swizzle(1, 0, 3), 0, inner)
    with pytest.raises(LayoutError, match=f"beyond the left side's domain: .*{says}"):
        composition(Layout((8, 2), (1, 16)), b)
    assert composition(Layout(1 << 60), b) == b  # within the domain nothing is compared


@given(powers_of_two, swizzles())
def test_inverses_under_a_swizzle(layout, swizzle):
    composed = ComposedLayout(swizzle, 0, layout)
    try:
        right, left = right_inverse(composed), left_inverse(composed)
    except LayoutError:
        assume(False)
    assert [composed(right(i)) for i in range(right.size())] == list(range(right.size()))
    assert [left(composed(i)) for i in range(layout.size())] == list(range(layout.size()))


def test_inverses_of_shared_memory_tiles():
    tile = composition(Swizzle(3, 3, 3), Layout((8, 64), (64, 1)))
    assert str(right_inverse(tile)) == "Sw<3,0,-6> o (64,8):(8,1)"
    assert str(left_inverse(tile)) == "Sw<3,0,-6> o (64,8):(8,1)"
    assert str(composition(Layout((64, 8), (8, 1)), tile)) == "Sw<3,0,-6> o (8,64):(1,8)"
    assert str(complement(tile, 1024)) == "2:512"


def test_after_an_outer_layout():
    composed = ComposedLayout(Layout((4, 4), (4, 1)), 1, Layout(3, 2))
    result = composition(Layout(16, 3), composed)
    assert [result(i) for i in range(3)] == [3 * composed(i) for i in range(3)]


@given(swizzles(), st.one_of(powers_of_two, spread_layouts), st.integers(0, 200), st.data())
def test_a_slice_is_the_layout_there(swizzle, layout, start, data):
    composed = ComposedLayout(swizzle, start, layout)
    if composed.rank() < 2:
        return
    kept = data.draw(st.lists(st.booleans(), min_size=len(layout), max_size=len(layout)))
    fixed = [data.draw(st.integers(0, m.size() - 1)) for m in layout]
    crd = tuple(None if keep else f for keep, f in zip(kept, fixed, strict=True))
    part, outside = composed.slice_and_offset(crd)
    sizes = [m.size() for m, keep in zip(layout, kept, strict=True) if keep]
    for inner in product(*map(range, sizes)):
        whole = iter(inner)
        there = tuple(next(whole) if keep else f for keep, f in zip(kept, fixed, strict=True))
        assert part(inner) + outside == composed(there)


def test_an_outer_layout():
    composed = ComposedLayout(Layout((4, 4), (4, 1)), 1, Layout(3, 2))
    assert [composed(i) for i in range(3)] == [4, 12, 5]
    assert str(composed) == "(4,4):(4,1) o 1 o 3:2"
    assert composed.cosize() == 16


SHIFTED = ComposedLayout(Swizzle(1, 0, 1), 1, Layout(4))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Swizzle(3, 4, 2), "must be at least bits, got Sw<3,4,2>"),
        (lambda: Swizzle(-1, 4, 2), "must not be negative"),
        (lambda: composition(Swizzle(3, 4, 3), Layout((4, 4)))((1, 2, 3)), "does not match"),
        (lambda: composition(Layout(8), SHIFTED), "offset must be 0, got 1"),
        (lambda: right_inverse(SHIFTED), "the offset must be 0"),
        (lambda: right_inverse(composition(Swizzle(2, 0, 2), Layout(5))), "exceeds its 5"),
        (
            lambda: swizzle_after(Layout((2, 2, 4), (2, 1, 4)), Swizzle(2, 0, 2)),
            "changes the order of the bits",
        ),
        (lambda: swizzle_after(Layout((4, 4), (2, 2)), Swizzle(1, 0, 1)), "overlap"),
        (
            lambda: swizzle_after(Layout((3, 4), (1, 4)), Swizzle(1, 0, 1)),
            "sizes .* must be powers of",
        ),
        (lambda: make_composed_layout(4, 0, Layout(4)), "outer of a composed layout must be"),
        (lambda: make_composed_layout(Layout(4), 0, 4), "inner of a composed layout must be"),
    ],
)
def test_errors_have_the_reason(call, says):
    with pytest.raises(LayoutError, match=says):
        call()
