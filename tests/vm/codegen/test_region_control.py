"""Control on the virtual machine: branches, loops, exits, scopes, and where variables lie."""

from __future__ import annotations

import numpy as np
import pytest

from ptx_kernels.simt import both, kernel, load, store, zeros
from tilewright.ptx.special_registers import SPECIALS
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

LANES = np.arange(64, dtype=np.uint32)


def test_saxpy_with_a_partial_last_block():
    text = kernel(f"""
      setp.ge.u32 %p0, %g, %n0; @%p0 bra END;
      {load("%f0", "f32")} {load("%f1", "f32", "%a2")}
      mov.b32 %f2, %n1; fma.rn.f32 %f3, %f2, %f0, %f1; {store("%f3", "f32")}
    END:""")
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 100), np.float32)
    (out, *_) = both(text, [np.zeros_like(x), x, y], [100, 0x40200000], grid=2, block=70)
    np.testing.assert_array_equal(out, np.float32(2.5 * x.astype(np.float64) + y))


def test_lanes_have_individual_trip_counts():
    text = kernel(f"""
      mov.u32 %r2, %t; mov.u32 %r3, 0;
    LOOP: setp.eq.u32 %p0, %r2, 1; @%p0 bra DONE; setp.eq.u32 %p0, %r2, 0; @%p0 bra DONE;
      and.b32 %r4, %r2, 1; setp.eq.u32 %p1, %r4, 0;
      @%p1 bra EVEN; mad.lo.u32 %r2, %r2, 3, 1; bra NEXT;
    EVEN: shr.u32 %r2, %r2, 1;
    NEXT: add.u32 %r3, %r3, 1; bra LOOP;
    DONE: {store("%r3")}""")

    def collatz(n: int) -> int:
        steps = 0
        while n > 1:
            n, steps = (3 * n + 1 if n % 2 else n // 2), steps + 1
        return steps

    (out,) = both(text, [zeros(64)], block=64)
    assert out.tolist() == [collatz(n) for n in range(64)]


def test_nested_branches_reconverge():
    text = kernel(f"""
      mov.u32 %r2, 0; setp.lt.u32 %p0, %t, 20; @!%p0 bra ELSE;
        setp.lt.u32 %p1, %t, 7; @%p1 bra LOW; or.b32 %r2, %r2, 1; bra JOIN;
        LOW: or.b32 %r2, %r2, 2;
        JOIN: or.b32 %r2, %r2, 4; bra END;
      ELSE: or.b32 %r2, %r2, 8;
      END: activemask.b32 %r3; {store("%r2")} {store("%r3", base="%a1")}""")
    out, active = both(text, [zeros(), zeros()])
    assert out.tolist() == [6] * 7 + [5] * 13 + [8] * 12
    assert set(active) == {0xFFFFFFFF}


def test_early_exits_and_guarded_exits():
    text = kernel(f"""
      mov.u32 %r2, 1; {store("%r2")}
      setp.lt.u32 %p0, %t, 5; @%p0 exit;
      mov.u32 %r2, 2; {store("%r2")}
      and.b32 %r3, %t, 1; setp.eq.u32 %p1, %r3, 1; @%p1 ret;
      mov.u32 %r2, 3; {store("%r2")}""")
    (out,) = both(text, [zeros(50)], block=50)
    assert out.tolist() == [1 if t < 5 else 3 - t % 2 for t in range(50)]


def test_every_kind_of_instruction_can_be_predicated():
    text = kernel(
        f"""
      and.b32 %r2, %t, 1; setp.eq.u32 %p0, %r2, 0;
      mov.u32 %r3, 7; @%p0 mov.u32 %r3, 9; @!%p0 add.u32 %r3, %r3, %t;
      cvta.to.global.u64 %rd0, %a1; mul.wide.u32 %rd1, %t, 4; add.u64 %rd2, %rd0, %rd1;
      mov.u32 %r4, 5; @%p0 ld.global.u32 %r4, [%rd2]; @!%p0 st.global.u32 [%rd2], %r3;
      @%p0 setp.lt.u32 %p1|%p2, %t, 10; selp.u32 %r5, 1, 0, %p1; @!%p0 mov.u32 %r5, 0;
      @%p0 atom.global.add.u32 %r6, [%a2], 1; @!%p0 mov.u32 %r6, 0;
      {store("%r3")} {store("%r4", base="%a3")} {store("%r5", base="%a4")}"""
    )
    odd = LANES[:32] % 2 == 1
    buffers = [zeros(), LANES[:32] + 100, zeros(1), zeros(), zeros()]
    values, memory, count, loaded, chosen = both(text, buffers)
    np.testing.assert_array_equal(values, np.where(odd, 7 + LANES[:32], 9))
    np.testing.assert_array_equal(memory, np.where(odd, 7 + LANES[:32], LANES[:32] + 100))
    np.testing.assert_array_equal(loaded, np.where(odd, 5, LANES[:32] + 100))
    np.testing.assert_array_equal(chosen, ~odd & (LANES[:32] < 10))
    assert count == 16


def test_indexed_branch_selects_from_its_target_list():
    text = kernel(f"""
      and.b32 %r2, %t, 3; mov.u32 %r3, 99; setp.lt.u32 %p0, %t, 28;
      ts: .branchtargets L0, L1, L2, L1;
      @%p0 brx.idx %r2, ts;
      bra END;
      L0: mov.u32 %r3, 0; bra END;
      L2: mov.u32 %r3, 2; bra END;
      L1: mov.u32 %r3, 1;
      END: {store("%r3")}""")
    (out,) = both(text, [zeros()])
    assert out.tolist() == [0, 1, 2, 1] * 7 + [99] * 4


def test_sibling_scopes_may_use_the_same_names():
    scope = """{{ .reg .b32 %x; .reg .pred q; mov.u32 %x, {n}; setp.lt.u32 q, %t, {n};
      @q bra SKIP; add.u32 %r2, %r2, %x; bra DONE; SKIP: add.u32 %r2, %r2, 1000; DONE: }}"""
    body = " ".join(scope.format(n=n) for n in range(1, 30, 3))
    (out,) = both(kernel(f"mov.u32 %r2, 0; {body} {store('%r2')}"), [zeros()])
    assert out.tolist() == [sum(1000 if t < n else n for n in range(1, 30, 3)) for t in range(32)]


@pytest.mark.parametrize(("grid", "block"), [((2, 3, 2), (4, 3, 5)), ((5,), (1, 1, 33)), (3, 97)])
def test_thread_and_block_indices(grid, block):
    special = ["tid", "ntid", "ctaid", "nctaid"]
    reads = [f"%{name}.{axis}" for name in special for axis in "xyz"]
    body = """
      mov.u32 %r2, %tid.x; mov.u32 %r3, %tid.y; mov.u32 %r4, %tid.z; mov.u32 %r5, %ntid.x;
      mov.u32 %r6, %ntid.y; mad.lo.u32 %r7, %r4, %r6, %r3; mad.lo.u32 %r7, %r7, %r5, %r2;
      mov.u32 %r8, %ctaid.x; mov.u32 %r9, %ctaid.y; mov.u32 %r10, %ctaid.z; mov.u32 %r11, %nctaid.x;
      mov.u32 %r12, %nctaid.y; mad.lo.u32 %r13, %r10, %r12, %r9; mad.lo.u32 %r13, %r13, %r11, %r8;
      mad.lo.u32 %g, %r13, %n0, %r7; mul.lo.u32 %r14, %g, 12;"""
    for i, name in enumerate(reads):
        body += f"mov.u32 %r15, {name}; add.u32 %r16, %r14, {i};"
        body += store("%r15", index="%r16")
    full = [(*((d,) if isinstance(d, int) else d), 1, 1)[:3] for d in (grid, block)]
    threads, ctas = np.prod(full[1]), np.prod(full[0])
    (out,) = both(
        kernel(body), [zeros(12 * threads * ctas)], [int(threads)], grid=grid, block=block
    )
    rows = out.reshape(-1, 12)
    for row, (c, t) in zip(rows, np.ndindex(ctas, threads), strict=True):
        tid = np.unravel_index(t, full[1][::-1])[::-1]
        cta = np.unravel_index(c, full[0][::-1])[::-1]
        assert row.tolist() == [*map(int, tid), *full[1], *map(int, cta), *full[0]]


def test_vector_loads_and_stores():
    text = kernel("""
      .reg .v2 .f32 %v; .reg .v4 .b32 %w<2>;
      mad.wide.u32 %rd0, %t, 16, %a1; mad.wide.u32 %rd1, %t, 16, %a0;
      ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%rd0]; ld.global.v4.b32 %w1, [%rd0];
      ld.global.v2.f32 %v, [%rd0+8]; ld.global.v2.u64 {%rd2, %rd3}, [%rd0];
      ld.global.v4.u8 {%h0, %h1, %h2, _}, [%rd0];
      mov.b32 %r6, %v.x; add.u32 %r2, %r2, %w1.w; xor.b32 %r3, %r3, %r6;
      mov.b64 {%r7, %r8}, %rd3; add.u32 %r4, %r7, %r8; cvt.u32.u16 %r9, %h1; add.u32 %r5, %r5, %r9;
      st.global.v4.b32 [%rd1], {%r2, %r3, %r4, %r5};""")
    given = np.random.default_rng(1).integers(0, 2**32, (32, 4), np.uint32)
    out, _ = both(text, [np.zeros_like(given), given])
    a, b, c, d = given.T
    np.testing.assert_array_equal(out.T, [a + d, b ^ c, c + d, d + (a >> 8 & 255)])


def test_local_memory_is_private_to_a_thread():
    text = kernel(f"""
      .local .align 8 .b8 depot[64]; .local .b32 other;
      mov.u64 %rd0, depot; cvta.local.u64 %rd1, %rd0; mul.lo.u32 %r2, %t, 3;
      st.local.u32 [depot+4], %r2; st.local.u32 [other], %t; st.u32 [%rd1+8], %t;
      ld.u32 %r3, [%rd1+4]; ld.local.u32 %r4, [%rd0+8]; ld.local.u32 %r5, [other];
      add.u32 %r6, %r3, %r4; add.u32 %r6, %r6, %r5; {store("%r6")}""")
    (out,) = both(text, [zeros(64)], block=64)
    np.testing.assert_array_equal(out, 5 * LANES)


@pytest.mark.parametrize("load", ["ld.local.u32 %r3, [%rd1]", "ld.u32 %r3, [%rd2]"])
def test_lanes_diverge_by_values_at_one_local_address(load):
    text = kernel(f"""
      .local .b32 mine; mov.u64 %rd1, mine; cvta.local.u64 %rd2, %rd1; st.local.u32 [%rd1], %t;
      {load}; setp.lt.u32 %p0, %r3, 9; mov.u32 %r4, 1; @%p0 bra L; mov.u32 %r4, 2;
      L: {store("%r4")}""")
    (out,) = both(text, [zeros(32)])
    assert out.tolist() == [1] * 9 + [2] * 23


def test_variables_are_initialized():
    top = """
      .global .align 4 .u32 table[3][2] = {{1, 2}, {3}, {5, 6}};
      .const .align 8 .f64 half = 0.5; .const .f32 floats[3] = {1.5, 0f40000000, 3};
      .global .u64 pointers[2] = {generic(table), table+8};
      .global .s16 small = -2; .global .b8 bytes[4] = {1, 255};"""
    text = kernel(
        f"""
      rem.u32 %r2, %t, 6; mul.wide.u32 %rd0, %r2, 4; mov.u64 %rd1, table; add.u64 %rd2, %rd1, %rd0;
      ld.global.u32 %r3, [%rd2]; ld.const.f64 %fd0, [half]; ld.const.f32 %f0, [floats+4];
      ld.const.f32 %f1, [floats]; ld.const.f32 %f2, [floats+8];
      add.rn.f32 %f3, %f0, %f1; add.rn.f32 %f3, %f3, %f2; cvt.rni.u32.f32 %r4, %f3;
      ld.global.u64 %rd3, [pointers+8]; ld.u32 %r5, [%rd3]; ld.global.u64 %rd4, [pointers];
      ld.u32 %r6, [%rd4+20]; ld.global.s16 %r7, [small]; ld.global.u8 %r8, [bytes+1];
      cvt.rzi.u32.f64 %r9, %fd0;
      add.u32 %r3, %r3, %r4; add.u32 %r3, %r3, %r5; add.u32 %r3, %r3, %r6; add.u32 %r3, %r3, %r7;
      add.u32 %r3, %r3, %r8; add.u32 %r3, %r3, %r9; {store("%r3")}""",
        top,
    )
    (out,) = both(text, [zeros(6)], block=6)
    assert out.tolist() == [x + 6 + 3 + 6 - 2 + 255 for x in (1, 2, 3, 0, 5, 6)]


def test_static_shared_memory_comes_before_dynamic():
    top = """.extern .shared .align 16 .b8 dynamic[]; .shared .align 4 .b8 first[100];
      .shared .align 1024 .b8 unused[200000];"""
    text = kernel(
        f"""
      .shared .align 8 .b64 second;
      mov.u32 %r2, first; mov.u64 %rd0, second; cvt.u32.u64 %r3, %rd0; mov.u32 %r4, dynamic;
      mov.u32 %r5, %dynamic_smem_size; mov.u32 %r6, %total_smem_size;
      mad.lo.u32 %r7, %t, 4, %r4; st.shared.u32 [%r7], %t; bar.sync 0;
      sub.u32 %r8, 127, %t; mad.lo.u32 %r9, %r8, 4, %r4; ld.shared.u32 %r10, [%r9];
      cvta.shared.u64 %rd1, %rd0; isspacep.shared %p0, %rd1; isspacep.global %p1, %a0;
      isspacep.local %p2, %a0; and.pred %p0, %p0, %p1; @%p2 mov.u32 %r10, 0;
      @%p0 mov.u64 %rd2, dynamic; @%p0 cvta.shared.u64 %rd2, %rd2; add.u64 %rd2, %rd2, 8;
      ld.u32 %r11, [%rd2]; add.u32 %r10, %r10, %r11; {store("%r10")}
      st.global.v4.u32 [%a1], {{%r2, %r3, %r4, %r5}}; st.global.u32 [%a1+16], %r6;""",
        top,
    )
    out, where = both(text, [zeros(128), zeros(5)], block=128, shared=512)
    np.testing.assert_array_equal(out, 127 - np.arange(128) + 2)
    assert where.tolist() == [0, 104, 112, 512, 640]  # which comes in pieces of 128


def test_block_tree_reduction():
    text = kernel(
        f"""
      {load("%f0", "f32")} shl.b32 %r2, %t, 2; mov.u32 %r3, tile; add.u32 %r3, %r3, %r2;
      st.shared.f32 [%r3], %f0; mov.u32 %r4, 128;
    LOOP: bar.sync 0; setp.ge.u32 %p0, %t, %r4; @%p0 bra NEXT;
      shl.b32 %r5, %r4, 2; add.u32 %r5, %r5, %r3; ld.shared.f32 %f1, [%r5];
      ld.shared.f32 %f0, [%r3]; add.rn.f32 %f0, %f0, %f1; st.shared.f32 [%r3], %f0;
    NEXT: shr.u32 %r4, %r4, 1; setp.ne.u32 %p1, %r4, 0; @%p1 bra LOOP;
      setp.ne.u32 %p2, %t, 0; mov.u32 %r6, %ctaid.x; @%p2 bra END;
      {store("%f0", "f32", index="%r6")}
    END:""",
        ".shared .align 4 .f32 tile[256];",
    )
    x = np.random.default_rng(2).integers(-50, 50, (3, 256)).astype(np.float32)
    out, _ = both(text, [np.zeros(3, np.float32), x], grid=3, block=256)
    np.testing.assert_array_equal(out, x.sum(1))


def test_carry_flag_is_private_to_a_lane():
    text = kernel(f"""
      setp.lt.u32 %p0, %t, 16; mov.u32 %r2, 0xFFFFFFFF;
      add.cc.u32 %r3, %r2, %t; @%p0 add.cc.u32 %r4, 0, 0; addc.u32 %r5, 0, 0; {store("%r5")}""")
    (out,) = both(text, [zeros()])
    assert out.tolist() == [0] * 16 + [1] * 16


def test_carry_can_diverge_a_warp():
    text = kernel(f"""
      mov.u32 %r2, 0xFFFFFFF0; add.cc.u32 %r3, %r2, %t; addc.u32 %r4, 0, 0;
      setp.eq.u32 %p0, %r4, 0; @%p0 bra SKIP; mov.u32 %r5, 3; bra END; SKIP: mov.u32 %r5, 4;
      END: {store("%r5")}""")
    (out,) = both(text, [zeros()])
    assert out.tolist() == [4] * 16 + [3] * 16


def test_clocks_are_monotonic_and_advance_in_loops():
    text = kernel(f"""
      mov.u64 %rd0, %clock64; mov.u32 %r2, %clock; mov.u64 %rd2, %globaltimer;
    LOOP: mov.u64 %rd1, %clock64; sub.u64 %rd1, %rd1, %rd0; setp.lt.u64 %p0, %rd1, 500;
      @%p0 bra LOOP; mov.u32 %r3, %clock; sub.u32 %r3, %r3, %r2; {store("%r3")}""")
    (out,) = both(text, [zeros(2)], block=2)
    assert out.min() >= 500


def test_clocks_advance_in_straight_line_code():
    reads = "mov.u32 %r{0}, %clock; mov.u64 %rd{0}, %globaltimer; add.u32 %r9, %r9, 1;"
    stores = "".join(store(f"%r{i}", base=f"%a{i - 2}") for i in range(2, 6))
    text = kernel(
        reads.format(2) + reads.format(3) + "nanosleep.u32 500; bra L; L:" + reads.format(4)
        + "cvt.u32.u64 %r5, %rd4;" + stores
    )  # fmt: skip
    clocks = both(text, [zeros()] * 4)
    assert np.all(np.diff(clocks, axis=0) > 0)


def test_every_special_register_can_be_read():
    body = ""
    for i, row in enumerate(r for r in SPECIALS.values()):
        name, wide = row.name + ".x" * (row.vector > 1), row.type.endswith("64")
        if row.type == "pred":
            body += f"mov.pred %p0, {name}; selp.u64 %rd2, 1, 0, %p0;"
        else:
            register = "%rd2" if wide else "%r2"
            body += f"mov.{row.type} {register}, {name};"
            body += "" if wide else "cvt.u64.u32 %rd2, %r2;"
        body += f"mad.lo.u32 %r3, %t, {len(SPECIALS)}, {i};" + store("%rd2", "u64", index="%r3")
    (out,) = both(kernel(body), [zeros(64 * len(SPECIALS), np.uint64)], block=64, shared=100)
    known = dict(zip(SPECIALS, out.reshape(64, -1)[33], strict=True))
    expected = {
        "%tid": 33,
        "%laneid": 1,
        "%warpid": 1,
        "%lanemask_lt": 1,
        "%lanemask_ge": 2**32 - 2,
    }
    expected |= {"%ntid": 64, "%nsmid": 132, "%nwarpid": 64, "%gridid": 1, "%pm3": 0, "%envreg9": 0}
    expected |= {"%dynamic_smem_size": 100, "%total_smem_size": 128, "%aggr_smem_size": 1124}
    assert {name: known[name] for name in expected} == expected


def test_a_cta_runs_on_one_of_the_sms():
    text = kernel(f"""
      mov.u32 %r4, %smid; mov.u32 %r5, %nsmid; setp.lt.u32 %p0, %r4, %r5;
      selp.u32 %r6, 1, 0, %p0; {store("%r6")}""")
    (inside,) = both(text, [zeros(300)], grid=150, block=2)
    assert inside.all()


def test_an_empty_grid_runs_nothing():
    (out,) = both(kernel(store("1")), [zeros()], grid=(3, 0, 1))
    assert not out.any()


def test_a_kernel_may_do_nothing():
    both(kernel("bra END; END:"), grid=2, block=100)
    machine = Machine()
    machine.load(".version 7.0\n.target sm_80\n.entry empty() { }")
    machine.launch("empty", 2, 64)
    machine.launch("empty", 2, 64, on_step=lambda s: None)


def test_an_address_of_32_bits_wraps():
    text = kernel(f"""
      .shared .align 16 .b32 sm[64]; mov.u32 %r2, sm; mad.lo.u32 %r3, %t, 4, %r2;
      sub.u32 %r4, %r3, 252; st.shared.u32 [%r3], %t; ld.shared.u32 %r5, [%r4+252];
      add.u32 %r6, %r3, 8; ld.shared.u32 %r7, [%r6+-8]; add.u32 %r5, %r5, %r7; {store("%r5")}""")
    (out,) = both(text, [zeros()])
    assert out.tolist() == [2 * t for t in range(32)]
