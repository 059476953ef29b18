"""Layouts onto coordinates, and compositions that pick modes by coordinates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layout_strategies import layouts, shapes
from symbol import Symbol, evaluate
from tilewright.errors import LayoutError
from tilewright.layout import (
    E,
    Layout,
    ScaledBasis,
    coalesce,
    composition,
    coshape,
    flatten,
    idx2crd,
    make_basis_like,
    make_identity_layout,
    make_layout,
    zipped_divide,
)

L = Layout


def test_prints_as_cute_does():
    assert str(E(1)) == "1@1" and str(E(0, 1)) == "1@1@0" and E() == 1
    assert str(make_identity_layout((4, (2, 3)))) == "(4,(2,3)):(1@0,(1@0@1,1@1@1))"
    assert f"{make_identity_layout((4, 8)):cute}" == "(_4,_8):(_1@0,_1@1)"
    assert make_basis_like(5) == 1


def test_a_basis_is_a_value():
    assert E(1) * 3 == 3 * E(1) == ScaledBasis(3, (1,)) != ScaledBasis(3, (0,))
    assert E(1) * 6 // 2 == E(1) * 3 and abs(E(1) * -2) == E(1) * 2
    assert hash(E(1) * 3) == hash(ScaledBasis(3, (1,))) and E(0) != 1
    assert ScaledBasis(3, (1, 0)).coordinate() == (0, (3,))


@given(shapes)
def test_the_identity_maps_each_coordinate_to_itself(shape):
    identity = make_identity_layout(shape)
    for i in range(identity.size()):
        crd = idx2crd(i, shape)
        assert identity(i) == identity(crd) == crd
    assert identity.cosize() == identity.size() and coshape(identity) == shape


def test_a_dynamic_coordinate():
    row, column = make_identity_layout((8, 16))((Symbol("r"), Symbol("c")))
    assert (str(row), str(column)) == ("r", "c")
    row, column = make_identity_layout((8, 16))(Symbol("i"))
    assert [evaluate(x, i=77) for x in (row, column)] == [77 % 8, 77 // 8]


@given(layouts())
def test_after_the_identity_of_its_shape_a_layout_is_itself(layout):
    """And what the identity's parts pick is what the parts themselves pick."""
    identity = make_identity_layout(layout.shape)
    result = composition(layout, identity)
    assert [result(i) for i in range(layout.size())] == [layout(i) for i in range(layout.size())]


@given(layouts(), st.permutations(range(3)))
def test_bases_pick_modes(layout, order):
    layout = make_layout(layout, L(4, 100), L(3, 7))
    picked = composition(layout, L((2, 2, 1), tuple(E(i) for i in order)))
    expected = [composition(layout[i], n) for i, n in zip(order, (2, 2, 1), strict=True)]
    assert [picked[i](1) if i < 2 else picked[i](0) for i in range(3)] == [
        m(1) if m.size() > 1 else m(0) for m in expected
    ]


def test_tiles_of_coordinates():
    tiles = zipped_divide(make_identity_layout((8, 16)), (4, 8))
    assert str(tiles) == "((4,8),(2,2)):((1@0,1@1),(4@0,8@1))"
    assert tiles((1, 2), (1, 1)) == (5, 10)
    assert str(coalesce(L((4, 2), (E(0), 4 * E(0))))) == "8:1@0"
    assert flatten(make_identity_layout((2, (2, 2)))).rank() == 3


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ScaledBasis(3, ()), "the mode of a basis must be a tuple"),
        (lambda: ScaledBasis(3, (-1,)), "the mode of a basis must be a tuple"),
        (lambda: E(0) * 3 // 2, "3@0 must be a multiple of 2"),
        (lambda: L(E(0)), "sizes of a shape must be at least 1"),
        (lambda: L((4, 4), (1, E(0)))((1, 1)), "expected two numbers or two coordinates"),
        (lambda: composition(L(8), L((2, 2), (1, E(0)))), "all strides must be coordinates, got 1"),
        (lambda: composition(L((8, 8)), L(2, E(2))), "has no mode 2"),
        (lambda: make_identity_layout((4, 4)).indices(), "maps to coordinates"),
        (lambda: make_identity_layout((4, 4))((1, (2, 3))), "does not match shape"),
        (lambda: make_identity_layout((4, 4))((1, 2, 3)), "does not match shape"),
    ],
)
def test_errors_have_the_reason(call, says):
    with pytest.raises(LayoutError, match=says):
        call()
