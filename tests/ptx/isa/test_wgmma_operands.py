"""``wgmma``'s operands: what the checker takes and refuses is what ptxas 12.9 and 13.5 say."""

from __future__ import annotations

import pytest

from rows import every_row
from tilewright import mma
from tilewright.errors import PtxCheckError, UnknownInstruction
from tilewright.ptx import check, parse, problems
from tilewright.ptx.isa import ROWS, form

HEAD = """.version {version}
.target {target}
.address_size 64
.entry k() {{
.reg .b32 %r<300>; .reg .f32 %f<300>; .reg .f64 %d<9>; .reg .pred %p<8>; .reg .b64 %l<8>;
.reg .b16 %h<9>;
"""
F16 = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
HALF = "wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16"
TF32 = "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32"
FP8 = "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e5m2"
S8 = "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8"
B1 = "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc"
SPARSE = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
SPARSE8 = "wgmma.mma_async.sp.sync.aligned.m64n8k64.s32.s8.u8"
D, R, A = "{%f0,%f1,%f2,%f3}", "{%r0,%r1,%r2,%r3}", "{%r4,%r5,%r6,%r7}"


def module(text: str, version: str = "8.4", target: str = "sm_90a"):
    return parse(HEAD.format(version=version, target=target) + text + "\nret;\n}\n", "k.ptx")


GOOD = [
    f"{F16} {D}, %l0, %l1, %p0, 1, -1, 0, 1;",
    f"{F16} {D}, %l0, %l1, !%p0, 1, 18446744073709551615, 0, 0;",
    f"{F16} {D}, %l0, %l1, 1, 1, 1, 1, 1;",
    f"{F16} {D}, %l0, 5, 0, 1, 1, 0, 0;",
    f"{F16} {R}, {A}, %l1, %p0, 1, 1, 1;",
    f"{F16} {{%r0,%f1,%f2,%f3}}, {{%r4,1,2,3}}, %l1, %p0, 1, 1, 0;",
    f"{HALF} {{%r0,%r1}}, %l0, %l1, %p0, 1, 1, 0, 0;",
    f"{TF32} {D}, %l0, %l1, %p0, 1, -1;",
    f"{TF32} {D}, {A}, %l1, %p0, 1, -1;",
    f"{FP8} {D}, %l0, %l1, %p0, -1, 1;",
    f"{S8} {R}, %l0, %l1, %p0;",
    f"{S8} {R}, {A}, %l1, 1;",
    f"{B1} {R}, %l0, %l1, %p0;",
    f"{SPARSE} {D}, %l0, %l1, %r9, 1, %p0, 1, 1, 0, 0;",
    f"{SPARSE} {D}, {A}, %l1, %f9, 0, %p0, 1, 1, 0;",
    f"{SPARSE8} {R}, %l0, %l1, %r9, 0, %p0;",
    "wgmma.fence.sync.aligned;",
    "wgmma.commit_group.sync.aligned;",
    "wgmma.wait_group.sync.aligned 65535;",
]

