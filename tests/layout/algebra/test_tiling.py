"""Divides and products: CuTe's documented results, and that nothing is lost or doubled."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from layout_strategies import compact_layouts, spread_layouts, values
from tilewright.errors import LayoutError
from tilewright.layout import (
    Layout,
    Swizzle,
    blocked_product,
    coalesce,
    compatible,
    composition,
    flat_divide,
    flat_product,
    logical_divide,
    logical_product,
    product_each,
    raked_product,
    tile_to_shape,
    tiled_divide,
    tiled_product,
    zipped_divide,
    zipped_product,
)

L = Layout


def admitted(operation, *args):
    try:
        return operation(*args)
    except LayoutError:
        assume(False)


def test_divides_as_documented():
    assert str(logical_divide(L((4, 2, 3), (2, 1, 8)), L(4, 2))) == "((2,2),(2,3)):((4,1),(2,8))"
    a, tiler = L((9, (4, 8)), (59, (13, 1))), (L(3, 3), L((2, 4), (1, 8)))
    assert str(logical_divide(a, tiler)) == ("((3,3),((2,4),(2,2))):((177,59),((13,2),(26,1)))")
    assert str(zipped_divide(a, tiler)) == "((3,(2,4)),(3,(2,2))):((177,(13,2)),(59,(26,1)))"
    assert str(tiled_divide(a, tiler)) == "((3,(2,4)),3,(2,2)):((177,(13,2)),59,(26,1))"
    assert str(flat_divide(a, tiler)) == "(3,(2,4),3,(2,2)):(177,(13,2),59,(26,1))"
    assert str(logical_divide(L((6, 8), (8, 1)), (3, 4))) == "((3,2),(4,2)):((8,24),(1,4))"


def test_divides_do_not_change_other_modes():
    a = L((8, 6, 5), (1, 8, 48))
    assert str(logical_divide(a, (4, 2))) == "((4,2),(2,3),5):((1,4),(8,16),48)"
    assert str(zipped_divide(a, (4, 2))) == "((4,2),(2,3,5)):((1,8),(4,16,48))"
    assert str(zipped_divide(a, (None, 2))) == "((1,2),(8,3,5)):((0,8),(1,16,48))"
    assert str(logical_divide(L(10), 4)) == "(4,3):(1,4)"  # the last tile hangs over


def test_products_as_documented():
    assert str(logical_product(L((2, 2), (4, 1)), L(6))) == "((2,2),(2,3)):((4,1),(2,8))"
    assert str(logical_product(L((2, 2), (4, 1)), L((4, 2), (2, 1)))) == (
        "((2,2),(4,2)):((4,1),(8,2))"
    )
    a, t = L((3, 4), (4, 1)), L((2, 5))
    assert str(logical_product(a, t)) == "((3,4),(2,5)):((4,1),(12,24))"
    assert str(zipped_product(a, t)) == "((3,4),(2,5)):((4,1),(12,24))"
    assert str(tiled_product(a, t)) == "((3,4),2,5):((4,1),12,24)"
    assert str(flat_product(a, t)) == "(3,4,2,5):(4,1,12,24)"
    assert str(blocked_product(a, t)) == "((3,2),(4,5)):((4,12),(1,24))"
    assert str(raked_product(a, t)) == "((2,3),(5,4)):((12,4),(24,1))"


def test_a_product_by_a_number_multiplies():
    """pycute divides here."""
    assert str(logical_product(L(4), 3)) == "(4,3):(1,4)"
    assert logical_product(L(4), 3) == logical_product(L(4), L(3))


@given(spread_layouts, compact_layouts())
def test_a_divide_only_reorders(a, tiler):
    assume(a.size() % tiler.size() == 0)
    divided = admitted(logical_divide, a, tiler)
    assert sorted(values(divided)) == sorted(values(a))
    assert divided[0] == composition(a, tiler)
    assert zipped_divide(a, tiler) == divided


@given(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=2, max_size=3), st.data())
def test_a_zipped_divide_by_mode(shape, data):
    a = L(tuple(shape))
    tiler = tuple(data.draw(st.sampled_from([d for d in (1, 2, 4) if s % d == 0])) for s in shape)
    tiled = zipped_divide(a, tiler)
    assert tiled[0].shape == tiler and values(tiled[0]) == values(composition(a, tiler))
    assert product_each(tiled[0].shape) == tiler
    assert sorted(values(tiled)) == list(range(a.size()))
    flat = flat_divide(a, tiler)
    assert values(flat) == values(tiled) == values(tiled_divide(a, tiler))


@given(spread_layouts, spread_layouts)
def test_a_product_repeats_without_overlap(block, tiler):
    result = admitted(logical_product, block, tiler)
    assert result[0] == block
    assert compatible(tiler.shape, result[1].shape)
    assert len(set(values(result))) == block.size() * tiler.size()


@given(compact_layouts(), st.integers(1, 6))
def test_a_divide_undoes_a_product(block, n):
    many = logical_product(block, n)
    back = logical_divide(coalesce(many), block.size())
    assert values(back[0]) == values(block)
    assert values(back[1]) == values(many[1])


@given(compact_layouts(), compact_layouts())
def test_blocked_and_raked_hold_the_same_elements(block, tiler):
    blocked, raked = blocked_product(block, tiler), raked_product(block, tiler)
    assert sorted(values(blocked)) == sorted(values(raked)) == list(range(blocked.size()))
    for b, r in zip(blocked, raked, strict=True):
        assert (b[0], b[1]) == (r[1], r[0])


@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 3, 5]), st.integers(0, 5)), min_size=1, max_size=3),
    st.lists(st.sampled_from([1, 2, 3, 6]), min_size=1, max_size=2),
)
def test_no_copies_overlap_where_strides_do_not_divide(modes, copies):
    """In (2,5):(5,12) only 5 copies fit between the first modes' elements; CuTe takes a sixth."""
    sizes, strides, place = [], [], 1
    for size, gap in modes:
        sizes.append(size)
        strides.append(place + gap)
        place = (place + gap) * size
    block = L(tuple(sizes), tuple(strides))
    for product in (logical_product, blocked_product, raked_product):
        made = admitted(product, block, L(tuple(copies)))
        assert len(set(values(made))) == made.size() == block.size() * L(tuple(copies)).size()
    with pytest.raises(LayoutError, match="size 6 is not a multiple of 5"):
        logical_product(L((2, 5), (5, 12)), 6)


