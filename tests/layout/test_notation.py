"""What is printed reads back, in both notations; what can't be read is refused at its place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layout_strategies import layouts, shapes, swizzles
from tilewright.errors import LayoutError
from tilewright.layout import (
    ComposedLayout,
    Layout,
    Swizzle,
    make_composed_layout,
    make_identity_layout,
    parse,
)
from tilewright.layout.int_tuple import text

composed = st.builds(
    make_composed_layout, st.one_of(swizzles(), layouts()), st.integers(0, 500), layouts()
)
anything = st.one_of(
    layouts(st.integers(-9, 99)), swizzles(), composed, shapes.map(make_identity_layout), shapes
)


@given(anything)
def test_printed_layouts_round_trip(thing):
    assert parse(text(thing)) == thing
    if isinstance(thing, (Layout, ComposedLayout)):
        assert parse(f"{thing:cute}") == Layout.parse(f" {thing} ") == thing


def test_both_notations():
    tile = ComposedLayout(Swizzle(3, 4, 3), 0, Layout((64, 64), (64, 1)))
    assert parse("Sw<3,4,3> o (64,64):(64,1)") == tile
    assert parse("Sw<3,4,3> o _0 o (_64,_64):(_64,_1)") == tile
    assert f"{tile:cute}" == "Sw<3,4,3> o _0 o (_64,_64):(_64,_1)"
    assert parse("(_4,(8, _2)):(_-1,(_1@0,0))") == parse("(4,(8,2)):(-1,(1@0,0))")
    assert f"{Layout(4):>5}" == "  4:1"


@pytest.mark.parametrize(
    ("written", "column", "says"),
    [
        ("", 1, "expected a number or '(', got the end"),
        ("(4,", 4, "a number or '('"),
        ("(4 5):1", 4, "expected ',' or ')', got '5):1'"),
        ("(4,5):(1)", 1, "must have the same nesting"),
        ("4:1 4", 5, "' o ' or the end"),
        ("4:1 o 4:x", 9, "a number or '('"),
        ("Sw<3,4> o 4:1", 1, "a number or '('"),
        ("Sw<3,4,3> o Sw<3,4,2> o 4:1", 13, "must be at least bits"),
        ("Sw<3,4,3> o 4", 1, "inner of a composed layout must be a layout"),
        ("4 o 4:1", 1, "a layout or swizzle before an offset"),
        ("(4) o 4:1", 1, "outer of a composed layout must be a swizzle or layout"),
        ("Sw<3,4,3> o Sw<3,4,3> o 4:1", 1, "inner of a composed layout must be a layout"),
        ("0:1", 1, "sizes of a shape must be at least 1"),
        ("(" * 100_000, 62, "at most 60 nested"),
        ("9" * 5000 + ":1", 1, "at most 40 digits"),
        ("٣:1", 1, "a number"),
    ],
)
def test_text_that_cannot_be_parsed(written, column, says):
    with pytest.raises(LayoutError) as e:
        parse(written)
    assert says in e.value.message and e.value.location.column == column


@given(st.text("(),:_-@o Sw<>0123456789 ", max_size=20))
def test_any_text_parses_or_is_rejected(written):
    try:
        found = parse(written)
    except LayoutError:
        return
    assert parse(str(found)) == found


def test_a_text_must_be_a_str():
    with pytest.raises(LayoutError, match="expected a str, got 5"):
        parse(5)
