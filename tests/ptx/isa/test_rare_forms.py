"""Forms that compilers seldom write: three-way minima, vectors moved whole, ``set`` to halves, and
what PTX had before ``.sync``.
"""

from __future__ import annotations

import numpy as np
import pytest

from ptx_kernels.simt import both, kernel, load, store, zeros
from tilewright import ptx
from tilewright.errors import UnknownInstruction, VmFault
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

RNG = np.random.default_rng(11)
NAN, NZERO = np.float32(np.nan), np.float32(-0.0)


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("nan", ["", ".NaN"])
@pytest.mark.parametrize("magnitude", ["", ".abs"])
def test_the_least_and_largest_of_three(op, nan, magnitude):
    special = np.array([0, NZERO, NAN, np.inf, -np.inf, 1e-40, -1e-40, 1, -3], np.float32)
    a, b, c = (RNG.permutation(np.resize(special, 128)) for _ in range(3))
    text = kernel(
        f"""{load("%f1", "f32")} {load("%f2", "f32", "%a2")} {load("%f3", "f32", "%a3")}
      {op}{nan}{magnitude}.f32 %f4, %f1, %f2, %f3; {store("%f4", "f32")}""",
        target="sm_100",
    )
    text = text.replace(".version 8.6", ".version 8.8")
    out, *_ = both(text, [np.zeros(128, np.float32), a, b, c], arch="sm_100", block=128)
    numpy = {("min", ""): np.fmin, ("max", ""): np.fmax, ("min", ".NaN"): np.minimum,
             ("max", ".NaN"): np.maximum}[op, nan]  # fmt: skip
    x, y, z = map(np.abs, (a, b, c)) if magnitude else (a, b, c)
    np.testing.assert_array_equal(out, numpy(numpy(x, y), z))


#: What an H200 gives (for 0x7FF7, with which it fills, it should): form, factors, what is added.
OUTSIDE = [
    ("f16", 0x7FF7, 0x3C00, 0x4000, 0), ("f16", 0x3C00, 0xFFF7, 0x4000, 0),
    ("f16", 0x0003, 0xFFF7, 0x0003, 0), ("relu.f16", 0xFFF7, 0xFFF7, 0x3EAF, 0),
    ("relu.f16", 0x32AB, 0x7FFF, 0x32AB, 0x7FFF), ("relu.f16", 0xACFC, 0xFFF7, 0xACFC, 0),
    ("bf16", 0x00EB, 0x7FFF, 0x00EB, 0x7FFF), ("bf16", 0xC100, 0xFFF7, 0xFFF7, 0),
    ("relu.bf16", 0x43D9, 0xFFF7, 0x43D9, 0), ("relu.bf16", 0xFFF7, 0xFFF7, 0xC5C0, 0),
    ("f16", 0x3C00, 0x4000, 0x3C00, 0x4200), ("f16", 0x3C00, 0x3C00, 0xFC00, 0xFC00),
]  # fmt: skip


def test_a_factor_from_outside_the_tensor_makes_fma_zero():
    body = ""
    for i, (form, a, b, c, _) in enumerate(OUTSIDE):
        body += f"""mov.b16 %h1, {a}; mov.b16 %h2, {b}; mov.b16 %h3, {c};
          fma.rn.oob.{form} %h4, %h1, %h2, %h3; st.global.b16 [%a0+{2 * i}], %h4;"""
    (out,) = both(kernel(body), [np.zeros(len(OUTSIDE), np.uint16)], block=1)
    assert out.tolist() == [d for *_, d in OUTSIDE]


@pytest.mark.parametrize(("half", "one"), [("f16", 0x3C00), ("bf16", 0x3F80)])
def test_set_gives_a_half_for_any_comparison(half, one):
    a, b = (RNG.integers(-2, 3, 32).astype(np.int32).view(np.uint32) for _ in range(2))
    body = f"""{load("%r2")} {load("%r3", base="%a2")}
      set.lt.{half}.s32 %h0, %r2, %r3; set.lo.{half}.u32 %h1, %r2, %r3;
      mov.b32 %r4, {{%h0, %h1}}; {store("%r4")}"""
    out, *_ = both(kernel(body), [zeros(), a, b])
    assert np.array_equal(out & 0xFFFF, (a.view(np.int32) < b.view(np.int32)) * np.uint32(one))
    assert np.array_equal(out >> 16, (a < b) * np.uint32(one))


def test_vectors_move_whole_and_their_parts_have_two_names():
    """``%tid`` too; ``.r`` is ``.x``."""
    body = """.reg .v4 .u32 v, w; .reg .v2 .b64 d; mov.v4.u32 v, %tid; mov.v4.u32 w, v;
      mov.v2.b64 d, {%a0, %a1}; mov.u32 %r2, %tid.g; mad.lo.u32 %r3, w.y, 4, w.r;
      mad.wide.u32 %rd1, %r3, 8, d.r; st.global.v2.u32 [%rd1], {w.x, %r2};"""
    out, _ = both(kernel(body), [zeros(24), zeros(1)], block=(4, 3))
    assert out.reshape(3, 4, 2).tolist() == [[[x, y] for x in range(4)] for y in range(3)]


