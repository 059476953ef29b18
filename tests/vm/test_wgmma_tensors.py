"""k.gemm by wgmma: the product of what stands in shared memory, by descriptors derived from layouts
of every kind that wgmma reads."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import tilewright
from rows import every_row
from tilewright import mma
from tilewright.builder import fragment_registers
from tilewright.dtypes import dtype
from tilewright.errors import VmFault
from tilewright.layout import (
    LayoutRight,
    make_fragment_like,
    make_tensor,
    recast,
)
from tilewright.vm import Machine

M, N = 128, 16


def atom_of(type_: str, sums: str, a_src: str = "smem") -> mma.MmaAtom:
    depth = 256 // dtype(type_).bits
    opcode = f"wgmma.mma_async.sync.aligned.m64n8k{depth}.{sums}.{type_}.{type_}"
    return mma.MmaAtom(opcode, a_src)


@cache
def kernel_of(type_: str, sums: str, majors: str, swizzles: tuple[int, int], a_src: str) -> Any:
    """D (128 × 16) = A Bᵀ of two of an instruction's depth, by one warpgroup."""
    depth, bits = 512 // dtype(type_).bits, f"u{dtype(type_).bits}"
    tiled = mma.make_tiled_mma(atom_of(type_, sums, a_src))
    major = {"K": "K", "M": "MN", "N": "MN"}

    def body(k: Any, a: Any, b: Any, d: Any) -> None:
        tiles = []
        for source, extent, letter, swizzle in zip((a, b), (M, N), majors, swizzles, strict=True):
            layout = mma.make_smem_layout(type_, major[letter], (extent, depth), swizzle)
            tile, given = (
                k.make_smem_tensor(layout, type_),
                make_tensor(source, (extent, depth), LayoutRight),
            )
            for i in k.range(k.tid.x, extent * depth, 128):
                at = i % extent, i // extent
                recast(tile, bits)[at] = given[at]
            tiles.append(tile)
        k.fence_async()
        k.barrier()
        thread = tiled.thr_slice(k.tid.x)
        out = thread.partition_C(make_tensor(d, (M, N), LayoutRight))
        acc = make_fragment_like(out)
        part = thread.partition_A(tiles[0])
        left = k.make_fragment_A(part) if a_src == "smem" else make_fragment_like(part)
        if a_src == "rmem":
            k.copy(part, left)
        k.wgmma_fence()
        k.gemm(tiled, left, k.make_fragment_B(thread.partition_B(tiles[1])), acc, accumulate=False)
        k.wgmma_commit()
        k.wgmma_wait()
        k.copy(acc, out)

    params = {"a": f"ptr {bits}", "b": f"ptr {bits}", "d": f"ptr {sums}"}
    return tilewright.kernel(body, params=params, block=128)


TYPES = [("bf16", "f32"), ("f16", "f16"), ("tf32", "f32"), ("e4m3", "f32"), ("s8", "s32")]
K_MAJOR = [(t, s, "KK", w, "smem") for t, s in TYPES for w in ((32, 32), (0, 0))]
MN_MAJOR = [
    ("f16", "f32", "MK", (128, 64), "smem"),
    ("bf16", "f32", "MN", (64, 32), "smem"),
    ("bf16", "f32", "KN", (0, 0), "smem"),
    ("f16", "f32", "MN", (0, 32), "smem"),
]
REGISTERS = [(t, s, "KK", (32, 32), "rmem") for t, s in TYPES]
REGISTERS += [("bf16", "f32", "KN", (64, 32), "rmem")]


CASES = [*K_MAJOR, *MN_MAJOR, *REGISTERS]


def check(case: Any, device: str) -> None:
    """That D is the product, of small integers, whose sums are exact."""
    type_, sums = case[:2]
    bits, depth = dtype(type_).bits, 512 // dtype(type_).bits
    rng = np.random.default_rng(depth)
    a, b = (rng.integers(-4, 5, (n, depth)).astype(np.int8) for n in (M, N))
    storage = {"tf32": "f32"}.get(type_, type_)
    given = [x.astype(dtype(storage).numpy).view(f"u{bits // 8}") for x in (a, b)]
    d = np.zeros((M, N), dtype(sums).numpy)
    kernel_of(*case)[1](*given, d, device=device)
    np.testing.assert_array_equal(d.astype(int), a.astype(int) @ b.T.astype(int))


@every_row("case", CASES, ids=str, parts=4)
def test_the_product_of_every_canonical_layout(case: Any) -> None:
    check(case, "vm")


COPIES = {
    "A, overwritten": (lambda k, a, sums: a[0].set(0), False),
    "A, overwritten with A": (lambda k, a, sums: a[0].set(a[1]), False),
    "A, read": (lambda k, a, sums: k.var("b32", a[0]), True),
    "sums, overwritten": (lambda k, a, sums: sums[0].set(0.0), False),
    "sums, read": (lambda k, a, sums: k.var("f32", sums[0]), False),
}


@pytest.mark.parametrize(("use", "right"), COPIES.values(), ids=COPIES)
def test_copies_of_a_product_s_registers_wait_for_it(use: Any, right: bool) -> None:
    """In a kernel that was traced each ``mov`` is its author's; in a text it may be a compiler's,
    of a value that is handed on to the next turn of a loop.
    """
    tiled = mma.make_tiled_mma(atom_of("f16", "f32", "rmem"))

    def body(k: Any, d: Any) -> None:
        a, b = (
            k.make_smem_tensor(mma.make_smem_layout("f16", "K", (rows, 32), 32), "f16")
            for rows in (64, 8)
        )
        thread = tiled.thr_slice(k.tid.x)
        part, out = thread.partition_A(a), thread.partition_C(make_tensor(d, (64, 8), LayoutRight))
        left, acc = make_fragment_like(part), make_fragment_like(out)
        k.copy(part, left)
        k.wgmma_fence()
        k.gemm(tiled, left, k.make_fragment_B(thread.partition_B(b)), acc, accumulate=False)
        k.wgmma_commit()
        use(k, fragment_registers(left), fragment_registers(acc))
        k.wgmma_wait()
        k.copy(acc, out)

    kernel = tilewright.kernel(body, params={"d": "ptr f32"}, block=128)
    machine = Machine()
    machine.load(kernel.trace().ptx)
    machine.launch("body", 1, 128, [np.zeros((64, 8), np.float32)])
    if right:
        kernel[1](np.zeros((64, 8), np.float32), device="vm")
        return
    with pytest.raises(VmFault, match=r"in flight: mov\..* uses registers of the wgmma"):
        kernel[1](np.zeros((64, 8), np.float32), device="vm")
