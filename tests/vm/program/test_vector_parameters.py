"""Parameters and results of functions in ``.reg``: a call passes bits, of vectors too."""

from __future__ import annotations

import pytest

from ptx_kernels.simt import both, kernel, launch, zeros
from tilewright.ptx import link, parse
from tilewright.vm import Machine
from tilewright.vm.program.coverage import coverage

pytestmark = pytest.mark.vm

REGISTERS = """.reg .v2 .u32 %v; .reg .v2 .f32 %vf; .reg .v2 .u16 %vh; .reg .v4 .u16 %qh;
  .reg .v4 .u32 %q; .reg .v2 .u64 %vd; .reg .b128 %bb;"""
PAIR = "mov.v2.u32 %v, {3, 4};"
LONG = "mov.u64 %rd1, 0x0000000400000003;"
WORDS = "mov.v4.u32 %q, {5, 100, 7, 0};"
VARIABLE = ".param .b64 p; st.param.v2.u32 [p], {3, 4};"
R1, V, Q = "st.global.u32 [%a0], %r1;", "st.global.v2.u32 [%a0], %v;", "st.global.v4.u32 [%a0], %q;"
RD1 = "st.global.u64 [%a0], %rd1;"

#: ``join`` gives x.x | x.y << 8, ``split`` (x, x + 1); ``deep`` calls itself, x.x times
FUNCTIONS = """
.func (.reg .u32 y) join(.reg .v2 .u32 x) { shl.b32 y, x.y, 8; or.b32 y, y, x.x; ret; }
.func (.reg .u32 y) high(.reg .v2 .u32 x) { mov.u32 y, x.y; ret; }
.func (.reg .v2 .u32 r) split(.reg .u32 x) { mov.u32 r.x, x; add.u32 r.g, x, 1; ret; }
.func (.reg .v4 .u32 r) turn(.reg .v4 .u32 x)
{ mov.u32 r.x, x.w; mov.u32 r.y, x.z; mov.u32 r.z, x.y; mov.u32 r.w, x.x; ret; }
.func (.reg .v2 .u32 y) deep(.reg .v2 .u32 x) { .reg .pred p; .reg .v2 .u32 t;
  setp.eq.u32 p, x.x, 0; mov.v2.u32 y, x; @p ret; sub.u32 t.x, x.x, 1; add.u32 t.y, x.y, x.x;
  call (y), deep, (t); add.u32 y.x, y.x, x.x; ret; }
.func (.reg .v4 .u32 y) deep4(.reg .v4 .u32 x) { .reg .pred p; .reg .v4 .u32 t;
  setp.eq.u32 p, x.x, 0; mov.v4.u32 y, x; @p ret; mov.v4.u32 t, x; sub.u32 t.x, x.x, 1;
  add.u32 t.y, x.y, x.x; call (y), deep4, (t); add.u32 y.w, y.w, x.x; ret; }
.func (.reg .u64 y) next(.reg .u64 x) { add.u64 y, x, 1; ret; }
.func (.param .u64 y) in_memory(.param .u64 x)
{ .reg .u64 t; ld.param.u64 t, [x]; add.u64 t, t, 1; st.param.u64 [y], t; ret; }
.global .u64 table[2] = {join, high};
.extern .func (.param .b64 r) malloc(.param .b64 a);
.extern .func free(.param .b64 a);
"""

