"""Laws of TiledMma and TiledCopy: each element has an owner; CuTe's are in the reference."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from rows import every_row
from symbol import Symbol, evaluate
from tilewright import mma
from tilewright.errors import LayoutError
from tilewright.layout import (
    ComposedLayout,
    Layout,
    Swizzle,
    Tensor,
    composition,
    filter_zeros,
    make_identity_tensor,
    make_ordered_layout,
    size,
)
from tilewright.layout.symbolic import add
from tilewright.mma import CopyAtom, CpAsync, MmaAtom, TiledMma, UniversalCopy

ATOMS = {
    "half": MmaAtom("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
    "tf32": MmaAtom("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32"),
    "f64": MmaAtom("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"),
    "volta": MmaAtom("mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f32"),
    "wmma": MmaAtom("wmma.mma.sync.aligned.row.col.m8n32k16.f32.f16"),
    "shared": MmaAtom("wgmma.mma_async.sync.aligned.m64n24k16.f32.f16.f16"),
    "registers": MmaAtom("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3", "rmem"),
}
SIDES = {"A": (0, 2), "B": (1, 2), "C": (0, 1)}


class Place:
    """An engine that only knows its offset."""

    def __init__(self, at=0):
        self.at = at

    def __add__(self, offset):
        return Place(add(self.at, offset))


def offsets(part):
    """A part's offsets in the tensor that it is of."""
    return part.engine.at + part.layout.indices()


