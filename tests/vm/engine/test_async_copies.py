"""``cp.async``: a copy completes at some time before its wait returns, and is invisible before."""

from __future__ import annotations

import numpy as np
import pytest

from ptx_kernels.simt import both, kernel, zeros
from rows import every_row

pytestmark = pytest.mark.vm

SHARED = ".shared .align 16 .b8 ring[8192];"
RNG = np.random.default_rng(3)
SEEDS = range(20)
POISON = 0xFFFFFFFF

PLACES = "mov.u32 %r2, ring; mad.lo.u32 %r3, %t, 16, %r2; mad.wide.u32 %rd0, %t, 16, %a1;"
OUT = """mad.wide.u32 %rd1, %t, 16, %a0; ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r3];
  st.global.v4.b32 [%rd1], {%r4, %r5, %r6, %r7};"""


def words(threads: int = 32) -> np.ndarray:
    return RNG.integers(0, 2**31, 4 * threads, np.uint32)


@every_row(("cache", "size"), [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)], parts=3)
@every_row("valid", [None, 0, 1, 3, 4, 8, 13, 16, 99])
def test_invalid_bytes_are_zero_filled(cache, size, valid):
    operand = "" if valid is None else ", %r8"
    text = kernel(
        f"{PLACES} mov.u32 %r8, {valid or 0}; "
        f"cp.async.{cache}.shared.global [%r3], [%rd0], {size}{operand}; "
        f"cp.async.wait_all; {OUT}",
        SHARED,
    )
    data = words()
    out, _ = both(text, [zeros(128), data])
    expected = np.full((32, 16), 255, np.uint8)
    expected[:, :size] = 0
    count = size if valid is None else min(size, valid)
    expected[:, :count] = data.view(np.uint8).reshape(32, 16)[:, :count]
    np.testing.assert_array_equal(out.view(np.uint8).reshape(32, 16), expected)


def test_an_ignored_source_is_zero_filled():
    text = kernel(
        f"""{PLACES} setp.lt.u32 %p0, %t, 7; @%p0 mov.u64 %rd0, 0;
        cp.async.ca.shared.global [%r3], [%rd0], 16, %p0; cp.async.wait_all; {OUT}""",
        SHARED,
    )
    data = words()
    out, _ = both(text, [zeros(128), data])
    data[: 4 * 7] = 0
    np.testing.assert_array_equal(out, data)


def pipeline(wait: str) -> str:
    """A pipeline of three stages that adds eight tiles of 64 × 16 bytes."""
    issue = """{{ .reg .pred out; setp.ge.u32 out, {k}, 8; @out bra SKIP;
      rem.u32 %r10, {k}, 3; mad.lo.u32 %r11, %r10, 1024, %r3; mad.wide.u32 %rd2, {k}, 1024, %rd0;
      cp.async.cg.shared.global [%r11], [%rd2], 16; SKIP: cp.async.commit_group; }}"""
    return kernel(
        f"""{PLACES} mov.u32 %r20, 0; mov.u32 %r12, 0; mov.u32 %r13, 0; mov.u32 %r14, 0;
        mov.u32 %r15, 0; {issue.format(k="%r20")} mov.u32 %r20, 1; {issue.format(k="%r20")}
        mov.u32 %r21, 0; xor.b32 %r16, %t, 63; mad.lo.u32 %r16, %r16, 16, %r2;
    LOOP: {wait} bar.sync 0; add.u32 %r20, %r21, 2; {issue.format(k="%r20")}
        rem.u32 %r10, %r21, 3; mad.lo.u32 %r11, %r10, 1024, %r16;
        ld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%r11];
        add.u32 %r12, %r12, %r4; add.u32 %r13, %r13, %r5; add.u32 %r14, %r14, %r6;
        add.u32 %r15, %r15, %r7; add.u32 %r21, %r21, 1; setp.lt.u32 %p1, %r21, 8; @%p1 bra LOOP;
        mad.wide.u32 %rd1, %t, 16, %a0; st.global.v4.b32 [%rd1], {{%r12, %r13, %r14, %r15}};""",
        SHARED,
    )


GIVEN = RNG.integers(0, 2**31, 8 * 64 * 4, np.uint32)
SUMS = GIVEN.reshape(8, 64, 4).sum(0, dtype=np.uint32)[::-1].reshape(-1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_pipeline_has_the_same_result_in_any_completion_order(seed):
    text = pipeline("cp.async.wait_group 1;")
    out, _ = both(text, [zeros(256), GIVEN], block=64, seed=seed)
    np.testing.assert_array_equal(out, SUMS)


@pytest.mark.parametrize("wait", ["", "cp.async.wait_group 2;"])
def test_a_pipeline_without_enough_waits_reads_stale_data(wait):
    """With seed 0 copies complete as late as possible, in the wait."""
    out, _ = both(pipeline(wait), [zeros(256), GIVEN], block=64)
    assert not (out == SUMS).any()


def test_without_a_wait_shared_memory_is_poisoned():
    text = kernel(f"{PLACES} cp.async.cg.shared.global [%r3], [%rd0], 16; {OUT}", SHARED)
    out, _ = both(text, [zeros(128), words()])
    assert set(out) == {POISON}


def test_seeds_complete_copies_at_different_times():
    copies = "cp.async.cg.shared.global [%r3], [%rd0], 16; cp.async.commit_group;" * 6
    text, data = kernel(f"{PLACES} {copies} {OUT}", SHARED), words()
    outs = {both(text, [zeros(128), data], seed=seed)[0].tobytes() for seed in SEEDS}
    assert outs == {data.tobytes(), np.full(128, POISON, np.uint32).tobytes()}


def test_each_thread_has_its_own_groups():
    """Even lanes commit each copy, odd lanes three together; each waits for all groups but one."""
    text = kernel(
        f"""mov.u32 %r2, ring; mad.lo.u32 %r3, %t, 16, %r2; mad.wide.u32 %rd0, %t, 16, %a1;
        and.b32 %r8, %t, 1; setp.eq.u32 %p0, %r8, 0;
        cp.async.ca.shared.global [%r3], [%rd0], 4; @%p0 cp.async.commit_group;
        cp.async.ca.shared.global [%r3+4], [%rd0+4], 4; @%p0 cp.async.commit_group;
        cp.async.ca.shared.global [%r3+8], [%rd0+8], 4; cp.async.commit_group;
        cp.async.ca.shared.global [%r3+12], [%rd0+12], 4;
        cp.async.wait_group 1; {OUT}""",
        SHARED,
    )
    data = words()
    out, _ = both(text, [zeros(128), data])
    expected = data.reshape(32, 4).copy()
    expected[::2, 2:] = POISON
    expected[1::2] = POISON
    np.testing.assert_array_equal(out.reshape(32, 4), expected)


def test_more_copies_than_the_queue_holds():
    body = "".join(
        f"cp.async.ca.shared.global [%r3+{512 * (i % 16)}], [%rd0+{512 * i}], 16; "
        for i in range(100)
    )
    text = kernel(f"{PLACES} {body} cp.async.wait_all; {OUT}", SHARED)
    data = words(32 * 100)
    out, _ = both(text, [zeros(128), data])
    np.testing.assert_array_equal(out, data.reshape(100, 128)[96])
