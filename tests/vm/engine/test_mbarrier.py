"""mbarriers, bulk copies and clusters: data is there after the wait, and errors are faults."""

import numpy as np
import pytest

from ptx_kernels import simt
from ptx_kernels.cluster_addresses import CLUSTER as CTAS
from ptx_kernels.cluster_addresses import expected, text
from tilewright.errors import LaunchError, VmFault
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

SHARED = """.shared .align 128 .b8 buf[4096]; .shared .align 8 .b64 bar[4];
mov.u32 %r2, buf; mov.u32 %r3, bar; setp.ne.u32 %p1, %t, 0;"""
INIT = "@!%p1 mbarrier.init.shared::cta.b64 [%r3], 1;"
EXPECT = "@!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 %rd5, [%r3], 4096;"
COPY = """@!%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
    [%r2], [%a1], 4096, [%r3];"""
WAIT = """WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0; @!%p2 bra WAIT;"""
USE = """shl.b32 %r4, %t, 2; add.u32 %r5, %r2, %r4; ld.shared.u32 %r6, [%r5];
add.u32 %r6, %r6, 1; st.shared.u32 [%r5], %r6; bar.sync 0;"""
OUT = """fence.proxy.async.shared::cta;
@!%p1 cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r2], 4096;
@!%p1 cp.async.bulk.commit_group; @!%p1 cp.async.bulk.wait_group 0;"""
ROUND = [SHARED, INIT, "bar.sync 0;", EXPECT, COPY, WAIT, USE, OUT]
X = np.arange(1024, dtype=np.uint32)


def run_parts(parts: list[str], seed: int = 0, **shape) -> np.ndarray:
    text = simt.kernel(" ".join(parts))
    shape = {"block": 128} | shape
    return simt.both(text, [np.zeros_like(X), X], seed=seed, **shape)[0]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_copy_in_and_out(seed):
    result = run_parts(ROUND, seed)
    np.testing.assert_array_equal(result, X + (np.arange(1024) < 128))


def test_without_a_wait_data_is_missing():
    result = run_parts([p for p in ROUND if p != WAIT])
    assert (result[:128] == 0).all()  # poison + 1; the copy completes when the CTA ends


def fault(parts: list[str], seed: int = 0, **shape) -> VmFault:
    errors = []
    for on_step in (None, lambda step: None):
        with pytest.raises(VmFault) as caught:
            text = simt.kernel(" ".join(parts))
            shape = {"block": 128} | shape
            buffers = [np.zeros_like(X), X]
            simt.launch(Machine("sm_90a", seed), text, buffers, on_step=on_step, **shape)
        errors.append(caught.value)
    assert str(errors[0]) == str(errors[1])
    return errors[0]


@pytest.mark.parametrize(
    ("old", "new", "kind", "message"),
    [
        (EXPECT, "", "deadlock", "lacks 1 of 1 arrivals; 4096 bytes arrived that were not"),
        (EXPECT, EXPECT.replace("4096", "4112"), "deadlock", "lacks 0 of 1 arrivals and 16 b"),
        (COPY, "", "deadlock", "lacks 0 of 1 arrivals and 4096 bytes"),
        (INIT, "", "mbarrier", "no mbarrier has been initialized there"),
        (INIT, INIT.replace("1;", "0;"), "mbarrier", "count must be 1 to 1048575, got 0"),
        (INIT, INIT.replace("1;", "2;"), "deadlock", "lacks 1 of 2 arrivals"),
        (WAIT, WAIT.replace(", 0;", ", 1;") + WAIT.replace("WAIT", "W2").replace(", 0;", ", 1;"),
         "", ""),
        (EXPECT, EXPECT + EXPECT, "mbarrier", "more arrivals than the phase lacks"),
        (EXPECT, EXPECT.replace("4096", "1048576"), "mbarrier", "absolute value, got 0"),
        (EXPECT, EXPECT.replace("4096", "1048575") + EXPECT.replace("arrive.expect", "expect")
         .replace("%rd5, ", "").replace("4096", "1"), "mbarrier", "absolute value, got 1048575"),
        (COPY, "mov.u32 %r9, 4090;" + COPY.replace("4096,", "%r9,"), "bulk copy",
         "the size must be a multiple of 16 bytes, got 4090"),
        (COPY, COPY.replace("[%r2]", "[%r2+8]"), "misaligned", "at 0x8"),
        (COPY, COPY.replace("[%r2]", "[%r2+4000]"), "out of bounds", "cp.async.bulk"),
        (COPY, COPY.replace("[%a1]", "[%a1+16]"), "out of bounds", "cp.async.bulk"),
        (COPY, "mov.b16 %h1, 2;" + COPY.replace("bytes", "bytes.multicast::cluster")
         .replace("[%r3];", "[%r3], %h1;"), "exited CTA", "the cluster has no CTA of that rank"),
    ],
)  # fmt: skip
def test_protocol_errors_are_faults(old, new, kind, message):
    parts = [new if p == old else p for p in ROUND]
    if not kind:  # the phase before the first has parity 1: no wait at all
        assert run_parts(parts).any()
        return
    error = fault(parts)
    assert error.kind == kind and message in str(error)