def permutations(covered):
    """None, a size, or a layout that takes the elements in another order."""
    orders = st.sampled_from([(0, 1), (1, 0)])
    unit = 8 if covered % 8 == 0 else 2  # of an atom's own modes, none is cut
    turned = orders.map(lambda o: make_ordered_layout((unit, covered // unit), o))
    return st.one_of(st.none(), st.sampled_from([covered, 2 * covered]), turned)


@st.composite
def tiled_mmas(draw, permuted=True):
    atom = ATOMS[draw(st.sampled_from(sorted(ATOMS)))]
    shape = tuple(draw(st.sampled_from([1, 2])) for _ in range(3))
    layout = make_ordered_layout(shape, tuple(draw(st.permutations(range(3)))))
    covered = [s * a for s, a in zip(atom.shape_mnk, shape, strict=True)]
    chosen = tuple(draw(permutations(c)) for c in covered) if permuted else (None, None, None)
    return TiledMma(atom, layout, chosen)


@st.composite
def cut(draw, permuted=True):
    """(TiledMma, operand, a tensor of whole tiles)"""
    tiled, operand = draw(tiled_mmas(permuted)), draw(st.sampled_from("ABC"))
    sizes = tuple(tiled.tile_size_mnk[i] * draw(st.sampled_from([1, 2, 3])) for i in SIDES[operand])
    layout = make_ordered_layout(sizes, draw(st.sampled_from([(0, 1), (1, 0)])))
    return tiled, operand, Tensor(Place(), layout)


def part_of(tiled, operand, tensor, thread):
    return getattr(tiled.thr_slice(thread), f"partition_{operand}")(tensor)


def threads_of(tiled):
    return [int(t) for t in tiled.thr_layout_vmnk.indices()]


@examples(40)
@given(cut())
def test_every_element_is_owned_alike(case):
    """All threads together have every element, and each as often as any other."""
    tiled, operand, tensor = case
    owners = Counter()
    for thread in threads_of(tiled):
        owners.update(offsets(part_of(tiled, operand, tensor, thread)).tolist())
    assert sorted(owners) == list(range(tensor.size()))
    held = size(getattr(tiled.atom, f"layout_{operand}"))
    unused = ({0, 1, 2} - set(SIDES[operand])).pop()  # of M, N, K: its atoms have the same
    once = held // np.prod([tiled.atom.shape_mnk[i] for i in SIDES[operand]])
    assert set(owners.values()) == {once * tiled.atom_layout_mnk.size(unused)}


@examples(40)
@given(cut(permuted=False), st.data())
def test_threads_hold_the_elements_of_the_fragment(case, data):
    """Value v of atom (i, j) of a thread: the atom's place, moved on by whole atoms."""
    tiled, operand, tensor = case
    thread = data.draw(st.sampled_from(threads_of(tiled)))
    part = part_of(tiled, operand, tensor, thread)
    v, *mnk = tiled.thr_slice(thread).thr_vmnk
    one = getattr(tiled.atom, f"layout_{operand}")
    rows, columns = (tiled.atom.shape_mnk[i] for i in SIDES[operand])
    (r, c), (down, on) = (
        [x[i] for i in SIDES[operand]] for x in (mnk, tiled.atom_layout_mnk.shape)
    )
    for value in range(size(one[1])):
        for i in range(size(part.layout[1])):
            for j in range(size(part.layout[2])):
                place = one((v, value))
                row, column = place % rows + rows * (r + down * i), place // rows
                expected = tensor.layout((row, column + columns * (c + on * j)))
                assert part.engine.at + part.layout((value, i, j)) == expected


@examples(40)
@given(cut(), st.data())
def test_tv_layouts_say_the_same(case, data):
    """layout_A_TV(thread, value) is the place in a tile that partition_A gives."""
    tiled, operand, _ = case
    tile = Layout(tuple(tiled.tile_size_mnk[i] for i in SIDES[operand]))
    tv = getattr(tiled, f"layout_{operand}_TV")()
    thread = data.draw(st.sampled_from(threads_of(tiled)))
    part = part_of(tiled, operand, Tensor(Place(), tile), thread)
    assert offsets(part).tolist() == [tv((thread, v)) for v in range(size(tv[1]))]


@examples(40)
@given(cut(), st.data())
def test_threads_may_be_dynamic(case, data):
    tiled, operand, tensor = case
    part = part_of(tiled, operand, tensor, Symbol("t"))
    for thread in data.draw(st.lists(st.sampled_from(threads_of(tiled)), min_size=1, max_size=4)):
        known = part_of(tiled, operand, tensor, thread)
        assert known.layout == part.layout
        assert evaluate(part.engine.at, t=thread) == known.engine.at


def test_a_swizzled_tensor_is_cut_under_its_swizzle():
    tiled = TiledMma(ATOMS["half"], (2, 2, 1), (32, 32, 16))
    plain = Layout((64, 64), (64, 1))
    swizzled = ComposedLayout(Swizzle(3, 3, 3), 0, plain)
    for thread in range(0, 128, 11):
        one = tiled.thr_slice(thread)
        first = one.partition_A(Tensor(Place(), plain))
        second = one.partition_A(Tensor(Place(), swizzled))
        assert (Swizzle(3, 3, 3)(offsets(first)) == offsets(second)).all()


def test_a_coordinate_tensor_has_the_coordinates_of_a_part():
    part = HALF.thr_slice(Symbol("t")).partition_C(make_identity_tensor((64, 64)))
    row, column = part[1, 1, 2]
    for thread in range(128):
        here = HALF.thr_slice(thread).partition_C(make_identity_tensor((64, 64)))
        expected = here[1, 1, 2]
        assert (evaluate(row, t=thread), evaluate(column, t=thread)) == expected
        assert expected == (thread % 32 // 4 + thread // 32 % 2 * 16 + 32, _column(thread))


def _column(thread):
    return thread % 4 * 2 + 1 + thread // 64 * 8 + 32


def test_strides_may_be_dynamic():
    known, tensor = Layout((64, 32), (40, 1)), Layout((64, 32), (Symbol("ld"), 1))
    for thread in range(0, 128, 9):
        one = HALF.thr_slice(thread)
        part = one.partition_A(Tensor(Place(), tensor))
        expected = one.partition_A(Tensor(Place(), known))
        assert part.shape == expected.shape
        for i in range(part.size()):
            at = add(part.engine.at, part.layout(i))
            assert evaluate(at, ld=40) == expected.engine.at + expected.layout(i)


SPARSE = MmaAtom("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")


def test_stored_sparse_A_is_cut_as_the_dense_one():
    """Each element stands twice in the K of the mathematics; without repeats a thread has its
    fragment.
    """
    stored = Layout((16, (2, 16)), (1, (0, 16)))
    rows, columns = SPARSE.instruction.fragment("a").coordinates()
    for thread in range(32):
        part = TiledMma(SPARSE).thr_slice(thread).partition_A(Tensor(Place(), stored))
        kept = Tensor(part.engine, filter_zeros(part.layout))
        assert offsets(kept).tolist() == (rows[thread] + 16 * columns[thread]).tolist()


# --- copies ---------------------------------------------------------------------------------------

LOADS = [m for m in mma.FRAGMENT_MOVES if m.family == "ldmatrix" and m.space == "shared"]
STORES = [m for m in mma.FRAGMENT_MOVES if m.family == "stmatrix" and m.space == "shared"]


@st.composite
def plain_copies(draw):
    values = draw(st.sampled_from([1, 2, 4, 8]))
    op = draw(st.sampled_from([UniversalCopy(16 * values), CpAsync(max(4, 2 * values))]))
    wide = op.bits // 16
    shape = draw(st.sampled_from([(32, 1), (16, 4), (8, 8), (4, 32)]))
    threads = make_ordered_layout(shape, draw(st.sampled_from([(0, 1), (1, 0)])))
    block = draw(st.sampled_from([(1, wide), (wide, 1), (2, wide), (wide, 2)]))
    order = (0, 1) if block[0] == wide else (1, 0)
    return mma.make_tiled_copy(CopyAtom(op, "f16"), threads, make_ordered_layout(block, order))


@examples(40)
@given(plain_copies(), st.sampled_from([(1, 1), (2, 1), (1, 3)]))
def test_a_copy_moves_every_element_once(copy, tiles):
    shape = tuple(t * n for t, n in zip(copy.tiler_mn, tiles, strict=True))
    source, target = Layout(shape, (1, shape[0])), Layout(shape, (shape[1], 1))
    moved = {}
    for thread in range(copy.size):
        one = copy.thr_slice(thread)
        s, d = one.partition_S(Tensor(Place(), source)), one.partition_D(Tensor(Place(), target))
        moved |= dict(zip(offsets(s).tolist(), offsets(d).tolist(), strict=True))
    assert len(moved) == size(source)
    assert all(target((i % shape[0], i // shape[0])) == j for i, j in moved.items())


def fragment_registers(copy, tensor, side):
    """[thread][register] of the values that threads have of a matrix."""
    parts = [getattr(copy.thr_slice(t), f"partition_{side}")(tensor) for t in range(32)]
    return np.array([offsets(part) for part in parts])


@every_row("move", [*LOADS, *STORES], ids=str)
def test_matrix_moves_meet_their_partitions(move):
    """Lanes give the lines that partition_S (of a store, D) says and hold what the other says."""
    bits = 16 if move.shape == "m8n8" else 8
    atom = CopyAtom(move, f"b{bits}")
    lines, length = move.lines
    tile = Layout((lines, length), (length, 1))
    copy = mma.make_tiled_copy_tv(atom, _of_lines(atom, lines, length), (lines, length))
    tensor = Tensor(Place(), tile)
    given_lines, held = fragment_registers(copy, tensor, "S"), fragment_registers(copy, tensor, "D")
    if not move.loads:
        given_lines, held = held, given_lines
    kept = (1 << min(bits, move.fragment.dtype.bits)) - 1
    matrix = np.random.default_rng(0).integers(0, kept, size(tile), dtype=f"u{bits // 8}")
    matrix = matrix.astype(f"u{bits // 8}")
    rows = matrix[given_lines[:lines]]
    packed = np.ascontiguousarray(matrix[held]).view(np.uint32)
    made = move(rows) if move.loads else move(packed)
    assert np.array_equal(made, packed if move.loads else rows)


def _of_lines(atom, lines, length):
    """(thread, value) → place in lines × length, by columns, of the registers."""
    by_lines = Layout((length, lines), (lines, 1))
    held = by_lines(0) + np.array([by_lines(int(i)) for i in atom.layout_ref.indices()])
    found = composition(by_lines, atom.layout_ref)
    assert (found.indices() == held).all()
    return found


PAIRS = [
    ("A", "ldmatrix.sync.aligned.m8n8.x4.shared.b16"),
    ("A", "ldmatrix.sync.aligned.m8n8.x1.shared.b16"),
    ("B", "ldmatrix.sync.aligned.m8n8.x2.shared.b16"),
    ("B", "ldmatrix.sync.aligned.m8n8.x4.shared.b16"),
    ("C", "stmatrix.sync.aligned.m8n8.x4.shared.b16"),
]


@pytest.mark.parametrize(("operand", "opcode"), PAIRS)
def test_a_retiled_fragment_is_what_the_copy_fills(operand, opcode):
    """retile(partition_A(t)) has, in order, the elements that the copy has in registers."""
    tiled = TiledMma(ATOMS["half"], (2, 2, 1), (None, 32, None))
    copy = getattr(mma, f"make_tiled_copy_{operand}")(CopyAtom(opcode, "f16"), tiled)
    m, n = (2 * tiled.tile_size_mnk[i] for i in SIDES[operand])
    tensor = Tensor(Place(), Layout((m, n), (n, 1)))
    for thread in range(tiled.size):
        fragment = part_of(tiled, operand, tensor, thread)
        one = copy.thr_slice(thread)
        filled = one.partition_S(tensor) if operand == "C" else one.partition_D(tensor)
        again = one.retile(fragment)
        assert again.shape == filled.shape
        assert offsets(again).tolist() == offsets(filled).tolist()
        assert sorted(offsets(again)) == sorted(offsets(fragment))


def test_they_print_as_cutes():
    tiled = TiledMma(ATOMS["half"], (2, 2, 1), (None, 32, Layout((8, 2), (2, 1))))
    assert str(tiled).splitlines()[:4] == [
        "TiledMMA",
        "  ThrLayoutVMNK:  (32,2,2,1):(1,32,64,0)",
        "  PermutationMNK: (_,32,(8,2):(2,1))",
        "MMA_Atom",
    ]
    copy = mma.make_tiled_copy(CopyAtom(UniversalCopy(128), "f16"), Layout((8, 4)), Layout((1, 8)))
    assert str(copy).splitlines()[:4] == [
        "TiledCopy",
        "  Tiler_MN:       (8,32)",
        "  TiledLayout_TV: ((8,4),8):((1,64),8)",
        "Copy_Atom",
    ]


# --- what is refused ------------------------------------------------------------------------------

HALF = TiledMma(ATOMS["half"], (2, 2, 1))
COPY = mma.make_tiled_copy(
    CopyAtom(UniversalCopy(128), "f16"), Layout((16, 8), (8, 1)), Layout((1, 8))
)
LDMATRIX = CopyAtom("ldmatrix.sync.aligned.m8n8.x4.shared.b16", "f16")
RETILED = mma.make_tiled_copy_B(LDMATRIX, TiledMma(ATOMS["half"], (2, 2, 1), (None, 32, None)))


@every_row(
    ("make", "message"),
    [
        (lambda: TiledMma(ATOMS["half"], (2, 2, 1, 1)), "three modes M, N and K"),
        (lambda: TiledMma("mma.sync"), "a TiledMma needs an MmaAtom, got 'mma.sync'"),
        (
            lambda: TiledMma(ATOMS["half"], Layout((2, 2, 1), (0, 1, 0))),
            r"the atoms must have different threads, got \(2,2,1\):\(0,1,0\)",
        ),
        (
            lambda: mma.make_tiled_copy(COPY.atom, Layout((16, 8), (16, 1)), Layout((1, 8))),
            r"threads must be numbered from 0 on, each once, got \(16,8\):\(16,1\)",
        ),
        (
            lambda: mma.make_tiled_copy_tv(COPY.atom, Layout((32, 8), (8, 1)), (16, 8)),
            r"map to the 128 elements of a tile, got \(32,8\):\(8,1\)",
        ),
        (
            lambda: TiledMma(ATOMS["half"], (1, 1, 1), (None, Layout((8, 2), (1, 16)))),
            r"permutation of N must be a bijection .* below 16, got \(8,2\):\(1,16\)",
        ),
        (lambda: TiledMma(ATOMS["half"], (2, 1, 1), (48,)), "permutation of M .*, got 48"),
        (lambda: HALF.thr_slice(128), "thread index of TiledMma must be 0 to 127, got 128"),
        (lambda: COPY.thr_slice(-1), "thread index of TiledCopy must be 0 to 127, got -1"),
        (
            lambda: HALF.thr_slice(0).partition_A(Layout((48, 16))),
            r"partition_A: mode 0 \(M\) must be a multiple of the tile's 32, got 48",
        ),
        (
            lambda: HALF.partition_shape_B((16, 24)),
            r"partition_B: mode 1 \(K\) must be a multiple of the tile's 16, got 24",
        ),
        (lambda: HALF.thrfrg_C(Layout(32)), "with at least 2 modes, got 32:1"),
        (lambda: HALF.thrfrg_C((32, 16)), "partition_C needs a layout"),
        (lambda: COPY.thr_slice(0).partition_S(Layout((16, 65))), "the tile's 64, got 65"),
        (lambda: COPY.tidfrg_D(Layout(1024)), "needs a layout or tensor"),
        (lambda: RETILED.retile(Layout((4, 2))), "at least 3 modes"),
        (
            lambda: RETILED.retile(Layout((3, 2, 2))),
            "retile: values .* multiple of the 8 of the copy's tile, got 3",
        ),
        (
            lambda: RETILED.retile(Layout((4, 3, 2))),
            "retile: mode 1 must be a multiple of the tile's 2, got 3",
        ),
        (
            lambda: mma.make_tiled_copy(LDMATRIX, Layout((8, 2)), Layout((1, 8))),
            "threads of a TiledCopy must be a multiple of 32, .* ldmatrix.* on f16, got 16",
        ),
        (
            lambda: mma.make_tiled_copy_B(LDMATRIX, HALF),
            "values of a TiledCopy must be a multiple of 8, .* ldmatrix.*, got 4",
        ),
        (
            lambda: mma.make_tiled_copy_C_atom(CopyAtom(UniversalCopy(256), "f32"), HALF),
            "at most the 4 values of C of a thread, got 8 of f32",
        ),
        (
            lambda: mma.make_cotiled_copy(
                CopyAtom(UniversalCopy(32), "f32"), Layout((8, 2)), Layout(8, 2)
            ),
            "offsets of 8:2",
        ),
        (lambda: mma.TiledMma(HALF.atom, (1, 1, 1), 32), "for M, N and K .*, got 32"),
        (lambda: mma.make_tiled_copy(LDMATRIX, (16, 8)), r"threads must be .*, got \(16, 8\)"),
        (lambda: mma.TiledCopy("f16", Layout((32, 8)), (16, 16)), "needs a CopyAtom, got 'f16'"),
        (lambda: mma.TiledCopy(LDMATRIX, Layout((32, 8)), 256), "a tuple of tilers, got 256"),
        (lambda: mma.make_tiled_copy_A(LDMATRIX, HALF.atom), "expected a TiledMma, got MmaAtom"),
    ],
)
def test_wrong_arguments_are_rejected(make, message):
    with pytest.raises(LayoutError, match=message):
        make()
