"""A checked machine reports races for seed 0, and accepts synchronized kernels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from ptx_kernels import simt
from ptx_kernels.hopper_gemm import gemm, on_machine
from tilewright.errors import VmFault
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

WARPS = 3
TOP = ".shared .align 128 .b8 buf[1024]; .shared .align 8 .b64 bar;"
START = """mov.u32 %r2, buf; mov.u32 %r3, bar; setp.eq.u32 %p0, %t, 0; setp.lt.u32 %p1, %t, 32;
setp.ge.u32 %p2, %t, 32; shl.b32 %r4, %t, 2; add.u32 %r4, %r4, %r2; xor.b32 %r5, %r4, 128;"""
X = np.arange(256, dtype=np.uint32)


def run(body: str, warps: int = 2, cluster: int = 1) -> None:
    """Run compiled and stepped; both must report the same."""
    text, raised = simt.kernel(f"{START} {body}", TOP), []
    for on_step in (None, lambda step: None):
        machine, shape = Machine(checked=True), {"grid": cluster, "cluster": cluster}
        try:
            simt.launch(machine, text, [X, X], block=32 * warps, on_step=on_step, **shape)
        except VmFault as error:
            raised.append(error)
    if raised:
        assert len(raised) == 2 and str(raised[0]) == str(raised[1])
        raise raised[0]


# --- a law ----------------------------------------------------------------------------------------

ACCESS = st.tuples(
    st.booleans(), st.integers(0, WARPS - 1), st.sampled_from([1, 2, 4]), st.integers(0, 7)
)


@examples(40)
@given(st.lists(st.lists(ACCESS, max_size=4), min_size=1, max_size=4))
def test_unordered_accesses_of_one_byte_by_two_warps_are_a_race(stretches):
    body, raced = "", False
    for stretch in stretches:
        done: list[tuple[bool, int, set[int]]] = []
        for writes, warp, size, place in stretch:
            bytes_ = set(range(place * size, place * size + size))
            raced |= any(
                (writes or wrote) and warp != other and bytes_ & others
                for wrote, other, others in done
            )
            done.append((writes, warp, bytes_))
            at = f"[%r2+{place * size}]"
            op, operands = ("st", f"{at}, %r1") if writes else ("ld", f"%r6, {at}")
            body += f"setp.eq.u32 %p3, %t, {32 * warp}; @%p3 {op}.shared.b{8 * size} {operands};\n"
        body += "bar.sync 0;\n"
    if raced:
        with pytest.raises(VmFault, match="race: "):
            run(body, WARPS)
    else:
        run(body, WARPS)


# --- what is right, and what is not ---------------------------------------------------------------

INIT = "@%p0 mbarrier.init.shared::cta.b64 [%r3], 1;"
FENCE = "@%p0 fence.mbarrier_init.release.cluster;"
LOAD = """@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 %rd5, [%r3], 1024;
@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%a1], 1024, [%r3];"""
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r3], 0; @!%p4 bra W;"
USE = "ld.shared.u32 %r6, [%r4]; st.shared.u32 [%r4], %r6;"
SHOWN = "fence.proxy.async.shared::cta;"
STORE = "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r2], 256;"
ENDED = "@%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group.read 0;"
COPY = "mad.wide.u32 %rd1, %t, 4, %a1; cp.async.ca.shared.global [%r4], [%rd1], 4;"
REMOTE = "mapa.shared::cluster.u32 %r7, %r3, 1; @%p0 mbarrier.arrive.shared::cluster.b64 _, [%r7];"
TOGETHER = "barrier.cluster.arrive; barrier.cluster.wait;"
BULK = (INIT, FENCE, "bar.sync 0;", LOAD, WAIT, USE, SHOWN, "bar.sync 0;", STORE, ENDED)
CLUSTER = (INIT, FENCE, TOGETHER, REMOTE, TOGETHER)
ASYNC = (COPY, "cp.async.commit_group;", "cp.async.wait_group 0;", "bar.sync 0;",
         "ld.shared.u32 %r6, [%r5];")  # fmt: skip
HALVES = ("@%p1 st.shared.u32 [%r4], %r1;", "@%p1 bar.arrive 1, 64;", "@%p2 bar.sync 1, 64;",
          "@%p2 ld.shared.u32 %r6, [%r5];")  # fmt: skip
FLAG = """@%p1 st.shared.u32 [%r4], %r1; @%p1 bra OVER;
LOOK: ld.acquire.cta.shared.u32 %r8, [%r2+512]; setp.ne.u32 %p3, %r8, 1; @%p3 bra LOOK;
ld.shared.u32 %r6, [%r5]; bra DONE; OVER: st.release.cta.shared.u32 [%r2+512], 1; DONE:"""
WITHIN = ("@%p1 st.shared.u32 [%r4], %r1;", "bar.warp.sync -1;", "xor.b32 %r6, %r4, 4;",
          "@%p1 ld.shared.u32 %r7, [%r6];", "bar.warp.sync -1;", "@%p1 st.shared.u32 [%r4], %r1;",
          "bar.sync 0;", "@%p1 st.shared.u32 [%r2], %r1;")  # fmt: skip
SUM = "red.shared.add.u32 [%r2], 1;"


@pytest.mark.parametrize("parts", [BULK, ASYNC, HALVES, WITHIN, (FLAG,), (SUM,)])
def test_ordered_accesses_pass(parts):
    run(" ".join(parts))


def test_accesses_ordered_by_the_cluster_barrier_pass():
    run(" ".join(CLUSTER), cluster=2)


@pytest.mark.parametrize(
    ("parts", "n", "message"),
    [
        (BULK, 1, "fence: cp.async.bulk.* what the mbarrier.init.* wrote: no fence.proxy.async"),
        (BULK, 2, "race: mbarrier.try_wait.* reads .* mbarrier.init"),
        (BULK, 4, "race: .*cp.async.bulk.*st.shared.u32"),
        (BULK, 6, "fence: cp.async.bulk.global.* what the st.shared.u32 .* wrote"),
        (BULK, 7, r"race: .*(cp.async.bulk.global.*st.shared|st.shared.*cp.async.bulk)"),
        (BULK, 9, "race: cp.async.bulk.global.* uses shared memory of a CTA that ends"),
        (ASYNC, 2, "race: ld.shared.u32 reads .* what the cp.async.ca.* writes"),
        (ASYNC, 3, "race: .*cp.async.ca.*ld.shared.u32"),
        (WITHIN, 1, "race: ld.shared.u32 reads .* what the st.shared.u32 .* writes"),
        (WITHIN, 4, "race: st.shared.u32 writes .* what the ld.shared.u32 .* reads"),
        (HALVES, 2, "race: ld.shared.u32 reads .* what the st.shared.u32 .* writes"),
    ],
)
def test_missing_synchronization_is_reported(parts, n, message):
    with pytest.raises(VmFault, match=message) as caught:
        run(" ".join((*parts[:n], *parts[n + 1 :])))
    assert caught.value.location is not None


STORES = [
    "st.shared.u32 [%r6], VALUE;",
    "mov.b64 %rd2, {VALUE, 3}; st.shared.v2.u64 [%r6], {7, %rd2};",
    "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r6], {VALUE};",
]


@pytest.mark.parametrize("store", STORES)
def test_warps_may_write_one_value_by_one_instruction(store):
    body = f"mov.u32 %r7, %laneid; mad.lo.u32 %r6, %r7, 16, %r2; {store}"
    run(body.replace("VALUE", "%r7"))
    with pytest.raises(VmFault, match=r"race: st.* writes .* what the st.* writes: nothing orders"):
        run(body.replace("VALUE", "%t"))


def test_a_cta_must_not_exit_while_others_access_it():
    with pytest.raises(VmFault, match=r"mbarrier.arrive.* of a CTA that ends"):
        run(" ".join(CLUSTER[:-1]), cluster=2)


@pytest.mark.parametrize(("stages", "cluster"), [(1, 1), (3, 1), (4, 2)])
def test_the_kernels_pass_for_every_seed(stages, cluster):
    ptx, size = gemm(stages, cluster).ptx, (128 * cluster, 128, 16 * 64)
    results = {on_machine(ptx, size, stages, cluster, n, checked=True).tobytes() for n in range(12)}
    assert len(results) == 1
