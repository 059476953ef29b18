"""Tensors in the builder: the instructions that they become, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from error_messages import raises_message
from rows import every_row
from tilewright.errors import KernelError, LayoutError
from tilewright.layout import (
    Layout,
    Swizzle,
    Tensor,
    composition,
    make_fragment_like,
    make_identity_tensor,
    make_tensor,
    recast,
)
from tilewright.mma import CopyAtom, CpAsync, MmaAtom, UniversalCopy
from tracing import lines, traced

X16, LANES = "ptr f16 align 16", Layout((32, 8), (8, 1))


def test_registers_hold_elements_packed() -> None:
    def body(k: Any, x: Any) -> None:
        t = k.make_rmem_tensor((2, 2), "f16")
        t[0, 1] = x
        t[1, 1] = t[0, 1]
        recast(t, "b32")[0] = 7

    assert lines(body, "f16") == [
        "mov.b32 {%rs2, %rs3}, %r2",
        "mov.b32 %r2, {%rs1, %rs3}",
        "mov.b32 {%rs4, %rs5}, %r2",
        "mov.b32 {%rs6, %rs7}, %r2",
        "mov.b32 %r2, {%rs6, %rs4}",
        "mov.b32 %r1, 7",
    ]


def test_bytes_and_nibbles_of_a_word() -> None:
    def body(k: Any, x: Any) -> None:
        bytes_, nibbles = (k.make_rmem_tensor(n, t) for n, t in ((4, "s8"), (8, "u4")))
        bytes_[2] = x
        nibbles[3] = nibbles[1]

    assert lines(body, "s8") == [
        "cvt.u32.u16 %r3, %rs1",
        "bfi.b32 %r1, %r3, %r1, 16, 8",
        "shr.u32 %r4, %r2, 4",
        "and.b32 %r5, %r4, 15",
        "cvt.u16.u32 %rs2, %r5",
        "cvt.u32.u16 %r6, %rs2",
        "bfi.b32 %r2, %r6, %r2, 12, 4",
    ]


def test_common_vectors_are_moved_by_one_instruction() -> None:
    def body(k: Any, x: Any, y: Any) -> None:
        src, dst = (make_tensor(p, LANES)[k.tid.x, None] for p in (x, y))
        held = make_fragment_like(src)
        k.copy(src, held)
        k.copy(held, dst)

    assert lines(body, X16, X16) == [
        "mov.u32 %r1, %tid.x",
        "mad.wide.u32 %rd5, %r1, 16, %rd2",
        "mad.wide.u32 %rd6, %r1, 16, %rd4",
        "ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%rd5]",
        "st.global.v4.b32 [%rd6], {%r2, %r3, %r4, %r5}",
    ]


VECTORS = {  # the pointer's promise, the layout of a thread's 8 elements: what it is loaded by
    "v4.b32": ("align 16", "8:1"),
    "v2.b32": ("align 8", "8:1"),
    "b32": ("align 4", "8:1"),
    "b16": ("", "8:1"),
    "v2.b32 ": ("align 16", "(4,2):(1,12)"),
    "b32 ": ("align 16", "(2,4):(1,6)"),
    "b16 ": ("align 16", "(4,2):(2,1)"),
    " b16": ("align 16", "(2,4):(1,3)"),
}


@pytest.mark.parametrize("vector", VECTORS)
def test_the_widest_aligned_vector(vector: str) -> None:
    promise, layout = VECTORS[vector]

    def body(k: Any, x: Any) -> None:
        src = make_tensor(x, Layout.parse(layout))
        k.copy(src, make_fragment_like(src))

    found = {line.split()[0] for line in lines(body, f"ptr f16 {promise}") if line[:2] == "ld"}
    assert found == {f"ld.global.{vector.strip()}"}


@pytest.mark.parametrize("step", [1, 2, 4, 8])
def test_a_dynamic_offset_limits_the_alignment(step: int) -> None:
    """Moved by a register, a pointer is aligned as far as the step says."""

    def body(k: Any, x: Any) -> None:
        src = make_tensor(x, Layout((32, 8), (step, 1)))[k.tid.x, None]
        k.copy(src, make_fragment_like(src))

    width = {1: "b16", 2: "b32", 4: "v2.b32", 8: "v4.b32"}[step]
    found = {line.split()[0] for line in lines(body, X16) if line[:2] == "ld"}
    assert found == {f"ld.global.{width}"}


def test_a_swizzle_is_computed_once() -> None:
    """What lies a whole period away is an immediate; so is what the swizzle does not move."""
    tile = composition(Swizzle(3, 3, 3), Layout((8, 64, 2), (64, 1, 512)))

    def body(k: Any) -> None:
        row = make_tensor(k.shared("f16", tile), tile)[k.tid.x, None, None]
        for at in ((0, 0), (4, 0), (8, 0), (12, 1), (0, 1)):
            k.ptx.st.shared.b16(row.at(at), 0)

    assert lines(body) == [
        "mov.u32 %r1, %tid.x",
        "mov.u32 %r7, shared_0",
        "shl.b32 %r2, %r1, 6",
        "shl.b32 %r3, %r2, 1",
        "shr.u32 %r4, %r3, 3",
        "and.b32 %r5, %r4, 112",
        "xor.b32 %r6, %r3, %r5",
        "add.u32 %r8, %r7, %r6",
        "st.shared.b16 [%r8], 0",
        "st.shared.b16 [%r8+8], 0",
        "add.u32 %r9, %r3, 16",
        "shr.u32 %r10, %r9, 3",
        "and.b32 %r11, %r10, 112",
        "xor.b32 %r12, %r9, %r11",
        "add.u32 %r13, %r7, %r12",
        "st.shared.b16 [%r13], 0",
        "st.shared.b16 [%r13+1032], 0",
        "st.shared.b16 [%r8+1024], 0",
    ]


def test_a_dynamic_stride_is_added_step_by_step() -> None:
    """One register has it in bytes, and none its multiples; what is static is an immediate."""

    def body(k: Any, x: Any, pitch: Any) -> None:
        src = make_tensor(x, Layout((3, 2, 2), (pitch, 4, pitch * 8)))
        k.copy(src, make_fragment_like(src))

    assert lines(body, "ptr f32", "u64") == [
        "shl.b64 %rd4, %rd3, 3",
        "ld.global.f32 %f1, [%rd2]",
        "shl.b64 %rd5, %rd3, 2",
        "add.u64 %rd6, %rd2, %rd5",
        "ld.global.f32 %f2, [%rd6]",
        "add.u64 %rd7, %rd6, %rd5",
        "ld.global.f32 %f3, [%rd7]",
        "ld.global.f32 %f4, [%rd2+16]",
        "ld.global.f32 %f5, [%rd6+16]",
        "ld.global.f32 %f6, [%rd7+16]",
        "shl.b64 %rd8, %rd4, 2",
        "add.u64 %rd9, %rd2, %rd8",
        "ld.global.f32 %f7, [%rd9]",
        "add.u64 %rd10, %rd9, %rd5",
        "ld.global.f32 %f8, [%rd10]",
        "add.u64 %rd11, %rd10, %rd5",
        "ld.global.f32 %f9, [%rd11]",
        "ld.global.f32 %f10, [%rd9+16]",
        "ld.global.f32 %f11, [%rd10+16]",
        "ld.global.f32 %f12, [%rd11+16]",
    ]


def test_padding_of_the_last_register_is_not_preserved() -> None:
    """A loop would carry it from turn to turn."""

    def body(k: Any) -> None:
        k.clear(k.make_rmem_tensor(3, "f16"))
        k.clear(k.make_rmem_tensor(3, "u8"))

    read = [line for line in lines(body) if line.startswith("mov.b32 {")]
    assert not read


def test_one_instruction_for_each_part_of_mode_0() -> None:
    """((values, …), …), as a tiled copy of larger tiles partitions."""
    atom = CopyAtom(UniversalCopy(64), "f32")

    def body(k: Any, x: Any) -> None:
        src = make_tensor(x, Layout(((2, 2), 2), ((1, 8), 2)))
        k.copy(atom, src, k.make_rmem_tensor(src.shape, "f32"), pred=k.tid.x < 3)

    assert lines(body, "ptr f32")[2:] == [
        "@%p1 ld.global.v2.f32 {%f1, %f2}, [%rd2]",
        "@%p1 ld.global.v2.f32 {%f3, %f4}, [%rd2+32]",
        "@%p1 ld.global.v2.f32 {%f5, %f6}, [%rd2+8]",
        "@%p1 ld.global.v2.f32 {%f7, %f8}, [%rd2+40]",
    ]


def test_common_subexpressions_in_loops_and_branches() -> None:
    def body(k: Any, n: Any) -> None:
        with k.eliminate_common_subexpressions():
            first = n * 12
            for i in k.range(n):
                held = i * 12 + first
                assert (i * 12 + n * 12) is held and n * 12 is first
            with k.if_(n > 3):
                inside = n * 5
            assert n * 5 is not inside
        assert n * 12 is not first

    assert len([line for line in lines(body, "u32") if line.startswith("mul")]) == 5


def test_a_variable_is_never_shared() -> None:
    def body(k: Any, n: Any) -> None:
        v = k.var(n)
        with k.eliminate_common_subexpressions(), k.when(n > 1):
            assert v + 1 is not v + 1
            assert n + 1 is not n + 1  # the first holds for some lanes only

    traced(body, "u32")


# --- refusals -------------------------------------------------------------------------------------

MMA = MmaAtom("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")


def held(k: Any, *shapes: Any, t: str = "f16") -> list[Tensor]:
    return [k.make_rmem_tensor(s, t) for s in shapes]


REFUSED = [
    (lambda k, x: k.make_rmem_tensor(4, "f16")[x], "an index of registers must be static"),
    (lambda k, x: k.make_rmem_tensor(4, "f16").engine[4], "from 0 to 3, got 4"),
    (lambda k, x: k.make_rmem_tensor(4, "e3m2"), "must have 4, 8, 16, 32 or 64 bits, got e3m2"),
    (lambda k, x: k.make_rmem_tensor(Layout(4, x), "f16"), "static layout"),
    (
        lambda k, x: k.make_smem_tensor(Layout(4, -1), "f16"),
        "strides in shared memory must not be negative",
    ),
    (lambda k, x: recast(k.make_rmem_tensor(4, "f16"), "f64"), "can't be recast to f64"),
    (
        lambda k, x: recast(k.make_rmem_tensor(4, "f16").domain_offset(1), "b32"),
        "must be aligned to b32",
    ),
    (lambda k, x: recast(make_tensor(k.shared("u8", 4), 4), "u4"), "must be whole bytes"),
    (lambda k, x: k.copy(x, x), "takes"),
    (lambda k, x: k.copy(*held(k, 4, 5)), "same static number"),
    (lambda k, x: k.copy(*held(k, 4, 4), valid=1), "cp.async"),
    (lambda k, x: k.copy(MMA, *held(k, 4, 4)), "must be a CopyAtom or TiledCopy"),
    (lambda k, x: k.copy(CopyAtom(UniversalCopy(64), "f16"), *held(k, 2, 4)), "mode 0 of the sou"),
    (
        lambda k, x: k.copy(CopyAtom(UniversalCopy(64), "f16"), *held(k, 4, Layout(4, 2))),
        "must be 4 contiguous elements",
    ),
    (lambda k, x: k.copy(CopyAtom(CpAsync(4), "f32"), *held(k, 1, 1, t="f32")), "reads global"),
    (
        lambda k, x: k.copy(make_identity_tensor(4), make_identity_tensor(4)),
        "must be in memory or registers",
    ),
    (lambda k, x: k.transform(*held(k, 4, 5), lambda a: a), "equally many elements"),
    (lambda k, x: k.transform(*held(k, 4, 5)), "then a function of their elements"),
    (lambda k, x: k.fill(x, 0), "static size"),
    (lambda k, x: k.gemm(MMA, *held(k, 8, 4)), "gemm takes"),
    (lambda k, x: k.gemm(MMA, *held(k, 8, 4, 4)), "C of .* must have 4 values of f32"),
    (
        lambda k, x: k.gemm(MMA, *held(k, (8, 2), (4, 3), (4, 2, 2))),
        "sizes of M, N and K must be equal",
    ),
    (lambda k, x: k.gemm(MMA, *held(k, (8, 2), 4, (4, 2))), "C and D"),
    (lambda k, x: k.gemm(x, *held(k, 8, 4, 4)), "an MmaAtom or TiledMma"),
    (lambda k, x: k.gemm(MmaAtom(WGMMA), *held(k, 8, 4, 4)), "must be descriptors, got"),
    (
        lambda k, x: make_tensor(k.shared("f16", 8), Layout(8, 2))[x.to("f32")],
        "a coordinate or stride of memory must be",
    ),
]
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"


@every_row(("call", "says"), REFUSED)
def test_invalid_operations(call: Any, says: str) -> None:
    def body(k: Any, x: Any) -> None:
        call(k, x)

    with raises_message((KernelError, LayoutError), says):
        traced(body, "u32")


BF16 = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
BYTES = "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32"
FP8 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32"
TF32 = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
FP4 = "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32"


@pytest.mark.parametrize(
    ("opcode", "formats", "wrong"),
    [  # of A, B and C; which operand is another format than the instruction's
        (BF16, "bf16 bf16 f32", ""),
        (BF16, "b16 b16 b32", ""),
        (BF16, "f16 bf16 f32", "A of .* values of bf16 per thread, got .* of f16"),
        (BF16, "bf16 u16 f32", "B of .* values of bf16 per thread, got .* of u16"),
        (BF16, "bf16 bf16 s32", "C of .* values of f32 per thread, got .* of s32"),
        (BYTES, "s8 u8 s32", ""),
        (BYTES, "u8 u8 s32", "A of .* values of s8 per thread, got .* of u8"),
        (BYTES, "s8 s8 s32", "B of .* values of u8 per thread, got .* of s8"),
        (FP8, "e4m3 e5m2 f32", ""),
        (FP8, "e5m2 e5m2 f32", "A of .* values of e4m3 per thread, got .* of e5m2"),
        (TF32, "tf32 f32 f32", ""),
        (TF32, "b32 tf32 f32", ""),
        (TF32, "u32 tf32 f32", "A of .* values of tf32 per thread, got .* of u32"),
        (TF32, "tf32 tf32 tf32", "C of .* values of f32 per thread, got .* of tf32"),
        (FP4, "b8 u8 f32", ""),
        (FP4, "e4m3 u8 f32", "A of .* values of e2m1 per thread, got .* of e4m3"),
    ],
)
def test_operand_formats_of_a_product(opcode: str, formats: str, wrong: str) -> None:
    atom = MmaAtom(opcode)
    counts = [atom.instruction.fragment(name).values for name in "abc"]

    def body(k: Any) -> None:
        a, b, c = (k.make_rmem_tensor(n, t) for n, t in zip(counts, formats.split(), strict=True))
        k.gemm(atom, a, b, c)

    if not wrong:
        assert lines(body)[-1].startswith(opcode)
        return
    with pytest.raises(KernelError, match=wrong):
        traced(body)
