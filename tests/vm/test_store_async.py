"""``st.async``, ``red.async`` and ``cp.async.mbarrier.arrive``: what an mbarrier hears of is there
by its wait, and not sooner.
"""

import numpy as np
import pytest

import simt
from bulk_kernels import combined
from tilewright.errors import VmFault
from tilewright.vm import Machine

TX = "mbarrier::complete_tx::bytes"
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r11], 0; @!%p2 bra W;"
SPACES = ["shared::cluster", ""]


def spoken(space: str, *words: str) -> str:
    return ".".join(w for w in (words[0], space, *words[1:]) if w)


def ring(send: str, bytes_: int, wait: str = WAIT, after: str = "") -> str:
    """Each thread of 32 sends to rank + 1 of a cluster, at %rd2 with the mbarrier at %rd3; a line
    of 512 bytes comes from %a1 and goes to %a0. They wait before they read, or ``after``.
    """
    return simt.kernel(
        f"""mov.u32 %r8, buf; mov.u32 %r11, bar; setp.eq.u32 %p0, %t, 0;
        mov.u32 %r12, %cluster_ctarank; mov.u32 %r13, %cluster_nctarank;
        @%p0 mbarrier.init.shared::cta.b64 [%r11], 1; fence.mbarrier_init.release.cluster;
        @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 %rd5, [%r11], {32 * bytes_};
        mad.lo.u32 %r9, %t, 16, %r8; mad.wide.u32 %rd6, %g, 16, %a0; mad.wide.u32 %rd7, %g, 16, %a1;
        ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%rd6];
        st.shared.v4.u32 [%r9], {{%r4, %r5, %r6, %r7}};
        barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
        add.u32 %r14, %r12, 1; rem.u32 %r14, %r14, %r13;
        ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%rd7];
        ld.global.v2.u64 {{%rd10, %rd11}}, [%rd7];
        {send}
        {wait} ld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r9];
        st.global.v4.u32 [%rd6], {{%r4, %r5, %r6, %r7}}; {after}
        barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;""",
        ".shared .align 128 .b8 buf[512]; .shared .align 8 .b64 bar;",
    )


def there(space: str) -> str:
    """The neighbour's place and mbarrier, in a window or by generic addresses."""
    if space:
        there = "mapa.shared::cluster.u32"
        return f"{there} %r15, %r9, %r14; {there} %r16, %r11, %r14;"
    return """cvt.u64.u32 %rd2, %r9; cvt.u64.u32 %rd3, %r11;
    cvta.shared.u64 %rd2, %rd2; cvta.shared.u64 %rd3, %rd3;
    mapa.u64 %rd2, %rd2, %r14; mapa.u64 %rd3, %rd3, %r14;"""


def places(space: str) -> tuple[str, str]:
    return ("[%r15]", "[%r16]") if space else ("[%rd2]", "[%rd3]")


STORES = {
    "b32": ("%r4", 4), "f32": ("%r5", 4), "v2.u32": ("{%r4, %r5}", 8), "b64": ("%rd10", 8),
    "v4.b32": ("{%r4, %r5, %r6, %r7}", 16), "v2.s64": ("{%rd10, %rd11}", 16),
}  # fmt: skip


def sent(count: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 2**32, 128 * count, np.uint32) for _ in range(2)]


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("type_", STORES)
@pytest.mark.parametrize("seed", [0, 2])
def test_stores_reach_a_neighbour(space, type_, seed):
    value, size = STORES[type_]
    place, barrier = places(space)
    send = f"{there(space)} {spoken(space, 'st.async', TX, type_)} {place}, {value}, {barrier};"
    old, new = sent(6)
    made = simt.both(ring(send, size), [old, new], seed=seed, grid=6, block=32, cluster=3)[0]
    expected, comes = old.view(np.uint8).reshape(2, 3, 32, 16).copy(), new.view(np.uint8)
    first = 4 if type_ == "f32" else 0
    taken = np.roll(comes.reshape(2, 3, 32, 16), 1, axis=1)[..., first : first + size]
    expected[..., :size] = taken
    np.testing.assert_array_equal(made.view(np.uint8), expected.ravel())


REDUCTIONS = [("add", "u32"), ("add", "s64"), ("min", "s32"), ("max", "u32"), ("inc", "u32"),
              ("dec", "u32"), ("and", "b32"), ("xor", "b32")]  # fmt: skip


@pytest.mark.parametrize(("op", "type_"), REDUCTIONS)
def test_reductions_reach_a_neighbour(op, type_):
    value, size = ("%rd10", 8) if type_[1:] == "64" else ("%r4", 4)
    opcode = f"red.async.relaxed.cluster.shared::cluster.{TX}.{op}.{type_}"
    send = f"{there('shared::cluster')} {opcode} [%r15], {value}, [%r16];"
    old, new = (x % 5 if op in ("inc", "dec") else x for x in sent(2))
    made = simt.both(ring(send, size), [old, new], grid=2, cluster=2)[0]
    lanes = [x.view(f"u{size}").reshape(2, 32, -1) for x in (old, new)]
    expected, comes = lanes[0].copy(), np.roll(lanes[1], 1, axis=0)
    type_ = type_.replace("b32", "u32")
    expected[..., 0] = combined(op, type_, lanes[0][..., 0].copy(), comes[..., 0].copy())
    np.testing.assert_array_equal(made, expected.view(np.uint32).ravel())


SEND = f"{there('shared::cluster')} st.async.shared::cluster.{TX}.u32 [%r15], %r4, [%r16];"


def test_without_a_wait_some_lanes_see_what_was_there():
    (old, new), late = sent(2), ring(SEND, 4, wait="", after=WAIT)
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
    text = ring(SEND, 4)
    assert old in text
    with pytest.raises(VmFault, match=says):
        simt.run(text.replace(old, new), sent(2), grid=2, cluster=2)


# --- cp.async.mbarrier.arrive ---------------------------------------------------------------------

COPIES = """mov.u32 %r8, buf; mov.u32 %r11, bar; setp.eq.u32 %p0, %t, 0;
mad.lo.u32 %r9, %t, 16, %r8; mad.wide.u32 %rd6, %t, 16, %a0; mad.wide.u32 %rd7, %t, 16, %a1;
xor.b32 %r10, %t, 63; mad.lo.u32 %r10, %r10, 16, %r8;
@%p0 mbarrier.init.shared::cta.b64 [%r11], COUNT; bar.sync 0;
cp.async.cg.shared.global [%r9], [%rd7], 16; ARRIVE
WAIT ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r10];
st.global.v4.u32 [%rd6], {%r4, %r5, %r6, %r7};"""
ARRIVALS = {
    "noinc": (64, "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r11];"),
    "inc": (64, """cp.async.mbarrier.arrive.shared.b64 [%r11];
            mbarrier.arrive.shared::cta.b64 %rd5, [%r11];"""),
    "generic": (64, """cvt.u64.u32 %rd3, %r11; cvta.shared.u64 %rd3, %rd3;
                cp.async.mbarrier.arrive.noinc.b64 [%rd3];"""),
}  # fmt: skip


def copied(how: str, wait: str = WAIT, count: int = 0) -> str:
    body = COPIES.replace("COUNT", str(count or ARRIVALS[how][0])).replace("WAIT", wait)
    top = ".shared .align 128 .b8 buf[1024]; .shared .align 8 .b64 bar;"
    return simt.kernel(body.replace("ARRIVE", ARRIVALS[how][1]), top)


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
