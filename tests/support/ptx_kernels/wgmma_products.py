"""Kernels that multiply by ``k.gemm`` with wgmma, from every layout that wgmma reads."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import tilewright
from tilewright import mma
from tilewright.dtypes import dtype
from tilewright.layout import (
    LayoutRight,
    make_fragment_like,
    make_tensor,
    recast,
)

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
