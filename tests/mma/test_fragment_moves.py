"""What moves fragments: the table, the laws that loads and stores keep, and what an H200 showed."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tilewright import mma
from tilewright.errors import LayoutError, TargetError, UnknownInstruction
from tilewright.mma.fragments import a_fragment, accumulator_fragment
from tilewright.ptx.isa import form

DATA = np.load(Path(__file__).parents[1] / "data" / "moves_sm_90a.npz")
RNG = np.random.default_rng(7)
ARCHS = ("sm_70", "sm_72", "sm_75", "sm_80", "sm_90a", "sm_120a")
LOADS = [m for m in mma.FRAGMENT_MOVES if m.family == "wmma.load" and m.aligned and not m.space]
STORES = [m for m in mma.FRAGMENT_MOVES if m.family == "wmma.store" and m.aligned and not m.space]

# shape: A row, A col, B row, B col, C row, C col (spec 000, "default stride")
STRIDES = {
    "m16n16k16": (16, 16, 16, 16, 16, 16), "m8n32k16": (16, 8, 32, 16, 32, 8),
    "m32n8k16": (16, 32, 8, 16, 8, 32), "m8n8k32": (32, 8, 8, 32, 8, 8),
    "m8n8k128": (128, 8, 8, 128, 8, 8), "m16n16k8": (8, 16, 16, 8, 16, 16),
    "m8n8k4": (4, 8, 8, 4, 8, 8),
}  # fmt: skip


def codes(fragment, shape):
    """Random bits of the fragment's type."""
    bits = fragment.dtype.bits
    return RNG.integers(0, 1 << bits, shape, f"u{max(8, bits) // 8}")


def random_lines(move):
    return codes(move.fragment, move.lines)


# --- the table ------------------------------------------------------------------------------------


def test_how_many_there_are():
    """As ptxas counts them: 488 of wmma (and 108 old ones without .aligned), 82 of the others."""
    families = Counter((m.family, m.aligned) for m in mma.FRAGMENT_MOVES)
    assert families == {
        ("wmma.load", True): 368, ("wmma.load", False): 72,
        ("wmma.store", True): 120, ("wmma.store", False): 36,
        ("ldmatrix", True): 54, ("stmatrix", True): 27, ("movmatrix", True): 1,
    }  # fmt: skip


@pytest.mark.parametrize("which", range(8))
def test_an_opcode_names_its_move_and_its_row(which):
    for move in mma.FRAGMENT_MOVES[which::8]:
        found = form(move.opcode)
        assert found.entry is mma.find_fragment_move(move.opcode) is move
        assert list(found.needs()) == [tuple("|".join(x) for x in zip(*move.needs, strict=True))]
        register = next(s for s in found.signatures[0] if s.kind == "reg")
        assert max(1, register.count) == move.registers


def test_modifiers_may_be_in_any_order():
    move = mma.fragment_move("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16")
    assert mma.find_fragment_move("ldmatrix.sync.aligned.x4.trans.m8n8.b16.shared") is move
    packed = "ldmatrix.sync.aligned.m8n16.x1.shared.{}"
    assert mma.find_fragment_move(packed.format("b8x16.b4x16_p64"))
    assert not mma.find_fragment_move(packed.format("b4x16_p64.b8x16"))


@pytest.mark.parametrize(
    "opcode, since",
    [
        ("wmma.load.a.sync.row.m16n16k16.f16", "6.0 sm_70"),
        ("wmma.load.a.sync.aligned.row.m16n16k16.f16", "6.3 sm_70"),
        ("wmma.load.b.sync.aligned.col.m8n32k16.shared::cta.f16", "7.8 sm_70"),
        ("wmma.load.c.sync.aligned.row.m32n8k16.s32", "6.3 sm_72"),
        ("wmma.store.d.sync.aligned.row.m8n8k128.s32", "6.3 sm_75"),
        ("wmma.load.b.sync.aligned.row.m16n16k8.tf32", "7.0 sm_80"),
        ("ldmatrix.sync.aligned.m8n8.x1.b16", "6.5 sm_75"),
        ("stmatrix.sync.aligned.m8n8.x1.b16", "7.8 sm_90"),
        ("movmatrix.sync.aligned.m8n8.trans.b16", "7.8 sm_75"),
    ],
)
def test_since_when(opcode, since):
    move = mma.fragment_move(opcode, since.split()[1])
    assert f"{move.ptx} {move.target}" == since


