"""Cycles of wgmma beside f32 instructions: of a k-block of 64 × 128 for each warpgroup, e4m3.

    python benchmarks/promotion_rate.py

Two warpgroups of one CTA an SM multiply the same stage of shared memory again and again, each 64
of 128 rows. ``own``: they promote the accumulators of the k-block before meanwhile, as the
mainloops with block scales do, whose scales are in registers here. ``third``: a third warpgroup
executes f32 instructions on registers of its own. A line has the cycles of a k-block, of which the
tensor cores need 512, and for ``third`` those of an f32 instruction of a warp.
Needs an NVIDIA GPU of sm_90a and PyTorch.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch

import tilewright
from tilewright.builder.tensors.wgmma_fragments import descriptor_start
from tilewright.gemm.tma.tma_operand import WGMMA_K, TmaOperand

COLUMNS, DEPTH = 128, 128
K_BLOCKS = 2048
CHAINS = 32  # independent f32 instructions of a warp of the third warpgroup
TURN = 8  # the first named barrier


class Mode(NamedTuple):
    """``wgmmas`` of a k-block; ``promotion``: what adds its accumulators, or what the ``third``
    warpgroup does.
    """

    name: str
    wgmmas: int = 4
    promotion: str = "none"
    third: bool = False
    groups: int = 2
    sets: int = 2
    turns: bool = False
    columns: int = COLUMNS


OWN = (
    "none", "add", "add2", "fma-shared", "fma", "mul-add", "products", "products-lds", "rows",
    "integer-fma",
)  # fmt: skip
THIRD = "one-read", "add", "mul", "fma-shared", "fma", "integer"
MODES = [
    *(Mode(f"own {x}", promotion=x) for x in OWN),
    *(Mode(f"own {x}, 1 wgmma", 1, x) for x in ("add2", "products")),
    *(Mode(f"own {x}, no wgmma", 0, x) for x in OWN[1:]),
    *(Mode(f"own {x}, one warpgroup", 4, x, groups=1) for x in ("add2", "fma", "products")),
    *(Mode(f"own {x}, no wgmma, one warpgroup", 0, x, groups=1) for x in ("add2", "products")),
    *(Mode(f"own {x}, one set", promotion=x, sets=1) for x in ("add", "add2", "products", "rows")),
    *(Mode(f"own {x}, one set, three warpgroups", promotion=x, sets=1, groups=3)
      for x in ("add", "add2", "rows")),
    *(Mode(f"third {x}", promotion=x, third=True) for x in THIRD),
    *(Mode(f"third {x}, no wgmma", 0, x, third=True) for x in THIRD),
]  # fmt: skip


class Kernel:
    """The kernel of a mode."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self.left = TmaOperand("e4m3", 64 * mode.groups, DEPTH, "k")
        self.right = TmaOperand("e4m3", mode.columns, DEPTH, "k")
        self.threads = 128 * (mode.groups + mode.third)
        params = {"data": "ptr f32", "clocks": "ptr b32", "out": "ptr f32", "count": "u32"}

        def body(k: Any, data: Any, clocks: Any, out: Any, count: Any) -> None:
            self.body(k, data, clocks, out, count)

        self.kernel = tilewright.kernel(body, params=params, block=self.threads)

    def body(self, k: Any, data: Any, clocks: Any, out: Any, count: Any) -> None:
        mode = self.mode
        size = self.left.bytes + self.right.bytes
        stage = k.dynamic_shared(size, 1024)
        words = stage.cast("b32")
        for i in k.range(k.tid.x, size // 4, self.threads, unroll=False):
            words[i] = 0
        k.fence_async()
        k.barrier()
        self.group = k.shfl("idx", k.tid.x >> 7, 0)
        self.k, self.data, self.out, self.count = k, data, out, count
        self.stage = stage
        begun = k.special("clock")
        with k.if_(self.group < mode.groups):
            self.multiply()
        if mode.third:
            with k.else_():
                self.beside()
        taken = k.special("clock") - begun
        with k.when(k.tid.x & 127 == 0):
            clocks[k.ctaid.x * 4 + self.group] = taken.view("b32")

    def take(self) -> None:
        if self.mode.turns:
            self.k.emit("bar.sync", TURN + self.group, 256)

    def give(self) -> None:
        if self.mode.turns:
            self.k.emit("bar.arrive", TURN + 1 - self.group, 256)

    def multiply(self) -> None:
        k, mode = self.k, self.mode
        n = mode.columns
        own = (self.group * (self.left.byte_offset(64, 0) >> 4)).to("u64")
        a = descriptor_start(self.stage.address()) | self.left.descriptor_bits(64)
        first = self.stage.address() + self.left.bytes
        b = descriptor_start(first) | self.right.descriptor_bits(n, WGMMA_K)
        self.a, self.b = a + own, b
        self.opcode = f"wgmma.mma_async.sync.aligned.m64n{n}k32.f32.e4m3.e4m3"
        self.sets = [list(k.array("f32", n // 2)) for _ in range(mode.sets)]
        promotes = mode.promotion != "none" and not mode.third
        self.total = list(k.array("f32", n // 2))
        self.rows = [k.var("f32", self.data[i]) for i in range(2)]
        scaled = ("products", "rows", "fma", "integer-fma")
        needed = n // 4 if promotes and mode.promotion in scaled else 0
        needed = min(needed, 8) if mode.groups > 2 else needed
        self.integers = (
            [k.var("u32", k.tid.x + i) for i in range(8)] if "integer" in mode.promotion else []
        )
        self.scales = k.dynamic_shared(1024, 16, dtype="f32")
        self.pairs = [k.var("f32", self.data[2 + i]) for i in range(needed)]
        for x in self.total:
            x.set(0.0)
        if not mode.wgmmas:
            for registers in self.sets:
                for i, x in enumerate(registers):
                    x.set(self.data[64 + i])
        if mode.turns:
            with k.if_(self.group == 1):
                self.give()
        if mode.sets == 1:
            for _ in k.range(0, self.count, unroll=False):
                self.issue(0)
                k.wgmma_wait(0)
                self.promote(0)
        else:
            self.issue(0)
            for _ in k.range(0, self.count >> 1, unroll=False):
                for i in (1, 0):
                    self.issue(i)
                    k.wgmma_wait(1)
                    self.promote(1 - i)
            with k.if_(self.count & 1 == 0):  # two branches, or ptxas serializes wgmmas
                self.drain()
            with k.else_():
                self.drain()
        if mode.turns:  # the last one that was given
            with k.if_(self.group == 0):
                self.take()
        with k.when(self.count == (1 << 32) - 1):
            for x in (*self.total, *(y.to("f32") for y in self.integers)):
                self.out.store(x, order="volatile")

    def drain(self) -> None:
        self.k.wgmma_wait(0)
        for t, x in zip(self.total, self.sets[0], strict=True):
            self.k.add(t, x, into=t)

    def issue(self, index: int) -> None:
        k, mode = self.k, self.mode
        if not mode.wgmmas:
            return
        self.take()
        k.wgmma_fence()
        for i in range(mode.wgmmas):
            left, right = self.left.byte_offset(0, 32 * i), self.right.byte_offset(0, 32 * i)
            k.wgmma(
                self.opcode, self.sets[index], self.a + (left >> 4), self.b + (right >> 4),
                accumulate=bool(i), trans=(0, 0),
            )  # fmt: skip
        k.wgmma_commit()
        self.give()

    def promote(self, index: int) -> None:
        k, kind = self.k, self.mode.promotion
        if kind == "none" or self.mode.third:
            return
        rows, pairs = self.rows, self.pairs * 4
        for first in range(0, len(self.total), 4):
            x, t = self.sets[index][first : first + 4], self.total[first : first + 4]
            if kind == "add":
                for i in range(4):
                    k.add(t[i], x[i], into=t[i])
            elif kind == "add2":
                for i in range(4):
                    k.add(t[i], x[i], into=t[i])
                for i in range(4):
                    k.add(t[i], rows[i // 2], into=t[i])
            elif kind == "mul-add":
                for i in range(4):
                    k.add(t[i], k.mul(x[i], rows[i // 2]), into=t[i])
            elif kind == "integer-fma":
                for i in range(4):
                    j = (first + i) % 8
                    k.xor(self.integers[j], self.integers[(j + 3) % 8], into=self.integers[j])
                    k.mad(x[i], pairs[first // 2 + (i & 1)], t[i], into=t[i])
            elif kind == "mul":
                for i in range(4):
                    k.mul(t[i], x[i], into=t[i])
            elif kind == "fma-shared":
                for i in range(4):
                    k.mad(x[i], rows[i // 2], t[i], into=t[i])
            elif kind == "fma":
                for i in range(4):
                    k.mad(x[i], pairs[first // 2 + (i & 1)], t[i], into=t[i])
            elif kind == "products-lds":
                lane = self.k.tid.x & 3
                pair = (self.scales + (lane * 2 + 2 * first)).aligned(8).load(2, order="volatile")
                factors = [row * scale for row in rows for scale in pair]
                for i in range(4):
                    k.mad(x[i], factors[i], t[i], into=t[i])
            elif kind == "products":
                pair = pairs[first // 2 : first // 2 + 2]
                factors = [row * scale for row in rows for scale in pair]
                for i in range(4):
                    k.mad(x[i], factors[i], t[i], into=t[i])
            else:
                scaled = [k.mul(x[i], rows[i // 2]) for i in range(4)]
                for i in (0, 2, 1, 3):
                    k.mad(scaled[i], pairs[first // 2 + (i & 1)], t[i], into=t[i])
        if kind in ("products", "products-lds", "rows", "mul-add"):  # other products the next time
            for x in rows:
                k.add(x, x, into=x)

    def beside(self) -> None:
        """f32 instructions of the third warpgroup."""
        k, kind = self.k, self.mode.promotion
        x = [k.var("f32", self.data[i]) for i in range(CHAINS)]
        y = [k.var("f32", self.data[i + 64]) for i in range(CHAINS)]
        numbers = [k.var("u32", k.tid.x + i) for i in range(CHAINS)]
        for _ in k.range(0, self.count if kind != "none" else 0, unroll=False):
            for _ in range(256 // CHAINS):
                for i in range(CHAINS):
                    if kind == "add":
                        k.add(x[i], y[i], into=x[i])
                    elif kind == "one-read":
                        k.add(x[i], 1.5, into=x[i])
                    elif kind == "mul":
                        k.mul(x[i], y[i], into=x[i])
                    elif kind == "fma-shared":
                        k.mad(y[i], y[0], x[i], into=x[i])
                    elif kind == "fma":
                        k.mad(y[i], y[(i + 5) % CHAINS], x[i], into=x[i])
                    elif kind == "integer":
                        k.xor(numbers[i], numbers[(i + 1) % CHAINS], into=numbers[i])
        with k.when(self.count == (1 << 32) - 1):
            for z in (*x, *(v.to("f32") for v in numbers)):
                self.out.store(z, order="volatile")

    def __call__(self, data: Any, clocks: Any, out: Any, count: int) -> None:
        self.kernel[132](data, clocks, out, count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--modes", default="", help="only those that contain this")
    given = parser.parse_args()
    data = torch.zeros(256, device="cuda") + 1.0
    out = torch.zeros(256, device="cuda")
    kernels = [Kernel(mode) for mode in MODES if given.modes in mode.name]
    clocks = [torch.zeros(132 * 4, device="cuda", dtype=torch.int32) for _ in kernels]
    with ThreadPoolExecutor(14) as pool:
        list(pool.map(lambda x: x[0](data, x[1], out, 2), zip(kernels, clocks, strict=True)))
    torch.cuda.synchronize()
    print("| mode | cycles of a k-block | of an f32 instruction |\n|---|---|---|")
    for kernel, found in zip(kernels, clocks, strict=True):
        mode, taken = kernel.mode, []
        for count in (K_BLOCKS, 2 * K_BLOCKS):
            kernel(data, found, out, count)
            torch.cuda.synchronize()
            taken.append(found.view(132, 4).double().median(0).values.cpu())
        of = (taken[1] - taken[0]) / K_BLOCKS
        beside = f"{of[2] / 256:.2f}" if mode.third else ""
        print(f"| {mode.name} | {of[: mode.groups].max():.0f} | {beside} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
