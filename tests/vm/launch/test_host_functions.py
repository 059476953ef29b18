"""What kernels get from outside: memory by ``malloc``, a grid whose CTAs wait for one another."""

from __future__ import annotations

import numpy as np
import pytest

from ptx_kernels.simt import both, kernel, launch, store, zeros
from tilewright.errors import LaunchError, VmFault
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

HEAP = """.extern .func (.param .b64 r) malloc (.param .b64 size);
.extern .func free (.param .b64 p);
.visible .global .u64 kept[64];"""
TAKE = "mad.wide.u32 %rd1, %t, 8, 8; call (%rd2), malloc, (%rd1);"
PLACE = "mov.u64 %rd3, kept; mad.wide.u32 %rd3, %t, 8, %rd3;"


def test_malloc_is_per_thread():
    body = f"""{TAKE} mov.u32 %r2, 0; mov.u64 %rd4, %rd2;
      L: st.u32 [%rd4], %t; st.u32 [%rd4+4], %r2; add.u64 %rd4, %rd4, 8; add.u32 %r2, %r2, 1;
      setp.le.u32 %p0, %r2, %t; @%p0 bra L; bar.sync 0;
      ld.u32 %r3, [%rd4+-4]; ld.u32 %r4, [%rd2]; add.u32 %r3, %r3, %r4; call free, (%rd2);
      call free, (0); and.b64 %rd2, %rd2, 15; cvt.u32.u64 %r4, %rd2; add.u32 %r3, %r3, %r4;
      {store("%r3")}"""
    (out,) = both(kernel(body, HEAP), [zeros(64)], block=64)
    np.testing.assert_array_equal(out, 2 * np.arange(64))


def test_malloc_memory_is_uninitialized_and_failure_returns_null():
    body = f"""mov.u64 %rd1, 4; call (%rd2), malloc, (%rd1); ld.u32 %r2, [%rd2]; {store("%r2")}
      mov.u64 %rd1, 4000; call (%rd2), malloc, (%rd1); {store("%rd2", "u64", "%a1")}
      call (%rd2), malloc, (-1); {store("%rd2", "u64", "%a2")}"""
    machine = Machine(heap=10_000)
    out = [zeros(), zeros(32, np.uint64), zeros(32, np.uint64)]
    found, given, none = launch(machine, kernel(body, HEAP), out)
    assert set(found) == {0xFFFFFFFF}
    assert np.count_nonzero(given) == 2 and not none.any()


def test_memory_outlives_the_launch_until_it_is_freed():
    machine = Machine()
    text = kernel(f"{TAKE} st.u32 [%rd2], %t; {PLACE} st.global.u64 [%rd3], %rd2;", HEAP)
    others = [f"{PLACE} ld.global.u64 %rd2, [%rd3]; ld.u32 %r2, [%rd2];" + store("%r2"),
              f"{PLACE} ld.global.u64 %rd2, [%rd3]; call free, (%rd2);"]  # fmt: skip
    for number, body in enumerate(others):
        name, begin = f".visible .entry k{number}(", ".visible .entry k("
        text += kernel(body, HEAP)[kernel(body, HEAP).index(begin) :].replace(begin, name)
    launch(machine, text, [], block=64)
    out = machine.upload(zeros(64))
    args = [out, *[0] * 9]
    machine.launch("k0", 1, 64, args)
    np.testing.assert_array_equal(machine.download(out, zeros(64)), np.arange(64))
    machine.launch("k1", 1, 64, args)
    with pytest.raises(VmFault, match="use after free"):
        machine.launch("k0", 1, 64, args)
    with pytest.raises(VmFault, match=r"free of 0x.*, which malloc did not return") as caught:
        machine.launch("k1", 1, 64, args)
    assert caught.value.kind == "invalid free"
    assert "call free" in caught.value.location.text


def test_accesses_are_checked_against_each_malloc_allocation():
    with pytest.raises(VmFault, match=r"8 bytes at 0x[0-9a-f]+: 0 bytes past the allocation of 24"):
        body = f"{TAKE} ld.u64 %rd4, [%rd2]; setp.eq.u32 %p0, %t, 2; @%p0 ld.u64 %rd4, [%rd2+24];"
        launch(Machine(), kernel(body, HEAP))


def test_a_module_may_have_a_free_of_its_own():
    top = ".visible .func (.param .b32 r) free(.param .b32 a) { .reg .b32 %r; ld.param.u32 %r, [a];"
    top += " add.u32 %r, %r, 1; st.param.b32 [r], %r; }"
    (out,) = both(kernel("call (%r2), free, (%t);" + store("%r2"), top), [zeros()])
    np.testing.assert_array_equal(out, np.arange(32) + 1)


# --- cooperative launches ---

# Every CTA counts, and waits until all have: as grid.sync() does.
MEET = """mov.u32 %r2, %envreg2; mov.u32 %r3, %envreg1; mov.b64 %rd1, {%r2, %r3};
  setp.eq.u64 %p0, %rd1, 0; @%p0 trap; mov.u32 %r4, %nctaid.x;
  atom.add.release.gpu.u32 %r5, [%rd1+4], 1; L: ld.acquire.gpu.u32 %r5, [%rd1+4];
  setp.lt.u32 %p1, %r5, %r4; @%p1 bra L;"""


def test_ctas_of_a_cooperative_launch_synchronize():
    (out,) = both(kernel(MEET + store("%r5", index="%r0")), [zeros(300)], grid=300, block=1)
    assert set(out) == {300}


def test_grid_barrier_needs_a_cooperative_launch():
    machine = Machine()
    machine.load(kernel(MEET))
    with pytest.raises(VmFault, match="trap"):
        machine.launch("k", 4, 1, [0] * 10, cooperative=False)


def test_cooperative_grid_must_be_co_resident():
    machine = Machine()
    machine.load(kernel(MEET))
    most = 132 * 2  # of 1024 threads
    with pytest.raises(LaunchError, match=f"on sm_90a must have at most {most} CTAs"):
        machine.launch("k", most + 1, 1024, [0] * 10)