def test_a_product_of_one_mode_keeps_all_copies():
    block = L((5,), (4,))
    assert str(blocked_product(block, L((8,)))) == "((5,(4,2))):((4,(1,20)))"
    assert str(raked_product(block, L(8))) == "(((4,2),(5))):(((1,20),(4)))"


def test_a_list_is_a_tiler_by_mode():
    a = L((8, 8))
    for cut in (logical_divide, zipped_divide, tiled_divide, flat_divide, logical_product):
        assert cut(a, [4, 2]) == cut(a, (4, 2))


def test_tile_to_shape():
    assert str(tile_to_shape(L((2, 2)), (8, 8))) == "((2,4),(2,4)):((1,4),(2,16))"
    assert str(tile_to_shape(L((2, 2)), (8, 8), (1, 0))) == "((2,4),(2,4)):((1,16),(2,4))"
    assert str(tile_to_shape(L(4), (8, 3))) == "((4,2),(1,3)):((1,4),(0,8))"
    atom = composition(Swizzle(3, 3, 3), L((8, 64), (64, 1)))
    tile = tile_to_shape(atom, (128, 64, 4))
    assert str(tile) == "Sw<3,3,3> o ((8,16),(64,1),(1,4)):((64,512),(1,0),(0,8192))"
    assert sorted(values(tile)) == list(range(128 * 64 * 4))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: logical_divide(L((8, 6)), (4, 2, 2)),
            "logical_divide: the tiler must have at most the 2 modes .*, got 3",
        ),
        (
            lambda: logical_divide(L((8, (6, 5)), (1, (9, 64))), (4, 4)),
            "mode 1: .*stride 4 does not",
        ),
        (lambda: zipped_divide(L((8, 6)), (4, L((2, 2), (1, 1)))), "mode 1: complement"),
        (lambda: logical_product(L((4, 4), (1, 2)), 3), "overlaps"),
        (lambda: tile_to_shape(L((4, 4)), (8, 6)), "mode 1: the block's size 4 does not divide 6"),
        (lambda: tile_to_shape(L((4, 4)), 16), "shape 16 must have at least the modes"),
    ],
)
def test_errors_have_the_reason(call, says):
    with pytest.raises(LayoutError, match=says):
        call()