def test_additions_and_subtractions_share_one_carry():
    """What ``sub.cc`` leaves is no borrow, so ``addc`` adds 1 where nothing was borrowed."""
    a, b = (RNG.choice(np.array([0, 1, 2, 2**31, 2**32 - 1], np.uint32), 64) for _ in range(2))
    body = f"""{load("%r2")} {load("%r3", base="%a2")} sub.cc.u32 %r4, %r2, %r3;
      addc.u32 %r5, %r2, %r3; add.cc.u32 %r6, %r2, %r3; subc.cc.u32 %r7, %r2, %r3;
      madc.lo.u32 %r8, %r2, %r3, 5; mad.lo.u32 %r9, %r5, 31, %r7; mad.lo.u32 %r9, %r9, 31, %r8;
      {store("%r9")}"""
    out, *_ = both(kernel(body), [zeros(64), a, b], block=64)
    x, y = a.astype(object), b.astype(object)
    no_borrow, carry = (x >= y) * 1, (x + y) >> 32
    rest = x + (2**32 - 1 - y) + carry
    expected = ((x + y + no_borrow) * 31 + rest) * 31 + x * y + 5 + (rest >> 32)
    assert out.tolist() == [e % 2**32 for e in expected]


def test_the_warps_size_is_a_number_in_expressions():
    body = f"""add.u32 %r2, %t, WARP_SZ + 1; add.u32 %r2, %r2, (WARP_SZ * 2) << 1;
      add.u32 %r2, %r2, 1 - WARP_SZ; mov.u32 %r3, WARP_SZ; mad.lo.u32 %r2, %r2, 2, %r3;
      {store("%r2")}"""
    (out,) = both(kernel(body), [zeros()])
    assert out.tolist() == [2 * (t + 33 + 128 - 31) + 32 for t in range(32)]


OLD = {
    "shfl.down.b32 %r3|%p0, %r2, 3, 0x1F": "shfl.sync.down.b32 %r3|%p0, %r2, 3, 0x1F, -1",
    "shfl.idx.b32 %r3|%p0, %r2, %t, 0x181F": "shfl.sync.idx.b32 %r3|%p0, %r2, %t, 0x181F, -1",
    "vote.ballot.b32 %r3, %p1": "vote.sync.ballot.b32 %r3, %p1, -1",
    "vote.any.pred %p0, !%p1": "vote.sync.any.pred %p0, !%p1, -1",
}


@pytest.mark.parametrize("old", OLD)
def test_before_sync_all_lanes_that_run_took_part(old):
    rest = f"selp.u32 %r4, 1, 0, %p0; shl.b32 %r4, %r4, 31; xor.b32 %r3, %r3, %r4; {store('%r3')}"
    head = f"{load('%r2')} and.b32 %r5, %r2, 4; setp.ne.u32 %p1, %r5, 0; setp.ne.u32 %p0, %r5, 4; "
    values = RNG.integers(0, 2**31, 32, np.uint32)
    before, now = (
        both(kernel(f"{head} mov.u32 %r3, 0; {how}; {rest}", target="sm_50"), [zeros(), values])[0]
        for how in (old, OLD[old])
    )
    assert np.array_equal(before, now)


def test_a_vote_before_sync_counts_the_lanes_of_its_branch():
    body = f"""setp.lt.u32 %p0, %t, 5; mov.u32 %r2, 0; setp.ge.u32 %p1, %t, 0; @%p0 bra END;
      vote.ballot.b32 %r2, %p1; END: {store("%r2")}"""
    (out,) = both(kernel(body, target="sm_50"), [zeros()])
    assert out.tolist() == [0] * 5 + [0xFFFFFFE0] * 27


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%a0, {%f4, %f5}];", "textures are"),
        ("sust.b.1d.b32.trap [%a0, {%r0}], {%r1};", "surfaces are"),
        ("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r0, 32;", "tensor memory is"),
    ],
)
def test_an_unsupported_instruction_is_named_with_its_line(text, why):
    machine = Machine("sm_100a")
    machine.load(kernel(f"\n{text}", target="sm_100a"))
    with pytest.raises(UnknownInstruction, match=f"{why} not supported") as caught:
        machine.launch("k", 1, 1, [0] * 10)
    assert text in str(caught.value) and "did you mean" not in str(caught.value)


def test_newer_targets_no_longer_have_it():
    (error,) = ptx.problems(ptx.parse(kernel("vote.all.pred %p0, %p1;", target="sm_70")))
    assert "vote.all.pred was removed in .version 6.4" in error.message


def test_the_systems_part_of_shared_memory_is_behind_the_kernels_own():
    """Groups of several warps meet there (``cooperative_groups``); others don't have it."""
    body = """.shared .b32 own[25]; mov.u32 %r2, own; st.shared.u32 [%r2+96], %t;
      mov.b32 %r3, %reserved_smem_offset_begin; mov.b32 %r4, %reserved_smem_offset_end;
      mov.b32 %r5, %reserved_smem_offset_cap; mov.b32 %r6, %reserved_smem_offset_1;
      sub.u32 %r7, %r4, 4; st.shared.u32 [%r7], 7; bar.sync 0; mad.lo.u32 %r8, %t, 4, %r6;
      st.shared.u32 [%r8], %t; bar.sync 0; xor.b32 %r8, %t, 32; mad.lo.u32 %r8, %r8, 4, %r6;
      ld.shared.u32 %r9, [%r8];
      mad.wide.u32 %rd1, %t, 16, %a0; st.global.v4.u32 [%rd1], {%r3, %r4, %r5, %r9};"""
    (out,) = both(kernel(body), [zeros(4 * 64)], block=64)
    begin, end, size, other = out.reshape(64, 4).T
    assert (begin >= 100).all() and (size == 1024).all() and (end == begin + size).all()
    assert np.array_equal(other, np.arange(64) ^ 32)
    with pytest.raises(VmFault, match="shared memory has 100 bytes"):
        both(kernel(".shared .b32 own[25]; st.shared.u32 [own+100], %t;"))
