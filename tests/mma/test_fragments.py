"""Fragments: the layouts are the PTX manual's formulas, and every place has exactly one owner."""

import numpy as np
import pytest

from references import hostile
from rows import every_row
from tilewright import mma
from tilewright.errors import LayoutError
from tilewright.layout import Layout
from tilewright.mma.fragments import a_fragment, accumulator_fragment, b_fragment

# The formulas of the manual's "Matrix Fragments for mma" sections: (lane, i) → (row, col).


def a_16x8_of_16_bits(lane, i):
    return lane // 4 + (0 if i < 2 else 8), lane % 4 * 2 + i % 2


def a_16x16_of_16_bits(lane, i):
    row = lane // 4 + (0 if 0 <= i < 2 or 4 <= i < 6 else 8)
    return row, lane % 4 * 2 + i % 2 + (0 if i < 4 else 8)


def b_8x8_of_16_bits(lane, i):
    return lane % 4 * 2 + i, lane // 4


def b_16x8_of_16_bits(lane, i):
    return lane % 4 * 2 + i % 2 + (0 if i < 2 else 8), lane // 4


def c_16x8(lane, i):
    return lane // 4 + (0 if i < 2 else 8), lane % 4 * 2 + i % 2


def a_16x8_of_tf32(lane, i):
    return lane // 4 + (0 if i in (0, 2) else 8), lane % 4 + (0 if i < 2 else 4)


def a_16x32_of_8_bits(lane, i):
    row = lane // 4 + (0 if 0 <= i < 4 or 8 <= i < 12 else 8)
    return row, lane % 4 * 4 + i % 4 + (0 if i < 8 else 16)


def a_16x64_of_4_bits(lane, i):
    row = lane // 4 + (0 if 0 <= i < 8 or 16 <= i < 24 else 8)
    return row, lane % 4 * 8 + i % 8 + (0 if i < 16 else 32)


def a_8x4_of_f64(lane, i):
    return lane // 4, lane % 4


CASES = {
    "A m16n8k8 f16": (a_fragment("f16", 16, 8), a_16x8_of_16_bits),
    "A m16n8k16 bf16": (a_fragment("bf16", 16, 16), a_16x16_of_16_bits),
    "B m16n8k8 f16": (b_fragment("f16", 8, 8), b_8x8_of_16_bits),
    "B m16n8k16 f16": (b_fragment("f16", 8, 16), b_16x8_of_16_bits),
    "C f32": (accumulator_fragment("f32", 16, 8), c_16x8),
    "D f16": (accumulator_fragment("f16", 16, 8), c_16x8),
    # the same rule holds for what later rows need
    "A m16n8k8 tf32": (a_fragment("tf32", 16, 8), a_16x8_of_tf32),
    "A m16n8k32 s8": (a_fragment("s8", 16, 32), a_16x32_of_8_bits),
    "A m16n8k64 s4": (a_fragment("s4", 16, 64), a_16x64_of_4_bits),
    "A m8n8k4 f64": (a_fragment("f64", 8, 4), a_8x4_of_f64),
}


@pytest.mark.parametrize(("fragment", "formula"), CASES.values(), ids=CASES.keys())
def test_layout_is_the_manuals_formula(fragment, formula):
    rows, columns = fragment.coordinates()
    for lane in range(32):
        for i in range(fragment.values):
            assert (rows[lane, i], columns[lane, i]) == formula(lane, i)
            row, column = formula(lane, i)
            if fragment.transposed:
                row, column = column, row
            assert fragment.layout(lane, i) == row + fragment.rows * column


def test_layouts_print_as_cute_has_them():
    row = mma.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    assert row.fragment("a").layout == Layout(((4, 8), (2, 2, 2)), ((32, 1), (16, 8, 128)))
    assert row.fragment("b").layout == Layout(((4, 8), (2, 2)), ((16, 1), (8, 64)))
    assert str(row.fragment("c").layout) == "((4,8),(2,2)):((32,1),(16,8))"
    short = mma.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32")
    assert str(short.fragment("b").layout) == "((4,8),2):((16,1),8)"


