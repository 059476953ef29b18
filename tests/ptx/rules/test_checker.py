"""The checker: which modules keep the rules, and what it says of those that don't.

What is right and wrong here is what ptxas 13.0 says, asked when this was written.
"""

from __future__ import annotations

import pytest

from ptx_text.ptx_wild import FILES
from rows import every_row
from tilewright.errors import PtxCheckError, UnknownInstruction
from tilewright.ptx import check, needs, parse, problems
from tilewright.ptx.tree import Function, Imm, Instruction, Module, RegDecl, Register

HEAD = """.version {version}
.target {target}
.address_size 64
.shared .b32 sm[4];
.func (.param .b32 out) f(.param .b32 in) {{ ret; }}
.func (.reg .b32 out) g(.reg .b32 in, .param .align 4 .b8 s[8]) {{ ret; }}
.entry k(.param .u64 p, .param .b32 q) {{
.reg .pred %p<4>; .reg .b16 %h<4>; .reg .u16 %us; .reg .f16 %hf; .reg .b32 %r<9>; .reg .u32 %u;
.reg .s32 %s; .reg .f32 %f<4>; .reg .b64 %rd<9>; .reg .f64 %fd<4>; .reg .u64 %ud; .reg .v2 .f32 %v;
.reg .f16x2 %hh;
"""
LINE = HEAD.count("\n") + 1


def module(text: str, version: str = "9.0", target: str = "sm_90a") -> Module:
    return parse(HEAD.format(version=version, target=target) + text + "\nret;\n}\n", "k.ptx")


GOOD = """
add.s32 %s, %u, 1;
add.f32 %f0, %r0, 1.5;
add.f64 %fd0, %fd0, 0f3F800000;
and.b32 %f0, %f1, %u;
mov.b32 %r0, 0f3F800000;
mov.b64 %rd0, 1.5;
ld.shared.u32 %rd0, [sm];
ld.shared.f32 %rd0, [sm];
ld.shared.b32 %fd0, [sm];
ld.shared.u8 %h0, [sm];
ld.shared.v2.b32 {%r0, _}, [sm+8];
ld.shared.v2.f32 %v, [sm];
ld.param.u32 %r0, [p+4];
ld.b32 %r0, [sm];
st.shared.u8 [sm], %r0;
st.shared.f32 [sm], 1.5;
ld.shared.b32 {%r0}, [sm];
st.shared.b32 [sm], {5};
cvt.f32.f16 %f0, %r0;
cvt.rn.bf16.f32 %h0, %f0;
cvt.u64.u32 %rd0, %tid.x;
fma.rn.f16x2 %r0, %r0, %r1, %hh;
setp.lt.and.s32 %p0|%p1, %r1, %r2, !%p3;
setp.eq.s32 _|%p1, %r0, 1;
selp.b32 %r0, 1, 2, %p1;
mov.u32 %r0, sm;
mov.b64 %rd0, k;
mov.b64 %rd0, p;
mov.u32 %r0, WARP_SZ;
mov.u16 %h0, %ctaid.x;
mov.u64 %rd0, %clock64;
mov.b64 %rd0, {%r1, %f0};
mov.b64 {%r1, _}, %rd0;
mov.b32 %r0, %v.x;
mov.pred %p0, 1;
atom.shared.add.u32 _, [sm], 1;
shl.b64 %rd0, %rd1, %u;
@!%p1 bra L; L:
L: { L: bra L; } bra L;
{ .reg .b64 %r1; add.s64 %r1, %r1, 1; }
bar.sync 0, %r1;
call (%r0), f, (5);
{ .param .u32 a; .param .f32 b; st.param.u32 [a], 1; call.uni (b), f, (a); }
{ .param .align 4 .b8 s[8]; call (_), g, (%f1, s); }
shfl.sync.bfly.b32 %r0|%p1, %r1, 1, 31, -1;
vadd.s32.u32.s32.sat %s.h1, %r2.b3, 5, %r3;
vsub.u32.u32.u32 %r0, %r1, %r2, %r3;
vset.u32.s32.lt.max %r0, %r1.h0, %s, 7;
vadd4.u32.u32.u32.add %r0.b310, %r1.b7024, %r2, %r3;
vmad.s32.u32.s32.shr7 %r0, -%r1.h0, %r2, %r3;
vmad.u32.u32.u32.po %r0, -%r1, -%r2.b3, %r3;
""".strip().splitlines()

