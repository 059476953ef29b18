"""Bulk reductions: results equal NumPy's, are complete after the wait and not before."""

import numpy as np
import pytest

from golden.golden_reductions import Case, left
from ptx_kernels import simt
from ptx_kernels.bulk_kernels import (
    BYTES,
    INTO_SHARED,
    MAPS,
    PAIRS,
    REPLACED,
    check_tensor,
    combined,
    operands,
    same,
    spelled,
    to_global,
    to_neighbour,
    to_tensor,
)
from rows import every_row
from tilewright.errors import VmFault
from tilewright.mma import TensorMap
from tilewright.vm import Machine

pytestmark = pytest.mark.vm


@every_row(("op", "type_"), PAIRS, parts=3)
def test_reduce_to_global_memory(op, type_):
    old, new = operands(op, type_)
    result, _ = simt.both(to_global(op, type_), [old, new])
    same(result, combined(op, type_, old, new), old, new)


@pytest.mark.parametrize(("op", "type_"), INTO_SHARED)
@pytest.mark.parametrize("seed", [0, 3])
def test_reduce_to_another_ctas_shared_memory(op, type_, seed):
    old, new = operands(op, type_)
    result, _ = simt.both(to_neighbour(op, type_), [old, new], seed=seed, grid=2, cluster=2)
    same(result, combined(op, type_, old, new), old, new)


# --- tensors --------------------------------------------------------------------------------------


@every_row(("type_", "shape", "strides", "box", "swizzle"), MAPS, parts=3)
@every_row("op", ["add", "min", "xor", "inc"])
def test_reduce_to_a_tensor(op, type_, shape, strides, box, swizzle):
    m = TensorMap.tiled(0, type_, shape, strides, box, swizzle=swizzle)
    if (op, type_) not in PAIRS:
        with pytest.raises(VmFault, match="its element type has no such reduction"):
            check_tensor(type_, m, op, [0] * m.rank, simt.run)
        return
    for coordinates in ([0] * m.rank, [s // 2 // 8 * 8 for s in shape]):
        check_tensor(type_, m, op, coordinates)


@pytest.mark.parametrize("type_", ["f32", "f32.ftz"])
def test_the_map_type_decides_whether_subnormals_are_flushed(type_):
    case = Case("tensor", "add", type_)
    same(left(case, simt.both), combined("add", type_, *case.given), *case.given)


def test_reduce_with_a_map_made_by_the_kernel():
    m = TensorMap.tiled(0, "f32", (40, 30), (192,), (32, 8), swizzle=128)
    check_tensor("f32", m, "add", [8, 4], says=REPLACED)


def test_reduce_im2col():
    m = TensorMap.im2col(0, "f32", (16, 5, 4, 2), (64, 320, 1280), (0, 0), (0, 0), 8, 20)
    check_tensor("f32", m, "add", [8, 3, 2, 0])


@pytest.mark.parametrize(
    ("type_", "coordinates", "message"),
    [
        ("u8", [0, 0], "no such reduction"),
        ("u32", [-4, 0], "negative"),
        ("u32", [2, 0], "16 b"),
    ],
)
def test_invalid_boxes_are_faults(type_, coordinates, message):
    m = TensorMap.tiled(0, type_, (64, 8), (256,), (16, 8))
    buffers = [np.zeros(BYTES, np.uint8)] * 2 + [np.frombuffer(m.encode(), np.uint8)]
    with pytest.raises(VmFault, match=message) as caught:
        simt.launch(Machine(), to_tensor("add", m, coordinates), buffers)
    assert caught.value.kind == "tensor map"


# --- time -----------------------------------------------------------------------------------------

TWICE = to_global("add", "u32", landed="").replace(
    "ret;", "@%p0 ld.volatile.global.u32 %r20, [%a0]; @%p0 st.global.u32 [%a2], %r20; ret;"
)


def test_without_a_wait_some_seed_reads_stale_data():
    old, new = operands("add", "u32", 1024)
    seen = {
        int(simt.run(TWICE, [old, new, np.zeros(1, np.uint32)], machine=Machine(seed=s))[2][0])
        for s in range(12)
    }
    assert int(old[0]) in seen
    result = simt.run(TWICE, [old, new, np.zeros(1, np.uint32)])
    np.testing.assert_array_equal(result[0], old + new)  # it completes when the CTA ends


def test_without_a_wait_another_cta_reads_stale_data():
    old, new = operands("add", "u32", 1024)
    text = to_neighbour("add", "u32", wait="")
    result = simt.run(text, [old, new], grid=2, cluster=2)[0]
    np.testing.assert_array_equal(result, old)


SUMMANDS = np.array([2**24, -(2**24), 1, 1, 1, 1], np.float32)
ORDER = simt.kernel(
    """mov.u32 %r8, buf; mad.wide.u32 %rd8, %r0, 4, %a1; ld.global.f32 %f2, [%rd8];
    mad.lo.u32 %r9, %t, 4, %r8; st.shared.f32 [%r9], %f2; mov.u32 %r20, 0;
    L: add.u32 %r20, %r20, 1; setp.lt.u32 %p1, %r20, 1000; @%p1 bra L;
    fence.proxy.async; bar.warp.sync -1; setp.eq.u32 %p0, %t, 0;
    @%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%a0], [%r8], 128;
    @%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group 0;""",
    ".shared .align 128 .b8 buf[128];",
)


def test_the_seed_decides_the_order_in_which_ctas_add():
    """The same on any number of cores. Sums of floats depend on the order."""
    buffers, result = [np.zeros(32, np.float32), SUMMANDS], {}
    for seed in range(8):
        sums = [
            simt.run(ORDER, buffers, grid=6, machine=Machine(seed=seed, threads=n))[0].tobytes()
            for n in (1, 4)
        ]
        assert len(set(sums)) == 1
        result[seed] = sums[0]
    assert len(set(result.values())) > 1


def test_a_full_queue_completes_its_oldest_copy():
    """A hundred reductions without a wait between them."""
    line = "@%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%a0], [%r8], 512;"
    text = to_global("add", "u32", 512).replace(line, line * 100)
    assert text.count(line) == 100
    old, new = operands("add", "u32", 128)
    result, _ = simt.both(text, [old, new])
    np.testing.assert_array_equal(result, old + 100 * new)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[%a0], [%r8], 4096", "[%a0+8], [%r8], 4096", "misaligned"),
        ("[%a0], [%r8], 4096", "[%a0+16], [%r8], 4096", "out of bounds"),
        ("[%a0], [%r8], 4096", "[%a0], [%r8+16], 4096", "out of bounds"),
        ("[%a0], [%r8], 4096", "[%a0], [%r8], %r20", "the size must be a multiple of 16 bytes"),
    ],
)
def test_faults(old, new, message):
    text = to_global("add", "u32").replace(old, new)
    text = text.replace("mov.u32 %r8, buf", "mov.u32 %r20, 40; mov.u32 %r8, buf")
    with pytest.raises(VmFault, match=message):
        simt.run(text, operands("add", "u32", 1024))


def test_data_and_mbarrier_must_be_in_one_cta():
    text = to_neighbour("add", "u32").replace(", [%r14]", ", [%r11]")
    text = text.replace("@%p4 mbarrier.init", "@%p0 mbarrier.init")
    with pytest.raises(VmFault, match="the mbarrier and the destination must be in the same CTA"):
        simt.run(text, operands("add", "u32", 1024), grid=2, cluster=2)


def test_ptx_spelling():
    assert spelled("add", "bf16") == "add.noftz.bf16" and spelled("xor", "s64") == "xor.b64"
