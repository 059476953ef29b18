"""Every form of ``cvt``: both evaluators give the bits that exact fractions give.

``conversions`` derives the results again; what is known of the hardware and of ptxas's code beyond
the manual's text is here as plain cases.
"""

from __future__ import annotations

import numpy as np
import pytest

from ptx_kernels.conversion_kernels import batches, exact_results, on_vm, planes, text
from references.conversions import expected
from references.hostile import Stream
from rows import every_row

pytestmark = pytest.mark.vm

COUNT = 64


def results(batch: list[str], inputs: np.ndarray, step: bool) -> np.ndarray:
    ptx, made = text(batch, "sm_100a"), np.zeros((len(batch), inputs.shape[1]), np.uint64)
    return on_vm(ptx, inputs, made, "sm_100a", (lambda s: None) if step else None)


@every_row("batch", lambda: batches("sm_100a"), ids=lambda b: b[0], parts=23)
def test_both_evaluators_give_the_exact_bits(batch):
    inputs = planes(batch, COUNT, Stream(*batch))
    exact = np.array([exact_results(opcode, inputs) for opcode in batch])
    for step in (False, True):
        made = results(batch, inputs, step)
        for opcode, one, other in zip(batch, made, exact, strict=True):
            np.testing.assert_array_equal(one, other, f"{opcode}, {'stepped' if step else ''}")


def test_stochastic_rounding_gives_the_exact_bits():
    found = [[o for o in batch if o.startswith("cvt.rs")] for batch in batches("sm_100a")]
    assert any(found)
    for batch in filter(None, found):
        inputs = planes(batch, COUNT, Stream(*batch))
        exact = np.array([exact_results(opcode, inputs) for opcode in batch])
        np.testing.assert_array_equal(results(batch, inputs, step=True), exact)


def test_there_are_955_forms():
    """As many as ptxas 13.5 takes, of every type with every modifier."""
    assert sum(map(len, batches("sm_100a"))) == 955
    assert sum(map(len, batches("sm_90a"))) == 840


def run(opcode: str, *operands: int) -> int:
    inputs = np.zeros((6, 32), np.uint64)
    inputs[: len(operands), :] = np.array(operands, np.uint64)[:, None]
    made = {int(results([opcode], inputs, step)[0, 0]) for step in (False, True)}
    assert len(made) == 1
    return made.pop()


ONE, TWO, INF, MAX, NAN = 0x3F800000, 0x40000000, 0x7F800000, 0x7F7FFFFF, 0x7FC00000


@pytest.mark.parametrize(
    ("operand", "rz", "rp", "rz_finite", "rp_finite"),
    [
        (ONE, 127, 127, 127, 127),
        (0x3FC00000, 127, 128, 127, 128),  # 1.5
        (0xC0400000, 128, 129, 128, 129),  # -3: the sign counts nothing
        (0, 0, 0, 0, 0),
        (0x80000000, 0, 0, 0, 0),
        (0x00400000, 0, 0, 0, 0),  # 2^-127 itself
        (0x007FFFFF, 0, 1, 0, 1),
        (INF, 0xFF, 0xFF, 0xFE, 0xFE),
        (INF | 1 << 31, 0xFF, 0xFF, 0xFE, 0xFE),
        (MAX, 0xFE, 0xFF, 0xFE, 0xFE),
        (NAN | 1 << 31, 0xFF, 0xFF, 0xFF, 0xFF),
    ],
)
def test_ue8m0_conversions_as_on_a_b200(operand, rz, rp, rz_finite, rp_finite):
    """Measured by others (mlc-ai/TIRx-harness)."""
    for words, result in (
        ("rz", rz),
        ("rp", rp),
        ("rz.satfinite", rz_finite),
        ("rp.satfinite", rp_finite),
    ):
        assert run(f"cvt.{words}.ue8m0x2.f32", operand, ONE) == result << 8 | 127


@pytest.mark.parametrize(
    ("residue", "random", "result"),
    [
        (0, 0xFFFF, 0x38),
        (1, 0xFFFE, 0x38),
        (1, 0xFFFF, 0x39),
        (0x8000, 0x7FFF, 0x38),
        (0x8000, 0x8000, 0x39),
        (0xFFFF, 0x0001, 0x39),
        (0xFFFF, 0x0000, 0x38),
    ],
)
def test_random_bits_carry_as_on_a_b200(residue, random, result):
    """1 and some of the step to the next e4m3, as 16 bits of a fraction; the first of two values
    reads the random bits backwards. Measured by others (mlc-ai/TIRx-harness)."""
    x = ONE | residue << 4
    backwards = int(f"{random:016b}"[::-1], 2)
    opcode = "cvt.rs.satfinite.e4m3x4.f32"
    assert run(opcode, 0, 0, 0, x, random) == result
    assert run(opcode, 0, 0, x, 0, backwards) == result << 8
    assert run(opcode, 0, x, 0, 0, random << 16) == result << 16
    assert run(opcode, x, 0, 0, 0, backwards << 16) == result << 24


