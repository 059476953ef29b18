"""Forward progress: lanes that wait for lanes of their own warp, CTAs that wait for other CTAs."""

from __future__ import annotations

import numpy as np
import pytest

from ptx_kernels.simt import both, kernel, launch, store, zeros
from tilewright.errors import VmFault
from tilewright.vm import Machine

pytestmark = pytest.mark.vm


def test_lanes_of_one_warp_spin_for_a_lock_of_another_lane():
    text = kernel(f"""
      mov.u32 %r9, 0;
    TRY: atom.global.cas.b32 %r2, [%a0], 0, 1; setp.ne.u32 %p0, %r2, 0; @%p0 bra TRY;
      ld.global.u32 %r3, [%a0+4]; add.u32 %r3, %r3, 1; mov.u32 %r9, %r3;
      st.global.u32 [%a0+4], %r3; membar.gl; st.volatile.global.u32 [%a0], 0;
      {store("%r9", base="%a1")}""")
    lock, tickets = both(text, [zeros(2), zeros(80)], grid=2, block=40)
    assert lock.tolist() == [0, 80]
    assert sorted(tickets) == list(range(1, 81))


def test_the_release_may_precede_or_follow_the_spin_loop():
    """The lanes at the lower block run first, whichever they are."""
    above = "@!%p0 bra WAIT; st.volatile.global.u32 [%a0], 1; bra END; WAIT:"
    below = "@%p0 bra SET; WAIT:"
    spin = "ld.volatile.global.u32 %r2, [%a0]; setp.eq.u32 %p1, %r2, 0; @%p1 bra WAIT;"
    for before, after in ((above, ""), (below, "bra END; SET: st.volatile.global.u32 [%a0], 1;")):
        text = kernel(f"setp.eq.u32 %p0, %t, 13; {before} {spin} {after} END:")
        (flag,) = both(text, [zeros(1)])
        assert flag == 1


def test_a_chain_of_lanes_each_waiting_for_the_next():
    """32 groups of lanes spin at 32 instructions; each of them gets a turn."""
    body = "".join(f"setp.eq.u32 %p0, %t, {t}; @%p0 bra L{t}; " for t in range(1, 32))
    body += "L0: st.volatile.global.u32 [%a0+124], 1; bra END;"
    for t in range(1, 32):
        # lane t waits for the word of lane t - 1, which stands at (32 - t) * 4
        body += f"""L{t}: ld.volatile.global.u32 %r2, [%a0+{(32 - t) * 4}];
          setp.eq.u32 %p1, %r2, 0; @%p1 bra L{t}; st.volatile.global.u32 [%a0+{(31 - t) * 4}], 1;
          bra END;"""
    (words,) = both(kernel(body + "END:"), [zeros()])
    assert words.all()


MARLIN = """
      setp.ne.u32 %p0, %t, 0; @%p0 bra MEET;
    SPIN: ld.acquire.gpu.global.u32 %r2, [%a0]; setp.ne.u32 %p1, %r2, %r0; @%p1 bra SPIN;
    MEET: bar.sync 0;
      ld.global.u32 %r3, [%a1]; add.u32 %r3, %r3, %r0; bar.sync 0;
      @%p0 bra END; st.global.u32 [%a1], %r3; membar.gl; red.release.gpu.global.add.u32 [%a0], 1;
    END:"""


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_ctas_pass_a_flag_while_their_warps_wait_at_a_barrier(seed):
    """Marlin's pattern: one lane spins, 31 of its warp are at ``bar.sync`` already."""
    flag, total = both(kernel(MARLIN), [zeros(1), zeros(1)], grid=6, block=64, seed=seed)
    assert (flag, total) == (6, sum(range(6)))


def test_a_lane_spins_for_another_warp_while_its_own_waits():
    text = kernel(
        f"""
      setp.eq.u32 %p0, %t, 5; setp.ge.u32 %p1, %t, 32; @%p1 bra OTHER; @!%p0 bra MEET;
    SPIN: ld.volatile.shared.u32 %r2, [flag]; setp.ne.u32 %p2, %r2, 7; @%p2 bra SPIN;
    MEET: bar.sync 0; bra END;
    OTHER: mov.u32 %r3, 7; st.volatile.shared.u32 [flag], %r3; bar.sync 0;
    END: {store("%t")}""",
        ".shared .b32 flag;",
    )
    (out,) = both(text, [zeros(64)], block=64)
    assert out.tolist() == list(range(64))


