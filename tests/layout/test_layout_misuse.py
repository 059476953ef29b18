"""Nonsense given to the algebra is a LayoutError that says so, whatever the function."""

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


@every_row(("name", "given"), [(name, given) for name, some in CALLS.items() for given in some])
def test_nonsense_is_a_typed_error(name, given):
    with pytest.raises(LayoutError):
        getattr(cute, name)(*given)


@pytest.mark.parametrize("bits", [0, 2])
@pytest.mark.parametrize(
    "given", [1.5, None, "a", (1, 2), np.float32(1), np.zeros(3), B, Swizzle(1, 2, 3)], ids=repr
)
def test_a_swizzle_is_of_integers(bits, given):
    with pytest.raises(LayoutError, match=f"the offsets of Sw<{bits},0,3> must be integers, got"):
        Swizzle(bits, 0, 3)(given)


def test_pythons_slices_are_no_coordinates():
    for crd in ((slice(0, 2), 1), (1, slice(None)), ..., (..., 1)):
        with pytest.raises(LayoutError, match="a coordinate must be a number or a tuple"):
            TENSOR[crd]


def test_what_holds_a_layout_spans_what_the_layout_does():
    swizzled = cute.composition(Swizzle(1, 0, 3), TENSOR.layout)
    assert cute.coshape(TENSOR) == cute.coshape(swizzled) == 32
    assert cute.max_alignment(cute.make_tensor(np.zeros(32), (4, 8))) == 32


def test_no_such_mode():
    with pytest.raises(LayoutError, match=r"\(4,4\):\(1,4\) has 2 modes, got mode 3"):
        A[3]
    with pytest.raises(LayoutError, match="4:1 has one mode, got mode 1"):
        B[1]
