"""pycute's interface, held: what is written for it runs with ``tilewright.layout`` in its place.

Answers are pycute's own, in our notation; where CuTe's C++ answers otherwise, C++ is followed, and
``OTHERWISE`` says so. What pycute asserts is a LayoutError.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable

import pytest

from rows import every_row
from tilewright import layout
from tilewright.errors import LayoutError
from tilewright.layout import Layout, Swizzle

SIGNATURES = """
is_int(x)  is_tuple(x)  is_layout(x)  has_none(a)  slice_(crd,trg)
flatten(t)  signum(a)  product(a)  inner_product(a,b)  tuple_max(a)  elem_scale(a,b)
shape_div(a,b)  prefix_product(a,init)  shiftl(a,s)  shiftr(a,s)
idx2crd(idx,shape,stride)  crd2idx(crd,shape,stride)  crd2crd(crd,dst_shape,src_shape)
size(layout)  cosize(layout)  coalesce(layout,profile)  filter(layout,profile)
complement(layout,max_idx)  right_inverse(layout)  left_inverse(layout)
slice_and_offset(crd,layout)  Swizzle(bits,base,shift)
""".split()
OF_TWO = """
composition logical_divide zipped_divide tiled_divide logical_product zipped_product tiled_product
""".split()  # layouts, by position: pycute's layoutA and layoutB have other names in C++


@every_row("signature", SIGNATURES)
def test_arguments_have_their_names_and_order(signature: str) -> None:
    name, arguments = signature.rstrip(")").split("(")
    names = arguments.split(",")
    assert list(inspect.signature(getattr(layout, name)).parameters)[: len(names)] == names
    assert name in layout.__all__


@pytest.mark.parametrize("name", OF_TWO)
def test_the_layout_comes_before_the_other(name: str) -> None:
    assert len(inspect.signature(getattr(layout, name)).parameters) == 2
    assert name in layout.__all__


ANSWERS = {
    "Layout((4, 8))": "(4,8):(1,4)",
    "Layout((2, (3, 4)), (3, (1, 6)))((1, (2, 3)))": "23",
    "Layout((2, (3, 4)), (3, (1, 6)))(1, (2, 3))": "23",
    "Layout((2, (3, 4)), (3, (1, 6)))(23)": "23",
    "Layout((2, (3, 4)), (3, (1, 6)))((1, None))": "((3,4)):((1,6))",
    "Layout((2, (3, 4)), (3, (1, 6)))[1]": "(3,4):(1,6)",
    "len(Layout((2, (3, 4))))": "2",
    "Layout((4, 2), (1, 16)).size()": "8",
    "Layout((4, 2), (1, 16)).cosize()": "20",
    "make_layout(Layout(4, 2), Layout((2, 3)))": "(4,(2,3)):(2,(1,2))",
    "make_layout([Layout(4, 2), Layout(2)])": "(4,2):(2,1)",
    "make_layout(Layout(n) for n in (2, 3))": "(2,3):(1,1)",
    "make_layout(Layout(4, 2))": "(4):(2)",
    "size((2, (3, 4)))": "24",
    "coalesce(layout=Layout((2, (1, 6)), (1, (6, 2))))": "12:1",
    "coalesce(Layout((2, (1, 6)), (1, (6, 2))), profile=(1, 1))": "(2,6):(1,2)",
    "coalesce(Layout((2, (1, 6), 3), (1, (6, 2), 7)), (1,))": "(2,(1,6),3):(1,(6,2),7)",
    "filter(Layout((4, 8, 2), (0, 1, 8)))": "16:1",
    "filter(Layout((4, (8, 2)), (0, (1, 0))), profile=(1, 1))": "(1,8):(0,1)",
    "composition(Layout((6, 2), (8, 2)), Layout((4, 3), (3, 1)))": "((2,2),3):((24,2),8)",
    "composition(Layout((4, 3)), 6)": "6:1",
    "composition(Layout((6, 2), (8, 2)), (Layout(3, 2), None))": "(3,2):(16,2)",
    "composition(Layout(8), None)": "8:1",
    "complement(Layout((2, 2), (1, 6)), 24)": "(3,2):(2,12)",
    "complement(layout=Layout(4, 2), max_idx=24)": "(2,3):(1,8)",
    "complement(Layout((2, 2), (1, 6)))": "3:2",
    "right_inverse(Layout((8, 4), (4, 1)))": "(4,8):(8,1)",
    "right_inverse(8), right_inverse(None)": "(8:1,None)",
    "left_inverse(Layout((8, 4), (4, 1)))": "(4,8):(8,1)",
    "left_inverse(8), left_inverse(None)": "(8:1,None)",
    "logical_divide(Layout((4, 2, 3), (2, 1, 8)), Layout(4, 2))": "((2,2),(2,3)):((4,1),(2,8))",
    "logical_divide(Layout((8, 6)), (2, None))": "((2,4),6):((1,2),8)",
    "zipped_divide(Layout((8, 6)), (2, 3))": "((2,3),(4,2)):((1,8),(2,24))",
    "zipped_divide(Layout((8, 6)), (2,))": "((2),(4,6)):((1),(2,8))",
    "tiled_divide(Layout((8, 6)), (2, 3))": "((2,3),4,2):((1,8),2,24)",
    "logical_product(Layout((2, 2), (4, 1)), Layout(6))": "((2,2),(2,3)):((4,1),(2,8))",
    "zipped_product(Layout((2, 5), (5, 1)), (Layout(3, 5), Layout(4, 6)))":
        "((2,5),(3,4)):((5,1),(10,30))",
    "tiled_product(Layout((2, 5), (5, 1)), (Layout(3, 5), Layout(4, 6)))":
        "((2,5),3,4):((5,1),10,30)",
    "hier_unzip(logical_divide, Layout((8, 6)), (2, None))": "((2,1),(4,6)):((1,0),(2,8))",
    "slice_and_offset((1, None), Layout((4, 8)))": "((8):(4),1)",
    "crd2idx((1, (1, None)), (3, (2, 3)))": "4",
    "crd2idx(10, (4, 8), (8, 1))": "18",
    "idx2crd(10, (4, 8), (8, 1))": "(1,2)",
    "idx2crd(5, (2, (3, 4))), idx2crd((3, 4), (4, (2, 3)))": "((1,(2,0)),(3,(0,2)))",
    "crd2crd((1, 2), 12, (3, 4))": "7",
    "crd2crd(7, (3, 4))": "(1,2)",
    "shape_div((6, 4), 12), shape_div(12, (2, 3)), shape_div((6, 4), (3, 8))": "((1,2),2,(2,1))",
    "prefix_product((3, (2, 4))), prefix_product((2, 1, 3)), prefix_product((2, (3, 4)), (5, 7))":
        "((1,(3,6)),(1,2,2),(5,(7,21)))",
    "elem_scale((2, (3, 4)), (5, (6, 7))), elem_scale(2, (3, 4))": "((10,(18,28)),24)",
    "inner_product((1, (2, 3)), (4, (5, 6))), tuple_max((1, (7, 3))), signum(-3)": "(32,7,-1)",
    "flatten((1, (2, (3,)))), product((2, (3, 4))), flatten(())": "((1,2,3),24,())",
    "slice_((None, (1, None)), (2, (3, (4, 5)))), has_none((1, (2, None)))": "((2,(4,5)),True)",
    "shiftr(12, 2), shiftr(3, -2), shiftl(3, 2), shiftl(12, -2)": "(3,12,12,3)",
    "Swizzle(2, 0, 3)(8), Swizzle(2, 0, -3)(1), Swizzle(2, 0, 3).size()": "(9,9,32)",
    "ComposedLayout(Swizzle(2, 0, 3), 0, Layout((4, 8), (8, 1)))(1, 2)": "11",
    "ComposedLayout(Swizzle(2, 0, 3), 8, Layout((4, 8), (8, 1)))[1](1)": "8",
    "is_int(3), is_int(True), is_int(3.0), isinstance(3, Integer), isinstance(False, Integer)":
        "(True,False,False,True,False)",
    "is_layout(Layout(3)), is_layout(ComposedLayout(Swizzle(1, 0, 1), 0, Layout(4))), is_layout(3)":
        "(True,True,False)",
}  # fmt: skip


def text(x: object) -> str:
    return f"({','.join(map(text, x))})" if isinstance(x, tuple) else str(x)


@every_row("program", ANSWERS)
def test_answers(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycute", layout)
    space: dict[str, object] = {}
    exec("from pycute import *", space)
    assert text(eval(program, space)) == ANSWERS[program]


OTHERWISE = {
    "logical_product(Layout(4, 1), 3)": "(4,3):(1,4)",  # there an int divides: a slip
    "complement(4, 24)": "6:4",  # there the bound of a number is lost
    "idx2crd(16, (4, 4))": "(0,4)",  # there the last mode wraps
    "crd2crd((1, (1, 2)), (3, 6), (3, (2, 3)))": "(1,5)",  # there modes lose their source shape
    "composition(Layout(1, 8), 2)": "2:8",  # there 2:0
    "composition(Layout((4, 6)), (2,))": "(2):(1)",  # there further modes stay
    "left_inverse(Layout(8, 3))": "(3,8):(0,1)",  # there (3,8):(8,1), equal where it counts
    "left_inverse(Layout((4, 2), (1, 16)))": "(16,2):(1,4)",  # there (4,4,2):(1,8,4)
    "Swizzle(3, 4, 3)": "Sw<3,4,3>",  # there SW_3_4_3
    "Layout((4, 8), (-1, 4)).cosize()": "32",  # there 26, of the last coordinate alone
}


@pytest.mark.parametrize("program", OTHERWISE)
def test_as_cute_where_pycute_differs(program: str) -> None:
    assert text(eval(program, dict(vars(layout)))) == OTHERWISE[program]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layout.shape_div(6, 4), "one must divide the other"),
        (lambda: layout.crd2idx((1, 2), (3, 4, 5)), "does not match shape"),
        (lambda: layout.elem_scale((2, 3), 4), "must have the same nesting"),
        (lambda: layout.crd2crd(9, 4), "must be below 4, got 9"),
        (lambda: layout.composition(Layout((3, 4), (1, 8)), 4), "is not a layout"),
        (lambda: layout.complement(Layout((4, 4), (1, 2))), "overlaps the modes below"),
        (lambda: layout.coalesce(Layout(4), (1, 1)), "at most the 1 modes"),
        (lambda: Swizzle(3, 0, 2), "must be at least bits"),
    ],
)
def test_asserts_are_layout_errors(call: Callable[[], object], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        call()
