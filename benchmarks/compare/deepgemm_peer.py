"""DeepGEMM's grouped products for sm_90a, from a cubin that somebody compiled.

``grouped_scales.py`` takes its path as the variant ``deepgemm/FILE.cubin`` or ``bf16/FILE.cubin``.
The cubin has one instance, as DeepGEMM's host code generates it, of

    sm90_fp8_gemm_1d1d_impl    groups along K; adds to D (f32), and has the columns of A and B of
                               each group as a matrix of its own
    sm90_fp8_gemm_1d2d_impl    contiguous or masked groups; scales of A of 1×128, of B of 128×128
    sm90_bf16_gemm_impl        contiguous or masked groups, bf16

for 132 SMs, K-major operands, B's scales K-major, D without accumulation (bf16). Its template
arguments are read from its name: tile, stages, threads, cluster, SMs, and the sizes that are
compiled in (0: any). Shared memory, tensor maps and parameters are those of DeepGEMM's host code
at commit 54e2261.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tilewright import cuda
from tilewright.mma import TensorMap

KERNEL = re.compile(r"_ZN9deep_gemm\d+sm90_(fp8_gemm_1d1d|fp8_gemm_1d2d|bf16_gemm)_impl\w+")
ARGUMENT, GROUPS = re.compile(r"L[jb](\d+)E"), re.compile(r"8GemmTypeE(\d)E")
KINDS = {"1": "contiguous", "2": "masked", "3": "k"}
MOST_STAGES, MAP, LINE, ROWS = 16, 128, 128, 64  # ROWS: of an f32 D that a warpgroup stores
SWIZZLE = 128


def aligned(size: int, to: int) -> int:
    return -(-size // to) * to


class Instance(NamedTuple):
    """What the name of a kernel says. ``sizes``: M, N, K and the number of groups, 0 for any."""

    name: str
    function: str
    kind: str
    sizes: tuple[int, ...]
    tile: tuple[int, ...]
    stages: int
    threads: int
    ctas: int
    sms: int

    @classmethod
    def of(cls, name: str) -> Instance:
        """Of the first DeepGEMM kernel in a name or in the text of a cubin."""
        found = KERNEL.search(name)
        if found is None:
            raise SystemExit("no kernel of DeepGEMM in it (1d1d, 1d2d, bf16)")
        m, n, k, groups, bm, bn, bk, *more = map(int, ARGUMENT.findall(found[0]))
        swizzles = 2 if found[1] == "fp8_gemm_1d1d" else 3  # of A, B, and D in bf16
        stages, tma, math, ctas, _, sms, *_ = more[swizzles:]
        grouping = GROUPS.search(found[0])
        kind = KINDS.get(grouping[1] if grouping else "")
        if kind is None or {*more[:swizzles]} != {SWIZZLE} or "MajorE1" in found[0]:
            raise SystemExit(f"{found[0]}: not a grouped kernel of this benchmark's layouts")
        tile = bm, bn, bk
        return cls(found[0], found[1], kind, (m, n, k, groups), tile, stages, tma + math, ctas, sms)

    def require(self, kind: str, bf16: bool, sizes: tuple[int, ...]) -> None:
        """SystemExit unless the kernel is for products of this kind and these sizes."""
        fits = all(x in (0, y) for x, y in zip(self.sizes, sizes, strict=True))
        if not fits or kind != self.kind or bf16 != (self.function == "bf16_gemm"):
            size = "×".join(map(str, self.sizes))
            raise SystemExit(f"it is {self.function}, {self.kind}, M×N×K×groups {size}")

    def shared(self, k: int) -> int:
        """Bytes of shared memory of a product over K."""
        bm, bn, bk = self.tile
        barriers = 2 * 8 * MOST_STAGES
        if self.function == "bf16_gemm":
            return aligned(2 * bm * bn, 1024) + barriers + self.stages * 2 * bk * (bm + bn)
        stage = (bm + bn) * bk + aligned(4 * bm, LINE)
        if self.function == "fp8_gemm_1d2d":
            lines = 1 if bk % bn == 0 else 2  # blocks of B's scales that a tile touches
            of_b = aligned(4 * lines * -(-k // bk), 8)
            return aligned(2 * bm * bn, 1024) + barriers + of_b + self.stages * stage
        stage += aligned(4 * bn, LINE)
        return aligned(4 * bm * bn, 1024) + barriers + 4 * MAP + self.stages * stage

    def maps(self, at: dict[str, int], m: int, n: int, k: int) -> dict[str, TensorMap]:
        """The tensor maps. ``at``: addresses; m: rows of A, of a group if it has a capacity; k: of
        all groups.
        """
        (bm, bn, bk), groups = self.tile, self.sizes[3]
        of_a = groups if self.kind == "masked" else 1
        of_b = 1 if self.kind == "k" else groups
        blocks, more = -(-k // 128), {"l2_promotion": 256}
        sa = (aligned(m, 4), blocks * of_a)
        maps = {"sa": TensorMap.tiled(at["sa"], "f32", sa, (4 * sa[0],), (bm, 1), **more)}
        if self.kind == "k":
            rows = {"a": (m, bm), "b": (n, bn)}
            sb = (n, blocks)
            maps["sb"] = TensorMap.tiled(at["sb"], "f32", sb, (4 * n,), (bn, 1), **more)
            d = (n, groups * m)
            maps["d"] = TensorMap.tiled(at["d"], "f32", d, (4 * n,), (bn, ROWS), **more)
            k //= groups
        else:
            rows = {"a": (m * of_a, bm), "b": (n * of_b, bn)}
            d, box = (n, m * of_a), (SWIZZLE // 2, bm)
            maps["d"] = TensorMap.tiled(at["d"], "bf16", d, (2 * n,), box, swizzle=SWIZZLE, **more)
        dtype, size = ("bf16", 2) if self.function == "bf16_gemm" else ("e4m3", 1)
        for name, (count, side) in rows.items():
            maps[name] = TensorMap.tiled(
                at[name], dtype, (k, count), (size * k,), (bk, side), swizzle=SWIZZLE, **more
            )
        return maps

    def arguments(self, at: dict[str, int], m: int, n: int, k: int) -> list[bytes]:
        """The kernel's parameters. ``at`` also has the groups' ``layout`` and, along K, room for
        ``maps``.
        """
        pointers = {
            "fp8_gemm_1d1d": ("a", "b", "layout", "maps"),
            "fp8_gemm_1d2d": ("sb", "layout"),
            "bf16_gemm": ("layout",),
        }
        order = {
            "fp8_gemm_1d1d": ("a", "b", "sa", "sb", "d"),
            "fp8_gemm_1d2d": ("a", "b", "d", "sa"),
            "bf16_gemm": ("a", "b", "d"),
        }
        maps = self.maps(at, m, n, k)
        values = [struct.pack("<Q", at[name]) for name in pointers[self.function]]
        values += [struct.pack("<I", x) for x in (m, n, k)]
        return values + [maps[name].encode() for name in order[self.function]]


class DeepGemmPeer:
    """The kernel of a cubin, and its launches for sets of operands of ``grouped_scales.Case``.

    ``sizes``: M (the capacity of masked groups), N, K and the number of groups.
    """

    def __init__(self, path: str, kind: str, bf16: bool, sizes: tuple[int, ...]) -> None:
        code = Path(path).read_bytes()
        self.it = Instance.of(code.decode("latin-1"))
        self.it.require(kind, bf16, sizes)
        gpu = cuda.gpu()
        self.kernel = gpu.load(code)[self.it.name]
        self.launch = gpu.prepare(
            self.kernel, self.it.sms, self.it.threads, shared=self.it.shared(sizes[2]),
            cluster=self.it.ctas if self.it.ctas > 1 else None, programmatic=True,
        )  # fmt: skip
        self.sizes = sizes
        self.room = torch.zeros(2 * MAP * self.it.sms, dtype=torch.uint8, device="cuda")
        self.parameters: list[tuple[bytes, Any]] = []

    def add(self, s: dict[str, torch.Tensor], count: int) -> None:
        """Prepare the product of a set of operands. ``count``: of a group's rows, along K its K."""
        m, n, k, groups = self.sizes
        wide = "wide_" if self.it.function == "bf16_gemm" else ""
        used = {name: s[name] for name in ("sa", "sb", "d")}
        used |= {"a": s[wide + "a"], "b": s[wide + "b"].mT, "maps": self.room}
        used["layout"] = torch.full((groups,), count, dtype=torch.int32, device="cuda")
        if self.it.kind == "contiguous":
            index = torch.arange(groups, dtype=torch.int32, device="cuda")
            used["layout"], m = index.repeat_interleave(count), groups * count
        if self.it.kind == "k":
            for x in "ab":
                used[x] = used[x].unflatten(1, (groups, k)).transpose(0, 1).contiguous()
            k *= groups
        at = {name: x.data_ptr() for name, x in used.items()}
        block = bytearray(self.kernel.param_bytes or 0)
        values = self.it.arguments(at, m, n, k)
        for offset, value in zip(self.kernel.param_offsets, values, strict=True):
            block[offset : offset + len(value)] = value
        self.parameters.append((bytes(block), used))

    def run(self, i: int) -> None:
        self.launch(self.parameters[i][0], torch.cuda.current_stream().cuda_stream)
