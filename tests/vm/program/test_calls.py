"""Calls of functions: parameters and results, ways back, tables, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from ptx_kernels.simt import both, kernel, launch, store, zeros
from tilewright.errors import PtxCheckError, VmFault
from tilewright.ptx import parse, tree
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
AFFINE = """
.func (.param .b32 out) affine(.param .b32 a, .param .b32 b) {
  .reg .b32 %r<4>; .reg .pred %p;
  ld.param.u32 %r1, [a]; ld.param.u32 %r2, [b];
  setp.lt.u32 %p, %r1, 4; st.param.b32 [out], 7; @%p ret;
  mad.lo.u32 %r3, %r1, 10, %r2; st.param.b32 [out], %r3; ret;
}
"""
T = np.arange(40, dtype=np.uint32)


def affine(a, b):
    return np.where(a < 4, 7, 10 * a + b)


def test_call_with_registers_constants_and_guard():
    body = f"""mov.u32 %r3, 1; and.b32 %r4, %t, 1; setp.eq.u32 %p1, %r4, 0;
      @%p1 call (%r3), affine, (%t, 5);
      @!%p1 call (_), affine, (1, %t); {store("%r3")}"""
    (out,) = both(kernel(body, AFFINE), [zeros(40)], block=40)
    np.testing.assert_array_equal(out, np.where(T % 2, 1, affine(T, 5)))


def test_variables_are_passed_and_calls_nest():
    outer = (
        AFFINE
        + """
      .func (.param .b32 out) outer(.param .b32 a) {
        .reg .b32 %r<4>; .param .b32 x; .param .b32 y; .param .b32 z;
        ld.param.b32 %r1, [a]; st.param.b32 [x], %r1; st.param.b32 [y], 3;
        call (z), affine, (x, y); ld.param.b32 %r2, [z];
        call (%r3), affine, (%r2, %r1); st.param.b32 [out], %r3;
      }"""
    )
    body = f"call (%r3), outer, (%t); {store('%r3')}"
    (out,) = both(kernel(body, outer), [zeros(40)], block=40)
    np.testing.assert_array_equal(out, affine(affine(T, 3), T))


def test_parameters_that_are_registers():
    top = """.func (.reg .u32 %r2) less(.reg .u32 %r1) { sub.u32 %r1, %r1, 1; mov.u32 %r2, %r1; }"""
    body = f"mov.u32 %r1, %t; call (%r3), less, (%r1); add.u32 %r3, %r3, %r1; {store('%r3')}"
    (out,) = both(kernel(body, top), [zeros(40)], block=40)
    np.testing.assert_array_equal(out, 2 * T - np.uint32(1))


def test_function_with_shared_memory_and_barriers():
    top = """.func (.param .b32 out) turned(.param .b32 a) {
        .reg .b32 %r<6>; .shared .b32 s[64];
        ld.param.b32 %r1, [a]; mov.u32 %r2, %tid.x; shl.b32 %r2, %r2, 2; mov.u32 %r3, s;
        add.u32 %r4, %r3, %r2; bar.sync 0; st.shared.b32 [%r4], %r1; bar.sync 0;
        sub.u32 %r4, 252, %r2; add.u32 %r4, %r4, %r3; ld.shared.b32 %r5, [%r4];
        st.param.b32 [out], %r5; ret; }"""
    body = "call (%r1), turned, (%t); call (%r2), turned, (%r1); sub.u32 %r3, %r2, %r1;"
    (out,) = both(kernel(body + store("%r3"), top), [zeros(64)], block=64)
    t = np.arange(64, dtype=np.uint32)
    np.testing.assert_array_equal(out, t - t[::-1])


TABLE = (
    AFFINE
    + """
.func (.param .b32 out) least(.param .b32 a, .param .b32 b) {
  .reg .b32 %r<4>; ld.param.u32 %r1, [a]; ld.param.u32 %r2, [b]; min.u32 %r3, %r1, %r2;
  st.param.b32 [out], %r3;
}
.global .u64 table[3] = {affine, least, 5};
"""
)
CHOOSE = """
  p: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _);
  mov.u64 %rd1, table; mad.wide.u32 %rd1, %r1, 8, %rd1; ld.global.u64 %rd2, [%rd1];
  call (%r3), %rd2, (%t, 9), p;
"""


def test_indirect_call_per_lane():
    body = "and.b32 %r1, %t, 1;" + CHOOSE + store("%r3")
    (out,) = both(kernel(body, TABLE), [zeros(40)], block=40)
    np.testing.assert_array_equal(out, np.where(T % 2, np.minimum(T, 9), affine(T, 9)))


@pytest.mark.parametrize("last", ["table", "list"])
def test_calltargets_as_table_or_list(last):
    body = "and.b32 %r1, %t, 1; list: .calltargets affine, least;"
    body += CHOOSE.replace("9), p;", f"9), {last};") + store("%r3")
    (out,) = both(kernel(body, TABLE), [zeros(40)], block=40)
    np.testing.assert_array_equal(out, np.where(T % 2, np.minimum(T, 9), affine(T, 9)))


def test_alias_calls_its_function():
    top = ".visible .func (.param .b32 o) other(.param .b32 a, .param .b32 b);\n"
    top = AFFINE + top + ".alias other, affine;"
    (out,) = both(kernel("call (%r3), other, (%t, 5);" + store("%r3"), top), [zeros(40)], block=40)
    np.testing.assert_array_equal(out, affine(T, 5))


def test_indirect_call_of_an_invalid_address_traps():
    text = kernel("mov.u32 %r1, 2;" + CHOOSE + store("%r3"), TABLE)
    with pytest.raises(VmFault, match="trap") as caught:
        launch(Machine(), text, [zeros(40)], block=40)
    assert "call (%r3)" in str(caught.value)


def test_a_built_call_with_other_arguments_is_refused():
    (f,) = (g for g in parse(HEAD + AFFINE).items)
    nothing = tree.Vector(())
    call = tree.Instruction("call", (nothing, tree.Symbol("affine"), nothing))
    module = tree.Module(target=("sm_90a",), items=(f, tree.Function("k", body=(call,))))
    machine = Machine()
    machine.load(module)
    with pytest.raises(
        PtxCheckError, match="the call does not match the results and arguments of affine"
    ):
        machine.launch("k", 1, 1)
