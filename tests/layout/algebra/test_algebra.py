"""The algebra: CuTe's documented results, and what each operation promises for every coordinate."""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from examples import examples
from layout_strategies import SIZES, compact_layouts, layouts, shapes, spread_layouts, values
from tilewright.errors import LayoutError
from tilewright.layout import (
    Layout,
    Swizzle,
    coalesce,
    compatible,
    complement,
    composition,
    congruent,
    downcast,
    filter,
    flatten,
    left_inverse,
    make_layout,
    make_tensor,
    max_common_layout,
    max_common_vector,
    nullspace,
    recast,
    right_inverse,
    upcast,
    with_shape,
)

L = Layout


def admitted(operation, *args):
    """The result, where the operation does not refuse."""
    try:
        return operation(*args)
    except LayoutError:
        assume(False)


# --- coalesce ---


def test_coalesce_as_documented():
    a = L((2, (1, 6)), (1, (6, 2)))
    assert str(coalesce(a)) == "12:1"
    assert str(coalesce(a, (1, 1))) == "(2,6):(1,2)"
    assert str(coalesce(L((2, 1, 3), (4, 7, 8)))) == "6:4"
    assert str(coalesce(L((1, 1), (3, 5)))) == "1:0"
    assert str(filter(L((2, 4, 3), (1, 0, 2)))) == "6:1"


@given(layouts())
def test_coalesce_keeps_the_function(layout):
    result = coalesce(layout)
    assert result.depth() <= 1 and values(result) == values(layout)
    assert coalesce(result) == result


@given(layouts())
def test_filter_keeps_each_offset(layout):
    assert set(values(filter(layout))) == set(values(layout))
    assert 0 not in flatten(filter(layout).stride) or filter(layout).size() == 1


# --- composition ---


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        (L((6, 2), (8, 2)), L((4, 3), (3, 1)), "((2,2),3):((24,2),8)"),
        (L(20, 2), L((5, 4), (4, 1)), "(5,4):(8,2)"),
        (L((10, 2), (16, 4)), L((5, 4), (1, 5)), "(5,(2,2)):(16,(80,4))"),
        (L((4, 6, 8, 10), (2, 3, 5, 7)), L(6, 12), "(2,3):(9,5)"),
        (L((12, (4, 8)), (59, (13, 1))), (L(3, 4), L(8, 2)), "(3,(2,4)):(236,(26,1))"),
        (L((12, (4, 8)), (59, (13, 1))), (3, 8), "(3,(4,2)):(59,(13,1))"),
        (L((4, 2), (1, 8)), L(2, 3), "2:3"),
        (L(4, 2), None, "4:2"),
    ],
)
def test_composition_as_documented(a, b, result):
    assert str(composition(a, b)) == result


@given(layouts(), layouts(st.sampled_from([0, 1, 2, 3, 4, 6, 8, 12, 24])))
def test_composition_is_composition(a, b):
    r = admitted(composition, a, b)
    assert compatible(b.shape, r.shape)
    assert values(r) == [a(b(i)) for i in range(b.size())]


@given(layouts(), SIZES, st.integers(1, 24))
def test_composition_with_one_mode_is_composition(a, s, d):
    r = admitted(composition, a, L(s, d))
    assert values(r) == [a(i * d) for i in range(s)]


@given(compact_layouts(), shapes)
def test_identity(a, shape):
    identity = L(a.size())
    assert values(composition(identity, a)) == values(a)
    assert values(composition(a, identity)) == values(a)


@examples(100, suppress_health_check=[HealthCheck.filter_too_much])  # one in ten fits
@given(layouts(), spread_layouts, compact_layouts())
def test_composition_is_associative(a, b, c):
    assume(c.size() <= b.size() <= b.cosize() <= a.size())  # beyond, only the last modes count
    left = admitted(lambda: composition(composition(a, b), c))
    right = admitted(lambda: composition(a, composition(b, c)))
    assert values(left) == values(right)


@given(layouts(), shapes)
def test_with_shape_keeps_the_function(layout, shape):
    shaped = admitted(with_shape, layout, shape)
    assert values(shaped) == [layout(i) for i in range(Layout(shape).size())]
    assert compatible(Layout(shape).shape, shaped.shape)


# --- complement ---


@pytest.mark.parametrize(
    ("a", "bound", "result"),
    [
        (L(4, 1), 24, "6:4"),
        (L(6, 4), 24, "4:1"),
        (L((4, 6), (1, 4)), 24, "1:0"),
        (L(4, 2), 24, "(2,3):(1,8)"),
        (L((2, 4), (1, 6)), 24, "3:2"),
        (L((2, 2), (1, 6)), (2, 12), "(3,2):(2,12)"),
        (L(4, 0), 6, "6:1"),
    ],
)
def test_complement_as_documented(a, bound, result):
    assert str(complement(a, bound)) == result


@given(spread_layouts, st.integers(1, 400))
def test_complement_is_ordered_disjoint_and_covers(a, bound):
    rest = complement(a, bound)
    others = values(rest)
    assert others == sorted(set(others))
    assert set(others) & set(values(a)) == {0}
    together = values(make_layout(a, rest))
    assert len(set(together)) == len(together)
    assert set(range(bound)) <= set(together)


# --- inverses ---


@given(layouts())
def test_nullspace(layout):
    null = nullspace(layout)
    assert all(layout(i) == 0 for i in values(null))
    assert len(set(values(null))) == null.size()
    assert null.size() * filter(layout).size() == layout.size()


@given(layouts())
def test_right_inverse(layout):
    inverse = right_inverse(layout)
    assert [layout(inverse(i)) for i in range(inverse.size())] == list(range(inverse.size()))


