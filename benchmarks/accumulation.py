"""Time products of bf16 that are added to D in f32 in place, beside the kernel that reads C.

    python benchmarks/accumulation.py
    python benchmarks/accumulation.py --shapes 4096x4096x4096,8192x8192x64

A line of the Markdown table has M×N×K and the median times in µs of CUDA-graph replays,
interleaved on a busy GPU, with inputs and D that rotate past the L2: of ``alone`` (D = A B),
``read`` (D = A B + D, where D is read as C, as a plan does, which does not know β) and ``add``
(the same by ``matmul``, which adds to D in memory where the kernel can); ``read / add``; and the
largest difference of their results, which must be 0 where both kernels add in the same order.
Needs an NVIDIA GPU of sm_90a and PyTorch.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
from compare.peers import graph, machine, rough_seconds, sustained
from compare.stats import QUICK, Ratio, calls

import tilewright

SHAPES = (
    "8192x8192x64,8192x8192x512,4096x4096x256,4096x4096x4096,8192x8192x2048,1024x1024x8192,"
    "512x14336x4096,128x4096x4096,16x4096x4096,2048x7168x1024"
)
MOST_SETS = 8
Matrices = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def matrices(m: int, n: int, k: int) -> Matrices:
    a, b = (torch.randn(shape, device="cuda").bfloat16() for shape in ((m, k), (n, k)))
    return a, b.mT, torch.randn((m, n), device="cuda")


def works(sets: Sequence[Matrices]) -> dict[str, Callable[[int], Any]]:
    """The variants, of set ``i``."""
    a, b, d = sets[0]
    plan = tilewright.plan(a, b, c=d, out=d)

    def alone(i: int) -> Any:
        a, b, d = sets[i % len(sets)]
        return tilewright.matmul(a, b, out=d)

    def read(i: int) -> Any:
        a, b, d = sets[i % len(sets)]
        return plan.run(a, b, c=d, beta=1.0, out=d)

    def add(i: int) -> Any:
        a, b, d = sets[i % len(sets)]
        return tilewright.matmul(a, b, c=d, beta=1.0, out=d)

    return {"alone": alone, "read": read, "add": add}


def difference(variants: dict[str, Callable[[int], Any]], d: torch.Tensor) -> float:
    """The largest difference of the results of both ways to add."""
    before, results = torch.randn_like(d), []
    for name in ("read", "add"):
        d.copy_(before)
        variants[name](0)
        results.append(d.clone())
    return float((results[0] - results[1]).abs().max())


def line(shape: str) -> str:
    m, n, k = map(int, shape.split("x"))
    room = 3 * torch.cuda.get_device_properties(0).L2_cache_size
    count = min(MOST_SETS, room // (2 * (m + n) * k + 4 * m * n) + 1)
    sets = [matrices(m, n, k) for _ in range(count)]
    variants = works(sets)
    apart = difference(variants, sets[0][2])
    repeats = max(calls(rough_seconds(variants["alone"]), QUICK.replay), count)
    graphs = [graph(work, repeats) for work in variants.values()]
    times = dict(zip(variants, sustained(graphs, QUICK.pairs, QUICK.warm_up), strict=True))
    cells = [f"{1e6 * statistics.median(t) / repeats:.1f}" for t in times.values()]
    pairs = zip(times["read"], times["add"], strict=True)
    ratio = Ratio.of([old / new for old, new in pairs])
    shown = f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
    return f"| {shape} | {' | '.join(cells)} | {shown} | {apart:.1e} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default=SHAPES, help="MxNxK, comma-separated")
    shapes = parser.parse_args().shapes.split(",")
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    print("| M×N×K | alone | read | add | read / add | difference |\n|---|---|---|---|---|---|")
    for shape in shapes:
        print(line(shape), flush=True)


if __name__ == "__main__":
    main()
