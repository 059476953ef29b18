"""Copies of matrices by kernels: every alignment, any strides, stacks, several at once."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from gemm_cases.copied import SIZES, Place, aligned, check, padded_to
from tilewright.run import device
from tilewright.run.relayout.relayout import RelayoutSpec, prepare

pytestmark = pytest.mark.vm


@pytest.mark.parametrize("size", SIZES)
def test_rows_to_aligned_rows(size: int) -> None:
    for before in range(0, 16, size):
        for length in (2, 3, 15 // size + 1, 16 // size + 1, 33, 70):
            source = Place((5, length), (length + before % 3, 1), size, before)
            check((source, aligned((5, length), size)), padded=True)


@pytest.mark.parametrize("size", SIZES)
def test_rows_to_any_rows(size: int) -> None:
    for before, length in product(range(0, 16, size), (2, 9, 40)):
        source = Place((6, length), (padded_to(length, size), 1), size, 0)
        check((source, Place((6, length), (length + 1, 1), size, before, 5)))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", [(1, 7), (70, 3), (33, 65), (130, 129)])
def test_transposed_copies(size: int, shape: tuple[int, int]) -> None:
    rows, columns = shape
    for before in range(0, 8, size):
        source = Place(shape, (1, rows + before % 3), size, before)
        check((source, aligned(shape, size)), padded=True)
        source = Place(shape, (columns, 1), size, before)
        check((source, Place(shape, (1, rows), size, before, 3)))


def test_a_long_row_in_a_grid_stride_loop() -> None:
    many = 2 * 132 * 4 * 256 + 1000
    check((Place((1, 16 * many), (0, 1), 1, 3), aligned((1, 16 * many), 1)), padded=True)


def test_copies_from_rows_to_rows_share_a_launch() -> None:
    moves = [((40, 33), 2), ((7, 300), 1), ((9, 5), 8), ((20, 21), 4)]
    check(
        *((Place(s, (s[1] + 1, 1), size, size), aligned(s, size)) for s, size in moves), padded=True
    )
    moves = tuple(RelayoutSpec((9, 9), 2, (9, 1), (16, 1), True) for _ in range(3))
    assert len(prepare(device("vm"), moves)._launches) == 1


def test_a_job_with_too_many_vectors_is_split() -> None:
    lines = 1 << 20  # of 2048 vectors: 2³¹
    move = RelayoutSpec((lines, 1 << 14), 2, (1 << 14, 1), (1 << 14, 1), True)
    (launch,) = prepare(device("vm"), (move,))._launches
    assert [slot.byte_offset for slot in launch.slots] == [0, 0] + 2 * [(lines - 1) << 15]


def test_each_kernel_without_programmatic_launches() -> None:
    on, shape = "vm:A100", (33, 37)
    for strides in ((37, 1), (1, 33), (80, 2)):
        check((Place(shape, strides, 2, 2, 0, on), aligned(shape, 2, on=on)), padded=True)


@pytest.mark.parametrize(
    ("columns", "strides"), [(24, (600, 25, 1)), (300, (7000, 1, 23)), (70, (4000, 150, 2))]
)
def test_grid_stride_loops(columns: int, strides: Any, monkeypatch: Any) -> None:
    for name in ("_MAX_GRID_Y", "_MAX_GRID_Z"):
        monkeypatch.setattr(f"tilewright.run.relayout.relayout.{name}", 1)
    shape = (3, 23, columns)
    check((Place(shape, strides, 1, 1), aligned(shape, 1)), padded=True)


@st.composite
def copies(draw: Any) -> tuple[Place, Place, bool]:
    size = draw(st.sampled_from(SIZES))
    shape = tuple(draw(st.lists(st.integers(1, 70), min_size=2, max_size=3)))
    if len(shape) == 3:
        shape = (shape[0] % 4 + 1, *shape[1:])
    padded = draw(st.booleans())

    def strides(may_share: bool) -> tuple[int, ...]:
        order, steps, reach = draw(st.permutations(range(len(shape)))), [0] * len(shape), 1
        for axis in order:
            sign = draw(st.sampled_from([1, 1, 1, -1, 0] if may_share else [1, 1, 1, -1]))
            step = reach + draw(st.sampled_from([0, 0, 0, 1, 5]))
            steps[axis], reach = sign * step, step * shape[axis]
        return tuple(steps)

    source = Place(shape, strides(True), size, size * draw(st.integers(0, 15 // size)))
    if padded:
        return source, aligned(shape, size, draw(st.booleans())), True
    before = size * draw(st.integers(0, 15 // size))
    return source, Place(shape, strides(False), size, before, draw(st.integers(0, 17))), False


@given(copies())
@examples(150)
def test_any_copy(given: tuple[Place, Place, bool]) -> None:
    source, target, padded = given
    check((source, target), padded=padded)
