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
def test_stores_reach_a_neighbour(space, type_, seed):
    (_, size), (old, new) = STORES[type_], sent(6)
    made = simt.both(storing(space, type_), [old, new], seed=seed, grid=6, cluster=3)[0]
    expected, comes = old.view(np.uint8).reshape(2, 3, 32, 16).copy(), new.view(np.uint8)
    first = 4 if type_ == "f32" else 0
    taken = np.roll(comes.reshape(2, 3, 32, 16), 1, axis=1)[..., first : first + size]
    expected[..., :size] = taken
    np.testing.assert_array_equal(made.view(np.uint8), expected.ravel())


@pytest.mark.parametrize(("op", "type_"), REDUCTIONS)
def test_reductions_reach_a_neighbour(op, type_):
    old, new = (x % 5 if op in ("inc", "dec") else x for x in sent(2))
    made = simt.both(reducing(op, type_), [old, new], grid=2, cluster=2)[0]
    lanes = [x.view(f"u{type_[1:]}".replace("64", "8").replace("32", "4")) for x in (old, new)]
    lanes = [x.reshape(2, 32, -1) for x in lanes]
    expected, comes = lanes[0].copy(), np.roll(lanes[1], 1, axis=0)
    type_ = type_.replace("b32", "u32")
    expected[..., 0] = combined(op, type_, lanes[0][..., 0].copy(), comes[..., 0].copy())
    np.testing.assert_array_equal(made, expected.view(np.uint32).ravel())


def test_without_a_wait_some_lanes_see_what_was_there():
    (old, new), late = sent(2), storing("shared::cluster", "b32", wait="", after=WAIT)
    seen = set()
    for seed in range(6):
        machine = Machine(seed=seed)
        made = simt.run(late, [old, new], machine=machine, grid=2, cluster=2)[0]
        seen.add(made.tobytes())
        if seed == 0:
            np.testing.assert_array_equal(made, old)
    assert len(seen) > 1


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("], %r4, [%r16]", "+2], %r4, [%r16]", "misaligned"),
        ("], %r4, [%r16]", "+4096], %r4, [%r16]", "out of bounds"),
        ("], %r4, [%r16]", "], %r4, [%r11]", "the mbarrier is in another CTA than the target"),
        ("], %r4, [%r16]", "], %r4, [%r15]", "mbarrier"),
        (", 128;", ", 132;", "misses 0 of 1 arrivals, and 4 bytes"),
        (", 128;", ", 124;", "its CTA has exited"),
    ],
)
def test_what_is_wrong_has_a_name(old, new, says):
    text = storing("shared::cluster", "b32")
    assert old in text
    with pytest.raises(VmFault, match=says):
        simt.run(text.replace(old, new), sent(2), grid=2, cluster=2)


# --- cp.async.mbarrier.arrive ---------------------------------------------------------------------


@pytest.mark.parametrize("how", ARRIVALS)
@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_a_phase_ends_when_the_copies_are_there(how, seed):
    given = np.random.default_rng(5).integers(0, 2**32, 256, np.uint32)
    made = simt.both(copied(how), [np.zeros_like(given), given], seed=seed, block=64)[0]
    np.testing.assert_array_equal(made.reshape(64, 4), given.reshape(64, 4)[::-1])


def test_without_a_wait_the_copies_are_not_there():
    given = np.arange(256, dtype=np.uint32)
    made = simt.both(copied("noinc", ""), [np.zeros_like(given), given], block=64)[0]
    assert (made == 0xFFFFFFFF).all()


def test_those_who_copy_may_leave():
    """One warp copies and exits, the other waits."""
    text = copied("noinc", count=32).replace(
        "cp.async.cg", "setp.ge.u32 %p4, %t, 32; @%p4 bra WAITS; cp.async.cg"
    )
    text = text.replace("W: mbarrier", "exit; WAITS: mbarrier").replace("bra W;", "bra WAITS;")
    given = np.arange(256, dtype=np.uint32)
    made = simt.both(text, [np.zeros_like(given), given], block=64)[0]
    np.testing.assert_array_equal(made.reshape(64, 4)[32:], given.reshape(64, 4)[:32][::-1])


def test_more_arrivals_than_the_queue_holds():
    line = ARRIVALS["noinc"][1]
    text = copied("noinc", count=64 * 100).replace(line, f"cp.async.commit_group; {line}" * 100)
    given = np.arange(256, dtype=np.uint32)
    made = simt.both(text, [np.zeros_like(given), given], block=64)[0]
    np.testing.assert_array_equal(made.reshape(64, 4), given.reshape(64, 4)[::-1])


@pytest.mark.parametrize(
    ("how", "count", "says"),
    [("noinc", 32, "phase 0 misses 32 of 32 arrivals"), ("inc", 65, "misses 1 of 65 arrivals")],
)
def test_arrivals_that_do_not_fit(how, count, says):
    given = np.arange(256, dtype=np.uint32)
    with pytest.raises(VmFault, match=says):
        simt.run(copied(how, count=count), [given, given], block=64)
