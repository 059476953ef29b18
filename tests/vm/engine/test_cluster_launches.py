"""``clusterlaunchcontrol`` and bulk stores of zeros, both of Blackwell."""

from __future__ import annotations

import pytest

from ptx_kernels.simt import both, kernel, run, zeros
from tilewright.errors import VmFault
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

ARCH = {"target": "sm_100a"}
TOP = ".shared .align 16 .b8 answer[16]; .shared .align 8 .b64 bar; .shared .align 8 .b8 sm[256];"
TAKE = """
  mov.u32 %r2, answer; mov.u32 %r3, bar; mov.u32 %r4, 0;
  .reg .b128 %q; .reg .v4 .b32 place;
  setp.eq.u32 %p0, %t, 0; mov.v4.u32 place, %ctaid;
  @%p0 mbarrier.init.shared.b64 [%r3], 1; bar.sync 0;
WORK:
  mad.lo.u32 %r6, place.z, 3, place.y; mad.lo.u32 %r6, %r6, 4, place.x;
  mad.wide.u32 %rd1, %r6, 4, %a0;
  @%p0 red.global.add.u32 [%rd1], 1; @%p0 red.global.add.u32 [%a1], 1;
  @!%p0 bra WAIT;
  mbarrier.arrive.expect_tx.shared.b64 %rd2, [%r3], 16;
  clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r2], [%r3];
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p1, [%r3], %r4; @!%p1 bra WAIT;
  xor.b32 %r4, %r4, 1; ld.shared.b128 %q, [%r2]; bar.sync 0;
  clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p2, %q;
  clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {place.x, place.y, place.z, _}, %q;
  clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128 %r8, %q;
  mov.u32 place.y, %r8; @%p2 bra WORK;
"""


@pytest.mark.parametrize("seed", [0, 3])
def test_each_work_tile_is_processed_once(seed):
    text = kernel(TAKE, TOP, **ARCH)
    work, _ = both(text, [zeros(24), zeros(1)], grid=(4, 3, 2), block=64, arch="sm_100a", seed=seed)
    assert work.tolist() == [1] * 24


def test_most_clusters_of_a_large_grid_are_canceled():
    first = "setp.eq.u32 %p0, %t, 0; @%p0 red.global.add.u32 [%a2], 1;"
    began = kernel(first + TAKE, TOP, **ARCH)
    count, begun = 24 * 400, zeros(1)
    work, done, begun = run(
        began, [zeros(count), zeros(1), begun], grid=(4, 3, 800), block=32,
        shared=200 * 1024, machine=Machine("sm_100a"),
    )  # fmt: skip
    assert work.tolist() == [1] * count and done[0] == count
    assert begun[0] < count


ALL = """
  mov.u32 %r2, answer; mov.u32 %r3, bar; setp.eq.u32 %p0, %t, 0; mov.u32 %r5, %cluster_ctarank;
  @%p0 mbarrier.init.shared.b64 [%r3], 1;
  @%p0 mbarrier.arrive.expect_tx.shared.b64 %rd2, [%r3], 16;
  barrier.cluster.arrive; barrier.cluster.wait; setp.ne.u32 %p2, %r5, 0; or.pred %p3, %p2, !%p0;
  @!%p3 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes\
.multicast::cluster::all.b128 [%r2], [%r3];
WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [%r3], 0; @!%p1 bra WAIT;
  ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r2]; mov.u32 %r6, %ctaid.x;
  mad.wide.u32 %rd1, %r6, 8, %a0; @%p0 st.global.v2.u32 [%rd1], {%r10, %r13};
  barrier.cluster.arrive; barrier.cluster.wait;
"""


def test_a_multicast_response_reaches_all_ctas_of_the_cluster():
    text = kernel(ALL, TOP, **ARCH)
    (out,) = both(text, [zeros(2 * 8)], grid=8, block=32, cluster=4, arch="sm_100a")
    out = out.reshape(8, 2)
    assert out[:4].tolist() in ([[4, 1]] * 4, [[0, 0]] * 4)
    assert out[4:].tolist() == [[0, 0]] * 4


@pytest.mark.parametrize("size", [0, 8, 200, 256])
def test_bulk_zero_stores(size):
    text = kernel(f"""mov.u32 %r2, sm; add.u32 %r3, %r2, %t; st.shared.u8 [%r3], 7; bar.sync 0;
      mov.u64 %rd1, {size}; setp.eq.u32 %p0, %t, 0;
      @%p0 st.bulk.weak.shared::cta [%r2], %rd1, 0; bar.sync 0;
      ld.shared.u8 %r4, [%r3]; mad.wide.u32 %rd2, %t, 4, %a0; st.global.u32 [%rd2], %r4;
      """, TOP, **ARCH)  # fmt: skip
    (out,) = both(text, [zeros(256)], block=256, arch="sm_100a")
    assert out.tolist() == [0] * size + [7] * (256 - size)


@pytest.mark.parametrize(
    ("size", "message"),
    [("12", "multiple of 8 bytes, got 12"), ("304", "out of bounds"), ("-8", "got -8")],
)
def test_too_many_zeros_are_a_fault(size, message):
    text = kernel(f"mov.u64 %rd1, {size}; cvta.shared.u64 %rd2, sm; st.bulk [%rd2], %rd1, 0;",
                  TOP, **ARCH)  # fmt: skip
    with pytest.raises(VmFault, match=message):
        run(text, block=1, machine=Machine("sm_100a"))


IN = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%a0], %r5, [%r3];"
OUT = "cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r2], %r5;"
ZEROS = "cvt.u64.u32 %rd1, %r5; st.bulk.shared::cta [%r2], %rd1, 0;"


@pytest.mark.parametrize("copy", [IN, OUT, ZEROS])
def test_a_copy_across_two_ctas_is_a_fault(copy):
    """The CTAs of a cluster have addresses 2²⁴ apart, so both ends of a copy may be in bounds."""
    text = kernel(f"""mov.u32 %r2, answer; mov.u32 %r3, bar; mbarrier.init.shared.b64 [%r3], 1;
      barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r4, %cluster_ctarank;
      mov.u32 %r5, {(1 << 24) + 16}; setp.ne.u32 %p0, %r4, 0; @%p0 bra END; {copy}
      END: barrier.cluster.arrive; barrier.cluster.wait;""", TOP, **ARCH)  # fmt: skip
    with pytest.raises(VmFault, match="out of bounds"):
        run(text, [zeros(1 << 23)], grid=2, cluster=2, block=1, machine=Machine("sm_100a"))
