"""Cosize and elements of swizzled layouts: found without looking at every offset."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import LayoutError
from tilewright.layout import ComposedLayout, Layout, Swizzle, make_tensor

SWIZZLES = st.builds(
    lambda bits, base, more, sign: Swizzle(bits, base, sign * (bits + more)),
    st.integers(0, 3), st.integers(0, 4), st.integers(0, 3), st.sampled_from([1, -1]),
)  # fmt: skip
STRIDES = st.sampled_from([0, 1, 2, 3, 4, 5, 8, 16, -1, -4, 7, 12, 32, 64, 100])
MODES = st.lists(st.tuples(st.integers(1, 6), STRIDES), min_size=1, max_size=4)
BILLIONS = {
    "one mode": (Swizzle(3, 4, 3), 0, Layout(2**31), 2**31),
    "rows": (Swizzle(3, 3, 3), 0, Layout((2**16, 2**15), (2**15, 1)), 2**31),
    "from an offset": (Swizzle(3, 20, 3), 5, Layout(2**31), 2**31 + 5),
    "with gaps": (Swizzle(2, 0, 2), 0, Layout((2**20, 2**11), (2**11, 1)), 2**31),
    "one element": (Swizzle(3, 4, 3), 0, Layout(2**31, 0), 1),
}


@given(SWIZZLES, st.sampled_from([0, 0, 3, 64, -5, 1000]), MODES)
def test_cosize_is_one_more_than_the_greatest_offset(swizzle: Any, offset: int, modes: Any) -> None:
    shape, stride = zip(*modes, strict=True)
    layout = ComposedLayout(swizzle, offset, Layout(shape, stride))
    assert layout.cosize() == layout.indices().max() + 1


@pytest.mark.parametrize(("swizzle", "offset", "inner", "cosize"), BILLIONS.values(), ids=BILLIONS)
def test_billions_of_elements_take_no_memory(
    swizzle: Swizzle, offset: int, inner: Layout, cosize: int
) -> None:
    layout = ComposedLayout(swizzle, offset, inner)
    tensor = make_tensor(np.zeros(64, np.uint8), layout)
    tracemalloc.start()
    try:
        assert layout.cosize() == cosize
        for use in (tensor.to_numpy, layout.indices, inner.indices, lambda: np.asarray(tensor)):
            with pytest.raises(
                LayoutError, match=r"must have at most 1073741824 elements|offsets, over"
            ):
                use()
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_an_expensive_cosize_is_rejected() -> None:
    with pytest.raises(LayoutError, match="more than 16777216 offsets"):
        ComposedLayout(Swizzle(3, 0, 30), 0, Layout(2**40)).cosize()


def test_many_elements_are_gathered_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.layout.tensor._CHUNK", 7)
    for layout in (Layout((4, (3, 5)), (15, (5, 1))), Layout((3, 20))):
        swizzled = ComposedLayout(Swizzle(2, 1, 2), 0, layout)
        tensor = make_tensor(np.arange(64), swizzled)
        expected = swizzled.indices().reshape(layout.shape[0], -1, order="F")
        assert np.array_equal(tensor.to_numpy(), expected)