@given(spread_layouts)
def test_left_inverse(layout):
    inverse = left_inverse(layout)
    assert [inverse(layout(i)) for i in range(layout.size())] == list(range(layout.size()))


@given(compact_layouts())
def test_a_bijection_has_one_inverse(layout):
    assert values(right_inverse(layout)) == values(left_inverse(layout))
    assert right_inverse(layout).size() == layout.size()


@given(layouts())
def test_quasi_inverse_where_modes_repeat(layout):
    inverse = admitted(left_inverse, layout)
    assert all(layout(inverse(v)) == v for v in values(layout))


def test_inverses_as_documented():
    assert str(right_inverse(L((8, 4), (4, 1)))) == "(4,8):(8,1)"
    assert str(right_inverse(L((2, 4), (0, 2)))) == "1:0"
    assert str(left_inverse(L(4, 2))) == "(2,4):(0,1)"
    assert str(left_inverse(L((4, 2), (1, 16)))) == "(16,2):(1,4)"


# --- vectors and widths ---


def test_max_common_vector():
    row, column = L((64, 8), (1, 64)), L((64, 8), (8, 1))
    assert max_common_vector(row, row) == 512
    assert max_common_vector(row, column) == 1
    assert max_common_vector(L((8, 4), (1, 8)), L((8, 4), (1, 16))) == 8
    swizzled = composition(Swizzle(3, 3, 3), row)
    assert max_common_vector(swizzled, row) == 8
    assert max_common_vector(swizzled, swizzled) == 512


@given(shapes.flatmap(lambda s: st.tuples(compact_layouts(shape=s), compact_layouts(shape=s))))
def test_max_common_layout_is_contiguous_in_both(pair):
    a, b = pair
    common = max_common_layout(a, b)
    assert [a(c) for c in values(common)] == list(range(common.size()))
    assert [b(c) for c in values(common)] == list(range(common.size()))


@given(spread_layouts, st.sampled_from([2, 4, 3]))
def test_upcast_counts_in_wider_elements(layout, n):
    wide = admitted(upcast, layout, n)
    assert congruent(wide.shape, layout.shape)
    assert set(values(wide)) == {v // n for v in values(layout)}


@given(spread_layouts, st.sampled_from([2, 4, 3]))
def test_downcast_and_back(layout, n):
    fine = admitted(downcast, layout, n)
    assert set(values(fine)) == {v * n + i for v in values(layout) for i in range(n)}
    assert values(upcast(fine, n)) == values(layout)


def test_a_swizzle_in_wider_elements_keeps_the_bits_that_are_left():
    assert upcast(Swizzle(3, 4, 3), 2) == Swizzle(3, 3, 3)
    assert upcast(Swizzle(2, 1, 3), 8) == Swizzle(0, 0, 3)
    assert upcast(Swizzle(3, 1, 3), 4) == Swizzle(2, 0, 3)


def test_recast():
    assert str(recast(L((64, 8), (1, 64)), 16, 32)) == "(32,8):(1,32)"
    assert str(recast(L((64, 8), (1, 64)), 16, 4)) == "(256,8):(1,256)"
    assert str(recast(L((6, 2), (1, 6)), 4, 6)) == "(4,2):(1,4)"
    tile = composition(Swizzle(3, 3, 3), L((8, 64), (64, 1)))
    assert str(recast(tile, 16, 8)) == "Sw<3,4,3> o (8,128):(128,1)"
    assert recast(recast(tile, 16, 8), 8, 16) == tile


# --- refusals ---


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: composition(L((4, 3), (1, 10)), 6),
            r"with 6:1 is not a layout: size 6 is not a multiple of 4",
        ),
        (lambda: composition(L((4, 3), (3, 1)), L((2, 4), (1, 3))), "mode 1: .*stride 3 does not"),
        (
            lambda: composition(L((6, 6), (7, 1)), (L(2), L(3), L(1))),
            "at most the 2 modes of .*, got 3",
        ),
        (lambda: composition(L((6, (6, 5)), (7, (9, 1))), (2, L(4, 4))), "mode 1: .*stride 4"),
        (lambda: composition(L((4, 3), (3, 1)), L(4, -1)), "negative stride"),
        (lambda: composition(L((4, 2), (1, 10)), L((2, 2), (1, 3))), "mode 1: .*exceeds size 4"),
        (lambda: composition(L((4, 4), (3, 16)), Swizzle(1, 0, 2)), "must be powers of two"),
        (lambda: composition(Swizzle(1, 0, 1), 4), "right side of Sw<1,0,1> must be a layout"),
        (lambda: complement(L((4, 4), (1, 2)), 64), "4:2 overlaps the modes below, which span 4"),
        (lambda: complement(make_tensor(np.zeros(4))), "expected a layout, got float64"),
        (lambda: left_inverse(L((4, 2), (1, 3))), "the stride of 2:3 overlaps"),
        (lambda: left_inverse(L((2, 2), (2, 5))), "the stride of 2:5 is not a multiple"),
        (lambda: upcast(L((4, 3), (3, 1)), 2), "mode 0: upcast of 4:3 by 2"),
        (lambda: upcast(L((3, 4), (1, 4)), 2), "mode 0: upcast of 3:1 by 2: 2 elements become one"),
        (lambda: downcast(L(4, 2), 2), "expected a mode of stride 1"),
        (lambda: upcast(Swizzle(3, 3, 3), 3), "must be a power of two, got 3"),
    ],
)
def test_errors_have_the_reason(call, says):
    with pytest.raises(LayoutError, match=says):
        call()
