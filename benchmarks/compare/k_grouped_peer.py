"""DeepGEMM's product of groups along K (sm90_fp8_gemm_1d1d) from a cubin that somebody compiled.

``grouped_scales.py`` takes its path as the variant ``deepgemm/FILE.cubin``. One instance for the
row's M, N and number of groups, without K:

    #include <deep_gemm/impls/sm90_fp8_gemm_1d1d.cuh>
    static auto kernel = &deep_gemm::sm90_fp8_gemm_1d1d_impl<M, N, 0, GROUPS, 128, 152, 128, 128,
        128, STAGES, 128, 256, CTAS, ON_A, SMS, deep_gemm::GemmType::KGroupedContiguous, float>;

Its arguments are read from the kernel's name. It adds to D, and has the columns of A and B of each
group as a matrix of its own.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import torch

from tilewright import cuda
from tilewright.mma import TensorMap

KERNEL = re.compile(rb"_ZN9deep_gemm23sm90_fp8_gemm_1d1d_impl\w+")
ARGUMENT = re.compile(r"L[jb](\d+)E")
MOST_STAGES, MAP, LINE, ROWS = 16, 128, 128, 64  # ROWS: of D that a warpgroup stores


def aligned(size: int, to: int) -> int:
    return -(-size // to) * to


class KGroupedPeer:
    """The kernel of a cubin, and its launch."""

    def __init__(self, path: str) -> None:
        code = Path(path).read_bytes()
        found = KERNEL.search(code)
        if found is None:
            raise SystemExit(f"{path} has no sm90_fp8_gemm_1d1d")
        name = found[0].decode()
        (self.m, self.n, _, self.groups, *self.tile, _, _, stages, tma, math, ctas, _, sms) = map(
            int, ARGUMENT.findall(name)
        )
        bm, bn, bk = self.tile
        a_stage, b_stage = bm * bk + aligned(4 * bm, LINE), bn * bk + aligned(4 * bn, LINE)
        shared = aligned(4 * bm * bn, 1024) + 2 * 8 * MOST_STAGES + 4 * MAP
        shared += stages * (a_stage + b_stage)
        gpu = cuda.gpu()
        self.kernel = gpu.load(code)[name]
        cluster = ctas if ctas > 1 else None
        self.launch = gpu.prepare(
            self.kernel, sms, tma + math, shared=shared, cluster=cluster, programmatic=True
        )
        self.maps = torch.zeros(2 * MAP * sms, dtype=torch.uint8, device="cuda")
        self.parameters: list[tuple[bytes, Any]] = []

    def add(self, s: dict[str, torch.Tensor], k: int) -> None:
        """Prepare the product of a set of operands of ``grouped_scales.Case``."""
        m, n, g, (bm, bn, bk) = self.m, self.n, self.groups, self.tile
        a = s["a"].unflatten(1, (g, k)).transpose(0, 1).contiguous()
        b = s["b"].mT.unflatten(1, (g, k)).transpose(0, 1).contiguous()
        depths = torch.full((g,), k, dtype=torch.int32, device="cuda")
        blocks = g * k // 128
        at = [x.data_ptr() for x in (a, b, s["sa"], s["sb"], s["d"])]
        promoted: dict[str, Any] = {"l2_promotion": 256}
        maps = (
            TensorMap.tiled(at[0], "e4m3", (k, m), (k,), (bk, bm), swizzle=128, **promoted),
            TensorMap.tiled(at[1], "e4m3", (k, n), (k,), (bk, bn), swizzle=128, **promoted),
            TensorMap.tiled(at[2], "f32", (m, blocks), (4 * m,), (bm, 1), **promoted),
            TensorMap.tiled(at[3], "f32", (n, blocks), (4 * n,), (bn, 1), **promoted),
            TensorMap.tiled(at[4], "f32", (n, g * m), (4 * n,), (bn, ROWS), **promoted),
        )
        values = [struct.pack("<Q", x) for x in (*at[:2], depths.data_ptr(), self.maps.data_ptr())]
        values += [struct.pack("<I", x) for x in (m, n, g * k)] + [x.encode() for x in maps]
        block = bytearray(self.kernel.param_bytes or 0)
        for offset, value in zip(self.kernel.param_offsets, values, strict=True):
            block[offset : offset + len(value)] = value
        self.parameters.append((bytes(block), (a, b, depths)))

    def run(self, i: int) -> None:
        self.launch(self.parameters[i][0], torch.cuda.current_stream().cuda_stream)