def test_families_of_targets_have_what_one_of_them_has():
    move = mma.fragment_move("stmatrix.sync.aligned.m16n8.x2.trans.b8", "sm_120a")
    assert move.in_version("8.6", "sm_100a") and move.in_version("8.8", "sm_103a")
    assert not move.in_version("8.7", "sm_121a") and move.in_version("8.8", "sm_121a")
    assert not move.runs_on("sm_100") and not move.runs_on("sm_90a")
    old = mma.fragment_move("wmma.load.a.sync.row.m8n32k16.f16", "sm_70")
    assert old.in_version("6.1", "sm_70") and not old.in_version("6.3", "sm_70")


@pytest.mark.parametrize("shape", STRIDES)
def test_default_strides(shape):
    for move in LOADS:
        if move.shape == shape:
            place = 2 * "abc".index(move.operand) + (move.layout == "col")
            assert move.leading == STRIDES[shape][place]
            pitch = move.leading * move.fragment.bits // 8
            assert pitch % move.pitch == 0  # the default is always right


def test_alignment_is_the_fragments_size():
    def bytes_of(opcode):
        return mma.fragment_move(opcode).alignment, mma.fragment_move(opcode).pitch

    assert bytes_of("wmma.load.a.sync.aligned.row.m16n16k16.f16") == (32, 16)
    assert bytes_of("wmma.load.c.sync.aligned.row.m16n16k16.f16") == (16, 16)
    assert bytes_of("wmma.load.a.sync.aligned.row.m8n32k16.u8") == (4, 4)
    assert bytes_of("wmma.load.a.sync.aligned.row.m8n8k4.f64") == (8, 8)
    assert bytes_of("stmatrix.sync.aligned.m8n8.x1.trans.b16")[0] == 16


# --- what an H200 showed --------------------------------------------------------------------------


def test_wmma_is_as_an_h200_has_it():
    """Which element of memory is in each (thread, value), of 104 forms."""
    ends = np.cumsum(DATA["sizes"], dtype=int)
    shown = np.split(DATA["places"], ends[:-1], axis=1)
    for opcode, places in zip(DATA["opcodes"], shown, strict=True):
        move = mma.fragment_move(str(opcode))
        line, place = (x.indices().reshape((32, -1), order="F") for x in move.line_layouts())
        np.testing.assert_array_equal(line * move.leading + place, places, err_msg=opcode)


def test_movmatrix_is_as_an_h200_has_it():
    given, made = DATA["movmatrix"]
    move = mma.fragment_move("movmatrix.sync.aligned.m8n8.trans.b16")
    np.testing.assert_array_equal(move(given[..., None])[..., 0], made)


# --- laws -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ARCHS)
def test_rows_and_columns_of_one_matrix_are_the_same_fragment(arch):
    """But for f16 A and B before Turing, where the layout is part of the fragment."""
    for move in (m.on(arch) for m in LOADS if m.layout == "row" and m.runs_on(arch)):
        other = mma.find_fragment_move(move.opcode.replace(".row.", ".col."))
        if other is None:
            continue
        lines, other = random_lines(move), other.on(arch)
        same = np.array_equal(move(lines), other(lines.T))
        by_layout = arch in ("sm_70", "sm_72") and move.operand in "ab" and move.type == "f16"
        assert same is not by_layout, move


@pytest.mark.parametrize("arch", ARCHS)
def test_a_load_gives_the_fragment_that_wmma_takes(arch):
    for move in (m.on(arch) for m in LOADS if m.runs_on(arch)):
        lines = random_lines(move)
        matrix = lines.T if move.layout == "col" else lines
        assert matrix.shape == move.fragment.shape
        assert np.array_equal(move.fragment.matrix(move(lines)), matrix)


@pytest.mark.parametrize("arch", ARCHS)
def test_a_store_undoes_a_load(arch):
    for store in (m.on(arch) for m in STORES if m.runs_on(arch)):
        load = mma.find_fragment_move(store.opcode.replace("store.d", "load.c")).on(arch)
        lines = random_lines(load)
        assert np.array_equal(store(load(lines)), lines)


def test_longer_lines_are_a_stride():
    for move in LOADS[::5]:
        lines = random_lines(move)
        longer = np.pad(lines, ((0, 0), (0, 8)))
        assert np.array_equal(move(longer), move(lines))


