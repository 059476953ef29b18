"""Random shapes and layouts, small enough to look at every coordinate."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from hypothesis import strategies as st

from tilewright.layout import Layout, Swizzle, flatten

SIZES = st.sampled_from([1, 2, 2, 3, 4, 4, 6, 8])
STRIDES = st.integers(0, 12)
NO_GAP = st.just(1)


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Int tuples of up to four leaves, nested up to three deep."""
    return st.recursive(
        leaves, lambda t: st.lists(t, min_size=1, max_size=3).map(tuple), max_leaves=4
    )


shapes = nested(SIZES).filter(lambda s: 1 <= len(flatten(s)) <= 5)


def like(shape: Any, leaves: list[Any]) -> Any:
    """``leaves`` nested like ``shape``; takes them from the list."""
    return tuple(like(s, leaves) for s in shape) if isinstance(shape, tuple) else leaves.pop(0)


@st.composite
def layouts(draw: Any, strides: Any = STRIDES) -> Layout:
    """Any layout at all."""
    shape = draw(shapes)
    return Layout(shape, like(shape, [draw(strides) for _ in flatten(shape)]))


@st.composite
def compact_layouts(draw: Any, gap: Any = NO_GAP, shape: Any = None) -> Layout:
    """Injective layouts: modes packed in a random order, a factor ``gap`` apart."""
    shape = draw(shapes) if shape is None else shape
    sizes = flatten(shape)
    order = draw(st.permutations(range(len(sizes))))
    gaps = [draw(gap) for _ in sizes]
    places = list(
        accumulate((sizes[i] * gaps[i] for i in order), lambda a, b: a * b, initial=gaps[-1])
    )
    strides = [0] * len(sizes)
    for place, i in zip(places, order, strict=False):
        strides[i] = place
    return Layout(shape, like(shape, strides))


spread_layouts = compact_layouts(st.sampled_from([1, 1, 2, 3]))


def values(layout: Any) -> list[int]:
    """The offsets of the whole domain (test_layout compares them with one at a time)."""
    return layout.indices().tolist()


@st.composite
def swizzles(draw: st.DrawFn) -> Swizzle:
    bits = draw(st.integers(0, 3))
    shift = draw(st.integers(bits, 4)) * draw(st.sampled_from([1, -1]))
    return Swizzle(bits, draw(st.integers(0, 4)), shift)