BAD = {
    "add.f32 %f0, %f0, 1;": (19, "got the integer 1"),
    "add.s32 %r0, %f1, 1;": (14, "got %f1 of type .f32"),
    "add.s32 %r0, %rd1, 1;": (14, "got %rd1 of type .b64"),
    "add.s32 %r0, %r1, 1.5;": (19, "64-bit float"),
    "add.s32 %r0, %r1;": (1, "got 2 operands"),
    "add.s32 5, %r1, %r2;": (9, "the destination must be a register"),
    "add.s32 _, %r1, %r2;": (9, "register, got '_'"),
    "add.s32 %r0, %r1, !%p1;": (19, "must be followed by a predicate"),
    "add.s32 %r0, %r10, 1;": (14, "%r10 is not declared"),
    "add.s32 %tid.x, %r1, 1;": (9, "can't be written"),
    "add.s32 %r0, %r1, %tid.x;": (19, "only be read by mov and cvt"),
    "add.u64 %rd0, %rd0, sm;": (21, "move its address"),
    "mov.u32 %r0, 0f3F800000;": (14, "32-bit float"),
    "mov.u32 %r0, %clock64;": (14, "special register %clock64 of type .u64"),
    "mov.u32 %r0, nowhere;": (14, "nowhere is not declared"),
    "mov.b64 %rd0, L; L:": (15, "got label L"),
    "mov.b64 %rd0, {%r0, %r1, %r2, %r3};": (15, "got %r0 of type .b32"),
    "mov.b32 %r0, %v.z;": (14, "%v.z is not declared"),
    "ld.shared.f32 %fd0, [sm];": (15, "got %fd0 of type .f64"),
    "ld.shared.f32 %u, [sm];": (15, "got %u of type .u32"),
    "ld.shared.u64 %r0, [sm];": (15, "got %r0 of type .b32"),
    "ld.global.b32 %r0, [sm];": (20, "sm is in .shared"),
    "ld.global.b32 %r0, [%r1];": (20, "must have 64 bits"),
    "ld.global.b32 %r0, [%f1];": (20, "an address must be an integer"),
    "ld.global.b32 %r0, %rd1;": (20, "in brackets"),
    "ld.shared.v2.b32 {%r0, %r1, %r2}, [sm];": (18, "got 3 in"),
    "ld.shared.b32 {%r0, %r1}, [sm];": (15, "the destination must be a register"),
    "ld.shared.b32 {_}, [sm];": (15, "register, got '_'"),
    "add.s32 {%r0}, %r1, 1;": (9, "the destination must be a register"),
    "ld.param.b64 %rd0, [k];": (20, "is not a variable"),
    "st.shared.b32 [sm], 1.5;": (21, "64-bit float"),
    "cvt.f32.f16 %f0, %us;": (18, "got %us of type .u16"),
    "cvt.rn.bf16.f32 %us, %f0;": (17, "got %us of type .u16"),
    "fma.rn.f16x2 %u, %r0, %r1, %hh;": (14, "got %u of type .u32"),
    "setp.eq.s32 %r0, %r1, 1;": (13, "got %r0 of type .b32"),
    "bra p;": (5, "expected a label, got p"),
    "bra nowhere;": (5, "nowhere is not declared"),
    "{ L: } bra L;": (12, "L is not declared"),
    "@%r0 bra L; L:": (1, "must be .pred, got .b32"),
    "L: L: bra L;": (4, "twice"),
    ".reg .b32 %r1;": (1, "%r1 is declared twice"),
    ".reg .b32 L; L: bra L;": (1, "twice"),
    "call (%r0), f, (5, 6);": (16, "1 arguments, got 2"),
    "call (%r0), sm, (5);": (13, "not a function"),
    "call (%r0), f, (%rd0);": (16, "must be a value of 4 bytes, got %rd0, a value of 8 bytes"),
    "call (%rd0), f, (5);": (6, "got %rd0, a value of 8 bytes"),
    "call (%r0), f, (_);": (16, "'_' can't be an argument"),
    "call (%r0), f, (sm);": (16, "neither a register nor a .param variable"),
    "call (%r0), f, (%tid.x);": (16, "neither a register nor a .param variable"),
    "{ .param .b8 s[4]; call (%r0), f, (s); }": (
        35,
        "must be a value of 4 bytes, got s, an array of 4 bytes",
    ),
    "{ .param .b8 s[8]; call (_), g, (1, s); }": (
        33,
        "must be aligned to 4 bytes, got s aligned to 1",
    ),
    "call (_), g, (1, 2);": (14, "2 can't be an array"),
    "call %rd0;": (6, "needs a prototype"),
    "t: .branchtargets nowhere;": (1, "nowhere is not declared"),
    "vadd.s32.s32.s32 %r0, %r1.b4, %r2;": (23, "expected .b0 to .b3, .h0 or .h1, got %r1.b4"),
    "vadd.s32.s32.s32 %r0.b0, %r1, %r2;": (18, "expected no selector, got %r0.b0"),
    "vadd.s32.s32.s32.min %r0.b0, %r1, %r2, 1;": (22, "expected no selector, got %r0.b0"),
    "vadd.s32.s32.s32 %r0, -%r1, %r2;": (23, "can't negate this operand"),
    "vadd.s32.s32.s32 %r0, %r1.x, %r2;": (23, "%r1.x is not declared"),
    "vadd.s32.s32.s32 %r0, %f1.b0, %r2;": (23, "got %f1 of type .f32"),
    "vadd2.s32.s32.s32 %r0.h01, %r1, %r2, %r3;": (19, "expected .h0, .h1 or .h10, got %r0.h01"),
    "vadd2.s32.s32.s32 %r0, %r1.h14, %r2, %r3;": (
        24,
        "expected .h and two digits of 0 to 3, got %r1.h14",
    ),
    "vadd4.s32.s32.s32 %r0.b01, %r1, %r2, %r3;": (19, "one to four of the digits 3210"),
    "vadd4.s32.s32.s32 %r0, %r1.b0128, %r2, %r3;": (24, "four digits of 0 to 7"),
    "vadd4.s32.s32.s32 %r0, %r1, 5, %r3;": (29, "5"),
    "vmad.s32.s32.s32 %r0, -%r1, %r2, -%r3;": (1, "either the product or c"),
    "vmad.s32.s32.s32.po %r0, %r1, %r2, -%r3;": (1, "a negated c"),
    "add.s32 %r0, %r1.b0, 1;": (14, "expected no selector, got %r1.b0"),
    "add.s32 %r0, -%r1, 1;": (14, "can't negate this operand"),
}