def test_line_layouts_agree_with_the_fragments():
    """The layouts that addresses come from say what the fragment's own say."""
    for move in (m.on(arch) for m in mma.FRAGMENT_MOVES for arch in ARCHS if m.runs_on(arch)):
        line, place = move.line_layouts()
        lines, elements = move.lines
        index = np.arange(lines * elements).reshape(lines, elements)
        shown = index[line.indices(), place.indices()].reshape((32, -1), order="F")
        f = move.fragment
        matrix = index.T if move.layout == "col" else index
        assert np.array_equal(shown, matrix[f.coordinates()]), move


@pytest.mark.parametrize("count", (1, 2, 4))
@pytest.mark.parametrize("trans", ("", ".trans"))
def test_stmatrix_undoes_ldmatrix(count, trans):
    load = mma.fragment_move(f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.b16")
    store = mma.fragment_move(f"stmatrix.sync.aligned.m8n8.x{count}{trans}.b16")
    lines = random_lines(load)
    assert np.array_equal(store(load(lines)), lines)


def test_movmatrix_twice_is_nothing():
    move = mma.fragment_move("movmatrix.sync.aligned.m8n8.trans.b16")
    held = RNG.integers(0, 2**32, (5, 32, 1), np.uint32)
    assert np.array_equal(move(move(held)), held) and not np.array_equal(move(held), held)
    plain, turned = (
        mma.fragment_move(f"ldmatrix.sync.aligned.m8n8.x1{t}.b16") for t in ("", ".trans")
    )
    lines = random_lines(plain)
    assert np.array_equal(move(plain(lines)), turned(lines))


def test_the_byte_forms_fit_the_products_of_bytes():
    """Published, not verified: transposed bytes are A; accumulators as bytes are stored by column;
    packed fp4 comes in the low bits, where the product wants it in the middle ones.
    """
    a = RNG.integers(0, 256, (16, 16), np.uint8)
    load = mma.fragment_move("ldmatrix.sync.aligned.m16n16.x1.trans.b8", "sm_100a")
    assert np.array_equal(load(a.T), a_fragment("e4m3", 16, 16).registers(a))
    store = mma.fragment_move("stmatrix.sync.aligned.m16n8.x1.trans.b8", "sm_100a")
    d = a[:, :8]
    assert np.array_equal(store(accumulator_fragment("b8", 16, 8).registers(d)), d.T)
    product = mma.instruction("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32")
    load = mma.fragment_move("ldmatrix.sync.aligned.m8n16.x4.b8x16.b4x16_p64", "sm_120a")
    a = RNG.integers(0, 16, (16, 32), np.uint8)
    blocks = np.concatenate([a[:8, :16], a[8:, :16], a[:8, 16:], a[8:, 16:]])
    assert np.array_equal(load(blocks) << 2, product.fragment("a").registers(a))


# --- what is refused ------------------------------------------------------------------------------


def test_errors_name_the_allowed_values():
    load = mma.fragment_move("wmma.load.a.sync.aligned.row.m16n16k16.f16")
    with pytest.raises(LayoutError, match=re.escape("loads (16, 16), got (16, 8)")):
        load(np.zeros((16, 8), np.uint16))
    with pytest.raises(LayoutError, match=re.escape("loads (8, 8), got (8, 16)")):
        mma.fragment_move("ldmatrix.sync.aligned.m8n8.x1.b16")(np.zeros((8, 16), np.uint16))
    with pytest.raises(LayoutError, match="the registers must have shape"):
        mma.fragment_move("stmatrix.sync.aligned.m8n8.x2.b16")(np.zeros((32, 1), np.uint32))
    with pytest.raises(UnknownInstruction, match=r"nearest are .*m8n8\.x4"):
        mma.fragment_move("ldmatrix.sync.aligned.m8n8.x3.shared.b16")
    with pytest.raises(TargetError, match="needs sm_90, got sm_80"):
        mma.fragment_move("stmatrix.sync.aligned.m8n8.x1.b16", "sm_80")
    with pytest.raises(
        UnknownInstruction, match=r"expected \.row"
    ):  # A of four-bit integers is row-major
        form("wmma.load.a.sync.aligned.col.m8n8k32.s4")
    with pytest.raises(UnknownInstruction, match=r"\.trans is missing"):  # .trans is mandatory
        form("ldmatrix.sync.aligned.m16n16.x1.shared.b8")