TWICE = {
    "once": ("", True),
    "by all lanes at once": ("""setp.gt.u32 %p3, %t, 31;
        @!%p3 mbarrier.init.shared::cta.b64 [%r3+8], 1;""", True),
    "again": (INIT, False),
    "again with another count": (INIT.replace("1;", "2;"), False),
    "again by another warp": ("""bar.sync 0; setp.ne.u32 %p3, %t, 64;
        @!%p3 mbarrier.init.shared::cta.b64 [%r3], 1;""", False),
    "again after its end": (f"@!%p1 mbarrier.inval.shared::cta.b64 [%r3]; {INIT}", True),
    "again over other data": (f"@!%p1 st.shared.u32 [%r3+4], 9; {INIT}", True),
    "in a loop": (f"""mov.u32 %r9, 0; L: bar.sync 0; {INIT} add.u32 %r9, %r9, 1;
        setp.lt.u32 %p3, %r9, 2; @%p3 bra L;""", False),
    "in a loop that ends it": (f"""@!%p1 mbarrier.inval.shared::cta.b64 [%r3]; mov.u32 %r9, 0;
        L: bar.sync 0; {INIT} @!%p1 mbarrier.inval.shared::cta.b64 [%r3]; add.u32 %r9, %r9, 1;
        setp.lt.u32 %p3, %r9, 2; @%p3 bra L; {INIT}""", True),
}  # fmt: skip


@pytest.mark.parametrize(("more", "right"), TWICE.values(), ids=TWICE)
@pytest.mark.parametrize("on_step", [None, lambda step: None], ids=["compiled", "stepped"])
def test_a_valid_mbarrier_must_not_be_initialized_again(more, right, on_step):
    """A checked machine reports it, unless the mbarrier was invalidated or overwritten."""
    fence = "fence.proxy.async.shared::cta;"
    text = simt.kernel(" ".join([SHARED, INIT, more, fence, *ROUND[2:]]))
    machine, buffers = Machine("sm_90a", checked=True), [np.zeros_like(X), X]
    if right:
        result = simt.launch(machine, text, buffers, on_step=on_step, block=128)
        np.testing.assert_array_equal(result[0], X + (np.arange(1024) < 128))
        return
    with pytest.raises(VmFault, match=r"the mbarrier\.init.* initialized it before") as caught:
        simt.launch(machine, text, buffers, on_step=on_step, block=128)
    assert caught.value.kind == "mbarrier"


def test_states_and_pending_counts():
    body = f"""{SHARED} @!%p1 mbarrier.init.shared::cta.b64 [%r3], 64; bar.sync 0;
    mbarrier.arrive.shared::cta.b64 %rd5, [%r3]; mbarrier.pending_count.b64 %r6, %rd5;
    {simt.store("%r6", "u32", "%a0", "%t")}
    W: mbarrier.test_wait.shared::cta.b64 %p2, [%r3], %rd5; @!%p2 bra W;
    @%p1 mbarrier.arrive_drop.shared::cta.b64 %rd5, [%r3];
    @!%p1 mbarrier.arrive.shared::cta.b64 %rd5, [%r3];
    W2: mbarrier.try_wait.shared::cta.b64 %p2, [%r3], %rd5; @!%p2 bra W2;
    @!%p1 mbarrier.arrive.shared::cta.b64 %rd5, [%r3];
    W3: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0; @!%p2 bra W3;"""
    (result,) = simt.both(simt.kernel(body), [np.zeros(64, np.uint32)], block=64)
    assert sorted(result.tolist()) == list(range(1, 65))


# --- clusters -------------------------------------------------------------------------------------

