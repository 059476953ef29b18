"""What operators and methods become: exact text, one line for each claim of the builder."""

from __future__ import annotations

import math
import re

import pytest

from rows import every_row
from tilewright import mma
from tilewright.builder import f16, trace
from tilewright.errors import KernelError
from tilewright.ptx.special_registers import SPECIALS, SpecialRegister
from tracing import lines

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"

ONE = {
    # integers
    "+": (("u32", "u32"), lambda k, a, b: a + b, "add.u32 %r3, %r1, %r2"),
    "+ -1": (("u32",), lambda k, a: a + -1, "sub.u32 %r2, %r1, 1"),
    "5 -": (("s64",), lambda k, a: 5 - a, "sub.s64 %rd2, 5, %rd1"),
    "*": (("s32", "s32"), lambda k, a, b: a * b, "mul.lo.s32 %r3, %r1, %r2"),
    "* 8": (("s32",), lambda k, a: a * 8, "shl.b32 %r2, %r1, 3"),
    "// 16": (("u64",), lambda k, a: a // 16, "shr.u64 %rd2, %rd1, 4"),
    "% 16": (("u32",), lambda k, a: a % 16, "and.b32 %r2, %r1, 15"),
    "% 12": (("u32",), lambda k, a: a % 12, "rem.u32 %r2, %r1, 12"),
    "div": (("s32",), lambda k, a: k.div(a, 8), "div.s32 %r2, %r1, 8"),
    "mad": (("u32", "u32"), lambda k, a, b: k.mad(a, 3, b), "mad.lo.u32 %r3, %r1, 3, %r2"),
    "~": (("b32",), lambda k, a: ~a, "not.b32 %r2, %r1"),
    "-u": (("u32",), lambda k, a: -a, "sub.u32 %r2, 0, %r1"),
    "abs": (("s32",), lambda k, a: abs(a), "abs.s32 %r2, %r1"),
    "& -2": (("u32",), lambda k, a: a & -2, "and.b32 %r2, %r1, 4294967294"),
    "b64 & u64": (("b64", "u64"), lambda k, a, b: a & b, "and.b64 %rd3, %rd1, %rd2"),
    # floats: the rounding is always there
    "f +": (("f32", "f32"), lambda k, a, b: a + b, "add.rn.f32 %f3, %f1, %f2"),
    "f * 2": (("f32",), lambda k, a: 2 * a, "mul.rn.f32 %f2, %f1, 0f40000000"),
    "f /": (("f64",), lambda k, a: 1 / a, "div.rn.f64 %fd2, 0d3FF0000000000000, %fd1"),
    "fma": (("f32", "f32"), lambda k, a, b: k.fma(a, b, a), "fma.rn.f32 %f3, %f1, %f2, %f1"),
    "f -": (("f64",), lambda k, a: -a, "neg.f64 %fd2, %fd1"),
    "f16 +": (("f16", "f16"), lambda k, a, b: a + b, "add.rn.f16 %rs3, %rs1, %rs2"),
    "f16x2": (("f16x2", "f16x2"), lambda k, a, b: a * b, "mul.rn.f16x2 %r3, %r1, %r2"),
    "bf16": (("bf16",), lambda k, a: k.fma(a, a, a), "fma.rn.bf16 %rs2, %rs1, %rs1, %rs1"),
    "max": (("f32",), lambda k, a: k.max(a, -math.inf), "max.f32 %f2, %f1, 0fFF800000"),
    # comparisons
    "<": (("s32", "s32"), lambda k, a, b: a < b, "setp.lt.s32 %p1, %r1, %r2"),
    "0 <": (("u32",), lambda k, a: a > 0, "setp.gt.u32 %p1, %r1, 0"),
    "f !=": (("f32", "f32"), lambda k, a, b: a != b, "setp.neu.f32 %p1, %f1, %f2"),
    "b ==": (("b32",), lambda k, a: a == 7, "setp.eq.b32 %p1, %r1, 7"),
    # conversions
    "u32 f32": (("u32",), lambda k, a: a.to("f32"), "cvt.rn.f32.u32 %f1, %r1"),
    "f32 s32": (("f32",), lambda k, a: a.to("s32"), "cvt.rzi.s32.f32 %r1, %f1"),
    "f32 u8": (("f32",), lambda k, a: a.to("u8", "rn"), "cvt.rni.u8.f32 %rs1, %f1"),
    "f32 f16": (("f32",), lambda k, a: a.to(f16, "rz"), "cvt.rz.f16.f32 %rs1, %f1"),
    "f16 f32": (("f16",), lambda k, a: a.to("f32"), "cvt.f32.f16 %f1, %rs1"),
    "f64 f32": (("f64",), lambda k, a: a.to("f32", sat=True), "cvt.rn.sat.f32.f64 %f1, %fd1"),
    "f32 bf16": (("f32",), lambda k, a: a.to("bf16"), "cvt.rn.bf16.f32 %rs1, %f1"),
    "tf32": (("f32",), lambda k, a: a.to("tf32"), "cvt.rna.tf32.f32 %r1, %f1"),
    "s64 s16": (("s64",), lambda k, a: a.to("s16", sat=True), "cvt.sat.s16.s64 %rs1, %rd1"),
    "view": (("f32",), lambda k, a: a.view("b32"), "mov.b32 %r1, %f1"),
    "pack": (
        ("f32", "f32"),
        lambda k, a, b: k.pack("bf16x2", a, b),
        "cvt.rn.bf16x2.f32 %r1, %f2, %f1",
    ),
    "halves": (("f16", "f16"), lambda k, a, b: k.pack("f16x2", a, b), "mov.b32 %r1, {%rs1, %rs2}"),
    "unpack": (("f16x2",), lambda k, a: k.unpack(a), "mov.b32 {%rs1, %rs2}, %r1"),
    # lanes
    "shfl": (
        ("f32", "u32"),
        lambda k, a, n: k.shfl("down", a, n, width=8),
        "shfl.sync.down.b32 %f2, %f1, %r1, 6175, 4294967295",
    ),
    "up": (
        ("s32",),
        lambda k, a: k.shfl("up", a, 1),
        "shfl.sync.up.b32 %r2, %r1, 1, 0, 4294967295",
    ),
    "barrier": ((), lambda k: k.barrier(), "bar.sync 0"),
    "threads": ((), lambda k: k.barrier(1, 64), "bar.sync 1, 64"),
    "syncwarp": ((), lambda k: k.syncwarp(), "bar.warp.sync 4294967295"),
    # any row by its name
    "ptx": (("u32",), lambda k, a: k.ptx.mad.wide.u32(a, 4, 9), "mad.wide.u32 %rd1, %r1, 4, 9"),
    "keyword": (("b32",), lambda k, a: k.ptx.and_.b32(a, 1), "and.b32 %r2, %r1, 1"),
    "text": (("f32",), lambda k, a: k.emit("ex2.approx.f32", a), "ex2.approx.f32 %f2, %f1"),
    "special": ((), lambda k: k.special("clock64"), "mov.u64 %rd1, %clock64"),
}


@every_row("name", ONE)
def test_one_instruction(name: str) -> None:
    types, body, text = ONE[name]
    assert lines(body, *types) == [text]


NOTHING = {
    "+ 0": ("u32", lambda a: (a + 0, 0 + a, a - 0)),
    "* 1": ("s32", lambda a: (a * 1, 1 * a)),
    "// 1": ("u32", lambda a: (a // 1,)),
    "<< 0": ("b32", lambda a: (a << 0, a >> 0)),
    "| 0": ("u64", lambda a: (a | 0, a ^ 0, a & -1)),
    "to": ("u32", lambda a: (a.to("u32"), a.to("s32").view("u32"), +a)),
}


@pytest.mark.parametrize("name", NOTHING)
def test_identities_emit_nothing(name: str) -> None:
    type_, f = NOTHING[name]

    def body(k, a):
        assert all(r.operand == a.operand for r in f(a))

    assert lines(body, type_) == []


def test_multiplication_by_zero_is_a_python_number() -> None:
    def body(k, a):
        assert (a * 0, a & 0, a % 1) == (0, 0, 0)

    assert lines(body, "u32") == []


def test_half_precision_numbers_are_registers_of_the_prologue() -> None:
    def body(k, a, b):
        with k.if_(a < 1.0):
            k.fma(a, 1.0, 0.5)
            k.fma(b, 0.5, b)

    assert lines(body, "f16", "f16x2") == [
        "mov.b16 %rs2, 15360",
        "mov.b16 %rs3, 14336",
        "mov.b32 %r2, 939538432",
        "setp.lt.f16 %p1, %rs1, %rs2",
        "@!%p1 bra $else_1",
        "fma.rn.f16 %rs4, %rs1, %rs2, %rs3",
        "fma.rn.f16x2 %r3, %r1, %r2, %r1",
        "$else_1:",
    ]


def test_predicates() -> None:
    def body(k, a):
        p, q = a < 3, a > 1
        k.vote("any", p & ~q | True & q)
        k.ballot(p ^ q)
        k.select(p, a, 4)
        p.to("u32")
        a.to("pred")

    assert lines(body, "u32") == [
        "setp.lt.u32 %p1, %r1, 3",
        "setp.gt.u32 %p2, %r1, 1",
        "not.pred %p3, %p2",
        "and.pred %p4, %p1, %p3",
        "or.pred %p5, %p4, %p2",
        "vote.sync.any.pred %p6, %p5, 4294967295",
        "xor.pred %p7, %p1, %p2",
        "vote.sync.ballot.b32 %r2, %p7, 4294967295",
        "selp.u32 %r3, %r1, 4, %p1",
        "selp.u32 %r4, 1, 0, %p1",
        "setp.ne.u32 %p8, %r1, 0",
    ]


def test_in_place_operators_write_the_variable() -> None:
    def body(k, a):
        v = k.var("f32", 0)
        v += a
        v *= v
        k.fma(v, a, 1.0, into=v)
        v.set(v)

    assert lines(body, "f32") == [
        "mov.f32 %f2, 0f00000000",
        "add.rn.f32 %f2, %f2, %f1",
        "mul.rn.f32 %f2, %f2, %f2",
        "fma.rn.f32 %f2, %f2, %f1, 0f3F800000",
    ]


def test_pairs_of_destinations() -> None:
    def body(k, a):
        _, q = k.ptx.setp.lt.u32(a, 3, pair=True)
        value, inside = k.emit("shfl.sync.down.b32", a, 1, 31, -1, pair=True, dtype="u32")
        with k.when(inside):
            k.select(q, value, a)

    assert lines(body, "u32") == [
        "setp.lt.u32 %p1|%p2, %r1, 3",
        "shfl.sync.down.b32 %r2|%p3, %r1, 1, 31, 4294967295",
        "@%p3 selp.u32 %r3, %r2, %r1, %p2",
    ]


def test_matrix_instructions_accumulate_in_place() -> None:
    def body(k, tile):
        a = k.ldmatrix(tile, 4)
        b = k.ldmatrix(tile + 8, 2, trans=True)
        c = k.array("f32", 4, 0.0)
        assert k.mma(mma.instruction(F16), a, b, c, into=c) == tuple(c)
        k.mma(F16, a, b, c)

    def kernel(k):
        body(k, k.shared("f16", 256, align=16) + k.laneid * 8)

    c = "{%f1, %f2, %f3, %f4}"
    assert lines(kernel) == [
        "mov.u32 %r1, %laneid",
        "mov.u32 %r3, shared_0",
        "shl.b32 %r2, %r1, 3",
        "mad.lo.u32 %r4, %r2, 2, %r3",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r5, %r6, %r7, %r8}, [%r4]",
        "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r9, %r10}, [%r4+16]",
        *(f"mov.f32 %f{i}, 0f00000000" for i in (1, 2, 3, 4)),
        f"{F16} {c}, {{%r5, %r6, %r7, %r8}}, {{%r9, %r10}}, {c}",
        f"{F16} {{%f5, %f6, %f7, %f8}}, {{%r5, %r6, %r7, %r8}}, {{%r9, %r10}}, {c}",
    ]


def test_tracing_is_deterministic() -> None:
    def body(k):
        k.special("clock")
        k.barrier()

    assert trace(body).ptx == trace(body).ptx


CHANGING = "clock clock_hi clock64 globaltimer globaltimer_lo globaltimer_hi smid warpid".split()


@every_row("row", SPECIALS.values(), ids=SPECIALS)
def test_special_registers_are_read_once_or_each_time(row: SpecialRegister) -> None:
    """Time, counters and where a thread runs change; all else is the same from the beginning."""
    name = row.name[1:] + ".x" * (row.vector > 1)

    def body(k):
        for _ in range(2):
            assert k.special(name).dtype.bits == {"pred": 1, "u64": 64}.get(row.type, 32)

    changes = name in CHANGING or re.fullmatch(r"pm\d(_64)?", name)
    assert len(lines(body)) == (2 if changes else 1)


@pytest.mark.parametrize("name", ["foo", "tid", "laneid.x", "%clock", "", None])
def test_an_unknown_special_register(name) -> None:
    with pytest.raises(
        KernelError, match=r"there is no special register .* tid\.x, .* globaltimer_lo"
    ):
        lines(lambda k: k.special(name))
