"""Layouts as values and as functions of coordinates."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layout_strategies import compact_layouts, layouts
from tilewright.errors import LayoutError
from tilewright.layout import (
    Layout,
    LayoutLeft,
    LayoutRight,
    _,
    append,
    cosize,
    depth,
    flatten,
    group,
    idx2crd,
    make_layout,
    make_ordered_layout,
    prepend,
    product,
    rank,
    select,
    size,
    take,
)


def test_prints_in_the_fields_notation():
    assert str(Layout((4, 8))) == "(4,8):(1,4)"
    assert str(Layout((4, (2, 3)), (6, (3, 1)))) == "(4,(2,3)):(6,(3,1))"
    assert str(Layout((4,), (2,))) == "(4):(2)"
    assert repr(Layout((4, (2, 3)), (6, (3, 1)))) == "Layout((4, (2, 3)), (6, (3, 1)))"


def test_the_worked_example_of_a_hierarchical_layout():
    layout = Layout(((4, 2), (8, 4)), ((1, 16), (4, 32)))
    i, j, k, m = 3, 1, 5, 2
    assert layout((i, j), (k, m)) == i + 16 * j + 4 * k + 32 * m
    assert layout(i + 4 * j, k + 8 * m) == layout((i, j), (k, m))
    assert (layout.size(), layout.rank(), layout.depth()) == (256, 2, 2)


def test_sizes():
    layout = Layout((4, 3), (1, 4))
    assert (size(layout), cosize(layout), rank(layout), depth(layout)) == (12, 12, 2, 1)
    assert Layout((4, 3), (1, 10)).cosize() == 24
    assert Layout((4, 3), (-1, 10)).cosize() == 24
    assert layout.size(1) == 3


@given(layouts(), st.data())
def test_is_a_frozen_value(layout, data):
    twin = eval(repr(layout))
    assert twin == layout and hash(twin) == hash(layout)
    assert pickle.loads(pickle.dumps(layout)) == copy.copy(layout) == layout
    assert layout != Layout(layout.shape, 99) if isinstance(layout.shape, int) else True
    with pytest.raises(AttributeError, match="frozen"):
        layout.shape = 3


@given(layouts(st.integers(-12, 12)))
def test_whole_domain_equals_one_by_one(layout):
    indices = layout.indices()
    assert indices.dtype == np.int64
    assert indices.tolist() == [layout(i) for i in range(layout.size())]
    at_once = layout(np.arange(layout.size()))
    assert np.array_equal(np.broadcast_to(at_once, indices.shape), indices)
    assert max(abs(indices)) < layout.cosize()


@given(layouts(), st.data())
def test_a_slice_is_the_layout_seen_from_there(layout, data):
    if isinstance(layout.shape, tuple) and len(layout) > 1:
        keep = data.draw(st.integers(0, len(layout) - 1))
        at = [data.draw(st.integers(0, layout.size(m) - 1)) for m in range(len(layout))]
        crd = tuple(None if m == keep else c for m, c in enumerate(at))
        part, start = layout(crd), layout.offset(crd).total()
        for c in range(layout.size(keep)):
            full = tuple(c if m == keep else x for m, x in enumerate(at))
            assert start + part((c,)) == layout(full)


def test_slices_keep_modes():
    layout = Layout((4, (2, 3)), (6, (3, 1)))
    assert str(layout(2, _)) == "((2,3)):((3,1))"
    assert str(layout(_, (1, _))) == "(4,3):(6,1)"
    assert layout(None) is layout


def test_modes():
    layout = Layout((2, (3, 5), 7), (1, (2, 6), 30))
    assert str(layout[1]) == "(3,5):(2,6)"
    assert str(layout[1:]) == "((3,5),7):((2,6),30)"
    assert [str(m) for m in layout] == ["2:1", "(3,5):(2,6)", "7:30"]
    assert str(flatten(layout)) == "(2,3,5,7):(1,2,6,30)"
    assert str(group(flatten(layout), 1, 3)) == str(layout)
    assert str(take(layout, 0, 2)) == "(2,(3,5)):(1,(2,6))"
    assert str(select(layout, (2, 0))) == "(7,2):(30,1)"
    assert str(append(Layout(4, 2), up_to_rank=3)) == "(4,1,1):(2,0,0)"
    assert str(append(layout[0], Layout(9, 8))) == "(2,9):(1,8)"
    assert str(prepend(Layout(4, 2))) == "(1,4):(0,2)"


def test_making():
    assert str(make_layout(Layout(4, 2), Layout((2, 2)))) == "(4,(2,2)):(2,(1,2))"
    assert str(make_layout([Layout(4, 2), Layout(3)])) == "(4,3):(2,1)"
    assert str(make_layout((4, 8), LayoutRight)) == "(4,8):(8,1)"
    assert str(make_layout((4, 8), LayoutLeft)) == "(4,8):(1,4)"
    assert str(make_layout((4, 8), stride=(9, 1))) == "(4,8):(9,1)"
    assert str(make_ordered_layout((2, 3, 4), (1, 0, 2))) == "(2,3,4):(3,1,6)"
    assert str(make_ordered_layout((2, (3, 4)), (2, (1, 0)))) == "(2,(3,4)):(12,(4,1))"
    assert str(Layout([2, np.int32(3)])) == "(2,3):(1,2)"


@given(compact_layouts())
def test_coordinates_of_offsets(layout):
    for i in range(layout.size()):
        assert layout(layout.get_hier_coord(layout(i))) == layout(i)
        assert layout.get_hier_coord(layout(i)) == idx2crd(i, layout.shape)
        assert layout(layout.get_flat_coord(layout(i))) == layout(i)
        assert product(layout.shape) == layout.size()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Layout((2, (3, 4)), (1, (2, 6, 24))), r"mode 1: shape \(3,4\) and stride"),
        (lambda: Layout((2, (3, (4,))), (1, (2, 6))), r"mode 1.1: shape \(4\) and stride 6"),
        (lambda: Layout((2, 0)), r"sizes of a shape must be at least 1, got 0 in \(2,0\)"),
        (lambda: Layout((2, 1.5)), "shape must be an integer or a tuple"),
        (lambda: Layout((2, "3")), "shape must be an integer or a tuple"),
        (lambda: group(Layout((2, 3)), 1, 3), "has 2 modes, got begin 1, end 3"),
        (lambda: make_ordered_layout((2, 3), (1, 0, 2)), "must have the same nesting"),
        (lambda: flatten(Layout(3))((0, 1)), "does not match shape 3"),
    ],
)
def test_errors_have_the_reason(call, says):
    with pytest.raises(LayoutError, match=says):
        call()