CLUSTER = """.shared .align 128 .b8 buf[1024]; .shared .align 128 .b8 all[4096];
.shared .align 8 .b64 bar[2]; .reg .b16 mask;
mov.u32 %r2, buf; mov.u32 %r3, bar; mov.u32 %r9, all; mov.u32 %r10, %cluster_ctarank;
setp.ne.u32 %p1, %t, 0;
@!%p1 mbarrier.init.shared::cta.b64 [%r3], 1; @!%p1 mbarrier.init.shared::cta.b64 [%r3+8], 1024;
fence.mbarrier_init.release.cluster;
@!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 %rd5, [%r3], 1024;
barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
setp.ne.u32 %p3, %r10, 0; or.pred %p4, %p1, %p3; mov.b16 mask, 15;
@!%p4 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
    [%r2], [%a1], 1024, [%r3], mask;
W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0; @!%p2 bra W;
shl.b32 %r4, %t, 2; add.u32 %r5, %r2, %r4; ld.shared.u32 %r6, [%r5]; add.u32 %r6, %r6, %r10;
shl.b32 %r11, %r10, 10; add.u32 %r12, %r9, %r11; add.u32 %r12, %r12, %r4;
mapa.shared::cluster.u32 %r13, %r12, 0; st.shared::cluster.u32 [%r13], %r6;
mapa.shared::cluster.u32 %r14, %r3, 0;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r14+8];
@%p3 bra DONE;
W2: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r3+8], 0; @!%p2 bra W2;
add.u32 %r15, %r9, %r4;
ld.shared.u32 %r16, [%r15]; ld.shared.u32 %r17, [%r15+1024];
ld.shared.u32 %r18, [%r15+2048]; ld.shared.u32 %r19, [%r15+3072];
add.u32 %r16, %r16, %r17; add.u32 %r18, %r18, %r19; add.u32 %r16, %r16, %r18;
mov.u32 %r20, %clusterid.x; mad.lo.u32 %r21, %r20, 256, %t; STORE
DONE: barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"""
CLUSTER = CLUSTER.replace("STORE", simt.store("%r16", "u32", "%a0", "%r21"))


@pytest.mark.parametrize("seed", [0, 1, 5])
def test_cluster_shared_memory(seed):
    """One CTA's multicast copy goes to all four; each adds its rank; the first adds the results."""
    buffers = [np.zeros(512, np.uint32), X[:256]]
    result = simt.both(simt.kernel(CLUSTER), buffers, seed=seed, grid=8, block=256, cluster=4)[0]
    np.testing.assert_array_equal(result, np.tile(4 * X[:256] + 6, 2))


def test_addresses_and_ranks():
    body = f"""mov.u32 %r2, %cluster_ctarank; mov.u32 %r3, %cluster_nctarank;
    .shared .align 8 .b8 buf[64]; mov.u32 %r4, buf; xor.b32 %r5, %r2, 1;
    mapa.shared::cluster.u32 %r6, %r4, %r5; getctarank.shared::cluster.u32 %r7, %r6;
    getctarank.shared::cluster.u32 %r8, %r4; cvta.shared.u64 %rd1, %rd2;
    mad.lo.u32 %r9, %r7, 16, %r8; mad.lo.u32 %r9, %r3, 256, %r9; {simt.store("%r9")}"""
    (result,) = simt.both(simt.kernel(body), [np.zeros(4, np.uint32)], grid=4, block=1, cluster=2)
    assert result.tolist() == [2 << 8 | 1 << 4, 2 << 8 | 1] * 2


def test_a_rank_beyond_the_cluster_is_a_fault():
    body = """.shared .align 8 .b8 buf[64]; mov.u32 %r4, buf;
    mapa.shared::cluster.u32 %r6, %r4, 5; st.shared::cluster.u32 [%r6], %t;"""
    error = fault([body], grid=4, block=1, cluster=4)
    assert error.kind == "out of bounds"
    assert "the cluster has 4 CTAs, and none of rank 5" in str(error)


def test_an_address_contains_the_rank():
    data = np.zeros_like(expected())
    (result,) = simt.both(text(), [data], grid=len(data), block=1, cluster=CTAS)
    np.testing.assert_array_equal(result, expected())


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"cluster": 3}, "must be a multiple of the cluster"),
        ({"cluster": 32}, "at most 16"),
        ({"cluster": (2, 2, 0)}, "cluster must be from 1"),
        ({"cluster": "a"}, "must be one to three integers"),
    ],
)
def test_invalid_cluster_shapes(shape, message):
    with pytest.raises(LaunchError, match=message):
        simt.run(simt.kernel(""), [X], grid=8, **shape)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("@!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 %rd5, [%r3], 1024;", "", "1024 bytes"),
        ("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;\nsetp",
         "barrier.cluster.wait.acquire.aligned;\nsetp", "must arrive at the cluster barrier once"),
        ("mov.b16 mask, 15", "mov.b16 mask, 31", "the cluster has no CTA of that rank"),
    ],
)  # fmt: skip
def test_cluster_protocol_errors_are_faults(old, new, message):
    assert old in CLUSTER
    with pytest.raises(VmFault) as caught:
        text = simt.kernel(CLUSTER.replace(old, new))
        simt.run(text, [np.zeros(512, np.uint32), X[:256]], grid=8, block=256, cluster=4)
    assert message in str(caught.value)
