"""Cycles of wgmma while f32 instructions execute: of a k-block of 64 × 128 a warpgroup, e4m3.

    python benchmarks/promotion_rate.py
    python benchmarks/promotion_rate.py --modes products

Each SM has one CTA, of which two warpgroups multiply the same stage of shared memory again and
again, 64 rows each. ``own``: meanwhile they promote the accumulators of the k-block before, as the
mainloops with block scales do; scales are in registers (``-lds``: loaded from shared memory).
``third``: a third warpgroup executes f32 instructions on registers of its own. ``lds``: the
scales of columns are loaded by LDS of 32, 64 or 128 bits, and not multiplied. ``second is``: in the
machine code something else stands for the second of two FADDs. A line has the cycles of a k-block,
of which the tensor cores need 512 (three warpgroups 768), and for ``third`` those of an f32
instruction of a warp. Needs an NVIDIA GPU of sm_90a and PyTorch.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
from compare.replaced_instructions import REPLACEMENTS, replaced_adds

import tilewright
from tilewright.builder.tensors.wgmma_fragments import descriptor_start
from tilewright.gemm.tma.tma_operand import WGMMA_K, TmaOperand

COLUMNS, DEPTH, WARPGROUP = 128, 128, 128
K_BLOCKS = 2048
CHAINS, INSTRUCTIONS = 32, 256  # of a warp of the third warpgroup: independent ones; of a turn
FEW_PAIRS = 8  # registers for scales, with three warpgroups
NEVER = (1 << 32) - 1
REPLACED_MARK = 434340  # in PTX, plus the number of the replacement


class Mode(NamedTuple):
    """``wgmmas`` of a k-block; ``promotion``: what adds its accumulators, or what the ``third``
    warpgroup does; ``groups`` of warps that multiply; ``sets`` of accumulators. ``replaced``: what
    stands in the machine code for the second of two FADDs.
    """

    name: str
    wgmmas: int = 4
    promotion: str = "none"
    third: bool = False
    groups: int = 2
    sets: int = 2
    replaced: str = ""


OWN = "add", "add2", "fma-shared", "fma", "mul-add", "products", "products-lds", "rows"
SCALED = "products", "rows", "fma"  # with the scales of columns in registers
CHANGING = "products", "products-lds", "products-lds128", "rows", "mul-add"  # rows' scales, or
# their products would be computed once
THIRD = "add", "mul", "fma-shared", "fma"
MODES = [
    *(Mode(f"own {x}", promotion=x) for x in OWN),
    *(Mode(f"own {x}, no wgmma", 0, x) for x in OWN),
    *(Mode(f"own {x}, 1 wgmma", 1, x) for x in ("add2", "products")),
    *(Mode(f"own {x}, one warpgroup", 4, x, groups=1) for x in ("add2", "fma", "products")),
    *(Mode(f"own {x}, one set", promotion=x, sets=1) for x in ("add", "add2", "products", "rows")),
    *(Mode(f"own {x}, one set, three warpgroups", promotion=x, sets=1, groups=3)
      for x in ("add", "add2", "rows")),
    Mode("own none", promotion="none"),
    *(Mode(f"own add2, second is {x}{', no wgmma' * (not n)}", n, "add2", replaced=x)
      for x in REPLACEMENTS for n in (4, 0)),
    *(Mode(f"own {x}{', no wgmma' * (not n)}", n, x)
      for x in ("lds32", "lds64", "lds128", "lds32-unused", "lds64-unused", "lds128-unused",
                "products-lds128")
      for n in (4, 0)),
    *(Mode(f"third {x}", promotion=x, third=True) for x in THIRD),
    *(Mode(f"third {x}, no wgmma", 0, x, third=True) for x in THIRD),
]  # fmt: skip


class Kernel:
    """The kernel of a mode."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self.left = TmaOperand("e4m3", 64 * mode.groups, DEPTH, "k")
        self.right = TmaOperand("e4m3", COLUMNS, DEPTH, "k")
        self.threads = WARPGROUP * (mode.groups + mode.third)
        params = {"data": "ptr f32", "clocks": "ptr b32", "out": "ptr f32", "count": "u32"}

        def body(k: Any, data: Any, clocks: Any, out: Any, count: Any) -> None:
            self.body(k, data, clocks, out, count)

        self.kernel = tilewright.kernel(body, params=params, block=self.threads, min_ctas=1)

    def body(self, k: Any, data: Any, clocks: Any, out: Any, count: Any) -> None:
        mode = self.mode
        size = self.left.bytes + self.right.bytes
        self.stage = k.dynamic_shared(size, 1024)
        self.scales = k.dynamic_shared(1024, 16, dtype="f32")
        words = self.stage.cast("b32")
        for i in k.range(k.tid.x, size // 4, self.threads, unroll=False):
            words[i] = 0
        k.fence_async()
        k.barrier()
        self.group = k.shfl("idx", k.tid.x // WARPGROUP, 0)
        self.k, self.data, self.out, self.count = k, data, out, count
        begun = k.special("clock")
        with k.if_(self.group < mode.groups):
            self.multiply()
        if mode.third:
            with k.else_():
                self.execute()
        taken = k.special("clock") - begun
        with k.when(k.tid.x % WARPGROUP == 0):
            clocks[k.ctaid.x * 4 + self.group] = taken.view("b32")

    def multiply(self) -> None:
        k, mode = self.k, self.mode
        own = (self.group * (self.left.byte_offset(64, 0) >> 4)).to("u64")
        a = descriptor_start(self.stage.address()) | self.left.descriptor_bits(64)
        first = self.stage.address() + self.left.bytes
        b = descriptor_start(first) | self.right.descriptor_bits(COLUMNS, WGMMA_K)
        self.a, self.b = a + own, b
        self.sets = [list(k.array("f32", COLUMNS // 2)) for _ in range(mode.sets)]
        self.total = list(k.array("f32", COLUMNS // 2))
        self.rows = [k.var("f32", self.data[i]) for i in range(2)]
        if mode.replaced:
            k.var("u32", REPLACED_MARK + list(REPLACEMENTS).index(mode.replaced))
        most = FEW_PAIRS if mode.groups > 2 else COLUMNS // 4
        pairs = most if mode.promotion in SCALED and not mode.third else 0
        self.pairs = [k.var("f32", self.data[2 + i]) for i in range(pairs)]
        for x in self.total:
            x.set(0.0)
        if not mode.wgmmas:
            for registers in self.sets:
                for i, x in enumerate(registers):
                    x.set(self.data[64 + i])
        if mode.sets == 1:
            for _ in k.range(0, self.count, unroll=False):
                self.issue(0)
                k.wgmma_wait(0)
                self.promote(0)
        else:
            self.alternate()
        with k.when(self.count == NEVER):
            for x in self.total:
                self.out.store(x, order="volatile")

    def alternate(self) -> None:
        """The tensor cores write one set while the other one is promoted."""
        k = self.k
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

    def drain(self) -> None:
        self.k.wgmma_wait(0)
        for t, x in zip(self.total, self.sets[0], strict=True):
            self.k.add(t, x, into=t)

    def issue(self, index: int) -> None:
        k, mode = self.k, self.mode
        if not mode.wgmmas:
            return
        k.wgmma_fence()
        for i in range(mode.wgmmas):
            left, right = self.left.byte_offset(0, 32 * i), self.right.byte_offset(0, 32 * i)
            k.wgmma(
                f"wgmma.mma_async.sync.aligned.m64n{COLUMNS}k32.f32.e4m3.e4m3", self.sets[index],
                self.a + (left >> 4), self.b + (right >> 4), accumulate=bool(i), trans=(0, 0),
            )  # fmt: skip
        k.wgmma_commit()

    def promote(self, index: int) -> None:
        k, kind, rows = self.k, self.mode.promotion, self.rows
        if self.mode.third or kind == "none" or "unused" in kind:
            # ptxas drops the wgmmas of accumulators that nothing reads
            k.add(self.total[0], self.sets[index][0], into=self.total[0])
        if self.mode.third or kind == "none":
            return
        for first in range(0, len(self.total), 4):
            self.promote_four(self.sets[index][first : first + 4], first)
        if kind in CHANGING:
            for x in rows:
                k.add(x, x, into=x)

    def promote_four(self, x: list[Any], first: int) -> None:
        """Add two accumulators of each of two rows, from number ``first`` on."""
        k, kind, rows = self.k, self.mode.promotion, self.rows
        t = self.total[first : first + 4]
        row = [rows[0], rows[0], rows[1], rows[1]]
        pair = (self.pairs * 4)[first // 2 : first // 2 + 2]
        if kind.startswith("lds"):
            self.read(kind, first)
            if not first and "unused" not in kind:
                k.add(t[0], x[0], into=t[0])
        elif kind in ("add", "add2"):
            for i in range(4):
                k.add(t[i], x[i], into=t[i])
            for i in range(4 if kind == "add2" else 0):
                k.add(t[i], row[i], into=t[i])
        elif kind == "mul-add":
            for i in range(4):
                k.add(t[i], k.mul(x[i], row[i]), into=t[i])
        elif kind == "rows":
            scaled = [k.mul(x[i], row[i]) for i in range(4)]
            for i in (0, 2, 1, 3):
                k.mad(scaled[i], pair[i & 1], t[i], into=t[i])
        else:
            if kind == "products-lds":
                there = self.scales + ((k.tid.x & 3) * 2 + 2 * first)
                pair = there.aligned(8).load(2, order="volatile")
            elif kind == "products-lds128":
                if first % 8 == 0:
                    there = self.scales + ((k.tid.x & 3) * 4 + 2 * first)
                    self.four = there.aligned(16).load(4, order="volatile")
                pair = self.four[first % 8 // 2 : first % 8 // 2 + 2]
            factors = {"fma": pair * 2, "fma-shared": row}.get(kind)
            factors = factors or [a * b for a in rows for b in pair]
            for i in range(4):
                k.mad(x[i], factors[i], t[i], into=t[i])

    def read(self, kind: str, first: int) -> None:
        """Add the scales of two columns of each of two rows' accumulators."""
        k, words = self.k, int(kind.removeprefix("lds").removesuffix("-unused")) // 32
        if first % (2 * words) and words == 4:
            return
        own = (k.tid.x & 3) * max(words, 2)
        for i in range(max(2 // words, 1)):
            there = (self.scales + (own + i + 2 * first)).aligned(4 * words)
            found = there.load(words, order="volatile")
            for n, x in enumerate(found if "unused" not in kind else ()):
                t = self.total[first + i + n]
                k.add(t, x, into=t)

    def execute(self) -> None:
        """f32 instructions of the third warpgroup."""
        k, kind = self.k, self.mode.promotion
        x = [k.var("f32", self.data[i]) for i in range(CHAINS)]
        y = [k.var("f32", self.data[i + 64]) for i in range(CHAINS)]
        for _ in k.range(0, self.count, unroll=False):
            for i in list(range(CHAINS)) * (INSTRUCTIONS // CHAINS):
                if kind == "add":
                    k.add(x[i], y[i], into=x[i])
                elif kind == "mul":
                    k.mul(x[i], y[i], into=x[i])
                else:
                    other = y[0 if kind == "fma-shared" else (i + 5) % CHAINS]
                    k.mad(y[i], other, x[i], into=x[i])
        with k.when(self.count == NEVER):
            for z in x:
                self.out.store(z, order="volatile")


def report(chosen: list[str]) -> None:
    """Print the lines of the modes whose names contain one of these."""
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    data, out = torch.ones(256, device="cuda"), torch.zeros(256, device="cuda")
    clocks = torch.zeros(sms * 4, device="cuda", dtype=torch.int32)
    kernels = [Kernel(mode) for mode in MODES if any(x in mode.name for x in chosen)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda x: x.kernel[sms](data, clocks, out, 2), kernels))
    torch.cuda.synchronize()
    print("| mode | cycles of a k-block | of an f32 instruction |\n|---|---|---|")
    for kernel in kernels:
        mode, taken = kernel.mode, []
        for count in (K_BLOCKS, 2 * K_BLOCKS):
            kernel.kernel[sms](data, clocks, out, count)
            torch.cuda.synchronize()
            taken.append(clocks.view(sms, 4).double().median(0).values.cpu())
        of = (taken[1] - taken[0]) / K_BLOCKS
        instruction = f"{of[2] / INSTRUCTIONS:.2f}" if mode.third else ""
        print(f"| {mode.name} | {of[: mode.groups].max():.0f} | {instruction} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--modes", default="", help="only those that contain one of these")
    given = parser.parse_args()
    marks = {str(REPLACED_MARK + i): kind for i, kind in enumerate(REPLACEMENTS)}
    with tempfile.TemporaryDirectory() as folder, replaced_adds(marks, COLUMNS):
        os.environ["TILEWRIGHT_CACHE_DIR"] = folder  # the patched kernels are kept nowhere else
        report(given.modes.split(","))


if __name__ == "__main__":
    sys.exit(main())
