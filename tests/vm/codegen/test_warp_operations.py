"""Lanes of a warp speak to each other: shuffles, votes, matches and reductions, in real kernels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ptx_kernels.simt import both, kernel, load, store, zeros

pytestmark = pytest.mark.vm

RNG = np.random.default_rng(7)
VALUES = RNG.integers(0, 2**32, 32, np.uint32)


def shuffled(mode: str, lane: int, b: int, width: int) -> tuple[int, bool]:
    """What CUDA's ``__shfl_*_sync`` with a width does."""
    base = lane & ~(width - 1)
    source = {"up": lane - b, "down": lane + b, "bfly": lane ^ b}.get(mode, base + b % width)
    inside = source >= base if mode == "up" else source < base + width
    return (source if inside else lane), inside


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffles(mode):
    body, cases = load("%r2"), list(itertools.product((32, 16, 4), (0, 1, 3, 17, 31)))
    for i, (width, b) in enumerate(cases):
        c = (32 - width) << 8 | (0 if mode == "up" else 31)
        body += f"""shfl.sync.{mode}.b32 %r3|%p0, %r2, {b}, {c}, -1; add.u32 %r5, %t, {32 * i};
          selp.u32 %r4, 1, 0, %p0; {store("%r3", index="%r5")}
          {store("%r4", base="%a2", index="%r5")}"""
    moved, _, inside = both(kernel(body), [zeros(32 * len(cases)), VALUES, zeros(32 * len(cases))])
    for i, (width, b) in enumerate(cases):
        if mode == "bfly" and b >= width:
            continue  # crosses segments: PTX's own formula is held elsewhere
        for lane in range(32):
            source, valid = shuffled(mode, lane, b, width)
            assert (moved[32 * i + lane], inside[32 * i + lane]) == (VALUES[source], valid)


def test_shuffles_with_an_index_per_lane():
    text = kernel(f"""
      {load("%r2")} mul.lo.u32 %r3, %t, 7; shfl.sync.idx.b32 %r4, %r2, %r3, 31, 0xFFFFFFFF;
      shfl.sync.idx.b32 _|%p0, %r2, %r3, 0x0F, -1; selp.u32 %r4, %r4, 0, %p0; {store("%r4")}""")
    out, _ = both(text, [zeros(), VALUES])
    expected = [VALUES[7 * t % 32] if 7 * t % 32 <= 15 else 0 for t in range(32)]
    assert out.tolist() == expected


@pytest.mark.parametrize("members", [0xFFFFFFFF, 0x0F0F1234])
def test_votes_and_matches_of_members(members):
    """Lanes that are no members go another way meanwhile."""
    text = kernel(f"""
      {load("%r2")} shl.b32 %r3, 1, %t; and.b32 %r3, %r3, {members}; setp.eq.u32 %p0, %r3, 0;
      mov.u32 %r9, 0; @%p0 bra END;
      setp.gt.s32 %p1, %r2, 0; setp.ge.u32 %p2, %t, 0; and.b32 %r4, %r2, 3;
      vote.sync.ballot.b32 %r9, %p1, {members}; vote.sync.all.pred %p3, %p1, {members};
      vote.sync.any.pred %p4, %p1, {members}; vote.sync.uni.pred %p5, %p2, {members};
      match.any.sync.b32 %r5, %r4, {members}; match.all.sync.b32 %r6|%p6, 5, {members};
      match.all.sync.b32 %r7|%p7, %r4, {members}; activemask.b32 %r8;
      redux.sync.add.u32 %r10, %r2, {members}; redux.sync.min.s32 %r11, %r2, {members};
      redux.sync.max.u32 %r12, %r2, {members}; redux.sync.xor.b32 %r13, %r2, {members};
      elect.sync _|%p8, {members}; mov.u32 %r14, 0; @%p3 or.b32 %r14, %r14, 1;
      @%p4 or.b32 %r14, %r14, 2; @%p5 or.b32 %r14, %r14, 4; @%p6 or.b32 %r14, %r14, 8;
      @%p7 or.b32 %r14, %r14, 16; @%p8 or.b32 %r14, %r14, 32;
      mul.lo.u32 %r20, %t, 8; mad.wide.u32 %rd0, %r20, 4, %a0;
      st.global.v4.u32 [%rd0], {{%r9, %r5, %r6, %r8}};
      st.global.v4.u32 [%rd0+16], {{%r10, %r11, %r12, %r13}};
      {store("%r14", base="%a2")} {store("%r7", base="%a3")}
    END:""")
    rows, _, flags, none = both(text, [zeros(256), VALUES, zeros(), zeros()])
    inside = [t for t in range(32) if members >> t & 1]
    mine, signed = VALUES[inside], VALUES[inside].view(np.int32)
    ballot = sum(1 << t for t in inside if VALUES.view(np.int32)[t] > 0)
    totals = [mine.sum() % 2**32, int(signed.min()) % 2**32, mine.max()]
    totals.append(np.bitwise_xor.reduce(mine))
    for t, row in enumerate(rows.reshape(32, 8)):
        if t not in inside:
            assert not row.any()
            continue
        same = sum(1 << o for o in inside if VALUES[o] % 4 == VALUES[t] % 4)
        assert row.tolist() == [ballot, same, members, members, *map(int, totals)]
        assert flags[t] == 2 | 4 | 8 | (32 if t == inside[0] else 0)
        assert none[t] == 0