@every_row(
    ("opcode", "operand", "result"),
    [
        # shifts and masks, where a conversion would make NaNs canonical
        ("cvt.f32.bf16", 0x7F81, 0x7F810000),
        ("cvt.rm.f32.bf16", 0xFFC1, 0xFFC10000),
        ("cvt.ftz.f32.bf16", 0xFFC1, 0x7FFFFFFF),
        ("cvt.f32.f32", 0xFFC00001, 0xFFC00001),
        ("cvt.ftz.f32.f32", 0xFFC00001, 0x7FFFFFFF),
        ("cvt.f16.f16", 0xFE01, 0x7FFF),
        ("cvt.bf16.bf16", 0xFFC1, 0x7FFF),
        ("cvt.rna.tf32.f32", 0x7FC00001, 0x7FC00000),
        ("cvt.rna.tf32.f32", 0x7F800001, INF),
        ("cvt.rna.satfinite.tf32.f32", 0x7F800001, 0x7F7FE000),
        ("cvt.rna.satfinite.tf32.f32", NAN, 0x7FBFE000),
        ("cvt.rn.tf32.f32", 0x7F800001, 0x7FFFE000),
        # .ftz: dropped for f16; an f64 is flushed if 24 bits of it are below 2^-126
        ("cvt.rp.ftz.f16.f32", 1, 1),
        ("cvt.rp.ftz.bf16.f32", 1, 0),
        ("cvt.rn.f32.f64", 0x380FFFFFE0000000, 0x00800000),
        ("cvt.rn.ftz.f32.f64", 0x380FFFFFE0000000, 0),
        ("cvt.rn.ftz.f32.f64", 0x380FFFFFEFFFFFFF, 0),
        ("cvt.rn.ftz.f32.f64", 0x380FFFFFF0000000, 0x00800000),
        ("cvt.rp.ftz.f32.f64", 0x380FFFFFE0000000, 0),
        ("cvt.rp.ftz.f32.f64", 0x380FFFFFE0000001, 0x00800000),
        ("cvt.rz.ftz.f32.f64", 0x380FFFFFFFFFFFFF, 0),
    ],
)
def test_conversions_as_lowered_by_ptxas(opcode, operand, result):
    """The code for sm_75 … sm_120 (ptxas 13.5)."""
    assert run(opcode, operand) == result
    assert expected(opcode, [operand]) == result


@pytest.mark.parametrize(
    ("opcode", "operand", "result"),
    [
        ("cvt.f64.bf16", 0xFFFF, 0xFFFFE << 44),
        ("cvt.rp.f64.bf16", 0x7F81, 0x7FF82 << 44),
        ("cvt.f64.f16", 0x7E80, 0x7FFA << 48),
        ("cvt.f64.f32", 0xFF800001, 0xFFF80000 << 32 | 1 << 29),
        ("cvt.ftz.f64.f32", 0xFFC00000, 0x7FFFFFFFE0000000),
        ("cvt.sat.f64.f32", 0x7FC00000, 0),
        ("cvt.f64.f64", 0xFFF0000000000001, 0xFFF0000000000001),
        ("cvt.rpi.f64.f64", 0xFFF0000000000001, 0xFFF8000000000001),
        ("cvt.rn.f32.f64", 0x7FF000001FFFFFFF, 0x7FC00000),
        ("cvt.rp.ftz.f32.f64", 0xFFF0000020000000, 0xFFC00001),
        ("cvt.rz.f16.f64", 0xFFFFFFFFFFFFFFFF, 0xFFFF),
        ("cvt.rp.bf16.f64", 0x7FF8000000000000, 0x7FC0),
        ("cvt.rn.sat.f32.f64", 0x7FF8000000000000, 0),
        ("cvt.rz.relu.tf32.f32", 0xFF800001, 0x7FFFE000),
    ],
)
def test_nan_conversions(opcode, operand, result):
    """As an H200 has it: f64 keeps the sign and the payload."""
    assert run(opcode, operand) == result
    assert expected(opcode, [operand]) == result


@pytest.mark.parametrize(
    ("opcode", "operands", "result"),
    [
        ("cvt.rn.satfinite.e2m1x2.f32", (0x40C00000, 0xBF000000), 0x79),  # 6, -0.5
        ("cvt.rn.satfinite.e2m1x2.f32", (NAN | 1 << 31, 0x7F800000), 0x77),
        ("cvt.rn.satfinite.relu.e3m2x2.f32", (NAN, 0xC0000000), 0x1F00),
        ("cvt.rn.satfinite.e2m3x2.f16x2", (0xC7803C00,), 0x3F08),  # -7.5, 1
        ("cvt.rn.satfinite.e5m2x2.bf16x2", (0x7F80FFC0,), 0x7B7F),
        ("cvt.rn.f16x2.e2m1x2", (0xF1,), 0xC6003800),  # -6, 0.5
        ("cvt.rn.relu.f16x2.e3m2x2", (0x3F1F,), 0x00004F00),  # -28, 28
        ("cvt.rn.bf16x2.ue8m0x2", (0x00FE,), 0x00407F00),
        ("cvt.rn.bf16x2.ue8m0x2", (0xFF7F,), 0x7FFF3F80),
        ("cvt.rn.scaled::n2::ue8m0.bf16x2.e4m3x2", (0x3838, 0x80FF), 0x40007FFF),
        ("cvt.rn.satfinite.bf16x2.e5m2x2", (0x7CFC,), 0x7F7FFF7F),
        ("cvt.rn.satfinite.scaled::n2::ue8m0.s2f6x2.f32", (ONE, ONE, 0x807F), 0x2040),
        ("cvt.rn.satfinite.s2f6x2.f32", (TWO, TWO | 1 << 31), 0x7F80),
        ("cvt.rn.scaled::n2::ue8m0.bf16x2.s2f6x2", (0x40C0, 0x8080), 0x4000C000),
    ],
)
def test_small_formats(opcode, operands, result):
    assert run(opcode, *operands) == result