@every_row("row", hostile.one_of_each(mma.ROWS), ids=str)
def test_registers_and_matrix_are_inverse(row):
    rng = np.random.default_rng(0)
    for operand in row.operands:
        if operand == "b" and row.asynchronous:
            continue
        fragment = row.fragment(operand)
        size = fragment.rows * fragment.columns * fragment.tiles
        places = np.sort(fragment.indices().ravel())
        assert np.array_equal(places, np.repeat(np.arange(size), fragment.copies)), operand
        bits = rng.integers(0, 1 << min(62, fragment.dtype.bits), (3, *fragment.shape))
        matrix = bits.astype(fragment.dtype.storage)
        registers = fragment.registers(matrix)
        assert registers.shape == (3, fragment.threads, fragment.count), operand
        assert registers.dtype == f"u{fragment.word // 8}", operand
        for copy in range(fragment.copies):
            assert np.array_equal(fragment.matrix(registers, copy), matrix), operand


def test_counts_are_the_manuals():
    """Registers of A, B, C and D, as the manual's tables of fragments have them."""
    manuals = {
        "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32": [2, 2, 8, 8],
        "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16": [2, 1, 2, 2],
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32": [4, 2, 4, 4],
        "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64": [8, 4, 4, 4],
        "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32": [4, 2, 4, 4],
        "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32": [4, 4, 4, 4],
        "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32": [8, 8, 8, 8],
        "wmma.mma.sync.aligned.row.col.m8n32k16.f16.f16": [8, 8, 4, 4],
        "wmma.mma.sync.aligned.row.col.m8n32k16.s32.s8.s8.s32": [1, 4, 8, 8],
        "wmma.mma.sync.aligned.row.col.m16n16k8.f32.tf32.tf32.f32": [4, 4, 8, 8],
        "wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64": [1, 1, 2, 2],
    }
    counts = {o: [mma.instruction(o).fragment(x).count for x in "abcd"] for o in manuals}
    assert counts == manuals
    wide = mma.instruction("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16")
    assert [wide.fragment(x).count for x in "acd"] == [4, 128, 128]
    with pytest.raises(LayoutError, match=r"B of .* is in shared memory"):
        wide.fragment("b")


@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_is_the_manuals_picture(count):
    memory = np.arange(count * 64, dtype=np.uint16).reshape(8 * count, 8)
    plain = mma.ldmatrix(count).registers(memory)
    turned = mma.ldmatrix(count, trans=True).registers(memory)
    for lane in range(32):
        for i in range(count):
            block = memory[8 * i : 8 * i + 8].tolist()
            group, pair = lane // 4, lane % 4 * 2
            assert plain[lane, i] == block[group][pair] | block[group][pair + 1] << 16
            assert turned[lane, i] == block[pair][group] | block[pair + 1][group] << 16
    assert mma.ldmatrix_rows(count).size() == 8 * count


def blocks(matrix, corners):
    return np.concatenate([matrix[r : r + 8, c : c + 8] for r, c in corners])


def test_ldmatrix_loads_the_fragments_of_mma():
    row = mma.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    rng = np.random.default_rng(1)
    a = rng.integers(0, 1 << 16, (16, 16)).astype(np.uint16)
    b = rng.integers(0, 1 << 16, (16, 8)).astype(np.uint16)
    by_rows = blocks(a, [(0, 0), (8, 0), (0, 8), (8, 8)])
    assert np.array_equal(mma.ldmatrix(4).registers(by_rows), row.fragment("a").registers(a))
    turned = blocks(np.ascontiguousarray(a.T), [(0, 0), (0, 8), (8, 0), (8, 8)])
    assert np.array_equal(mma.ldmatrix(4, True).registers(turned), row.fragment("a").registers(a))
    expected = row.fragment("b").registers(b)
    assert np.array_equal(mma.ldmatrix(2).registers(blocks(b.T, [(0, 0), (0, 8)])), expected)
    assert np.array_equal(mma.ldmatrix(2, True).registers(b), expected)


def test_wrong_shapes_are_rejected():
    fragment = b_fragment("f16", 8, 16)
    with pytest.raises(LayoutError, match=r"\(16, 8\), got \(8, 16\)"):
        fragment.registers(np.zeros((8, 16), np.uint16))
    with pytest.raises(LayoutError, match=r"\(32, 2\), got \(32, 4\)"):
        fragment.matrix(np.zeros((32, 4), np.uint32))
    with pytest.raises(LayoutError, match="1, 2 or 4"):
        mma.ldmatrix(3)
