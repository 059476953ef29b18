"""wgmma on tensors: what is emitted for a stage, and what is refused, with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from error_messages import raises_message
from tilewright.errors import KernelError, LayoutError
from tilewright.layout import Layout, local_tile, make_fragment_like, make_tensor
from tilewright.mma import MmaAtom, make_smem_layout, make_tiled_mma
from tracing import lines, traced

OPCODE = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16"
MMA = make_tiled_mma(OPCODE)


def parts(k: Any, stages: int = 2) -> tuple[Any, Any, Any]:
    """A's and B's descriptors, and sums."""
    tiles = [
        k.make_smem_tensor(make_smem_layout("bf16", "K", (extent, 64, stages)), "bf16")
        for extent in (64, 8)
    ]
    thread = MMA.thr_slice(0)
    a, b = thread.partition_A(tiles[0]), thread.partition_B(tiles[1])
    acc = k.make_rmem_tensor(MMA.partition_shape_C((64, 8)), "f32")
    return k.make_fragment_A(a), k.make_fragment_B(b), acc


def test_a_stage_is_one_multiply_add_and_a_step_of_k_two_additions() -> None:
    def body(k: Any, stage: Any) -> None:
        a, b, acc = parts(k)
        a, b = (t[None, None, None, stage] for t in (a, b))
        k.gemm(MMA, a, b, acc, accumulate=stage != 0)

    found = lines(body, "u32")
    sums = OPCODE + " {%f1, %f2, %f3, %f4}"
    assert found[3:] == [
        "shr.u32 %r3, %r2, 4",
        "and.b32 %r4, %r3, 16383",
        "cvt.u64.u32 %rd1, %r4",
        "or.b64 %rd2, %rd1, 4611686293305360384",
        "shr.u32 %r6, %r5, 4",
        "and.b32 %r7, %r6, 16383",
        "cvt.u64.u32 %rd3, %r7",
        "or.b64 %rd4, %rd3, 4611686018427453440",
        "mad.wide.u32 %rd5, %r1, 512, %rd2",
        "mad.wide.u32 %rd6, %r1, 64, %rd4",
        "setp.ne.u32 %p1, %r1, 0",
        f"{sums}, %rd5, %rd6, %p1, 1, 1, 0, 0",
        "add.u64 %rd7, %rd5, 2",
        "add.u64 %rd8, %rd6, 2",
        f"{sums}, %rd7, %rd8, %p2, 1, 1, 0, 0",
        "add.u64 %rd9, %rd5, 4",
        "add.u64 %rd10, %rd6, 4",
        f"{sums}, %rd9, %rd10, %p2, 1, 1, 0, 0",
        "add.u64 %rd11, %rd5, 6",
        "add.u64 %rd12, %rd6, 6",
        f"{sums}, %rd11, %rd12, %p2, 1, 1, 0, 0",
    ]


def test_rows_and_accumulators_of_a_warpgroup() -> None:
    wide = make_tiled_mma(OPCODE, (2, 1, 1))

    def body(k: Any, group: Any) -> None:
        tile = k.make_smem_tensor(make_smem_layout("bf16", "K", (256, 64)), "bf16")
        other = k.make_smem_tensor(make_smem_layout("bf16", "K", (16, 64)), "bf16")
        thread = wide.thr_slice(group * 128)
        a = k.make_fragment_A(thread.partition_A(tile))
        b = k.make_fragment_B(thread.partition_B(other))
        acc = k.make_rmem_tensor(wide.partition_shape_C((256, 16)), "f32")
        assert [t.shape for t in (a, b)] == [(1, 2, 4), (1, 2, 4)]
        k.gemm(wide, a, b, acc, signs=(-1, 1))

    made = [line for line in lines(body, "u32") if line.startswith("wgmma")]
    assert len(made) == 16 and len({line.split("}")[0] for line in made}) == 4
    assert all(line.endswith(", -1, 1, 0, 0") for line in made)


def test_one_descriptor_within_a_swizzle() -> None:
    def body(k: Any) -> None:
        k.descriptor(local_tile(shared(k, SW128), (64, 16), (0, 2)))

    assert lines(body)[-1] == "add.u64 %rd3, %rd2, 4"


def test_bits() -> None:
    """Elements of less than a byte, from the first on."""
    bits = make_tiled_mma("wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc")

    def body(k: Any) -> None:
        a, b = (shared(k, make_smem_layout("b1", "K", (n, 512)), "b1") for n in (64, 8))
        thread, acc = bits.thr_slice(0), k.make_rmem_tensor((4, 1, 1), "s32")
        left, right = thread.partition_A(a), thread.partition_B(b)
        k.gemm(bits, k.make_fragment_A(left), k.make_fragment_B(right), acc)

    made = [line for line in lines(body) if line[:3] in ("add", "wgm")]
    assert [line.split("}, ")[-1] for line in made] == [
        "%rd2, %rd4, %p1",
        "add.u64 %rd5, %rd2, 2",
        "add.u64 %rd6, %rd4, 2",
        "%rd5, %rd6, %p1",
    ]


def shared(k: Any, layout: Any, t: str = "bf16", **how: Any) -> Any:
    return k.make_smem_tensor(layout, t, **how)


def gemm(k: Any, a: Any = None, b: Any = None, mma: Any = MMA, **how: Any) -> None:
    made = parts(k, 1)
    left, right, acc = made[0][None, None, None, 0], made[1][None, None, None, 0], made[2]
    k.gemm(mma, a or left, b or right, acc, **how)


def in_registers(k: Any, *shape: Any) -> Any:
    return k.make_rmem_tensor(shape, "bf16")


SW128 = make_smem_layout("bf16", "K", (64, 64))
BY_8_BITS = make_tiled_mma(OPCODE.replace("k16", "k32").replace("bf16", "e4m3"))
OF_HALVES = make_tiled_mma(OPCODE.replace("bf16", "f16"))
SPARSE = MmaAtom("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16")
BITS = make_smem_layout("b1", "K", (128, 512))
REFUSED = [
    (lambda k, x: local_tile(shared(k, BITS, "b1"), (64, 256), (1, 0)), "at least a byte wide"),
    (lambda k, x: k.descriptor(in_registers(k, 64, 16)), "must be of a tensor in shared memory"),
    (lambda k, x: k.descriptor(make_tensor(x, (64, 16))), "must be of a tensor in shared memory"),
    (lambda k, x: k.descriptor(shared(k, Layout((64, 16), (16, 1)))), "not a canonical K-major"),
    (lambda k, x: k.descriptor(shared(k, Layout((64, 16), (1, 72)))), "not a canonical MN-major"),
    (lambda k, x: k.descriptor(shared(k, (64, 16), "e4m3")), "wgmma must have 16 bits"),
    (lambda k, x: k.descriptor(shared(k, SW128, align=128)), "must be aligned to 1024"),
    (lambda k, x: k.make_fragment_A(MMA.thr_slice(0).partition_A(
        local_tile(shared(k, SW128), (64, 16), (0, k.tid.x)))), "index the fragment"),
    (lambda k, x: k.make_fragment_A(shared(k, (64,))), "mode 0 must be the tile"),
    (lambda k, x: gemm(k, a=make_fragment_like(shared(k, Layout((2, 1, 4))))),
     "must be descriptors"),
    (lambda k, x: gemm(k, b=shared(k, Layout((2, 1, 4)))), "make_fragment_B"),
    (lambda k, x: gemm(k, mma=BY_8_BITS), "A of .* 64×32 of e4m3, got a .* 64×16 bf16"),
    (lambda k, x: gemm(k, mma=OF_HALVES), "A of .* 64×16 of f16, got a .* 64×16 bf16"),
    (lambda k, x: gemm(k, mma=MmaAtom(OPCODE, "rmem")), "must be in registers, got descriptors"),
    (lambda k, x: gemm(k, mma=SPARSE), "does not support wgmma.mma_async.sp"),
    (lambda k, x: gemm(k, signs=(2, 1)), "1 or -1"),
    (lambda k, x: k.gemm(*[k.make_rmem_tensor((1, 1, 1), "f32")] * 3, accumulate=False),
     "wgmma only"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "says"), REFUSED)
def test_invalid_operands(call: Any, says: str) -> None:
    def body(k: Any, x: Any) -> None:
        call(k, x)

    with raises_message((KernelError, LayoutError), says):
        traced(body, "ptr bf16")
