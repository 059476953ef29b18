"""The tensor core's arithmetic, fact by fact: what each architecture keeps, cuts off and rounds.

``test_rationals`` holds all of it to exact fractions, ``test_mma_golden`` to an H200.
"""

from __future__ import annotations

import numpy as np
import pytest

from references import hmma_cases, hostile
from rows import every_row
from tilewright import mma
from tilewright.errors import DtypeError, LayoutError, TargetError, UnknownInstruction
from tilewright.number_conversion import encode


def bits(name, *values):
    return encode(name, np.array(values, dtype=float))


def tile(row, products, c):
    """One row times one column, the rest zero: bits of the first element of D."""
    a, b = np.zeros((row.m, row.k)), np.zeros((row.k, row.n))
    start = np.zeros((row.m, row.n))
    for k, (x, y) in enumerate(products):
        a[0, k], b[k, 0] = x, y
    start[0, 0] = c
    return encode(row.a, a), encode(row.b, b), encode(row.c, start)


F32 = mma.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
F16 = mma.instruction("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16")
BF16 = mma.instruction("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")


def first(row, products, c, arch):
    return int(row.on(arch)(*tile(row, products, c))[0, 0])


def test_hopper_keeps_one_bit_more_than_ampere():
    small = [(2.0**-12, 2.0**-13)] * 2  # two of 2^-25 beside 1 and −1: kept or lost
    terms = [(1.0, 1.0), (-1.0, 1.0), *small]
    assert first(F32, terms, 0.0, "sm_90a") == bits("f32", 2.0**-24)
    assert first(F32, terms, 0.0, "sm_80") == 0


def test_ampere_rounds_between_the_halves():
    terms = [(2.0**4, 1.0)] + [(0.0, 0.0)] * 7 + [(-(2.0**4), 1.0)]
    assert first(F32, terms, 2.0**-20, "sm_90a") == bits("f32", 2.0**-20)
    assert first(F32, terms, 2.0**-20, "sm_80") == 0


def test_output_is_cut_off_in_f32_and_nearest_in_f16():
    assert first(F32, [(1.0, 1.0)], 2.0**-24 * 1.5, "sm_90a") == bits("f32", 1.0)
    assert first(F16, [(1.0, 1.0)], 2.0**-11 * 1.5, "sm_90a") == bits("f16", 1 + 2.0**-10)
    assert first(F16, [(1.0, 1.0)], 2.0**-11, "sm_90a") == bits("f16", 1.0)  # half to even


def test_overflow_zero_and_specials():
    big = [(65504.0, 65504.0)] * 2
    assert first(F16, big, 0.0, "sm_90a") == 0x7C00
    huge = [(2.0**127, 1.5)]
    assert first(BF16, huge, 2.0**127, "sm_90a") == 0x7F800000
    assert first(BF16, huge, -(2.0**127), "sm_90a") == bits("f32", 2.0**126)
    assert first(F32, [(1.0, 1.0), (-1.0, 1.0)], -0.0, "sm_90a") == 0
    assert first(F32, [(np.inf, 1.0)], -np.inf, "sm_90a") == 0x7FFFFFFF
    assert first(F32, [(np.inf, 0.0)], 1.0, "sm_90a") == 0x7FFFFFFF
    assert first(F16, [(np.nan, 1.0)], 1.0, "sm_90a") == 0x7FFF
    assert first(F16, [(-np.inf, 1.0)], 1.0, "sm_90a") == 0xFC00


def test_subnormals_are_exact():
    least = 2.0**-24
    assert first(F32, [(least, least)], 0.0, "sm_90a") == bits("f32", 2.0**-48)
    assert first(F16, [(least, 1.0)], least, "sm_90a") == 2
    assert first(BF16, [(2.0**-75, 2.0**-74)], 0.0, "sm_90a") == 1


@pytest.mark.parametrize("cases", ["BITS_KEPT", "SUBNORMAL_C", "SATURATED"])
def test_what_hmma_884_and_satfinite_do_on_volta_and_turing(cases):
    """Published, not verified: no GPU here is a V100 or a T4."""
    table = getattr(hmma_cases, cases)
    wrong = [case.wrong(case.instruction(*case.tiles())) for case in table]
    assert not any(wrong), "\n".join(filter(None, wrong))
    assert not any(case.instruction.verified for case in table)


def test_call_takes_arrays_of_the_types_or_bits():
    a, b, c = hostile.tiles(F32, "random_normal", 2)
    d = F32(a, b, c)
    assert d.dtype == np.uint32
    typed = F32(a.view(np.float16), b.view(np.float16), c.view(np.float32))
    assert typed.dtype == np.float32
    assert np.array_equal(typed.view(np.uint32), d)
    exact = a.view(np.float16).astype(float) @ b.view(np.float16) + c.view(np.float32)
    np.testing.assert_allclose(typed, exact, atol=1e-5)
    with pytest.raises(DtypeError, match="float16 or its bits as uint16, got float64"):
        F32(a.astype(float), b, c)
    with pytest.raises(LayoutError, match=r"B of .* must have shape \(16, 8\), got \(2, 8, 16\)"):
        F32(a, b.transpose(0, 2, 1), c)


WARP = [row for row in hostile.one_of_each(mma.ROWS) if not row.asynchronous]


@every_row("row", WARP, ids=str)
def test_registers_and_matrices_have_the_same_result(row):
    row = row if row.runs_on("sm_90a") and not row.until else row.on(row.target)
    kind = hostile.kinds(row)[3 % len(hostile.kinds(row))]
    matrices = dict(zip("abc", hostile.tiles(row, kind, 2), strict=True), **hostile.extras(row, 2))
    registers = {name: row.fragment(name).registers(x) for name, x in matrices.items()}
    d = row.execute(**registers)
    assert d.shape == (2, 32, row.fragment("d").count)
    assert np.array_equal(row.fragment("d").matrix(d), row(**matrices))


def test_finding_rows():
    assert len(mma.catalogue()) == len(mma.ROWS) == len({r.opcode for r in mma.ROWS})
    assert {r.shape for r in mma.catalogue("sm_75", family="mma", a="f16")} == {"m8n8k4", "m16n8k8"}
    assert mma.catalogue(family="mma", a="bf16", k=16) == (BF16,)
    assert mma.find("mma.sync.aligned.row.col.m16n8k16.f32.bf16.bf16.f32") is BF16
    assert mma.find("mma.sync.aligned.col.row.m16n8k16.f32.bf16.bf16.f32") is None
    assert mma.find(BF16.opcode + ".f32") is mma.find(BF16.opcode + ".sync") is None
    assert mma.instruction(F32.opcode, "sm_80").arch == "sm_80"
    with pytest.raises(UnknownInstruction, match=r"m16n8k16\.row\.col\.f32\.f16\.f16\.f32"):
        mma.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f16")
    with pytest.raises(TargetError, match="needs sm_80, got sm_75"):
        mma.instruction(F32.opcode, "sm_75")
    with pytest.raises(TargetError, match="sm_60 has no tensor cores"):
        mma.generation("sm_60")
    with pytest.raises(TargetError, match="unknown target 'hopper'"):
        mma.generation("hopper")
