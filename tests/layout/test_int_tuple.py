"""Int tuples and coordinates: CuTe's documented values, and the laws that tie them together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layout_strategies import like, shapes
from tilewright.errors import LayoutError
from tilewright.layout import (
    compatible,
    congruent,
    crd2crd,
    crd2idx,
    dice,
    elem_less,
    flatten,
    idx2crd,
    inner_product,
    prefix_product,
    product,
    shape_div,
    slice_,
    suffix_product,
)


def test_documented_values():
    assert flatten(((2, 2), 8)) == (2, 2, 8)
    assert product(((2, 3), 4)) == 24
    assert inner_product(((2, 3), 4), ((2, 1), 2)) == 15
    assert prefix_product(((2, 3), (2, 1, 2), (5, 2, 1))) == ((1, 2), (6, 12, 12), (24, 120, 240))
    assert suffix_product((3, (2, 4))) == (8, (4, 1))
    assert shape_div((3, 4), 6) == (1, 2)
    assert shape_div(((3, 4), 6), 36) == ((1, 1), 2)
    assert slice_((None, (1, None)), (2, (3, 4))) == (2, 4)
    assert dice((None, (1, None)), (2, (3, 4))) == (3,)
    assert crd2idx(10, (4, 8), (8, 1)) == 18
    assert idx2crd(10, (4, 8)) == (2, 2)
    assert idx2crd(10, (4, 8), (8, 1)) == (1, 2)
    assert crd2crd(7, (3, (2, 2))) == (1, (0, 1))
    assert crd2crd((1, 2), 12, (3, 4)) == 7
    assert elem_less((1, (2, 3)), (2, (3, 4))) is True
    assert elem_less((1, (2, 4)), (2, (3, 4))) is False


@given(shapes, st.data())
def test_index_and_coordinate_are_inverse(shape, data):
    i = data.draw(st.integers(0, product(shape) - 1))
    crd = idx2crd(i, shape)
    assert congruent(crd, shape)
    assert elem_less(crd, shape)
    assert crd2idx(crd, shape) == i
    assert crd == idx2crd(i, shape, prefix_product(shape))


@given(shapes, st.data())
def test_every_kind_of_coordinate_has_the_same_offset(shape, data):
    strides = data.draw(st.lists(st.integers(-5, 50), min_size=len(flatten(shape)), max_size=9))
    stride = like(shape, strides)
    i = data.draw(st.integers(0, product(shape) - 1))
    crd = idx2crd(i, shape)
    assert crd2idx(i, shape, stride) == crd2idx(crd, shape, stride) == inner_product(crd, stride)
    if isinstance(shape, tuple):
        by_mode = tuple(crd2idx(c, s) for c, s in zip(crd, shape, strict=True))
        assert crd2idx(by_mode, shape, stride) == crd2idx(i, shape, stride)


@given(shapes)
def test_shapes_refine_their_size(shape):
    assert compatible(product(shape), shape)
    assert compatible(shape, shape)
    assert not compatible(product(shape) + 1, shape)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: shape_div(6, 4), "one must divide the other, got 6 and 4"),
        (lambda: crd2idx((1, 2), (3, 4, 5)), r"\(1,2\) does not match shape \(3,4,5\)"),
        (lambda: crd2idx((1, (2, 3)), (3, 4)), r"\(2,3\) does not match shape 4"),
        (lambda: crd2idx([1, 2], (3, 4)), "a coordinate must be a number or a tuple"),
        (lambda: crd2crd((1, 2), 12), "src_shape is required"),
        (lambda: slice_((None, 1), 4), "does not fit 4"),
        (lambda: inner_product((1, 2), (1, 2, 3)), "must have the same nesting"),
    ],
)
def test_errors_have_the_reason(call, says):
    with pytest.raises(LayoutError, match=says):
        call()
