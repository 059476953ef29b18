"""Tensors: tiles and partitions are views that cover the data once."""

import numpy as np
import pytest

from pure.layout.symbol import Symbol, evaluate
from tilewright.errors import LayoutError
from tilewright.layout import (
    ArrayEngine,
    Layout,
    LayoutRight,
    Swizzle,
    Tensor,
    _,
    composition,
    flatten,
    local_partition,
    local_tile,
    make_layout,
    make_tensor,
    size,
    zipped_divide,
)
from tilewright.layout.arithmetic import add


class Pointer:
    """An engine that reads nothing: it tells the offset."""

    def __init__(self, base=0):
        self.base = base

    def __add__(self, offset):
        return Pointer(add(offset, self.base))

    def __getitem__(self, offset):
        return (self + offset).base


def gathered(tensor):
    """All elements, in the order of the domain."""
    return [tensor[i] for i in range(tensor.size())]


@pytest.fixture
def matrix():
    return np.arange(24 * 16).reshape(24, 16)


def test_elements_and_slices(matrix):
    t = make_tensor(matrix)
    assert str(t.layout) == "(24,16):(16,1)"
    assert t[3, 5] == matrix[3, 5]
    assert gathered(t[3, _]) == matrix[3].tolist()
    assert gathered(t[_, 5]) == matrix[:, 5].tolist()
    assert gathered(t) == matrix.T.ravel().tolist()
    t[3, 5] = -1
    assert matrix[3, 5] == -1
    t[3, _][(7,)] = -2
    assert matrix[3, 7] == -2


@pytest.mark.parametrize("view", [np.s_[::2, 1:9], np.s_[3:4, ::3], np.s_[:, 2]])
def test_arrays_of_any_stride(matrix, view):
    part = matrix[view]
    assert gathered(make_tensor(part)) == part.T.ravel().tolist()


def test_local_tile_is_the_block(matrix):
    t = make_tensor(matrix)
    for i in range(3):
        for j in range(4):
            tile = local_tile(t, (8, 4), (i, j))
            block = matrix[8 * i : 8 * i + 8, 4 * j : 4 * j + 4]
            assert tile.shape == (8, 4)
            assert gathered(tile) == block.T.ravel().tolist()
    assert gathered(local_tile(t, (8, 4), 4)) == matrix[8:16, 4:8].T.ravel().tolist()


def test_tiles_left_open_stay_modes(matrix):
    t = make_tensor(matrix)
    row = local_tile(t, (8, 4), (1, _))
    assert row.shape == (8, 4, 4)
    assert row[3, 2, 1] == matrix[8 + 3, 4 + 2]
    assert local_tile(t, (8, 4), (1,)).layout == row.layout
    projected = local_tile(t, (8, 99, 4), (1, 7, _), proj=(1, _, 1))
    assert gathered(projected) == gathered(row)


@pytest.mark.parametrize(
    "threads",
    [
        make_layout((4, 8), LayoutRight),
        Layout((4, 8)),
        Layout(((2, 2), 8), ((1, 16), 2)),
        Layout((2, 4)),
    ],
)
def test_partitions_cover_the_data_once(matrix, threads):
    t = make_tensor(matrix)
    parts = [local_partition(t, threads, i) for i in range(size(threads))]
    assert sorted(x for p in parts for x in gathered(p)) == matrix.ravel().tolist()
    for i, part in enumerate(parts):
        at = threads.get_flat_coord(i)
        assert part[0, 0] == matrix[at]


def test_a_projected_partition(matrix):
    threads = Layout((2, 4, 1), (4, 1, 0))
    part = local_partition(make_tensor(matrix), threads, 6, proj=(1, _, 1))
    assert part.shape == (12, 16)
    assert part[0, 0] == matrix[1, 0]


def test_dynamic_tiles_and_threads():
    m, n, thread = Symbol("m"), Symbol("n"), Symbol("t")
    t = Tensor(Pointer(), Layout((256, 128), (128, 1)))
    part = local_partition(
        local_tile(t, (64, 32), (m, n)), make_layout((8, 4), LayoutRight), thread
    )
    assert part.shape == (8, 8)
    for at in [(0, 0, 0), (3, 2, 17), (1, 3, 31)]:
        names = dict(zip("mnt", at, strict=True))
        row, column = 64 * at[0] + at[2] // 4, 32 * at[1] + at[2] % 4
        assert evaluate(part[2, 3], **names) == (row + 16) * 128 + column + 12


def test_a_swizzled_tile_read_by_dynamic_threads():
    thread = Symbol("t")
    layout = composition(Swizzle(3, 3, 3), Layout((64, 64, 2), (64, 1, 4096)))
    t = Tensor(Pointer(), layout)
    part = t[thread, _, 1]
    for r in (0, 5, 63):
        offsets = [evaluate(part[(c,)], t=r) for c in range(64)]
        assert offsets == [layout(r, c, 1) for c in range(64)]


def test_a_swizzled_tensor_over_memory():
    layout = composition(Swizzle(2, 1, 3), Layout((8, 8), (8, 1)))
    memory = np.zeros(64, int)
    t = make_tensor(memory, layout)
    for i in range(8):
        for j in range(8):
            t[i, j] = 8 * i + j
    assert sorted(memory) == list(range(64))
    assert gathered(local_tile(t, (4, 4), (1, 1))) == [
        8 * (4 + i) + 4 + j for j in range(4) for i in range(4)
    ]


def test_the_algebra_acts_on_the_layout():
    t = make_tensor(np.arange(12), (3, 4))
    assert str(flatten(t).layout) == "(3,4):(1,3)"
    assert zipped_divide(t, (3, 2))[(1, 1), (0, 1)] == 3 * 3 + 1
    assert str(make_tensor(np.arange(12), (3, 4), LayoutRight).layout) == "(3,4):(4,1)"
    assert t.engine[np.array([1, 2])].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: make_tensor(np.zeros((4, 4))[::-1]), "is no layout of 8-byte elements"),
        (lambda: make_tensor(np.zeros((4, 4))[:, ::2], Layout(8)), "is not contiguous"),
        (lambda: make_tensor(np.zeros((0, 4))), "is no layout"),
        (lambda: make_tensor(ArrayEngine(np.zeros(3))), "needs a layout"),
        (lambda: make_tensor(np.zeros(4), Layout(8))[5], "offset 5 lies outside of 4"),
        (lambda: make_tensor(np.zeros(4), Layout(4))[-1], "offset -1 lies outside"),
        (lambda: make_tensor(np.zeros((4, 4)))[1, 2, 3], "does not fit shape"),
    ],
)
def test_refusals_say_why(call, says):
    with pytest.raises(LayoutError, match=says):
        call()