def test_diverged_lanes_reconverge_for_a_shuffle():
    """Half the warp is slow; the member mask makes the other half wait at its own instruction."""
    text = kernel(f"""
      mov.u32 %r2, 0; setp.lt.u32 %p0, %t, 16; @%p0 bra FAST;
    L: add.u32 %r2, %r2, %t; setp.lt.u32 %p1, %r2, 500; @%p1 bra L;
    FAST: add.u32 %r3, %r2, %t; shfl.sync.bfly.b32 %r4, %r3, 16, 31, -1; {store("%r4")}""")
    (out,) = both(text, [zeros()])
    slow = [t * -(-500 // t) + t for t in range(16, 32)]
    assert out.tolist() == [*slow, *range(16)]


def test_groups_with_disjoint_member_masks_are_independent():
    text = kernel(f"""
      and.b32 %r2, %t, 3; match.any.sync.b32 %r3, %r2, -1; mov.u32 %r4, 0;
    L: setp.ge.u32 %p0, %r4, %r2; @%p0 bra DONE; add.u32 %r4, %r4, 1; bra L;
    DONE: redux.sync.add.u32 %r5, %t, %r3; bar.warp.sync %r3; {store("%r5")}""")
    (out,) = both(text, [zeros()])
    assert out.tolist() == [sum(range(t % 4, 32, 4)) for t in range(32)]


def test_exited_lanes_are_not_awaited():
    text = kernel(f"""
      setp.ge.u32 %p0, %t, 20; @%p0 bra SLOW; vote.sync.ballot.b32 %r2, %p1, -1;
      activemask.b32 %r2; {store("%r2")} bra END;
    SLOW: mov.u32 %r3, 0; L: add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, %t; @%p2 bra L; exit;
    END:""")
    (out,) = both(text, [zeros()])
    assert out.tolist() == [0xFFFFF] * 20 + [0] * 12


def test_guard_that_is_false_in_all_lanes_does_not_wait():
    text = kernel(f"""
      setp.lt.u32 %p0, %t, 16; setp.gt.u32 %p1, %t, 99; @%p0 bra A;
      @%p1 shfl.sync.idx.b32 %r2, %t, 0, 31, -1; exit;
    A: bar.warp.sync 0xFFFF; {store("%t")}""")
    (out,) = both(text, [zeros()])
    assert out.tolist() == [*range(16), *[0] * 16]


def test_a_partial_warp():
    text = kernel(f"""
      activemask.b32 %r2; redux.sync.add.s32 %r3, 1, -1; vote.sync.all.pred %p0, 1, -1;
      mov.u32 %r4, %lanemask_lt; and.b32 %r4, %r4, %r2; popc.b32 %r4, %r4;
      mad.lo.u32 %r5, %r3, 100, %r4; @!%p0 mov.u32 %r5, 0; {store("%r5")}""")
    (out,) = both(text, [zeros(45)], block=45)
    assert out.tolist() == [3200 + t for t in range(32)] + [1300 + t for t in range(13)]
