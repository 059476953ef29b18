"""Signs, NaNs, subnormals and saturation of the floating-point instructions, and conversions."""

from __future__ import annotations

import struct
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from machine import one, run
from rows import every_row

pytestmark = pytest.mark.vm

LIGHT = settings(max_examples=15, deadline=None)
NAN, QUIET, INF, NZERO, ONE, SUB = 0x7FFFFFFF, 0x7FC00001, 0x7F800000, 0x80000000, 0x3F800000, 1


def f32(x: float) -> int:
    return struct.unpack("<I", struct.pack("<f", x))[0]


def f64(x: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", x))[0]


def f16(x: float) -> int:
    return int(np.float16(x).view(np.uint16))


def floats(count: int = 32):
    bits = st.one_of(
        st.sampled_from([0, NZERO, SUB, NZERO | SUB, INF, NZERO | INF, QUIET, ONE, 0x7F7FFFFF]),
        st.integers(0, (1 << 32) - 1),
        st.floats(-300, 300, width=32).map(f32),
    )
    return st.lists(bits, min_size=count, max_size=count)


@every_row(
    ("opcode", "operands", "result"),
    [
        ("min.f32", (0, NZERO), NZERO),
        ("max.f32", (NZERO, 0), 0),
        ("min.f32", (QUIET, ONE), ONE),
        ("min.f32", (QUIET, QUIET), NAN),
        ("max.NaN.f32", (QUIET, ONE), NAN),
        ("min.ftz.f32", (SUB, NZERO | SUB), NZERO),
        ("max.xorsign.abs.f32", (f32(-3), f32(2)), f32(-3)),
        ("max.xorsign.abs.f32", (f32(-2), f32(-3)), f32(3)),
        ("add.sat.f32", (f32(2), f32(-1.5)), f32(0.5)),
        ("add.sat.f32", (f32(2), f32(2)), ONE),
        ("mul.sat.f32", (QUIET, ONE), 0),
        ("mul.sat.f32", (NZERO, ONE), 0),
        ("mul.rn.ftz.f32", (f32(2**-100), f32(-(2**-40))), NZERO),
        ("mul.f16", (0x3000, 0x8FFF), 0x8400),
        ("mul.ftz.f16", (0x3000, 0x8FFF), 0x8000),  # 2047 · 2⁻²⁵ has 11 bits below 2⁻¹⁴
        ("mul.ftz.f16", (0x3001, 0x8FFF), 0x8400),
        ("fma.rn.ftz.f16", (0x3000, 0x8FFF, 0), 0x8000),
        ("fma.rn.ftz.f16", (0x3000, 0x8FFF, 0x8400), 0x8800),
        ("add.ftz.f32", (SUB, SUB), 0),
        ("add.f32", (SUB, SUB), 2),
        ("neg.f32", (QUIET,), NAN),
        ("neg.ftz.f32", (SUB,), NZERO),
        ("abs.f32", (NZERO | SUB,), SUB),
        ("sub.f32", (ONE, ONE), 0),
        ("sub.rm.f32", (ONE, ONE), NZERO),
        ("copysign.f32", (NZERO, f32(2)), f32(-2)),
        ("fma.rn.relu.f16x2", (0x3C00BC00, 0x3C003C00, 0), 0x3C000000),
        ("fma.rn.relu.f16", (0x7E00, 0x3C00, 0), 0x7FFF),
        ("add.bf16x2", (0x3F804000, 0x3F803F80), 0x40004040),
        ("min.NaN.bf16", (0x7FC1, 0), 0x7FFF),
        ("add.f32x2", (f32(1) | f32(2) << 32, f32(3) | f32(4) << 32), f32(4) | f32(6) << 32),
        ("slct.b32.f32", (7, 9, NZERO), 7),
        ("slct.b32.f32", (7, 9, QUIET), 9),
        ("slct.ftz.b32.f32", (7, 9, NZERO | SUB), 7),
        ("slct.b32.s32", (7, 9, -1), 9),
        ("set.lt.f32.f32", (0, ONE), ONE),
        ("set.lt.u32.f32", (0, ONE), 0xFFFFFFFF),
        ("set.eq.f16x2.f16x2", (0x3C000000, 0x3C003C00), 0x3C000000),
        ("rcp.rn.f32", (f32(4),), f32(0.25)),
        ("div.rn.ftz.f32", (ONE, SUB), INF),
    ],
)
def test_edges(opcode, operands, result):
    assert one(opcode, *operands) == result


@pytest.mark.parametrize(
    ("opcode", "operands", "p", "q"),
    [
        ("setp.lt.f32", (QUIET, ONE), 0, 1),
        ("setp.ltu.f32", (QUIET, ONE), 1, 0),
        ("setp.eq.f32", (0, NZERO), 1, 0),
        ("setp.eq.ftz.f32", (SUB, NZERO), 1, 0),
        ("setp.num.f32", (ONE, QUIET), 0, 1),
        ("setp.lt.and.s32", (-1, 0, 0), 0, 0),
        ("setp.lt.or.s32", (-1, 0, 1), 1, 1),
        ("setp.lt.xor.u32", (-1, 0, 1), 1, 0),
        ("setp.hs.u32", (-1, 0), 1, 0),
        ("setp.gt.f16x2", (0x3C000000, 0), 0, 1),
    ],
)
def test_setp_gives_the_comparison_and_its_opposite(opcode, operands, p, q):
    assert one(opcode, *operands) == [p, q]


@pytest.mark.parametrize(
    ("bits", "kinds"),
    [
        (0, "finite number normal"),
        (NZERO | SUB, "finite number subnormal"),
        (INF, "infinite number"),
        (QUIET, "notanumber"),
        (ONE, "finite number normal"),
    ],
)
def test_testp(bits, kinds):
    names = "finite infinite number notanumber normal subnormal".split()
    assert " ".join(k for k in names if one(f"testp.{k}.f32", bits)) == kinds


# --- approximations ---------------------------------------------------------------------------


def near(bits: int, expected: float, ulps: int = 2) -> bool:
    return abs(bits - f32(expected)) <= ulps


def test_approximations_keep_subnormals_without_ftz():
    tiny = f32(2**-130)
    assert near(one("ex2.approx.f32", f32(-130.0)), 2**-130)
    assert one("ex2.approx.ftz.f32", f32(-130.0)) == 0
    assert near(one("lg2.approx.f32", tiny), -130.0)
    assert near(one("sqrt.approx.f32", tiny), 2**-65)
    assert near(one("rsqrt.approx.f32", tiny), 2**65)
    assert near(one("rcp.approx.f32", f32(2.0**127)), 2**-127)
    assert near(one("rcp.approx.f32", f32(2**-127)), 2.0**127)
    assert near(one("div.full.f32", f32(2.0**127), f32(2.0**127)), 1.0)
    assert near(one("div.approx.f32", tiny, tiny), 1.0)


# --- conversions ------------------------------------------------------------------------------


@LIGHT
@given(floats())
def test_narrowing_rounds_as_numpy_does(a):
    x = np.array(a, np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        half, brain = x.astype(np.float16), x.astype(ml_dtypes.bfloat16)
    nan = np.isnan(x)
    for opcode, made in (("cvt.rn.f16.f32", half), ("cvt.rn.bf16.f32", brain)):
        expected = np.where(nan, 0x7FFF, made.view(np.uint16))
        assert run(opcode, a) == expected.tolist()
    zero = [0] * 32
    low = np.where(nan, 0x7FFF, half.view(np.uint16)).tolist()
    assert run("cvt.rn.f16x2.f32", zero, a) == low
    assert run("cvt.rn.f16x2.f32", a, zero) == [h << 16 for h in low]


@LIGHT
@given(floats())
def test_fp8_saturates_to_the_finite(a):
    x = np.array(a, np.uint32).view(np.float32)
    for name, type_, largest in (
        ("e4m3x2", "float8_e4m3fn", 448),
        ("e5m2x2", "float8_e5m2", 57344),
    ):
        with np.errstate(all="ignore"):
            made = np.clip(x, -largest, largest).astype(getattr(ml_dtypes, type_)).view(np.uint8)
        canonical = run(f"cvt.rn.satfinite.{name}.f32", [QUIET], [QUIET])[0] & 0xFF
        expected = np.where(np.isnan(x), canonical, made).tolist()
        assert run(f"cvt.rn.satfinite.{name}.f32", [0] * 32, a) == expected
        back = run(f"cvt.rn.f16x2.{name}", expected)
        finite = ~np.isnan(x)
        wide = made.view(getattr(ml_dtypes, type_)).astype(np.float16).view(np.uint16)
        assert [b for b, f in zip(back, finite, strict=True) if f] == wide[finite].tolist()


ROUND = {"rni": round, "rzi": int, "rmi": lambda x: x.__floor__(), "rpi": lambda x: x.__ceil__()}


@LIGHT
@given(
    floats(),
    st.sampled_from(sorted(ROUND)),
    st.sampled_from(["s8", "u8", "s16", "s32", "u32", "u64"]),
)
def test_floats_clamp_into_integers(a, mode, dest):
    bits = int(dest[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if dest[0] == "s" else (0, (1 << bits) - 1)

    def convert(b: int) -> int:
        x = struct.unpack("<f", struct.pack("<I", b))[0]
        if x != x:
            return 1 << 63 if bits == 64 else 0
        if abs(x) == float("inf"):
            return low if x < 0 else high
        return max(low, min(high, ROUND[mode](Fraction(x))))

    expected = [convert(b) & ((1 << bits) - 1) for b in a]
    assert run(f"cvt.{mode}.{dest}.f32", a) == expected


@every_row(
    ("opcode", "operand", "result"),
    [
        ("cvt.u8.s32", -1, 0xFF),
        ("cvt.sat.u8.s32", -1, 0),
        ("cvt.sat.s8.u32", 300, 127),
        ("cvt.sat.s32.u64", 1 << 40, 0x7FFFFFFF),
        ("cvt.s64.s32", -5, -5 & (1 << 64) - 1),
        ("cvt.u64.s8", 0x80, -128 & (1 << 64) - 1),
        ("cvt.s64.u16", 0xFFFF, 0xFFFF),
        ("cvt.rzi.s32.f64", f64(float("nan")), 0x80000000),
        ("cvt.rzi.s32.f32", QUIET, 0),
        ("cvt.rzi.s64.f32", QUIET, 1 << 63),
        ("cvt.rni.f32.f32", f32(2.5), f32(2)),
        ("cvt.rpi.f32.f32", f32(-0.5), NZERO),
        ("cvt.sat.f32.f32", QUIET, 0),
        ("cvt.ftz.f64.f32", NZERO | SUB, 1 << 63),
        ("cvt.f64.f32", SUB, f64(2.0**-149)),
        ("cvt.rn.ftz.f32.f64", f64(2.0**-140), 0),
        ("cvt.rz.f32.s32", 0x7FFFFFFF, f32(2147483520.0)),
        ("cvt.rn.f16.u32", 0xFFFFFFFF, 0x7C00),
        ("cvt.rn.relu.f16.f32", f32(-2), 0),
        ("cvt.rn.relu.bf16.f32", QUIET, 0x7FFF),
        ("cvt.rn.satfinite.f16.f32", INF, 0x7BFF),
        ("cvt.rna.tf32.f32", ONE | 0x1000, ONE | 0x2000),
        ("cvt.rn.tf32.f32", ONE | 0x1000, ONE),
        ("cvt.rn.tf32.f32", ONE | 0x3000, ONE | 0x4000),
        ("cvt.rz.tf32.f32", ONE | 0x1FFF, ONE),
        ("cvt.rna.tf32.f32", 0x7F7FFFFF, INF),
        ("cvt.rna.satfinite.tf32.f32", 0x7F7FFFFF, 0x7F7FE000),
    ],
)
def test_conversions(opcode, operand, result):
    assert one(opcode, operand) == result


def test_cvt_pack_clamps_and_makes_room():
    assert one("cvt.pack.sat.s16.s32", 70000, -70000) == 0x7FFF8000
    assert one("cvt.pack.sat.u8.s32.b32", -3, 300, 0xABCD1234) == 0x123400FF
    assert one("cvt.pack.sat.s4.s32.b32", 7, -9, 0x11111111) == 0x11111178


@pytest.mark.parametrize(
    ("opcode", "operands", "normal"),
    [
        ("mul{}.f32", (0x3F7FFFFF, 0x00800000), 0x00800000),
        ("mul.rp{}.f32", (0x3F7FFFFF, 0x00800000), 0x00800000),
        ("fma.rn{}.f32", (0x3F7FFFFF, 0x00800000, 0), 0x00800000),
        ("div.rn{}.f32", (0x00FFFFFF, 0x40000000), 0x00800000),
        ("rcp.rp{}.f32", (0x7E800001,), 0x00800000),
        ("mul.rn{}.f32", (0x3F800000, 0x00800000), None),
    ],
)
def test_ftz_flushes_what_is_tiny_before_it_is_denormalized(opcode, operands, normal):
    """2^-126 less a part of its last bit rounds to 2^-126 only where there are subnormals."""
    flushed = one(opcode.format(".ftz"), *operands)
    if normal is None:
        assert flushed == one(opcode.format(""), *operands) == 0x00800000
    else:
        assert (flushed, one(opcode.format(""), *operands)) == (0, normal)
