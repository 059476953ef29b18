"""Placements: what a kernel is told of a matrix is where its elements lie."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.run.arrays.array_view import view
from tilewright.run.call.matrix_layout import (
    ArraySignature,
    copy_layout,
    layout_with_order,
    padded_leading_dim,
    readable_layout,
    signature_of,
)

sizes = st.integers(0, 9)
steps = st.integers(-3, 12)
phases = st.integers(0, 7).map(lambda n: 2 * n)


@st.composite
def signatures(draw: st.DrawFn, ranks: tuple[int, ...] = (2, 3)) -> ArraySignature:
    rank = draw(st.sampled_from(ranks))
    shape, strides = (tuple(draw(x) for _ in range(rank)) for x in (sizes, steps))
    return ArraySignature(shape, strides, "f16", "cpu", draw(phases))


@given(signatures())
def test_a_layout_addresses_every_element(s: ArraySignature) -> None:
    p = readable_layout(s)
    if p is None:
        return
    stack, strides = (1, *s.shape)[-3:], (0, *s.strides)[-3:]
    for n, i, j in np.ndindex(stack):
        line, along = (i, j) if p.row_major else (j, i)
        at = n * p.batch_stride + line * p.leading_dim + along
        assert at == n * strides[0] + i * strides[1] + j * strides[2]


@given(signatures())
def test_the_alignment_divides_every_row(s: ArraySignature) -> None:
    p = readable_layout(s)
    if p is not None:
        assert p.align in (2, 4, 8, 16)
        assert not any(
            byte % p.align for byte in (s.misalignment, p.leading_dim * 2, p.batch_stride * 2)
        )


@given(signatures(ranks=(2,)))
def test_only_a_matrix_without_a_contiguous_index_is_copied(s: ArraySignature) -> None:
    able = [
        (length <= 1 or within == 1) and (lines <= 1 or length == 0 or between >= 0)
        for lines, length, between, within in (
            (*s.shape, *s.strides),
            (*s.shape[::-1], *s.strides[::-1]),
        )
    ]
    assert (readable_layout(s) is not None) == any(able)


@given(signatures(ranks=(3,)))
def test_a_stack_has_the_layout_of_its_first_matrix(s: ArraySignature) -> None:
    """But one that walks backwards is copied."""
    first = ArraySignature(s.shape[1:], s.strides[1:], s.dtype, s.device, s.misalignment)
    in_place = s.shape[0] <= 1 or s.strides[0] >= 0
    assert (readable_layout(s) is not None) == (in_place and readable_layout(first) is not None)


@pytest.mark.parametrize(
    ("cut", "row_major", "leading_dim", "align"),
    [
        (lambda a: a, True, 24, 16),
        (lambda a: a.T, False, 24, 16),
        (lambda a: a[:, 1:9], True, 24, 2),
        (lambda a: a[:, 4:9], True, 24, 8),
        (lambda a: a[:1, ::1], True, 64, 16),  # one line: any distance to the next
        (lambda a: a[:, :1], True, 24, 16),
        (lambda a: a[:1, ::2], False, 2, 4),
        (lambda a: np.broadcast_to(a[0], (7, 24)), True, 0, 16),
    ],
)
def test_layouts_of_views(cut: object, row_major: bool, leading_dim: int, align: int) -> None:
    whole = np.zeros((16, 24), np.float16)
    assert whole.ctypes.data % 16 == 0
    found = readable_layout(signature_of(view(cut(whole))))  # type: ignore[operator]
    assert found == (row_major, leading_dim, align, 0)


def test_elements_that_are_not_aligned_are_copied() -> None:
    odd = np.zeros(65, np.uint8)[1:].view(np.float16).reshape(4, 8)
    assert readable_layout(signature_of(view(odd))) is None


def test_layouts_of_either_order() -> None:
    s = signature_of(view(np.zeros((4, 8), np.float16)))
    assert layout_with_order(s, True) is not None and layout_with_order(s, False) is None


@given(sizes, st.sampled_from([1, 2, 4]), st.sampled_from([2, 4, 8, 16]))
def test_padded_rows_stay_aligned(length: int, itemsize: int, align: int) -> None:
    leading_dim = padded_leading_dim(length, itemsize, align)
    assert leading_dim >= max(length, 1) and leading_dim * itemsize % min(align, 4) == 0
    assert (leading_dim * itemsize) % align == 0 or align < itemsize
    assert leading_dim - length <= max((128 if align == 16 else align) // itemsize, 1)


def test_a_copy_has_rows_at_multiples_of_128_bytes() -> None:
    assert copy_layout((3, 5), 2) == (True, 64, 16, 0)
    assert copy_layout((3, 5), 4, row_major=False) == (False, 32, 16, 0)
    assert copy_layout((7, 3, 5), 1) == (True, 128, 16, 384)
