"""What a layout is as a function and as memory: each answer against the whole domain."""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from layout_strategies import compact_layouts, layouts, spread_layouts, values
from symbol import Symbol
from tilewright.errors import LayoutError
from tilewright.layout import ComposedLayout, Layout, Swizzle, left_inverse, right_inverse
from tilewright.layout.algebra.function_properties import (
    bijective,
    contiguous,
    injective,
    surjective,
)
from tilewright.layout.algebra.layout_analysis import analyze
from tilewright.layout.memory.vectorization import alignment, contiguous_run, widest_vector

L = Layout
N, M = Symbol("n"), Symbol("m")
LAYOUTS = layouts()
SIGNED = layouts(st.integers(-6, 12))
SWIZZLES = st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(-3, 4)).filter(
    lambda s: abs(s[2]) >= s[0]
)


@st.composite
def composed(draw, inner=LAYOUTS):
    """Under a swizzle or another layout, from some offset on."""
    outer = draw(st.one_of(SWIZZLES.map(lambda s: Swizzle(*s)), layouts()))
    return ComposedLayout(outer, draw(st.integers(0, 9)), draw(inner))


ANY = st.one_of(SIGNED, spread_layouts, composed(), composed(spread_layouts))


# --- as a function ---


@given(ANY)
def test_each_property_agrees_with_the_evaluated_domain(layout):
    offsets = values(layout)
    found = set(offsets)
    assert bool(injective(layout)) == (len(found) == len(offsets))
    assert bool(contiguous(layout)) == (max(found) - min(found) + 1 == len(found))
    onto = set(range(layout.cosize())) <= found
    assert bool(surjective(layout)) == onto
    assert bool(bijective(layout)) == (onto and len(found) == len(offsets))


@given(st.one_of(SIGNED, layouts()))
def test_a_collision_names_two_coordinates_with_the_same_offset(layout):
    answer = injective(layout)
    if not answer:
        first, second = answer.why.removesuffix(" have the same offset").split(" and ")
        assert first != second and layout(L.parse(first)) == layout(L.parse(second))


@given(ANY)
def test_a_gap_names_an_offset_without_a_coordinate(layout):
    for question in (surjective, contiguous):
        answer = question(layout)
        if not answer:
            assert int(answer.why.removeprefix("nothing is at ")) not in values(layout)


def test_the_size_does_not_matter_where_modes_decide():
    assert injective(L((1 << 40, 1 << 40), (1 << 40, 1)))
    assert bijective(ComposedLayout(Swizzle(3, 4, 3), 0, L((1 << 40, 64), (64, 1))))
    assert (
        str(injective(L((1 << 40, 1 << 40), (3, 5)))) == "no: (5,0) and (0,3) have the same offset"
    )
    assert str(surjective(L((1 << 40, 3), (1, 1 << 41)))) == f"no: nothing is at {1 << 40}"


def test_undecided_properties_are_evaluated_or_not_known():
    strides = random.Random(0).sample(range(1 << 36, 1 << 37), 48)
    few, many = L((2,) * 16, tuple(strides[:16])), L((2,) * 48, tuple(strides))
    assert bool(injective(few)) == (len(set(values(few))) == few.size())
    assert injective(many).known is None
    with pytest.raises(LayoutError, match="not known: its modes do not decide"):
        bool(injective(many))
    assert surjective(ComposedLayout(Swizzle(3, 3, 3), 0, L((1 << 40, 63), (64, 1)))).known is None


@pytest.mark.parametrize(
    ("layout", "is_injective", "is_surjective"),
    [
        (L((N, 64), (64, 1)), "yes", "yes"),
        (L((N, 64), (72, 1)), "yes", "not known: size n is dynamic"),
        (L((N, 64), (63, 1)), "not known: size n is dynamic", "yes"),
        (L((64, M), (1, N)), "not known: stride n is dynamic", "not known: stride n is dynamic"),
        (L((N, (4, 4)), (M, (1, 2))), "no: (0,(2,0)) and (0,(0,1)) have the same offset", None),
        (L((N, 1), (1, M)), "yes", "yes"),
        (ComposedLayout(Swizzle(3, 3, 3), N, L((8, 64), (64, 1))), "yes", None),
    ],
)
def test_nothing_dynamic_is_guessed(layout, is_injective, is_surjective):
    assert str(injective(layout)) == is_injective
    assert is_surjective is None or str(surjective(layout)) == is_surjective


def test_properties_of_coordinate_layouts_are_decided_by_component():
    assert bijective(L.parse("(4,(8,2)):(1@0,(1@1,8@1))"))
    assert str(injective(L.parse("(4,(8,2)):(1@0,(1@1,4@1))"))).startswith("no: (0,(4,0))")
    assert str(surjective(L.parse("(4,(8,2)):(1@0,(1@1,9@1))"))) == "no: nothing is at 8@1"
    assert injective(L((N, M), (L.parse("4:1@0").stride, L.parse("4:1@1").stride)))


