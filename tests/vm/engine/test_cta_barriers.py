"""Barriers of a CTA: thread counts, arrival, exited warps, reductions."""

from __future__ import annotations

import numpy as np
import pytest

from ptx_kernels.simt import both, kernel, store, zeros

pytestmark = pytest.mark.vm

STAGE = ".shared .align 4 .b32 s[256];"


def exchange(sync: str, after: str = "", partner: str = "xor.b32 %r3, %t, 33;") -> str:
    """Each thread stores its index, synchronizes, and loads its partner's."""
    return f"""
      mov.u32 %r4, s; mad.lo.u32 %r2, %t, 4, %r4; st.shared.u32 [%r2], %t; {sync}
      {partner} mad.lo.u32 %r5, %r3, 4, %r4; ld.shared.u32 %r6, [%r5]; {after} {store("%r6")}"""


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize(
    "sync", ["bar.sync 0;", "barrier.sync 3;", "bar.sync 15, 64;", "mov.u32 %r9, 7; bar.sync %r9;"]
)
def test_all_threads_synchronize(sync, seed):
    (out,) = both(kernel(exchange(sync), STAGE), [zeros(64)], block=64, seed=seed)
    np.testing.assert_array_equal(out, np.arange(64) ^ 33)


def test_pairs_of_warps_use_their_own_barriers():
    sync = "shr.u32 %r8, %t, 6; add.u32 %r9, %r8, 1; bar.sync %r9, 64;"
    (out,) = both(kernel(exchange(sync), STAGE), [zeros(256)], block=256)
    np.testing.assert_array_equal(out, np.arange(256) ^ 33)


def test_producers_arrive_and_consumers_wait():
    """A pipeline of one stage with two barriers, full and empty."""
    text = kernel(
        f"""
      mov.u32 %r2, s; setp.lt.u32 %p0, %t, 32; mov.u32 %r3, 0; mov.u32 %r9, 0;
      @!%p0 bra CONSUME;
    PRODUCE: bar.sync 1, 64; mad.lo.u32 %r4, %t, 4, %r2; add.u32 %r5, %t, %r3;
      st.shared.u32 [%r4], %r5; bar.arrive 2, 64;
      add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 5; @%p1 bra PRODUCE; bra END;
    CONSUME: bar.arrive 1, 64; bar.sync 2, 64; sub.u32 %r4, 63, %t; mad.lo.u32 %r4, %r4, 4, %r2;
      ld.shared.u32 %r5, [%r4]; mad.lo.u32 %r9, %r9, 10, %r5;
      add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 5; @%p1 bra CONSUME;
    END: {store("%r9")}""",
        STAGE,
    )
    for seed in range(4):
        (out,) = both(text, [zeros(64)], block=64, seed=seed)
        expected = [sum((x + i) * 10 ** (4 - i) for i in range(5)) for x in range(31, -1, -1)]
        assert out.tolist() == [0] * 32 + expected


def test_the_lanes_of_a_warp_may_arrive_separately():
    text = kernel(f"""
      setp.ge.u32 %p0, %t, 32; @%p0 bra WAIT; setp.lt.u32 %p1, %t, 10; @%p1 bra LATE;
      bar.arrive 1, 64; bra END; LATE: bar.arrive 1, 64; bra END;
      WAIT: bar.sync 1, 64; END: {store("%t")}""")
    (out,) = both(text, [zeros(64)], block=64)
    assert out.tolist() == list(range(64))


def test_barrier_reductions():
    text = kernel(f"""
      setp.lt.u32 %p0, %t, %n0; setp.ge.u32 %p1, %t, 0;
      bar.red.popc.u32 %r2, 0, %p0; bar.red.and.pred %p2, 1, %p0; bar.red.or.pred %p3, 1, %p0;
      bar.red.and.pred %p4, 2, 96, !%p0; barrier.red.popc.u32 %r3, 0, !%p0;
      selp.u32 %r4, 1, 0, %p2; selp.u32 %r5, 2, 0, %p3; selp.u32 %r6, 4, 0, %p4;
      or.b32 %r4, %r4, %r5; or.b32 %r4, %r4, %r6; mad.lo.u32 %r7, %r3, 1000, %r2;
      {store("%r4")} {store("%r7", base="%a1")}""")
    for limit, bits in ((0, 4), (50, 2), (96, 3)):
        flags, counts = both(text, [zeros(96), zeros(96)], [limit], block=96)
        assert set(flags) == {bits}
        assert set(counts) == {(96 - limit) * 1000 + limit}


