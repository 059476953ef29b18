"""Wrong arguments of the algebra: each function raises LayoutError with the broken rule."""

import numpy as np
import pytest

from rows import every_row
from tilewright import layout as cute
from tilewright.errors import LayoutError
from tilewright.layout import Layout, Swizzle

A, B = Layout((4, 4)), Layout(4)
IDENTITY = cute.make_identity_layout((4, 8))
TENSOR = cute.make_tensor(np.zeros((4, 8)))
CALLS = {
    "coalesce": [("a",), (None,)],
    "complement": [(B, x) for x in ("a", 0, (4, -1), None, 2.5, (3, "a"))] + [(IDENTITY, 4)],
    "composition": [(None, None), (B, 2.5), (B, "a"), ("a", 4), (A, (2, 2, 2))],
    "append": [(5,), (B, 5)],
    "prepend": [(5,), (B, "a")],
    "group": [(A, "a", 2), (A, 1, 1), (A, 0, 3), (5, 0, 1)],
    "take": [(A, 3, 2), (A, 0, 9)],
    "select": [(A, (5,)), (B, "ab"), (A, 1)],
    "ceil_div": [(7, 0), ((7, 7), (2, 0))],
    "unflatten": [((1,), (0, 0))],
    "size": [("ab",), (None,), ((4, 4), 2)],
    "cosize": [((4, 4),)],
    "coshape": [(5,)],
    "crd2idx": [(3, (4, 4), (1,)), ((1, 2), (4, 4), (1,)), ("a", (4, 4)), (1.5, 4)],
    "idx2crd": [("a", (4, 4)), (None, 4), (3, (4, 4), (1,)), ((1, 2), 4)],
    "make_layout": [(), (None,), (B, 3), (4, "a"), ("a",)],
    "make_ordered_layout": [((4, 4), (1, "a")), ((4, 4), (1, 1)), ((4, 4), (0, 1, 2))],
    "make_identity_layout": [("a",), (0,)],
    "make_composed_layout": [(Swizzle(1, 2, 3), 2.5, B), (4, 0, B), (B, None, B)],
    "logical_divide": [(B, "a"), (A, (2, 2, 2))],
    "zipped_divide": [(A, (2, "b"))],
    "blocked_product": [(B, "a"), ("a", B)],
    "raked_product": [(B, (2, "a"))],
    "tile_to_shape": [(B, "a"), (A, 8), (B, 6)],
    "upcast": [(B, 0), (B, "a"), (B, -1)],
    "downcast": [(B, 0), (Layout(4, 2), 2)],
    "recast": [(B, 0, 8), (B, 8, "a")],
    "left_inverse": [("a",), (IDENTITY,)],
    "right_inverse": [("a",)],
    "nullspace": [("a",)],
    "max_common_layout": [(B, "a")],
    "with_shape": [(B, "a"), (B, 0)],
    "shape_div": [(4, 0), (6, 4)],
    "elem_less": [((1, 2), (3,))],
    "evenly_divides": [((4, 4), "a"), (4, 0)],
    "max_common_vector": [(Swizzle(1, 2, 3), B)],
    "swizzle_after": [(A, B), (4, Swizzle(1, 2, 3))],
    "local_partition": [(TENSOR, (4, 4), 3)],
    "make_tensor": [(None, 3), ([1, 2], 2), (5, 1)],
    "make_fragment_like": [(Swizzle(1, 2, 3),), (b"a",)],
    "make_tensor_like": [(A,)],
    "make_predicate": [(A, (4, 4))],
    "lazy_transform": [(A, abs)],
    "recast_tensor": [(A, "f16")],
    "copy": [(np.zeros(32), TENSOR), (TENSOR, A)],
    "fill": [(A, 0)],
    "transform": [(A, abs), (), (TENSOR,), (TENSOR, 5)],
    "axpby": [(1, TENSOR, 0, A)],
    "explain": [(None, B), ([], B), (cute.size, B), (cute.composition, 5), (cute.complement,)],
    "Swizzle": [("a", 1, 2), (1.5, 0, 2), (3, 0, 2)],
    "Layout": [("a",), (4, "a"), ((4, 4), (1,)), (2.5,), (-1,), (np.arange(3),), (np.float32(2),)],
    "parse": [(5,), ("4:",)],
}


