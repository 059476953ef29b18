"""Compare products of s8 matrices with scales and zero points with torch.

    python benchmarks/integer_products.py
    python benchmarks/integer_products.py --shapes 4096x14336x4096

A line has median µs of CUDA-graph replays, interleaved on a busy GPU, of the s32 product, of the
same with a scale per row and column to bf16, with a bias, with zero points of the rows, of both,
and of torch (``_int_mm``, scales and bias, by ``torch.compile``); then the largest error of 64 rows
against f64, relative to |D|. Needs an NVIDIA GPU of sm_90a and PyTorch.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from compare.peers import CHECKED_ROWS, bursts, graph, machine, rough_seconds, sustained
from compare.stats import QUICK, calls

import tilewright
from tilewright import Scaled

SHAPES = ((4096, 14336, 4096), (4096, 4096, 4096))
S8 = {"device": "cuda", "dtype": torch.int8}


class Operands(NamedTuple):
    """A layer: x and w, each also with zero points; bias; D."""

    x: Scaled
    x_zeros: Scaled
    w: Scaled
    w_zeros: Scaled
    bias: torch.Tensor
    d: torch.Tensor


def operands(m: int, n: int, k: int) -> Operands:
    """Random operands."""
    pairs = []
    for rows in (m, n):
        data, zeros = (
            torch.randint(-128, 128, (rows, k), **S8),
            torch.randint(-20, 20, (rows, 1), **S8),
        )
        scales = torch.rand((rows, 1), device="cuda")
        pairs += [Scaled(data, scales, "row"), Scaled(data, scales, "row", zeros)]
    bias = torch.rand(n, device="cuda")
    return Operands(*pairs, bias, torch.empty((m, n), device="cuda", dtype=torch.bfloat16))


VARIANTS: dict[str, Callable[[Operands], object]] = {
    "s32": lambda o: tilewright.matmul(o.x.data, o.w.data.T),
    "scales": lambda o: tilewright.linear(o.x, o.w, out=o.d),
    "bias": lambda o: tilewright.linear(o.x, o.w, o.bias, out=o.d),
    "zero points": lambda o: tilewright.linear(o.x_zeros, o.w, o.bias, out=o.d, static="b"),
    "of both": lambda o: tilewright.linear(o.x_zeros, o.w_zeros, o.bias, out=o.d, static="b"),
}


@torch.compile
def by_torch(x: Any, w: Any, x_scales: Any, w_scales: Any, bias: Any) -> Any:
    """D of scales and bias."""
    return (torch._int_mm(x, w.t()).float() * x_scales * w_scales.t() + bias).bfloat16()


def error(o: Operands) -> float:
    """The largest |error| / |D| of the last variant in some rows."""
    rows = torch.randint(len(o.d), (CHECKED_ROWS,), device="cuda")
    left = o.x.data[rows].double() - o.x_zeros.zeros[rows]
    exact = left @ (o.w.data.double() - o.w_zeros.zeros).T * o.x.scales[rows] * o.w.scales.T
    exact = exact + o.bias
    return float(((o.d[rows] - exact).abs() / exact.abs().clamp(min=1)).max())


def line(shape: tuple[int, int, int]) -> str:
    """A row of the table."""
    sets = [operands(*shape) for _ in range(2)]
    works: list[Callable[[int], object]] = [
        partial(lambda work, i: work(sets[i % 2]), work) for work in VARIANTS.values()
    ]
    works.append(
        lambda i: by_torch((o := sets[i % 2]).x.data, o.w.data, o.x.scales, o.w.scales, o.bias)
    )
    for work in works * 2:
        work(0)
    count = calls(rough_seconds(works[0]), QUICK.replay)
    graphs = [graph(work, count) for work in works]
    bursts(graphs, 1, pause=0.0)
    times = sustained(graphs, QUICK.pairs, QUICK.warm_up)
    VARIANTS["of both"](sets[0])
    cells = [f"{1e6 * statistics.median(t) / count:.1f}" for t in times]
    return f"| {'×'.join(map(str, shape))} | {' | '.join(cells)} | {error(sets[0]):.1e} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default="", help="MxNxK, separated by commas")
    given = parser.parse_args()
    shapes = [tuple(map(int, s.split("x"))) for s in given.shapes.split(",") if s] or SHAPES
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    print(f"| M×N×K | {' | '.join(VARIANTS)} | torch | error |\n|{'---|' * (len(VARIANTS) + 3)}")
    for m, n, k in shapes:
        print(line((m, n, k)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