def test_a_guarded_reduction_keeps_other_lanes_registers():
    text = kernel(f"""
      add.u32 %r2, %t, 1000; bar.sync 0; setp.lt.u32 %p0, %t, 32; setp.lt.u32 %p1, %t, 9;
      @%p0 bar.red.popc.u32 %r2, 3, 32, %p1; {store("%r2")}""")
    (out,) = both(text, [zeros(64)], block=64)
    assert out.tolist() == [9] * 32 + [1000 + t for t in range(32, 64)]


def test_barriers_do_not_wait_for_exited_warps_and_lanes():
    text = kernel(
        f"setp.ge.u32 %p0, %t, 70; @%p0 exit; and.b32 %r8, %t, 1; setp.eq.u32 %p1, %r8, 1;"
        f"@%p1 exit; {exchange('bar.sync 0;', partner='xor.b32 %r3, %t, 32;')}",
        STAGE,
    )
    (out,) = both(text, [zeros(128)], block=128)
    threads = [t for t in range(0, 70, 2) if t ^ 32 < 70]
    assert [out[t] for t in threads] == [t ^ 32 for t in threads]


def test_an_exiting_warp_may_complete_a_barrier():
    text = kernel(f"""
      setp.ge.u32 %p0, %t, 32; @%p0 bra SLOW; bar.sync 0; {store("%t")} bra END;
    SLOW: mov.u32 %r2, 0; L: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 300; @%p1 bra L; exit;
    END:""")
    (out,) = both(text, [zeros(64)], block=64)
    assert out.tolist() == [*range(32), *[0] * 32]


def test_lanes_of_a_warp_arrive_by_different_instructions():
    sync = """setp.lt.u32 %p0, %lane, 11; @%p0 bra A; bar.sync 0; bra B; A: bar.sync 0; B:"""
    (out,) = both(kernel(exchange(sync), STAGE), [zeros(64)], block=64)
    np.testing.assert_array_equal(out, np.arange(64) ^ 33)


def test_some_lanes_wait_while_others_run():
    sync = """setp.lt.u32 %p0, %lane, 11; @%p0 bra A; mov.u32 %r7, 0;
      L: add.u32 %r7, %r7, 1; setp.lt.u32 %p1, %r7, %t; @%p1 bra L; A: bar.sync 0;"""
    (out,) = both(kernel(exchange(sync), STAGE), [zeros(64)], block=64)
    np.testing.assert_array_equal(out, np.arange(64) ^ 33)


def test_a_guarded_barrier_of_some_warps():
    sync = """setp.lt.u32 %p0, %t, 64; @%p0 bar.sync 4, 64; @!%p0 bar.sync 5, 32;"""
    (out,) = both(kernel(exchange(sync), STAGE), [zeros(96)], block=96)
    np.testing.assert_array_equal(out[:64], np.arange(64) ^ 33)


def test_a_barrier_in_a_divergent_loop():
    text = kernel(f"""
      mov.u32 %r2, 0; and.b32 %r3, %t, 3; add.u32 %r3, %r3, 2; mov.u32 %r5, 0;
    L: setp.ge.u32 %p0, %r2, %r3; @%p0 bra SKIP; add.u32 %r5, %r5, %r2;
    SKIP: bar.sync 0; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 5; @%p1 bra L; {store("%r5")}""")
    (out,) = both(text, [zeros(64)], block=64)
    assert out.tolist() == [sum(range(t % 4 + 2)) for t in range(64)]
