"""Threads that poll instead of waiting: asynchronous work completes whatever they poll, and seed 0,
which completes it as late as it can, is no exception.
"""

from __future__ import annotations

import numpy as np
import pytest

from ptx_kernels.simt import kernel, launch, zeros
from tilewright.errors import VmFault
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

STEPS = 100_000_000  # a poll that never ends is an error
SEEDS = (0, 1, 7)
DATA = np.arange(1, 65, dtype=np.uint32)
TOP = ".shared .align 128 .b8 buf[256]; .shared .align 8 .b64 bar; .shared .b32 flag;"
BEGIN = """.reg .pred %first; .reg .b32 %bar, %buf; .reg .b64 %state; mov.u32 %bar, bar;
  mov.u32 %buf, buf; setp.eq.u32 %first, %t, 0;
  @%first mbarrier.init.shared::cta.b64 [%bar], {arrivals}; @%first st.shared.u32 [flag], 0;
  mad.lo.u32 %r50, %t, 4, %buf; st.shared.u32 [%r50], 0;
  fence.proxy.async; bar.sync 0;"""
POLL = """POLL: mbarrier.test_wait.parity.shared::cta.b64 %p1, [%bar], 0;
  @!%p1 bra POLL;"""
READ = "ld.shared.u32 %r4, [%r50]; mad.wide.u32 %rd50, %g, 4, %a0; st.global.u32 [%rd50], %r4;"
COPY = """@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 256;
  @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%buf], [%a1], 256,
  [%bar];"""
COPY_WORD = "mad.wide.u32 %rd1, %t, 4, %a1; cp.async.ca.shared.global [%r50], [%rd1], 4;"

