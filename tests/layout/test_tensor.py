"""Tensors: tiles and partitions are views that cover the data once."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layout_strategies import layouts, shapes
from rows import every_row
from symbol import Symbol, evaluate
from tilewright.dtypes import dtype
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
    idx2crd,
    lazy_transform,
    local_partition,
    local_tile,
    make_composed_layout,
    make_fragment_like,
    make_identity_tensor,
    make_layout,
    make_layout_like,
    make_predicate,
    make_tensor,
    make_tensor_like,
    product_each,
    rank,
    recast,
    recast_tensor,
    size,
    zipped_divide,
)
from tilewright.layout.symbolic import add


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
    return list(tensor.elements())


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


@given(layouts())
def test_numpy_gathers_the_elements(layout):
    t = make_tensor(np.arange(layout.cosize()), layout)
    assert np.asarray(t).shape == product_each(layout.shape)
    assert np.asarray(t).ravel("F").tolist() == gathered(t)
    assert [len(t), *(mode.layout for mode in t)] == [rank(t), *layout]


# --- coordinates ----------------------------------------------------------------------------


@given(shapes)
def test_an_identity_tensor_is_its_coordinates(shape):
    t = make_identity_tensor(shape)
    assert gathered(t) == [idx2crd(i, shape) for i in range(size(shape))]
    assert gathered(t.domain_offset(idx2crd(1, shape)))[0] == idx2crd(1, shape)


def test_coordinates_are_cut_up_as_the_data(matrix):
    data, where = make_tensor(matrix), make_identity_tensor(matrix.shape)
    threads = Layout((2, 4))
    for tile, thread in [((0, 0), 0), ((2, 1), 5), ((1, 3), 7)]:
        tiles = (local_tile(x, (8, 4), tile) for x in (data, where))
        values, places = (gathered(local_partition(t, threads, thread)) for t in tiles)
        assert [matrix[at] for at in places] == values


def test_predicates_hold_where_there_is_data():
    padded = local_tile(make_identity_tensor((7, 9)), (4, 4), (_, _))
    inside = make_predicate(padded, (7, 9))
    assert inside.shape == (4, 4, 2, 3)
    held = {at for at, ok in zip(gathered(padded), gathered(inside), strict=True) if ok}
    assert held == {(i, j) for i in range(7) for j in range(9)}


def test_a_function_of_elements_prints():
    t = make_tensor(np.arange(4, dtype=np.int64), 4)
    assert str(lazy_transform(t, abs)) == "abs(int64[4]) o 4:1"
    assert str(lazy_transform(t, partial(pow, 2))) == "function(int64[4]) o 4:1"


def test_dynamic_coordinates():
    row, bound = Symbol("row"), Symbol("m")
    part = make_identity_tensor((64, 32))[row, _]
    assert gathered(part)[3][0] is row and [at[1] for at in gathered(part)] == list(range(32))
    assert str(make_predicate(part, (bound, 32))[(3,)]) == "(row < m)"
    assert make_predicate(part, (bound, 3))[(3,)] is False


# --- new memory, other elements -------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "like", "fragment"),
    [  # as CuTe's make_layout_like and make_fragment_like
        ("(2,2,2,2):(0,2,4,1)", "(2,2,2,2):(0,2,4,1)", "(2,2,2,2):(0,2,4,1)"),
        ("((2,2),4,3):((1,8),64,256)", "((2,2),4,3):((1,2),4,16)", "((2,2),4,3):((1,2),4,16)"),
        ("((2,2),4,3):((8,1),256,64)", "((2,2),4,3):((2,1),12,4)", "((2,2),4,3):((1,2),12,4)"),
        ("((2,2),4,3):((0,8),0,64)", "((2,2),4,3):((0,1),0,2)", "((2,2),4,3):((0,1),2,8)"),
        ("(8,1,4):(1,0,100)", "(8,1,4):(1,0,8)", "(8,1,4):(1,0,8)"),
        ("(8,3,4):(1,0,100)", "(8,3,4):(1,0,8)", "(8,3,4):(1,8,24)"),
        ("12:7", "12:1", "12:1"),
    ],
)
def test_layouts_of_new_memory(layout, like, fragment):
    given = Layout.parse(layout)
    assert str(make_layout_like(given)) == like
    assert str(make_fragment_like(given)) == fragment


def test_new_memory_is_independent():
    t = make_tensor(np.arange(32, dtype=np.float16), (4, 8), LayoutRight)
    new = make_tensor_like(t)
    assert new.dtype == t.dtype and new.layout == t.layout and not np.asarray(new).any()
    assert make_fragment_like(t, "f32").engine.memory.dtype == np.float32
    with pytest.raises(LayoutError, match="static shape"):
        make_tensor_like(make_tensor(np.zeros(8), Layout((Symbol("x"), 2))))


words = st.sampled_from(["u8", "u16", "u32", "u64"])


@given(words, words)
def test_recast_reads_the_same_bytes(old, new):
    memory = np.arange(16 * 64, dtype=np.uint32).view(dtype(old).numpy)
    line = 64 // dtype(old).numpy.itemsize
    t = make_tensor(memory[: 16 * line], (line, 16))
    made = recast(local_tile(t, (line, 4), (0, 2)), new)
    rows = t.to_numpy().T[8:12]
    assert np.array_equal(made.to_numpy().T, np.ascontiguousarray(rows).view(dtype(new).numpy))
    assert made.dtype == dtype(new)


def dynamic_row(bits):
    """A row of a tile under a swizzle that keeps 1 << bits elements together."""
    tile = composition(Swizzle(2, bits, 3), Layout((8, 32), (32, 1)))
    memory = np.arange(256, dtype=np.uint16)
    return make_tensor(memory, tile)[Symbol("t"), _].domain_offset(2)


def test_recast_of_a_dynamic_row_of_a_swizzled_tile():
    row = dynamic_row(2)
    pairs = recast(row, "u32")
    assert str(pairs.layout.inner) == "(16):(1)" and pairs.layout.outer == Swizzle(2, 1, 3)
    for t in range(8):
        for i in range(8):
            one, other = (evaluate(row.layout(2 * i + j), t=t) for j in range(2))
            assert 2 * evaluate(pairs.layout(i), t=t) == one == other - 1


@given(words, words)
def test_recast_of_descending_strides(old, new):
    memory = np.arange(64, dtype=np.uint8).view(dtype(old).numpy)
    t = make_tensor(memory, Layout(memory.size, -1)).domain_offset(1 - memory.size)
    assert gathered(recast(t, new)) == memory.view(dtype(new).numpy)[::-1].tolist()


X = Symbol("x")


@pytest.mark.parametrize(
    ("layout", "start", "narrow", "wide"),
    [
        (Layout((4, 1), (1, -1)), 6, "12 o (8,1):(1,-2)", "3 o (2,1):(1,-1)"),
        (Layout((1, 4), (-1, 2)), 6, "13 o (2,4):(-1,4)", "3 o (1,4):(-1,1)"),
        (Layout((2, 2), (-1, X)), 7, "15 o (4,2):(-1,(x * 2))", "3 o (1,2):(-1,(x // 2))"),
    ],
    ids=str,
)
def test_the_mode_that_is_split_says_which_way_it_runs(layout, start, narrow, wide):
    t = Tensor(ArrayEngine(np.zeros(16, np.uint32), start), layout)
    assert str(recast(t, "u16")) == f"uint16[32]+{narrow}"
    assert str(recast(t, "u64")) == f"uint64[8]+{wide}"


UNDER_A_SWIZZLE = make_tensor(
    np.zeros(8, np.uint16), make_composed_layout(Swizzle(1, 1, 1), 6, Layout(8, -1))
)


@every_row(
    ("call", "says"),
    [
        (
            lambda: recast(make_tensor(np.zeros(8, np.float16), 8).domain_offset(1), "f32"),
            "must be a multiple of 4 bytes",
        ),
        (lambda: recast(make_tensor(np.zeros((4, 6), np.float16)), "f64"), "mode 0"),
        (
            lambda: recast(make_tensor(np.zeros(8, dtype("s4").numpy), 8), "u8"),
            "NumPy stores each element in a byte",
        ),
        (lambda: make_identity_tensor(4).to_numpy(), "the engine must be an array"),
        (
            lambda: make_identity_tensor(4).__setitem__(0, 1),
            "computed elements, which can't be written",
        ),
        (lambda: make_identity_tensor(4).dtype, "without a number format"),
        (
            lambda: make_tensor_like(make_identity_tensor(4), "f32"),
            "computed elements and no memory",
        ),
        (lambda: recast_tensor(make_identity_tensor(4), "u8"), "without a number format"),
        (lambda: recast(dynamic_row(3), "u64"), "must be a known multiple of 4"),
        (lambda: recast(UNDER_A_SWIZZLE, "u32"), "stride -1 is not supported under Sw<1,1,1>"),
        (
            lambda: make_predicate(make_identity_tensor(4), 3).__setitem__(0, 1),
            "computed elements, which can't be written",
        ),
        (lambda: make_tensor(np.zeros(4), 4).__setitem__(_, 1), "one element"),
        (
            lambda: list(make_tensor(np.zeros(4), Layout(Symbol("x"))).elements()),
            "size must be static",
        ),
        (
            lambda: local_tile(make_tensor(np.zeros((4, 4))), (2, 2), (1, 1, 1)),
            "at most the 2 modes of tiles",
        ),
        (lambda: make_tensor(np.zeros((4, 4))[::-1]), "multiples of the element size 8"),
        (lambda: make_tensor(np.zeros((4, 4))[:, ::2], Layout(8)), "must be contiguous"),
        (lambda: make_tensor(np.zeros((0, 4))), "must not be empty"),
        (lambda: make_tensor(ArrayEngine(np.zeros(3))), "needs a layout"),
        (lambda: make_tensor(np.zeros(4), Layout(8))[5], "offset must be 0 to 3, got 5"),
        (lambda: make_tensor(np.zeros(4), Layout(4))[-1], "offset must be 0 to 3, got -1"),
        (lambda: make_tensor(np.zeros((4, 4)))[1, 2, 3], "does not match shape"),
    ],
)
def test_errors_have_the_reason(call, says):
    with pytest.raises(LayoutError, match=says):
        call()
