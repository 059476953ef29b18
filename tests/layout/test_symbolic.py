"""Dynamic coordinates and strides: the right value, by as few operations as can be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layout_strategies import compact_layouts, layouts, like, spread_layouts
from symbol import Symbol, count, evaluate
from tilewright.errors import LayoutError
from tilewright.layout import (
    Layout,
    Swizzle,
    coalesce,
    complement,
    composition,
    crd2idx,
    elem_less,
    flatten,
    idx2crd,
    is_static,
    left_inverse,
    product,
    zipped_divide,
)

x, y, ld = Symbol("x"), Symbol("y"), Symbol("ld")


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        (Layout((4, 8))(x), "x"),
        (Layout((4, 8), (8, 1))(x, y), "((x * 8) + y)"),
        (Layout((4, 8), (8, 1))(x, 3), "((x * 8) + 3)"),
        (Layout((4, 8), (8, 1))(1, x), "(x + 8)"),
        (Layout((4, 8), (8, 1))(x), "((x // 4) + ((x % 4) * 8))"),
        (Layout((4, 1, 8), (1, 77, 4))(x), "x"),
        (Layout((4, 8), (0, 1))(x), "(x // 4)"),
        (Layout((4, 8), (1, 0))(x), "(x % 4)"),
        (Layout((4, 8), (0, 0))(x), "0"),
        (Layout((4, 8, 2), (0, 4, 0))(x), "(x & 28)"),
        (Layout((4, 8, 2), (0, 1, 0))(x), "((x & 28) // 4)"),
        (Layout((2, 2, 2, 3), (8, 0, 32, 1))(x), "((x // 8) + ((x & 5) * 8))"),
        (Layout((3, 5, 2), (5, 1, 30))(x), "((((x % 3) * 5) + ((x // 3) % 5)) + ((x // 15) * 30))"),
        (Layout((8, 4), (1, ld))(x, y), "(x + (y * ld))"),
        (Layout((8, 4), (1, ld))(3, 2), "((ld * 2) + 3)"),
        (Layout((8, 4), (1, ld))(3, 1), "(ld + 3)"),
        (Layout((8, 4), (1, ld))(5, 0), "5"),
        (Layout((8, 4), (1, ld))(11), "(ld + 3)"),
        (Layout((8, x), (1, ld))(11), "(ld + 3)"),
    ],
)
def test_fewest_operations(offset, text):
    assert str(offset) == text


@given(layouts(st.integers(-8, 64)))
def test_a_dynamic_number_has_the_same_offset(layout):
    expression = layout(x)
    assert [evaluate(expression, x=i) for i in range(layout.size())] == layout.indices().tolist()


@given(layouts(st.integers(-8, 64)))
def test_dynamic_coordinates_have_the_same_offset(layout):
    names = [f"c{i}" for i in range(len(flatten(layout.shape)))]
    crd = like(layout.shape, [Symbol(n) for n in names])
    expression = layout(crd)
    for i in range(layout.size()):
        values = dict(zip(names, flatten(idx2crd(i, layout.shape)), strict=True))
        assert evaluate(expression, **values) == layout(i)


@given(compact_layouts())
def test_a_dynamic_index_to_coordinate_and_back(layout):
    crd = idx2crd(x, layout.shape)
    by_stride = layout.get_hier_coord(x)
    flat = layout.get_flat_coord(x)
    for i in range(layout.size()):
        at = tuple(evaluate(c, x=i) for c in flatten(crd))
        assert at == flatten(idx2crd(i, layout.shape))
        at = tuple(evaluate(c, x=layout(i)) for c in flatten(by_stride))
        assert at == flatten(idx2crd(i, layout.shape))
        at = tuple(evaluate(c, x=layout(i)) for c in flatten(flat))
        assert layout(at if isinstance(layout.shape, tuple) else at[0]) == layout(i)


def test_coordinates_take_no_more_than_they_need():
    assert str(idx2crd(x, (4, 8))[0]) == "(x % 4)"
    assert str(idx2crd(x, (4, 8))[1]) == "(x // 4)"
    assert idx2crd(x, (1, 8, 1)) == (0, x, 0)
    assert list(map(str, Layout((4, 8), (8, 1)).get_flat_coord(x))) == ["(x // 8)", "(x % 8)"]
    assert list(map(str, Layout(((2, 2), 8)).get_flat_coord(x))) == ["(x % 4)", "(x // 4)"]


@given(spread_layouts, st.integers(0, 3), st.integers(0, 3), st.integers(-3, 3))
def test_a_dynamic_swizzle_is_the_swizzle(layout, bits, base, extra):
    shift = bits + extra if extra >= 0 else -bits + extra
    swizzled = composition(Swizzle(bits, base, shift), layout)
    expression = swizzled(x)
    for i in range(layout.size()):
        assert evaluate(expression, x=i) == swizzled(i)


def test_a_swizzle_is_applied_only_to_the_bits_it_changes():
    tile = composition(Swizzle(3, 3, 3), Layout((64, 64, 4), (64, 1, 4096)))
    assert str(tile(x, 0, 0)) == "((x * 64) ^ (((x * 64) >> 3) & 56))"
    plain = str(tile(x, 0, 0))
    assert str(tile(x, 0, y)) == f"({plain} + (y * 4096))"  # a whole number of periods
    assert str(tile(x, 0, 3)) == f"({plain} + 12288)"
    assert str(tile(x, 5, 1)) == f"(({plain} + 4096) + 5)"  # below the base
    assert count(tile(x, 8, 0)) == count(tile(x, 0, 0)) + 2  # an 8 under the swizzle, read twice


def test_the_algebra_rejects_unknown_dynamic_values():
    dynamic = Layout((8, 4), (1, ld))
    for call in (
        lambda: complement(dynamic, 64),
        lambda: left_inverse(dynamic),
        lambda: composition(Layout((4, 3), (3, 1)), Layout(4, ld)),
        lambda: composition(Layout((x, 3), (3, 1)), Layout(4, 2)),
        lambda: dynamic.indices(),
    ):
        with pytest.raises(LayoutError, match=r"static|dynamic"):
            call()


def test_tiling_a_problem_of_dynamic_size():
    m, k = Symbol("m"), Symbol("k")
    tiled = zipped_divide(Layout((m, k), (k, 1)), (128, 64))
    tile, rest = tiled
    assert tile.shape == (128, 64) and str(tile.stride[0]) == "k" and tile.stride[1] == 1
    assert evaluate(rest.shape[0], m=300) == 3
    assert evaluate(rest.shape[1], k=64) == 1
    offset = crd2idx(((x, y), (2, 1)), tiled.shape, tiled.stride)
    assert evaluate(offset, x=5, y=7, k=200) == (2 * 128 + 5) * 200 + 64 + 7


def test_values_with_dynamic_parts():
    a, b = Layout((8, 4), (1, ld)), Layout((8, 4), (1, ld))
    assert a == b and hash(a) == hash(b) and a != Layout((8, 4), (1, x))
    assert str(a) == "(8,4):(1,ld)"
    assert not a.is_static() and is_static(a.shape)
    assert str(coalesce(Layout((2, 4, 4), (1, 2, ld)))) == "(8,4):(1,ld)"
    assert str(product((2, (x, 3)))) == "((x * 3) * 2)"
    assert str(a.cosize()) == "((ld * 3) + 8)"


def test_bounds_as_predicates():
    assert str(elem_less((x, 3), (ld, 4))) == "(x < ld)"
    assert str(elem_less((x, y), (10, ld))) == "((x < 10) & (y < ld))"
    assert elem_less((x, 4), (ld, 4)) is False
