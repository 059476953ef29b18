"""Worked operations: CuTe's documented examples by hand, and steps that add up to the result."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from layout_strategies import compact_layouts, layouts, spread_layouts, values
from tilewright.errors import LayoutError
from tilewright.layout import (
    ComposedLayout,
    Layout,
    Swizzle,
    coalesce,
    complement,
    composition,
    explain,
    flatten,
    left_inverse,
    logical_divide,
    logical_product,
    right_inverse,
)

L = Layout


def text(operation, *args):
    return str(explain(operation, *args))


def found(explanation):
    """The (size, stride) of all modes that the steps found, in order."""
    pairs = re.findall(r"-> (\d+):(-?\d+)$", str(explanation).replace("; ", "\n"), re.M)
    return [(int(s), int(d)) for s, d in pairs]


def of(modes):
    return L(tuple(s for s, _ in modes), tuple(d for _, d in modes)) if modes else L(1, 0)


# --- the documentation's examples, by hand ---


def test_composition_of_two_matrices():
    assert text(composition, L((6, 2), (8, 2)), L((4, 3), (3, 1))) == (
        "(6,2):(8,2) o (4,3):(3,1)\n"
        "  mode 0, 4:3\n"
        "    6:8  stride 3 leaves 2 of 6, 3·8 = 24 apart: takes 2 of 4 -> 2:24\n"
        "    2:2  stride 1, 1·2 = 2 apart: takes the remaining 2 -> 2:2\n"
        "  mode 1, 3:1\n"
        "    6:8  stride 1 leaves 6 of 6, 1·8 = 8 apart: takes the remaining 3 -> 3:8\n"
        "= ((2,2),3):((24,2),8)"
    )


def test_a_stride_that_passes_over_a_mode():
    assert text(composition, L((4, 6, 8, 10), (2, 3, 5, 7)), L(6, 12)) == (
        "(4,6,8,10):(2,3,5,7) o 6:12\n"
        "  4:2  stride 12 passes over all 4: stride 3 is left\n"
        "  6:3  stride 3 leaves 2 of 6, 3·3 = 9 apart: takes 2 of 6 -> 2:9\n"
        "  8:5  stride 1 leaves 8 of 8, 1·5 = 5 apart: takes the remaining 3 -> 3:5\n"
        "= (2,3):(9,5)"
    )


def test_one_mode_on_the_left():
    assert text(composition, L(20, 2), L((5, 4), (4, 1))) == (
        "20:2 o (5,4):(4,1)\n"
        "  mode 0, 5:4\n"
        "    20:2  stride 4, 4·2 = 8 apart: takes 5 -> 5:8\n"
        "  mode 1, 4:1\n"
        "    20:2  stride 1, 1·2 = 2 apart: takes 4 -> 4:2\n"
        "= (5,4):(8,2)"
    )


def test_an_error_names_the_mode_and_the_reason():
    worked = explain(composition, L((4, 3), (1, 5)), L((4, 4), (1, 3)))
    assert worked.lines[-3:] == (
        "    4:1  stride 1 leaves 4 of 4, 1·1 = 1 apart: takes the remaining 4 -> 4:1",
        "  mode 1, 4:3",
        "refused: composition of (4,3):(1,5) with 4:3 is not a layout:"
        " stride 3 does not divide size 4",
    )
    assert worked.result is None and isinstance(worked.refusal, LayoutError)


def test_tilers_swizzles_and_coordinates():
    inner = L((64, 64), (64, 1))
    swizzled = ComposedLayout(Swizzle(3, 3, 3), 0, inner)
    lines = explain(composition, swizzled, (L(8), L(16, 4))).lines
    assert lines[1] == "  Sw<3,3,3> stays outside; inside:"
    assert lines[2:-1] == tuple(
        f"  {line}" for line in explain(composition, inner, (L(8), L(16, 4))).lines[:-1]
    )
    assert text(composition, L((8, 8), (8, 1)), L.parse("(4,2):(1@1,2@0)")).splitlines()[1:] == [
        "  mode 0, 4:1@1",
        "    8:1  stride 1, 1·1 = 1 apart: takes 4 -> 4:1",
        "  mode 1, 2:2@0",
        "    8:8  stride 2, 2·8 = 16 apart: takes 2 -> 2:16",
        "= (4,2):(1,16)",
    ]


def test_complement():
    assert text(complement, L((2, 2), (1, 6)), 24) == (
        "complement of (2,2):(1,6) in 24\n"
        "  2:1  stride 1 over a span of 1: no gap; 2 are spanned\n"
        "  2:6  stride 6 over a span of 2: 3 fit -> 3:2; 12 are spanned\n"
        "  12 in 24 fit 2 times -> 2:12\n"
        "= (3,2):(2,12)"
    )


def test_logical_divide_is_a_composition_with_a_complement():
    worked = explain(logical_divide, L((4, 2, 3), (2, 1, 8)), L(4, 2))
    assert worked.lines[:6] == (
        "(4,2,3):(2,1,8) / 4:2",
        "  B = 4:2 picks a tile, B* the tiles:",
        "    complement of 4:2 in 24",
        "      4:2  stride 2 over a span of 1: 2 fit -> 2:1; 8 are spanned",
        "      8 in 24 fit 3 times -> 3:8",
        "  B* = (2,3):(1,8), and so (B, B*) = (4,(2,3)):(2,(1,8))",
    )
    assert worked.lines[-1] == "= ((2,2),(2,3)):((4,1),(2,8))"


def test_inverses():
    assert text(right_inverse, L((8, 4), (4, 1))) == (
        "right_inverse of (8,4):(4,1)\n"
        "  4:1  goes on at 1; it counts coordinates by 8 -> 4:8\n"
        "  8:4  goes on at 4; it counts coordinates by 1 -> 8:1\n"
        "= (4,8):(8,1)"
    )
    assert text(left_inverse, L((4, 2), (1, 16))) == (
        "left_inverse of (4,2):(1,16)\n"
        "  4:1  stride 1 is 1 times the one below, 1 -> 1:0\n"
        "  2:16  stride 16 is 16 times the one below, 1 -> 16:1\n"
        "  and its last mode -> 2:4\n"
        "= (16,2):(1,4)"
    )


def test_unsupported_operations_are_not_explained():
    with pytest.raises(LayoutError, match="explain does not support logical_product"):
        explain(logical_product, L(4), L(2))
    with pytest.raises(LayoutError, match=r"composition of 1 arguments: missing a required .*'b'"):
        explain(composition, 5)
    with pytest.raises(LayoutError, match="left_inverse of 2 arguments: too many"):
        explain(left_inverse, L(4), L(2))
    assert explain(complement, L(4), None).refusal is not None


# --- the steps are the operation ---


@examples(400)  # one in thirty takes a mode apart
@given(st.one_of(layouts(), spread_layouts), st.one_of(layouts(), compact_layouts()))
def test_the_steps_of_a_composition_are_its_modes(a, b):
    worked = explain(composition, a, b)
    if worked.refusal is None:
        assert worked.result == composition(a, b)
        flat = flatten(worked.result)
        assert found(worked) == list(zip(flatten(flat.shape), flatten(flat.stride), strict=True))
    else:
        with pytest.raises(LayoutError, match=re.escape(worked.refusal.message)):
            composition(a, b)


@given(spread_layouts, st.integers(1, 200))
def test_the_gaps_of_a_complement_are_its_modes(layout, bound):
    assert coalesce(of(found(explain(complement, layout, bound)))) == complement(layout, bound)


@given(spread_layouts)
def test_the_steps_of_an_inverse_are_its_modes(layout):
    for inverse in (right_inverse, left_inverse):
        worked = explain(inverse, layout)
        if worked.refusal is None:
            assert coalesce(of(found(worked))) == coalesce(inverse(layout)) == worked.result


@given(layouts(), spread_layouts)
def test_a_divide_is_explained_or_rejected(a, tile):
    worked = explain(logical_divide, a, tile)
    assert worked.result is not None or worked.lines[-1] == f"refused: {worked.refusal.message}"
    if worked.result is not None:
        assert values(worked.result[0]) == values(composition(a, tile))
