"""What a kernel may not do: each a VmFault that says what, where and who; the machine lives on."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from ptx_kernels.simt import kernel, launch, run, store, zeros
from tilewright.errors import (
    VmFault,
)
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

STEPPED = [pytest.param(None, id="compiled"), pytest.param(lambda s: None, id="stepped")]
BASE = 1 << 40


def fault(text, buffers=(), numbers=(), machine=None, **shape) -> VmFault:
    with pytest.raises(VmFault) as caught:
        launch(machine or Machine(), text, buffers, numbers, **shape)
    return caught.value


def line_of(text: str, what: str) -> int:
    return text[: text.index(what)].count("\n") + 1


@pytest.mark.parametrize("on_step", STEPPED)
def test_fault_report_is_complete(on_step):
    text = kernel("""
      setp.ne.u32 %p0, %g, 41; @%p0 bra END;
      st.global.v2.u32 [%a0+400], {%t, %t};
    END:""")
    error = fault(text, [zeros(100)], grid=(5, 2), block=(20, 2), on_step=on_step)
    assert error.kind == "out of bounds"
    assert error.address == BASE + 400
    assert (error.thread, error.block) == ((1, 0, 0), (2, 0, 0))
    assert error.location is not None and error.location.line == line_of(text, "st.global")
    assert "st.global.v2.u32 of 8 bytes" in str(error)
    assert "0 bytes past the allocation of 400 bytes" in str(error)
    assert "^^^^^^^^^^^^^^^^" in str(error)


@pytest.mark.parametrize("on_step", STEPPED)
@pytest.mark.parametrize(
    ("offset", "kind"), [(0, ""), (4, ""), (8, "out of bounds"), (6, "misaligned")]
)
def test_parameters_at_constant_addresses(offset, kind, on_step):
    """Those within the parameters are read without a check, by active lanes or none."""
    text = f""".version 8.0\n.target sm_90\n.address_size 64
    .visible .entry k(.param .u32 n, .param .u32 m) {{
      .reg .u32 %r<2>; .reg .pred %p; mov.u32 %r0, %tid.x; setp.eq.u32 %p, %r0, 40;
      ld.param.u32 %r1, [n]; @%p ld.param.u32 %r1, [n+{offset}];
      setp.ne.u32 %p, %r1, 7; @%p trap; ret;
    }}"""
    machine = Machine()
    machine.load(text)
    if not kind:
        machine.launch("k", 1, 64, [7, 7], on_step=on_step)
        return
    with pytest.raises(VmFault, match=f"ld.param.u32 of 4 bytes at {offset:#x}") as caught:
        machine.launch("k", 1, 64, [7, 7], on_step=on_step)
    assert (caught.value.kind, caught.value.thread) == (kind, (40, 0, 0))


def test_the_first_fault_is_the_same_on_any_number_of_cores():
    """Every CTA faults, the first ones late."""
    text = kernel("""
      mov.u32 %r2, 0; sub.u32 %r3, 200, %r0; mul.lo.u32 %r3, %r3, 30;
    L: add.u32 %r2, %r2, 1; setp.lt.u32 %p0, %r2, %r3; @%p0 bra L; trap;""")
    for threads in (1, 2, 2, 3, 4):
        error = fault(text, machine=Machine(threads=threads), grid=200)
        assert error.block == (0, 0, 0)


def test_the_faulting_thread_and_block_are_named():
    text = kernel("""
      mov.u32 %r2, %ctaid.z; mov.u32 %r3, %tid.y; setp.eq.u32 %p0, %r2, 2;
      setp.eq.and.u32 %p0, %r3, 5, %p0; mov.u64 %rd0, %a0; @%p0 mov.u64 %rd0, 8;
      ld.global.u32 %r4, [%rd0];""")
    error = fault(text, [zeros()], grid=(1, 1, 3), block=(1, 6, 2))
    assert (error.thread, error.block, error.address) == ((0, 5, 0), (0, 0, 2), 8)


OUTSIDE = {
    "before": "ld.global.u32 %r2, [%a0+-4];",
    "past": "ld.global.u32 %r2, [%a0+128];",
    "across the end": "ld.global.v4.u32 {%r2,%r3,%r4,%r5}, [%a1];",
    "between": "ld.global.u8 %r2, [%a0+200];",
    "null": "mov.u64 %rd0, 0; ld.u32 %r2, [%rd0];",
    "global null": "mov.u64 %rd0, 0; st.global.u32 [%rd0], %t;",
    "wrapping": "mov.u64 %rd0, 0x7FFFFFFFFFFFFFF0; ld.global.v4.u32 {%r2,%r3,%r4,%r5}, [%rd0];",
    "negative": "mov.u64 %rd0, -16; ld.u32 %r2, [%rd0];",
    "wrapping span": """mul.wide.u32 %rd1, %t, 4; mov.u64 %rd0, 0x7FFFFFFFFFFFFF80;
        add.u64 %rd0, %rd0, %rd1; ld.global.u32 %r2, [%rd0];""",
    "32 bits": "ld.global.u32 %r2, [%a0];"
    + "add.u32 %r3, %r3, 0;" * 4
    + "and.b32 %r3, %t, 14; shl.b32 %r3, %r3, 2; cvt.u64.u32 %rd0, %r3; ld.global.u32 %r2, [%rd0];",
    "far": "mov.u64 %rd0, 0x0123456789ABCDE0; st.u64 [%rd0], %rd0;",
    "no window": "mov.u64 %rd0, 0x500000010; ld.u32 %r2, [%rd0];",
    "shared": "ld.shared.u32 %r2, [%t+64];",
    "shared, negative": "mov.u64 %rd0, -4; ld.shared.u32 %r2, [%rd0];",
    "shared, huge": "mov.u64 %rd0, 0x7FFFFFFFFFFFFFFC; st.shared.u32 [%rd0], %t;",
    "shared, generic": "mov.u64 %rd0, 0x100000040; ld.u32 %r2, [%rd0];",
    "shared, before": "mov.u64 %rd0, 0xFFFFFFFC; ld.u32 %r2, [%rd0];",
    "a generic address as a shared one": "mov.u64 %rd0, 0x100000000; ld.shared.u32 %r2, [%rd0];",
    "local": "ld.local.u32 %r2, [depot+16];",
    "local, generic": "mov.u64 %rd0, 0x200000010; st.u32 [%rd0], %t;",
    "param": "mov.u64 %rd0, 0x300000040; ld.u32 %r2, [%rd0];",
    "atomic": "atom.global.add.u32 %r2, [%a0+128], 1;",
    "atomic, shared": "atom.shared.add.u32 %r2, [%t+64], 1;",
    "ldmatrix": "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r10];",
    "cp.async, target": "cp.async.ca.shared.global [%r10], [%a0], 4;",
    "cp.async, source": "mov.u32 %r3, 0; cp.async.ca.shared.global [%r3], [%a0+128], 4;",
    "cp.async, far source": """mov.u32 %r3, 0; mov.u64 %rd0, 0x7FFFFFFFFFFFFFF0;
        cp.async.cg.shared.global [%r3], [%rd0], 16;""",
    "cp.async, null": """mov.u32 %r3, 0; mov.u64 %rd0, 0;
        cp.async.cg.shared.global [%r3], [%rd0], 16, 3;""",
}


@pytest.mark.parametrize("on_step", STEPPED)
@pytest.mark.parametrize("body", OUTSIDE.values(), ids=OUTSIDE)
def test_out_of_bounds(body, on_step):
    prelude = ".shared .align 16 .b8 s[64]; .local .align 8 .b8 depot[16]; mov.u32 %r10, 1024;"
    error = fault(kernel(prelude + body), [zeros(32), zeros(2)], on_step=on_step)
    assert error.kind == "out of bounds", error
    assert error.address is not None and error.location is not None


@pytest.mark.parametrize("on_step", STEPPED)
def test_empty_copies_and_false_guards_do_not_access_memory(on_step):
    text = kernel("""
      .shared .align 16 .b8 s[64]; mov.u32 %r3, s; mov.u64 %rd0, 0x100; setp.ne.u32 %p0, %t, 40;
      cp.async.cg.shared.global [%r3], [%rd0], 16, 0;
      cp.async.cg.shared.global [%r3+16], [%a1+64], 16, 12; cp.async.wait_all;
      @!%p0 ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4, %r5, %r6, %r7}, [%t+4096];
      @!%p0 ld.global.u32 %r4, [%rd0]; @!%p0 atom.add.u32 %r5, [%rd0], 1; @!%p0 trap;
      ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [s+16];
      st.global.v4.u32 [%a0], {%r4, %r5, %r6, %r7};""")
    given = np.arange(19, dtype=np.uint32)  # the copy's last word lies past the end
    out, _ = launch(Machine(), text, [zeros(4), given], on_step=on_step)
    assert out.tolist() == [16, 17, 18, 0]


@pytest.mark.parametrize("on_step", STEPPED)
@pytest.mark.parametrize(
    "body",
    [
        "ld.global.u32 %r2, [%a0+2];",
        "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%a0+8];",
        "mul.wide.u32 %rd0, %t, 4; add.u64 %rd0, %rd0, %a0; ld.global.u32 %r2, [%rd0+1];",
        ".shared .b8 s[64]; st.shared.u64 [s+4], %a0;",
        "atom.global.add.u32 %r2, [%a0+2], 1;",
        ".shared .b8 s[64]; mov.u32 %r2, s; cp.async.ca.shared.global [%r2+2], [%a0], 4;",
        ".shared .b8 s[64]; mov.u32 %r2, s; cp.async.cg.shared.global [%r2], [%a0+8], 16;",
    ],
)
def test_misaligned(body, on_step):
    assert fault(kernel(body), [zeros(64)], on_step=on_step).kind == "misaligned"


def test_use_after_free():
    machine = Machine()
    gone = machine.upload(zeros())
    machine.free(gone)
    machine.load(kernel("ld.global.u32 %r2, [%a0+4];"))
    with pytest.raises(VmFault, match=r"byte 4 of the freed allocation of 128 bytes") as caught:
        machine.launch("k", 1, 32, [gone, *[0] * 9])
    assert caught.value.kind == "use after free"


@pytest.mark.parametrize("on_step", STEPPED)
def test_a_trap(on_step):
    text = kernel("setp.eq.u32 %p0, %t, 9; @%p0 trap;")
    error = fault(text, on_step=on_step)
    assert (error.kind, error.thread) == ("trap", (9, 0, 0))


@pytest.mark.parametrize("on_step", STEPPED)
def test_branch_index_out_of_range(on_step):
    text = kernel("ts: .branchtargets L0, L0; brx.idx %t, ts; L0:")
    error = fault(text, on_step=on_step)
    assert (error.kind, error.thread) == ("branch index", (2, 0, 0))


@pytest.mark.parametrize("on_step", STEPPED)
def test_deadlock_report_names_waiting_lanes(on_step):
    text = kernel("""
      setp.lt.u32 %p0, %t, 40; @%p0 bra A;
      bar.sync 1; bra END;
    A: bar.sync 2, 96;
    END:""")
    error = fault(text, grid=(2, 1), block=80, on_step=on_step)
    assert error.kind == "deadlock" and error.block == (0, 0, 0) and error.thread == (0, 0, 0)
    two, one = line_of(text, "bar.sync 2"), line_of(text, "bar.sync 1")
    where = "of block (0, 0, 0): lanes"
    assert f"warp 0 {where} 0xffffffff wait at barrier 2, line {two}" in str(error)
    assert f"warp 1 {where} 0xffffff00 wait at barrier 1, line {one}" in str(error)
    assert f"warp 1 {where} 0x000000ff wait at barrier 2, line {two}" in str(error)


@pytest.mark.parametrize("on_step", STEPPED)
def test_deadlock_report_lists_each_distinct_wait(on_step):
    """Many wait for one that waits for them: its line is not crowded out by theirs."""
    text = kernel("""
      setp.ge.u32 %p0, %t, 416; @%p0 bra A;
      bar.sync 1, 448; bra END;
    A: bar.sync 2, 64;
    END:""")
    error = fault(text, grid=2, cluster=2, block=448, on_step=on_step)
    first, *rest = str(error).split("\n")
    assert "no warp can proceed" in first
    one, two = line_of(text, "bar.sync 1"), line_of(text, "bar.sync 2")
    where = "of block (0, 0, 0) and 1 more: lanes 0xffffffff wait at barrier"
    waits = [f"  warps 0 … 12 {where} 1, line {one}", f"  warp 13 {where} 2, line {two}"]
    assert rest[:2] == waits


@pytest.mark.parametrize("on_step", STEPPED)
@pytest.mark.parametrize(
    "body",
    [
        """@%p0 bra A; shfl.sync.idx.b32 %r2, %t, 0, 31, -1; bra END;
           A: shfl.sync.idx.b32 %r2, %t, 1, 31, -1; END:""",
        "@%p0 bra A; bar.warp.sync 0xFFFFFFFF; bra END; A: bar.sync 0; END:",
        "@%p0 bra A; vote.sync.ballot.b32 %r2, %p0, -1; bra END; A: bar.sync 0; bra A; END:",
    ],
)
def test_lanes_waiting_for_lanes_that_cannot_arrive(body, on_step):
    error = fault(kernel(f"setp.lt.u32 %p0, %t, 16; {body}"), on_step=on_step)
    assert error.kind == "divergence"
    assert "which can't arrive" in str(error) and error.location is not None


@pytest.mark.parametrize(
    "body",
    [
        "mov.u32 %r2, 16; bar.sync %r2;",
        "mov.u32 %r2, 33; bar.sync 1, %r2;",
        "bar.sync 1, 96;",
        "mov.u32 %r2, -1; bar.sync %r2;",
    ],
)
def test_invalid_barrier(body):
    assert fault(kernel(body), block=64).kind == "barrier"


def test_a_barrier_with_two_thread_counts():
    text = kernel("setp.lt.u32 %p0, %t, 32; @%p0 bar.sync 1, 64; @!%p0 bar.sync 1, 96;")
    assert fault(text, block=96).kind == "barrier"


@pytest.mark.parametrize("on_step", STEPPED)
def test_a_step_limit(on_step):
    text = kernel("""
      setp.lt.u32 %p0, %t, 40; @%p0 bra A; bar.sync 0;
    A: add.u32 %r2, %r2, 1; bra A;""")
    error = fault(text, machine=Machine(step_limit=50_000), block=96, on_step=on_step)
    assert error.kind == "step limit"
    loop, wait = line_of(text, "add.u32 %r2"), line_of(text, "bar.sync")
    assert error.location.line == loop and "exceeded 50000 steps (operations in loops" in str(error)
    where = "of block (0, 0, 0): lanes"
    assert f"warp 0 {where} 0xffffffff run, line {loop}" in str(error)
    assert f"warp 1 {where} 0x000000ff run, line {loop}" in str(error)
    assert f"warp 2 {where} 0xffffffff wait at barrier 0, line {wait}" in str(error)


MOST_CTAS = (2**31 - 1, 65535, 65535)


@pytest.mark.parametrize("on_step", STEPPED)
def test_empty_ctas_count_as_steps(on_step):
    error = fault(kernel(""), machine=Machine(step_limit=500), grid=MOST_CTAS, on_step=on_step)
    assert error.kind == "step limit"
    assert "exceeded 500 steps" in str(error)


ENDLESS = {
    "uniform": "LOOP: bra LOOP;",
    "divergent": "setp.lt.u32 %p0, %t, 9; @%p0 bra B; A: bra A; B: bra B;",
    "conditional": """L: add.u32 %r2, %r2, %t; and.b32 %r3, %r2, 1; setp.eq.u32 %p0, %r3, 9;
        @!%p0 bra L;""",
    "indexed": "ts: .branchtargets L; mov.u32 %r2, 0; L: brx.idx %r2, ts;",
    "empty": "",
    "long": f"L: {'fma.rn.f32 %f0, %f0, %f1, %f2; ' * 600} bra L;",
}


@pytest.mark.parametrize("body", ENDLESS.values(), ids=ENDLESS)
def test_watch_exception_stops_an_endless_kernel(body):
    machine = Machine()

    def watch(started: int, total: int) -> None:
        raise KeyboardInterrupt

    machine.load(kernel(body).replace(".entry k", ".entry endless"))
    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        machine.launch("endless", 64 if body else MOST_CTAS, 256, [0] * 10, watch=watch)
    assert time.perf_counter() - start < 3
    (out,) = launch(machine, kernel(store("%t")), [zeros()])
    assert out.tolist() == list(range(32))


CTRL_C = """
import _thread, signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
sys.path.insert(0, "tests/support")
from ptx_kernels.simt import kernel
from tilewright.vm import Machine
machine = Machine()
machine.load(kernel("LOOP: bra LOOP;"))
threading.Timer(1.0, _thread.interrupt_main).start()
machine.launch("k", 4, 64, [0] * 10, on_step=(lambda s: None) if sys.argv[1] == "stepped" else None)
"""


@pytest.mark.parametrize("how", ["compiled", "stepped"])
def test_ctrl_c(how):
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", CTRL_C, how], capture_output=True, text=True, timeout=60, check=False
    )
    assert "KeyboardInterrupt" in done.stderr, done.stderr
    assert time.perf_counter() - start < 8


def test_machines_run_in_several_threads_at_once():
    results = {}

    def work(number: int) -> None:
        body = f"add.u32 %r2, %t, {number}; {store('%r2')}"
        results[number] = run(kernel(body), [zeros(64)], grid=2)[0].tolist()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {n: [t % 32 + n for t in range(64)] for n in range(4)}


def test_a_fault_in_one_thread_leaves_the_other_alone():
    machine = Machine()
    machine.load(kernel("ld.global.u32 %r2, [%a0+4096];").replace(" k(", " bad("))
    good, seen = kernel(store("%t")), []
    place = machine.upload(zeros())

    def fail() -> None:
        for _ in range(20):
            with pytest.raises(VmFault, match="out of bounds"):
                machine.launch("bad", 1, 32, [place, *[0] * 9])
        seen.append(True)

    thread = threading.Thread(target=fail)
    thread.start()
    for _ in range(20):
        assert run(good, [zeros()])[0].tolist() == list(range(32))
    thread.join()
    assert seen