LAST_BLOCK = f"""
      mul.lo.u32 %r2, %g, 3; {store("%r2")}
      membar.gl; bar.sync 0; setp.ne.u32 %p0, %t, 0; mov.u32 %r3, 0;
      @!%p0 atom.global.inc.u32 %r3, [%a1], 0xFFFF; mov.u32 %r5, %nctaid.x; sub.u32 %r5, %r5, 1;
      setp.ne.u32 %p1, %r3, %r5; or.pred %p0, %p0, %p1; @%p0 bra END;
      mov.u32 %r6, 0; mov.u32 %r7, 0; mul.lo.u32 %r8, %r1, %n0;
    LOOP: mad.wide.u32 %rd0, %r7, 4, %a0; ld.volatile.global.u32 %r9, [%rd0];
      add.u32 %r6, %r6, %r9; add.u32 %r7, %r7, 1; setp.lt.u32 %p2, %r7, %r8; @%p2 bra LOOP;
      st.global.u32 [%a2], %r6;
    END:"""


def test_the_last_cta_reduces():
    buffers = [zeros(40 * 20), zeros(1), zeros(1)]
    _, count, total = both(kernel(LAST_BLOCK), buffers, [20], grid=20, block=40)
    assert (count, total) == (20, 3 * sum(range(800)))


def test_ctas_wait_for_ctas_of_a_higher_index():
    """CTA c waits for CTA c + 1: all must be resident."""
    text = kernel("""
      add.u32 %r2, %r0, 1; mov.u32 %r3, %nctaid.x; setp.eq.u32 %p0, %r2, %r3; @%p0 bra SET;
      mad.wide.u32 %rd0, %r2, 4, %a0;
    SPIN: ld.acquire.gpu.u32 %r4, [%rd0]; setp.eq.u32 %p1, %r4, 0; @%p1 bra SPIN;
    SET: mad.wide.u32 %rd1, %r0, 4, %a0; st.release.gpu.u32 [%rd1], %r2;""")
    (out,) = both(text, [zeros(16)], grid=16, block=32)
    assert out.tolist() == list(range(1, 17))


def test_floating_point_atomics_are_deterministic():
    """The order of atomics depends on the seed, not on compilation or the number of cores."""
    text = kernel("""
      add.u32 %r3, %g, 1; cvt.rn.f32.u32 %f0, %r3; rcp.rn.f32 %f1, %f0; mov.u32 %r2, 0;
    L: red.global.add.f32 [%a0], %f1; add.u32 %r2, %r2, 1; setp.lt.u32 %p0, %r2, %t; @%p0 bra L;""")

    def once(seed: int, threads: int) -> int:
        machine = Machine(seed=seed, threads=threads)
        place = machine.upload(np.zeros(1, np.float32))
        machine.load(text)
        machine.launch("k", 9, 96, [place, *[0] * 9])
        return int(machine.download(place, zeros(1))[0])

    for seed in (0, 5):
        assert len({once(seed, threads) for threads in (1, 2, 1)}) == 1
    assert len({once(seed, 1) for seed in range(6)}) > 1


LATE = """.shared .align 8 .b64 bar; mov.u32 %r2, bar; setp.eq.u32 %p0, %t, 0;
@%p0 mbarrier.init.shared::cta.b64 [%r2], 1; fence.mbarrier_init.release.cluster;
barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r3, %cluster_ctarank; xor.b32 %r3, %r3, 1;
mapa.shared::cluster.u32 %r4, %r2, %r3; @%p0 mbarrier.arrive.shared::cluster.b64 _, [%r4];"""


def test_a_cta_stays_resident_while_its_cluster_runs():
    """Each arrives at the other's barrier and ends. Kernels that others wrote do so, and only time
    makes it right: another order shows that it is wrong, and so does a checked machine.
    """
    both(kernel(LATE), grid=4, cluster=2)
    for machine, message in (
        (Machine(checked=True), "a CTA that ends"),
        (Machine(seed=1), "exited CTA"),
    ):
        with pytest.raises(VmFault, match=message):
            launch(machine, kernel(LATE), grid=4, cluster=2)