#: (what comes before the poll, the poll); all leave ``DATA``
KERNELS = {
    "a bulk copy": (BEGIN.format(arrivals=1) + COPY, POLL),
    "a bulk copy, by a state": (
        BEGIN.format(arrivals=1)
        + """@!%first bra POLL; mbarrier.arrive.expect_tx.shared::cta.b64 %state, [%bar], 256;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%buf], [%a1], 256,
        [%bar]; ONE: mbarrier.test_wait.shared::cta.b64 %p1, [%bar], %state; @!%p1 bra ONE;""",
        POLL,
    ),
    "a bulk copy, with a barrier in the loop": (
        BEGIN.format(arrivals=1) + COPY,
        """POLL: bar.sync 1; mbarrier.test_wait.parity.shared::cta.b64 %p1, [%bar], 0; bar.sync 2;
        @!%p1 bra POLL;""",
    ),
    "a bulk copy, seen by its last word": (
        BEGIN.format(arrivals=1) + COPY,
        "POLL: ld.volatile.shared.u32 %r2, [%buf+252]; setp.eq.u32 %p1, %r2, 0; @%p1 bra POLL;",
    ),
    "a bulk copy, seen by a weak load": (
        BEGIN.format(arrivals=1) + COPY,
        "POLL: ld.shared.u32 %r2, [%buf+252]; setp.eq.u32 %p1, %r2, 0; @%p1 bra POLL;",
    ),
    "a bulk copy, between naps": (
        BEGIN.format(arrivals=1) + COPY,
        """POLL: nanosleep.u32 100; ld.relaxed.cta.shared.u32 %r2, [%buf+252];
        setp.eq.u32 %p1, %r2, 0; @%p1 bra POLL;""",
    ),
    "a copy of each thread": (
        BEGIN.format(arrivals=64) + COPY_WORD + "cp.async.mbarrier.arrive.noinc.shared.b64 [%bar];",
        POLL,
    ),
    "a copy of each thread, counted": (
        BEGIN.format(arrivals=64)
        + COPY_WORD
        + """cp.async.mbarrier.arrive.shared.b64 [%bar];
        mbarrier.arrive.shared::cta.b64 %state, [%bar];""",
        POLL,
    ),
    "a copy of each thread, seen by its word": (
        BEGIN.format(arrivals=1) + COPY_WORD,
        "POLL: ld.volatile.shared.u32 %r2, [%r50]; setp.eq.u32 %p1, %r2, 0; @%p1 bra POLL;",
    ),
    "a copy of each thread, committed": (
        BEGIN.format(arrivals=1) + COPY_WORD + "cp.async.commit_group;",
        "POLL: ld.acquire.cta.shared.u32 %r2, [%r50]; setp.eq.u32 %p1, %r2, 0; @%p1 bra POLL;",
    ),
    "a copy seen by its word, while the warp sleeps": (
        BEGIN.format(arrivals=1) + COPY_WORD,
        """POLL: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%bar], 0;
        ld.volatile.shared.u32 %r2, [%r50]; setp.eq.u32 %p1, %r2, 0; @%p1 bra POLL;""",
    ),
    "one thread polls, the others wait": (
        BEGIN.format(arrivals=1) + COPY,
        """@!%first bra MEET; POLL: mbarrier.test_wait.parity.shared::cta.b64 %p1, [%bar], 0;
        @!%p1 bra POLL; MEET: bar.sync 0;""",
    ),
    "one warp polls, another sleeps": (
        BEGIN.format(arrivals=1) + COPY,
        """setp.ge.u32 %p2, %t, 32; @%p2 bra SLEEP;
        POLL: mbarrier.test_wait.parity.shared::cta.b64 %p1, [%bar], 0; @!%p1 bra POLL; bra READ;
        SLEEP: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%bar], 0; @!%p1 bra SLEEP; READ:""",
    ),
    "a bulk store, seen in global memory": (
        BEGIN.format(arrivals=1)
        + """mad.wide.u32 %rd1, %t, 4, %a1; ld.global.u32 %r3, [%rd1]; st.shared.u32 [%r50], %r3;
        fence.proxy.async; bar.sync 0;
        @%first cp.async.bulk.global.shared::cta.bulk_group [%a0], [%buf], 256;
        @%first cp.async.bulk.commit_group;""",
        """POLL: ld.acquire.gpu.global.u32 %r2, [%a0+252]; setp.eq.u32 %p1, %r2, 0;
        @%p1 bra POLL;""",
    ),
    "a store to one's own shared memory": (
        BEGIN.format(arrivals=1)
        + """@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 256; bar.sync 0;
        add.u32 %r3, %t, 1; mapa.shared::cluster.u32 %r5, %r50, 0;
        mapa.shared::cluster.u32 %r6, %bar, 0;
        st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r5], %r3, [%r6];""",
        POLL,
    ),
}  # fmt: skip


#: The first CTA of a pair copies to both; what each CTA's threads then do
PAIR = (
    BEGIN.format(arrivals=1)
    + """mov.u32 %r7, %cluster_ctarank; setp.eq.u32 %p3, %r7, 0;
  @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 256;
  barrier.cluster.arrive; barrier.cluster.wait; and.pred %p4, %p3, %first; mov.u16 %h1, 3;
  @%p4 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
  [%buf], [%a1], 256, [%bar], %h1;"""
)
PAIRS = {
    "both poll": "",
    "the first ends": "@%p3 exit;",
    "the first waits": "@%p3 bra END;",
    "the first sleeps": """@!%p3 bra POLL; SLEEP:
      mbarrier.try_wait.parity.shared::cta.b64 %p1, [%bar], 0; @!%p1 bra SLEEP; bra END;""",
}


def run(text: str, machine: Machine, **how: object) -> list[int]:
    return launch(machine, text, [zeros(128), DATA], block=64, **how)[0].tolist()


def polled(name: str, seed: int, **how: object) -> list[int]:
    before, poll = KERNELS[name]
    return run(kernel(before + poll + READ, TOP), Machine(seed=seed, step_limit=STEPS), **how)[:64]


@pytest.mark.parametrize("seed", SEEDS)
def test_polled_work_completes(seed: int) -> None:
    for name in KERNELS:
        assert polled(name, seed) == DATA.tolist(), name


def test_polled_work_completes_when_stepped() -> None:
    for name in ("a bulk copy", "a copy of each thread", "a copy of each thread, committed"):
        assert polled(name, 0, on_step=lambda step: None) == DATA.tolist(), name


