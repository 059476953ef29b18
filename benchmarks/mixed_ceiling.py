"""How much of a conversion overlaps with wgmma with A from registers: loops without copies.

    python benchmarks/mixed_ceiling.py
    python benchmarks/mixed_ceiling.py --loops "n64 w3 c4 u4 g8,n64 w3 c8 u4 g8 kept"
    python benchmarks/mixed_ceiling.py --concurrent "n64 w1 none g0:lop,n64 w2 none g0:ffma2"

A line of the first table is a loop of wgmma (m64nNk16) by all SMs, one CTA on each, and the cycles
that an SM needs for a step, a wgmma of one warpgroup; the tensor cores need N / 2. Its words:

    n64      N                            w3       warpgroups, each with steps of its own
    c4       steps in a commit group      s2       sets of fragments, used by groups in turn
    g8       steps of a scale's group: the accumulators are promoted in f32; g0: never
    p2       sets of accumulators: a group is promoted while the next one is multiplied
    u4       fragments are converted from words of shared memory, by the kernels' recipe
    reg      the same from words in registers
    scaled   the same, times the scale (an FMA of the magic number), without promotion
    none     fragments never change
    lop12    12 LOP3 for each step that have nothing to do with fragments; also ffma, hfma, shf
    kept     conversions are kept before the wait by a store that is never executed
    early    a chunk is converted before the wgmmas of the one before are issued
    ahead    words are loaded four steps before they are converted
    ss       A is in shared memory, not in registers
    f16      f16 instead of bf16
    turns    a warpgroup issues a group's wgmmas after those of the one before (named barriers)

A line of the second table (``--concurrent``) is such a loop while another warpgroup, or ``2`` of
them, executes instructions of one kind: cycles of a step of the loop and of an instruction of a
scheduler's warp, each alone and concurrently. Needs an NVIDIA GPU of sm_90a and PyTorch.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor

from compare.peers import machine
from compare.wgmma_loops import KINDS, Loop, LoopKernel

DEFAULTS = (
    *(f"n{n} w{w} c8 none g0" for n in (16, 32, 64, 128) for w in (1, 3)),
    *(f"n64 w{w} c4 u4 {group}" for w in (1, 2, 3) for group in ("g0", "g8")),
    *(f"n64 w3 c4 {what}" for what in ("none g8", "reg g0", "reg g8", "scaled g0")),
    *(f"n64 w3 c4 {op}{count} g0" for op in ("lop", "ffma", "hfma") for count in (8, 16)),
    *(f"n64 w{w} c8 u4 g8" for w in (1, 2, 3)),
    *(f"n64 w{w} c{c} u4 g8 p2" for w in (2, 3) for c in (2, 4)),
    "n64 w2 c8 u4 g8 p2", "n64 w3 c4 u4 g8 s1", "n64 w3 c4 u4 g8 s3 early",
    "n64 w3 c1 u4 g8 s4 ahead", "n64 w3 c1 u4 g0 s4 ahead", "n64 w3 c4 u4 g8 turns",
    "n64 w3 c4 lop16 ss g0", "n64 w3 c4 ffma16 ss g0",
    *(f"n16 w{w} c{c} u4 g8" for w in (2, 3, 4) for c in (4, 8)),
    *(f"n16 w4 c4 {what}" for what in ("u4 g0", "none g8", "reg g8", "scaled g0", "u4 g8 f16")),
    "n16 w4 c2 u4 g8", "n16 w4 c4 u4 g8 ahead", "n16 w2 c4 u4 g8 p2", "n16 w4 c4 u4 g8 p2",
    *(f"n32 w{w} c{c} u4 g8" for w in (2, 3, 4) for c in (4, 8)),
    *(f"n32 w2 c{c} u4 g8 p2" for c in (4, 8)),
    *(f"n128 w{w} c4 u4 {group}" for w in (1, 2) for group in ("g0", "g8")),
    "n128 w2 c4 u4 g8 kept", "n128 w2 c2 u4 g8", "n128 w2 c4 scaled g0", "n128 w2 c8 u4 g8 s1",
)  # fmt: skip
CONCURRENT = (
    *(f"n64 w2 c8 none g0:{kind}" for kind in KINDS),
    *(f"n64 w2 c8 none g0 ss:{kind}" for kind in KINDS),
    *(f"n{n} w1 c8 none g0:{kind}" for n in (16, 128) for kind in ("lop", "ffma")),
)


def compiled(kernels: list[LoopKernel]) -> None:
    """Compile them in threads."""

    def first(kernel: LoopKernel) -> None:
        kernel.run(1, False)

    with ThreadPoolExecutor(12) as pool:
        for kernel, done in [(kernel, pool.submit(first, kernel)) for kernel in kernels]:
            if error := done.exception():
                print(f"{kernel.loop.text}: {type(error).__name__}: {str(error)[:200]}")


def report_loops(texts: list[str]) -> None:
    kernels = [LoopKernel(Loop.parse(text)) for text in texts]
    compiled(kernels)
    print("| loop | cycles a step | of the tensor cores |\n|---|---|---|")
    for kernel in kernels:
        loop = kernel.loop
        count = loop.rounds
        one, two = (kernel.run(n, False)[0] for n in (count, 2 * count))
        cycles = (two - one) / (count * loop.body * loop.warpgroups)
        print(f"| {loop.text} | {cycles:.1f} | {loop.n / 2 / cycles:.2f} |", flush=True)


def report_concurrent(texts: list[str]) -> None:
    kernels = []
    for text in texts:
        loop, _, kind = text.partition(":")
        others = int(kind[-1]) if kind[-1].isdigit() else 1
        kernels.append(LoopKernel(Loop.parse(loop), kind.rstrip("0123456789"), others))
    compiled(kernels)
    print("| loop | instructions | step | concurrent | instruction | concurrent |")
    print("|---|---|---|---|---|---|")
    for kernel in kernels:
        loop = kernel.loop
        count = 2 * loop.rounds
        steps = count * loop.body * loop.warpgroups
        step_alone = kernel.run(count, False)[0] / steps
        step, concurrent = kernel.run(count, True)
        alone = kernel.run(0, True)[1]
        print(
            f"| {loop.text} | {kernel.kind} by {kernel.others} | {step_alone:.1f} | "
            f"{step / steps:.1f} | {alone:.2f} | {concurrent:.2f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loops", default=",".join(DEFAULTS), help="separated by commas")
    parser.add_argument(
        "--concurrent", default=",".join(CONCURRENT), help="LOOP:KIND, of the second table"
    )
    given = parser.parse_args()
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    report_loops([text for text in given.loops.split(",") if text])
    report_concurrent([text for text in given.concurrent.split(",") if text])


if __name__ == "__main__":
    sys.exit(main())