@pytest.mark.parametrize(
    ("layout", "gap"),
    [
        (ComposedLayout(Swizzle(1, 0, 1), 0, L(3)), 2),
        (ComposedLayout(Swizzle(3, 3, 3), 0, L((64, 7), (8, 1))), 7),
        (ComposedLayout(Swizzle(1, 0, 1), 3, L(4)), 3),
    ],
)
def test_a_swizzle_permutes_only_whole_periods(layout, gap):
    assert str(contiguous(layout)) == f"no: nothing is at {gap}"


# --- as memory ---


@given(ANY)
def test_alignment_divides_every_offset(layout):
    multiple = alignment(layout)
    assert all(offset % multiple == 0 if multiple else offset == 0 for offset in values(layout))


@given(st.one_of(layouts(), spread_layouts, composed()))
@example(ComposedLayout(Swizzle(1, 1, 1), 0, Layout((2, 4), (1, 1))))  # runs overlap
@example(ComposedLayout(Swizzle(2, 2, 2), 0, Layout((4, 8), (1, 6))))  # and are not aligned
def test_a_run_is_contiguous_from_each_of_its_multiples(layout):
    length, offsets = contiguous_run(layout), values(layout)
    assert len(offsets) % length == 0
    for start in range(0, len(offsets), length):
        run = offsets[start : start + length]
        assert run == list(range(run[0], run[0] + length))


@given(st.one_of(layouts(), spread_layouts, compact_layouts(), composed(spread_layouts)))
def test_a_vector_moves_whole_aligned_groups(layout):
    elements, offsets = widest_vector(layout, 16).elements, set(values(layout))
    assert elements in (1, 2, 4, 8)
    groups = {offset // elements for offset in offsets}
    assert offsets == {g * elements + i for g in groups for i in range(elements)}


@given(compact_layouts())
def test_a_compact_layout_moves_all_that_its_size_allows(layout):
    size = layout.size()
    assert widest_vector(layout, 8).elements == min(16, size & -size)


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (L((64, 8), (1, 66)), "4 bytes, 2 elements of 16 bits: mode 8:66 begins at multiples of 2"),
        (L((64, 8), (1, N)), "2 bytes, 1 element of 16 bits: stride n is dynamic"),
        (
            L((N, 64), (64, 1)),
            "16 bytes, 8 elements of 16 bits: instructions move at most 16 bytes",
        ),
        (L((N, 8), (1, 64)), "2 bytes, 1 element of 16 bits: size n is dynamic"),
        (
            ComposedLayout(Swizzle(3, 2, 3), 0, L((64, 8), (1, 64))),
            "8 bytes, 4 elements of 16 bits: the swizzle keeps 4 elements contiguous",
        ),
    ],
)
def test_why_a_vector_is_not_wider(layout, text):
    assert str(widest_vector(layout, 16)) == text


def test_vectors_are_of_memory_and_of_powers_of_two():
    with pytest.raises(LayoutError, match="got 24"):
        widest_vector(L(8), 24)
    with pytest.raises(LayoutError, match="maps to coordinates"):
        widest_vector(L.parse("(4,8):(1@0,1@1)"), 16)


# --- at once ---


def test_all_of_a_layout_in_a_few_lines():
    assert str(analyze(L((8, 6), (8, 1)), bits=16)) == (
        "layout      (8,6):(8,1)\n"
        "size        48, over 62 offsets\n"
        "injective   yes\n"
        "surjective  no: nothing is at 6\n"
        "contiguous  no: nothing is at 6\n"
        "runs        1, 6 elements in a row, by mode\n"
        "alignment   offsets are multiples of 1\n"
        "vector      4 bytes, 2 elements of 16 bits: 6 elements are contiguous\n"
        "inverses    right (6:8) of offsets below 6, left ((8,8):(8,1)) of offsets below 64"
    )


@given(st.one_of(layouts(), spread_layouts))
def test_the_inverses_are_those_of_the_algebra(layout):
    found = analyze(layout)
    assert found.right.layout == right_inverse(layout)
    try:
        assert found.left.layout == left_inverse(layout)
    except LayoutError as error:
        assert found.left.refusal == error.message


def test_huge_and_dynamic_layouts_are_analysed_too():
    huge = analyze(ComposedLayout(Swizzle(3, 3, 3), 0, L((1 << 40, 64), (64, 1))), 16)
    assert huge.bijective and huge.vector.width == 128
    assert bool(analyze(ComposedLayout(Swizzle(3, 70, 3), 0, L(8))).injective)
    dynamic = dict(analyze(L((N, 64), (M, 8)), 16).lines())
    assert dynamic["alignment"] == "not known: stride m is dynamic"
    assert dict(analyze(L.parse("(4,8):(1@0,1@1)")).lines())["size"] == "32, over (4,8) coordinates"
