"""``st.async``, ``red.async`` and ``cp.async.mbarrier.arrive``: what an mbarrier hears of is there
by its wait, and not sooner.
"""

import numpy as np
import pytest

from ptx_kernels import simt
from ptx_kernels.async_kernels import (
    ARRIVALS,
    REDUCTIONS,
    SPACES,
    STORES,
    WAIT,
    copied,
    reducing,
    sent,
    storing,
)
from ptx_kernels.bulk_kernels import combined
from rows import every_row
from tilewright.errors import VmFault
from tilewright.vm import Machine

pytestmark = pytest.mark.vm


@every_row("space", SPACES, parts=3)
@every_row("type_", STORES)
@every_row("seed", [0, 2])
def test_stores_to_another_cta(space, type_, seed):
    (_, size), (old, new) = STORES[type_], sent(6)
    result = simt.both(storing(space, type_), [old, new], seed=seed, grid=6, cluster=3)[0]
    expected, comes = old.view(np.uint8).reshape(2, 3, 32, 16).copy(), new.view(np.uint8)
    first = 4 if type_ == "f32" else 0
    taken = np.roll(comes.reshape(2, 3, 32, 16), 1, axis=1)[..., first : first + size]
    expected[..., :size] = taken
    np.testing.assert_array_equal(result.view(np.uint8), expected.ravel())


@pytest.mark.parametrize(("op", "type_"), REDUCTIONS)
def test_reductions_to_another_cta(op, type_):
    old, new = (x % 5 if op in ("inc", "dec") else x for x in sent(2))
    result = simt.both(reducing(op, type_), [old, new], grid=2, cluster=2)[0]
    lanes = [x.view(f"u{type_[1:]}".replace("64", "8").replace("32", "4")) for x in (old, new)]
    lanes = [x.reshape(2, 32, -1) for x in lanes]
    expected, comes = lanes[0].copy(), np.roll(lanes[1], 1, axis=0)
    type_ = type_.replace("b32", "u32")
    expected[..., 0] = combined(op, type_, lanes[0][..., 0].copy(), comes[..., 0].copy())
    np.testing.assert_array_equal(result, expected.view(np.uint32).ravel())


def test_without_a_wait_some_lanes_read_stale_data():
    (old, new), late = sent(2), storing("shared::cluster", "b32", wait="", after=WAIT)
    seen = set()
    for seed in range(6):
        machine = Machine(seed=seed)
        result = simt.run(late, [old, new], machine=machine, grid=2, cluster=2)[0]
        seen.add(result.tobytes())
        if seed == 0:
            np.testing.assert_array_equal(result, old)
    assert len(seen) > 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("], %r4, [%r16]", "+2], %r4, [%r16]", "misaligned"),
        ("], %r4, [%r16]", "+4096], %r4, [%r16]", "out of bounds"),
        ("], %r4, [%r16]", "], %r4, [%r11]", "must be in the same CTA"),
        ("], %r4, [%r16]", "], %r4, [%r15]", "mbarrier"),
        (", 128;", ", 132;", "lacks 0 of 1 arrivals and 4 bytes"),
        (", 128;", ", 124;", "its CTA has exited"),
    ],
)
def test_faults(old, new, message):
    text = storing("shared::cluster", "b32")
    assert old in text
    with pytest.raises(VmFault, match=message):
        simt.run(text.replace(old, new), sent(2), grid=2, cluster=2)


# --- cp.async.mbarrier.arrive ---------------------------------------------------------------------


@pytest.mark.parametrize("how", ARRIVALS)
@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_a_phase_completes_after_the_copies(how, seed):
    data = np.random.default_rng(5).integers(0, 2**32, 256, np.uint32)
    result = simt.both(copied(how), [np.zeros_like(data), data], seed=seed, block=64)[0]
    np.testing.assert_array_equal(result.reshape(64, 4), data.reshape(64, 4)[::-1])


def test_without_a_wait_the_copies_are_incomplete():
    data = np.arange(256, dtype=np.uint32)
    result = simt.both(copied("noinc", ""), [np.zeros_like(data), data], block=64)[0]
    assert (result == 0xFFFFFFFF).all()


def test_a_warp_may_exit_with_copies_in_flight():
    """One warp copies and exits, the other waits."""
    text = copied("noinc", count=32).replace(
        "cp.async.cg", "setp.ge.u32 %p4, %t, 32; @%p4 bra WAITS; cp.async.cg"
    )
    text = text.replace("W: mbarrier", "exit; WAITS: mbarrier").replace("bra W;", "bra WAITS;")
    data = np.arange(256, dtype=np.uint32)
    result = simt.both(text, [np.zeros_like(data), data], block=64)[0]
    np.testing.assert_array_equal(result.reshape(64, 4)[32:], data.reshape(64, 4)[:32][::-1])


def test_more_arrivals_than_the_queue_holds():
    line = ARRIVALS["noinc"][1]
    text = copied("noinc", count=64 * 100).replace(line, f"cp.async.commit_group; {line}" * 100)
    data = np.arange(256, dtype=np.uint32)
    result = simt.both(text, [np.zeros_like(data), data], block=64)[0]
    np.testing.assert_array_equal(result.reshape(64, 4), data.reshape(64, 4)[::-1])


@pytest.mark.parametrize(
    ("how", "count", "message"),
    [("noinc", 32, "phase 0 lacks 32 of 32 arrivals"), ("inc", 65, "lacks 1 of 65 arrivals")],
)
def test_too_many_arrivals_are_a_fault(how, count, message):
    data = np.arange(256, dtype=np.uint32)
    with pytest.raises(VmFault, match=message):
        simt.run(copied(how, count=count), [data, data], block=64)