BAD = {
    f"{F16} {D}, %l0, %l1, %p0, 0, 1, 0, 0;": "imm_scale_a must be -1 or 1, got 0",
    f"{F16} {D}, %l0, %l1, %p0, 1, 2, 0, 0;": "imm_scale_b must be -1 or 1, got 2",
    f"{F16} {D}, %l0, %l1, %p0, 1, 4294967295, 0, 0;": "imm_scale_b must be -1 or 1",
    f"{F16} {D}, %l0, %l1, %p0, 1.0, 1, 0, 0;": "must be an integer constant",
    f"{F16} {D}, %l0, %l1, %p0, %r0, 1, 0, 0;": "must be an integer constant",
    f"{F16} {D}, %l0, %l1, %p0, 1, 1, 2, 0;": "imm_trans_a must be 0 or 1, got 2",
    f"{F16} {D}, %l0, %l1, %p0, 1, 1, 0, -1;": "imm_trans_b must be 0 or 1, got -1",
    f"{F16} {D}, {A}, %l1, %p0, 1, 1, 2;": "imm_trans_b must be 0 or 1, got 2",
    f"{F16} {D}, %l0, %l1, 2, 1, 1, 0, 0;": "scale_d must be 0 or 1, got 2",
    f"{F16} {D}, %l0, %l1, -1, 1, 1, 0, 0;": "scale_d must be 0 or 1, got -1",
    f"{F16} {D}, %l0, %l1, %r0, 1, 1, 0, 0;": "expected a .pred register",
    f"{F16} {{%d0,%d1,%d2,%d3}}, %l0, %l1, %p0, 1, 1, 0, 0;": "expected a .f32 register",
    f"{F16} {{%f0,%f1,%f2}}, %l0, %l1, %p0, 1, 1, 0, 0;": "expected a vector of 4, got 3",
    f"{F16} {D}, {{%r4,%r5,%r6}}, %l1, %p0, 1, 1, 0;": "expected a vector of 4, got 3",
    f"{F16} {D}, {{%l4,%l5,%l6,%l7}}, %l1, %p0, 1, 1, 0;": "expected a .b32 register",
    f"{F16} {D}, {A}, %l1, %p0, 1, 1, 0, 0;": "expected a .u64 register",
    f"{F16} {D}, %l0, %l1, %p0, 1, 1, 0;": "expected a vector of 4",
    f"{F16} {D}, %l0, %l1, %p0;": "got 4 operands",
    f"{F16} {D}, %l0, %r0, %p0, 1, 1, 0, 0;": "expected a .u64 register",
    f"{F16} {D}, %d0, %l0, %p0, 1, 1, 0, 0;": "expected a .u64 register",
    f"{F16} {{%f0,_,%f2,%f3}}, %l0, %l1, %p0, 1, 1, 0, 0;": "register, got '_'",
    f"{F16} {D}, %l0, [%l0], %p0, 1, 1, 0, 0;": "register, got [%l0]",
    f"{HALF} {{%h0,%h1}}, %l0, %l1, %p0, 1, 1, 0, 0;": "expected a .b32 register",
    f"{TF32} {D}, %l0, %l1, %p0, 1, 1, 0, 0;": "got 8 operands",
    f"{TF32} {D}, %l0, %l1, %p0;": "got 4 operands",
    f"{FP8} {D}, %l0, %l1, %p0, 1, 1, 0, 0;": "got 8 operands",
    f"{S8} {R}, %l0, %l1, %p0, 1, 1;": "got 6 operands",
    f"{S8} {D}, %l0, %l1, %p0;": "expected a .s32 register",
    f"{B1} {R}, %l0, %l1, 2;": "scale_d must be 0 or 1, got 2",
    f"{SPARSE} {D}, %l0, %l1, %r9, 2, %p0, 1, 1, 0, 0;": "sp_sel must be 0 or 1, got 2",
    f"{SPARSE} {D}, %l0, %l1, 5, 0, %p0, 1, 1, 0, 0;": "sp_meta must be a register, got 5",
    f"{SPARSE} {D}, %l0, %l1, %l3, 0, %p0, 1, 1, 0, 0;": "expected a .b32 register",
    f"{SPARSE8} {R}, %l0, %l1, %r9, 1, %p0;": "sp_sel must be 0, got 1",
    "wgmma.wait_group.sync.aligned -1;": "n must be 0 or more, got -1",
    "wgmma.wait_group.sync.aligned %r0;": "must be an integer constant",
    "wgmma.fence.sync.aligned 0;": "takes no operands",
}


@pytest.mark.parametrize("text", GOOD)
def test_good(text: str) -> None:
    assert [str(p) for p in problems(module(text))] == []


@every_row("text", BAD)
def test_bad(text: str) -> None:
    with pytest.raises(PtxCheckError) as caught:
        check(module(text))
    assert BAD[text] in caught.value.message


@pytest.mark.parametrize(
    "opcode",
    [
        "wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16",
        "wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8",
        "wgmma.mma_async.sync.aligned.m64n8k32.f32.f16.f16",
        "wgmma.mma_async.sync.aligned.m64n8k16.bf16.bf16.bf16",
        "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.xor.popc",
        "wgmma.mma_async.sp.sync.aligned.m64n8k512.s32.b1.b1.and.popc",
        "wgmma.wait_all.sync.aligned",
    ],
)
def test_unknown(opcode: str) -> None:
    with pytest.raises(UnknownInstruction, match=f"no instruction '{opcode}'"):
        form(opcode)


@pytest.mark.parametrize(
    ("opcode", "version", "target", "why"),
    [
        (F16, "8.0", "sm_90", "sm_90a"),
        (F16, "8.6", "sm_100a", "sm_90a"),
        (SPARSE, "8.0", "sm_90a", "8.2"),
        (SPARSE8, "8.2", "sm_90a", "8.4"),
        ("wgmma.fence.sync.aligned", "8.0", "sm_90", "sm_90a"),
    ],
)
def test_versions_and_targets(opcode: str, version: str, target: str, why: str) -> None:
    operands = {F16: GOOD[0], SPARSE: GOOD[13], SPARSE8: GOOD[15]}.get(opcode, f"{opcode};")
    with pytest.raises(PtxCheckError, match=why):
        check(module(operands, version, target))


def test_every_form_is_a_row_of_mma() -> None:
    listed = {opcode for row in ROWS["wgmma"] for opcode in row.opcodes() if "mma" in opcode[5:]}
    assert listed == {r.opcode for r in mma.ROWS if r.asynchronous}
    for opcode in listed:
        f = form(opcode)
        assert (
            f.signatures[0][0].read_write
            and f.signatures[0][0].count == f.entry.fragment("d").count
        )