def test_a_checked_machine_accepts_a_poll_as_a_wait() -> None:
    for name in ("a bulk copy", "a bulk copy, by a state", "a copy of each thread, counted"):
        text = kernel("".join(KERNELS[name]) + READ, TOP)
        assert run(text, Machine(checked=True, step_limit=STEPS))[:64] == DATA.tolist(), name


@pytest.mark.parametrize("seed", SEEDS)
def test_a_copy_of_another_cta_completes(seed: int) -> None:
    for name, before in PAIRS.items():
        text = kernel(f"""{PAIR} {before} {POLL} {READ}
          END: barrier.cluster.arrive; barrier.cluster.wait;""", TOP)  # fmt: skip
        left = run(text, Machine(seed=seed, step_limit=STEPS), grid=2, cluster=2)
        assert left[64:] == DATA.tolist(), name


def test_the_clock_advances_for_threads_that_only_read_it() -> None:
    for clock in ("%clock64", "%globaltimer"):
        body = f"""mov.u64 %rd1, {clock}; L: mov.u64 %rd2, {clock}; sub.u64 %rd2, %rd2, %rd1;
          setp.lt.u64 %p1, %rd2, 100000; @%p1 bra L;"""
        text = kernel(BEGIN.format(arrivals=1) + body + COPY + POLL + READ, TOP)
        assert run(text, Machine(step_limit=STEPS))[:64] == DATA.tolist()


def test_polling_is_deterministic_on_any_number_of_threads() -> None:
    """The number of polls shows when copies complete."""
    body = """mov.u32 %r8, 0; POLL: add.u32 %r8, %r8, 1;
      mbarrier.test_wait.parity.shared::cta.b64 %p1, [%bar], 0; @!%p1 bra POLL;
      mad.wide.u32 %rd50, %g, 4, %a0; st.global.u32 [%rd50], %r8;"""
    text = kernel(BEGIN.format(arrivals=1) + COPY + body, TOP)

    def counts(threads: int) -> list[int]:
        machine = Machine(threads=threads, step_limit=STEPS)
        return launch(machine, text, [zeros(64 * 9), DATA], grid=9, block=64)[0].tolist()

    assert counts(1) == counts(2) == counts(1)


GIVE_UP = (
    BEGIN.format(arrivals=1)
    + """.shared .align 8 .b64 other;
  @%first mbarrier.init.shared::cta.b64 [other], 1; bar.sync 0; setp.ge.u32 %p2, %t, 32;
  mov.u32 %r8, 0; @%p2 bra WAIT;
  TRY: add.u32 %r8, %r8, 1; mbarrier.try_wait.parity.shared::cta.b64 %p1, [%bar], 0;
  setp.lt.u32 %p3, %r8, 150; @%p1 bra WAIT; @%p3 bra TRY;
  @%first mbarrier.arrive.shared::cta.b64 %state, [other];
  WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [other], 0; @!%p1 bra WAIT;
  mad.wide.u32 %rd50, %g, 4, %a0; st.global.u32 [%rd50], %r8;"""
)


def test_threads_may_give_up_after_some_polls() -> None:
    """All threads sleep at times, but this is not a deadlock."""
    assert run(kernel(GIVE_UP, TOP), Machine())[:64] == [150] * 32 + [0] * 32
    with pytest.raises(VmFault, match="deadlock"):
        run(kernel(GIVE_UP.replace("@%p3 bra", "bra"), TOP), Machine())


FORGETFUL = (
    BEGIN.format(arrivals=1)
    + COPY
    + """mov.u32 %r8, 0;
  L: add.u32 %r8, %r8, 1; setp.lt.u32 %p1, %r8, 2000; @%p1 bra L;"""
)


def test_a_missing_wait_is_still_visible() -> None:
    """Shortly after the issue the copy's data is missing, and a checked machine reports it."""
    text = kernel(FORGETFUL + READ, TOP)
    assert run(text, Machine())[:64] == [0] * 64
    with pytest.raises(VmFault, match="nothing makes it wait"):
        run(text, Machine(checked=True))