INT_TUPLE = "(shape|stride|bound|order|tile) must be an integer or a tuple"
RULES = {  # beside INT_TUPLE, what a function's messages may say
    "complement": "bound must be at least 1|needs strides that are numbers",
    "composition": "the tiler must have at most the 2 modes",
    "append": "expected a layout or a tensor|must be layouts",
    "prepend": "expected a layout or a tensor",
    "group": "has 2 modes, got begin|expected a layout or a tensor",
    "take": "has 2 modes, got begin",
    "select": "has 2 modes, got mode 5|expected a tuple of modes",
    "ceil_div": "division of 7 by 0",
    "unflatten": "too few leaves",
    "size": "has 2 modes, got mode 2",
    "cosize": "expected a layout or a tensor",
    "coshape": "expected a layout or a tensor",
    "crd2idx": "nesting differs|a coordinate must be a number",
    "idx2crd": "nesting differs|expected a number|does not match shape",
    "make_layout": "expected layouts or a shape|must be layouts",
    "make_ordered_layout": "order must be unique|must have the same nesting",
    "make_identity_layout": "must be at least 1",
    "make_composed_layout": "offset .* must be a number|outer .* must be a swizzle or layout",
    "logical_divide": "the tiler must have at most the 2 modes",
    "tile_to_shape": "must have at least the modes|block's size 4 does not divide 6",
    "upcast": "the factor must be a positive integer",
    "downcast": "the factor must be a positive integer|expected a mode of stride 1",
    "recast": "must have at least one bit",
    "left_inverse": "needs strides that are numbers",
    "with_shape": "must be at least 1",
    "shape_div": "one must divide the other",
    "elem_less": "must have the same nesting",
    "evenly_divides": "division of 4 by 0",
    "max_common_vector": "has no domain",
    "swizzle_after": "expects a layout and a swizzle",
    "local_partition": "tile must be a layout",
    "make_tensor": "expected an engine or array",
    "make_fragment_like": "has no domain",
    "make_tensor_like": "expected a tensor",
    "make_predicate": "expected a tensor",
    "lazy_transform": "expected a tensor",
    "recast_tensor": "expected a tensor",
    "copy": "expected a tensor",
    "fill": "expected a tensor",
    "transform": "expected a tensor|transform expects tensors",
    "axpby": "expected a tensor",
    "explain": "does not support|missing a required argument",
    "Swizzle": "must be integers|must be at least bits",
    "Layout": "must have the same nesting|must be at least 1",
    "parse": "expected a str|expected a number",
}


@every_row(("name", "args"), [(name, args) for name, calls in CALLS.items() for args in calls])
def test_a_wrong_argument_is_a_layout_error(name, args):
    with pytest.raises(LayoutError, match="|".join(filter(None, [INT_TUPLE, RULES.get(name)]))):
        getattr(cute, name)(*args)


@pytest.mark.parametrize("bits", [0, 2])
@pytest.mark.parametrize(
    "offset", [1.5, None, "a", (1, 2), np.float32(1), np.zeros(3), B, Swizzle(1, 2, 3)], ids=repr
)
def test_the_offsets_of_a_swizzle_must_be_integers(bits, offset):
    with pytest.raises(LayoutError, match=f"the offsets of Sw<{bits},0,3> must be integers, got"):
        Swizzle(bits, 0, 3)(offset)


def test_a_slice_is_not_a_coordinate():
    for crd in ((slice(0, 2), 1), (1, slice(None)), ..., (..., 1)):
        with pytest.raises(LayoutError, match="a coordinate must be a number or a tuple"):
            TENSOR[crd]


def test_the_span_of_a_tensor_is_that_of_its_layout():
    swizzled = cute.composition(Swizzle(1, 0, 3), TENSOR.layout)
    assert cute.coshape(TENSOR) == cute.coshape(swizzled) == 32
    assert cute.max_alignment(cute.make_tensor(np.zeros(32), (4, 8))) == 32


def test_a_missing_mode_is_an_error():
    with pytest.raises(LayoutError, match=r"\(4,4\):\(1,4\) has 2 modes, got mode 3"):
        A[3]
    with pytest.raises(LayoutError, match="4:1 has one mode, got mode 1"):
        B[1]