#: what a kernel does, and the words that it leaves
CASES = {
    "a vector argument": (PAIR + "call (%r1), join, (%v);" + R1, [0x403]),
    "elements of another type": (
        "mov.v2.f32 %vf, {0f00000003, 0f00000004}; call (%r1), join, (%vf);" + R1, [0x403]
    ),
    "other elements": (LONG + "mov.b64 %qh, %rd1; call (%r1), join, (%qh);" + R1, [0x403]),
    "a scalar argument": (LONG + "call (%r1), join, (%rd1);" + R1, [0x403]),
    "a constant": ("call (%r1), join, (0x400000003);" + R1, [0x403]),
    "a variable": (VARIABLE + "call (%r1), join, (p);" + R1, [0x403]),
    "a vector result": ("call (%v), split, (7);" + V, [7, 8]),
    "a result in a scalar": ("call (%fd1), split, (7); st.global.f64 [%a0], %fd1;", [7, 8]),
    "a result in a variable": (
        VARIABLE + "call (p), split, (7); ld.param.b64 %rd1, [p];" + RD1, [7, 8]
    ),
    "no result": ("call (_), split, (7); mov.u32 %r1, 9;" + R1, [9]),
    "four elements": (WORDS + "call (%q), turn, (%q);" + Q, [0, 7, 100, 5]),
    "128 bits": (
        WORDS + "mov.b128 %bb, %q; call (%vd), turn, (%bb); st.global.v2.u64 [%a0], %vd;",
        [0, 7, 100, 5],
    ),
    "recursion": ("mov.v2.u32 %v, {5, 100}; call (%v), deep, (%v);" + V, [15, 115]),
    "recursion, a constant": ("call (%rd1), deep, (0x6400000005);" + RD1, [15, 115]),
    "recursion, a variable": (
        VARIABLE + "call (p), deep, (p); ld.param.b64 %rd1, [p];" + RD1, [6, 10]
    ),
    "recursion, four elements": (WORDS + "call (%q), deep4, (%q);" + Q, [0, 115, 7, 15]),
    "a function from a table": (
        PAIR + """p: .callprototype (.reg .u32 _) _ (.reg .v2 .u32 _);
        ld.global.u64 %rd1, [table+8]; call (%r1), %rd1, (%v), p;""" + R1,
        [4],
    ),
    "a scalar from a variable": (
        VARIABLE + "call (p), next, (p); ld.param.b64 %rd1, [p];" + RD1, [4, 4]
    ),
    "a vector for a variable": (PAIR + "call (%v), in_memory, (%v);" + V, [4, 4]),
    "a function of the machine": (
        """mov.v2.u32 %v, {16, 0}; call (%v), malloc, (%v); mov.b64 %rd1, %v; st.u32 [%rd1], 5;
        ld.u32 %r1, [%rd1]; call free, (%v);""" + R1,
        [5],
    ),
}  # fmt: skip


def test_register_parameters_are_passed_bitwise() -> None:
    """All in one kernel, each with four words of its own."""
    parts = (f"{{ {body} }} add.u64 %a0, %a0, 16;" for body, _ in CASES.values())
    (out,) = both(kernel(REGISTERS + "".join(parts), FUNCTIONS), [zeros(4 * len(CASES))], block=1)
    left = dict(zip(CASES, out.reshape(-1, 4).tolist(), strict=True))
    expected = {name: [*words, 0, 0, 0][:4] for name, (_, words) in CASES.items()}
    assert left == expected


def test_the_second_component_of_a_parameter_is_not_the_first() -> None:
    body = REGISTERS + PAIR + "call (%r1), join, (%v);" + R1
    (out,) = both(kernel(body, FUNCTIONS), [zeros(4)], block=1)
    assert out[0] == 0x403


def test_a_function_of_another_module_has_its_own_vectors() -> None:
    shape = "(.reg .v2 .u32 r) swap(.reg .v2 .u32 x)"
    text = kernel(REGISTERS + PAIR + "call (%v), swap, (%v); st.global.v2.u32 [%a0], %v;",
                  f".extern .func {shape};")  # fmt: skip
    other = f""".version 8.6
    .target sm_90a
    .address_size 64
    .visible .func {shape} {{ mov.u32 r.x, x.y; mov.u32 r.y, x.x; ret; }}"""
    (out,) = launch(Machine(), link([parse(text), parse(other)]), [zeros(4)], block=1)
    assert out.tolist() == [4, 3, 0, 0]


def test_mov_splits_and_packs_vector_registers() -> None:
    """As it does ``{a, b}``: the name of a vector stands for its elements."""
    body = f"""{REGISTERS} {LONG} mov.b64 %v, %rd1; mov.b64 %rd2, %v; st.global.u64 [%a0], %rd2;
      mov.b32 %vh, %v.y; mov.b32 %r1, %vh; add.u32 %r2, %r1, %v.x;
      st.global.v2.u32 [%a0+8], {{%r1, %r2}};"""
    (out,) = both(kernel(body), [zeros(4)], block=1)
    assert out.tolist() == [3, 4, 4, 7]


def test_coverage_walks_functions_with_vector_parameters() -> None:
    head = ".version 8.6\n.target sm_90a\n.address_size 64\n"
    for text in (head + FUNCTIONS, kernel(REGISTERS + CASES["recursion"][0], FUNCTIONS)):
        found = coverage(parse(text))
        assert not found.others
        assert not any(need.refused for need in found.needs)
    wide = ".func (.reg .u32 y) f(.reg .v8 .u32 x) { mov.u32 y, x.y; ret; }"
    (error,) = coverage(parse(head + wide)).others
    assert "a vector must have 2 or 4 elements" in error.message
    assert error.location is not None