@every_row("text", GOOD)
def test_good(text: str) -> None:
    assert [str(p) for p in problems(module(text))] == []


@every_row("text", BAD)
def test_bad(text: str) -> None:
    column, message = BAD[text]
    with pytest.raises(PtxCheckError) as caught:
        check(module(text))
    assert message in caught.value.message
    location = caught.value.location
    assert location is not None and (location.line, location.column) == (LINE, column)


@pytest.mark.parametrize("name", FILES)
def test_the_checker_accepts_nvccs_output(name: str) -> None:
    assert [str(p) for p in problems(parse(FILES[name]))] == []


def test_an_unknown_opcode() -> None:
    with pytest.raises(UnknownInstruction, match=r"add\.q32") as caught:
        check(module("add.q32 %r0, %r1, 1;"))
    assert str(caught.value).splitlines()[2].strip() == "^" * len("add.q32")


def test_all_problems_come_in_order() -> None:
    found = problems(module("add.s32 %r0, %f1, %f2;\nfoo %r1;\nbra L;"))
    lines = [p.location.line - LINE for p in found if p.location]
    assert lines == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("version", "target", "text", "message"),
    [
        ("6.5", "sm_75", "cp.async.wait_all;", r"needs \.version 7\.0"),
        ("7.0", "sm_75", "cp.async.wait_all;", r"needs \.target sm_80"),
        ("7.8", "sm_80", "mov.u32 %r0, %clusterid.x;", r"needs \.target sm_90"),
        ("7.0", "sm_90a", "", r"sm_90a needs \.version 8\.0"),
        ("9.0", "sm_91", "", "unknown target"),
    ],
)
def test_what_is_too_new(version: str, target: str, text: str, message: str) -> None:
    with pytest.raises(PtxCheckError, match=message):
        check(module(text, version, target))


def test_needs_is_the_lowest_that_passes() -> None:
    m = module("cp.async.wait_all;")
    assert needs(m) == ((7, 0), "sm_80")
    assert needs(module("mov.u32 %r0, %clusterid.x;")) == ((7, 8), "sm_90")
    assert problems(module("cp.async.wait_all;", "7.0", "sm_80")) == []


def test_a_built_module_gets_places_too() -> None:
    bad = Instruction("add.s32", (Register("%r1"), Register("%f1"), Imm(5)))
    kernel = Function("k", body=(RegDecl("b32", ("%r",), 3), bad))
    with pytest.raises(PtxCheckError, match=r"%f1 is not declared") as caught:
        check(Module((8, 0), ("sm_90a",), items=(kernel,)))
    assert caught.value.location is not None and "add.s32" in caught.value.location.text
