"""Compare products with static packed weights, which wait for no prior kernel, with the others.

    python benchmarks/static_weights.py
    python benchmarks/static_weights.py --rows 16x8192x8192,8x4096x14336:s8:128:f16 --rounds 200

A row is M×N×K, and the weights' type and group and A's type, else ``u4:128:bf16``. Three CUDA
graphs are replayed in turn, in alternating order, on a busy GPU: the product; the same again, for
what two graphs of one kernel differ by; and the product with ``static`` weights. A line has their
median µs, and of the last two the median of the first one's time over theirs, round by round, with
95 % bounds, and the middle half of these ratios. A product follows itself (``alone``) or a kernel
of torch that writes its X (``behind``; µs include that). The bits of all must be equal. Needs an
NVIDIA GPU of sm_90a and PyTorch.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import replace
from typing import Any

import torch
from compare.peers import graph, machine, rough_seconds, sustained
from compare.stats import QUICK, Ratio, calls
from mixed_input import MixedCase, Work

import tilewright
from tilewright.quantization.weight_format import WeightFormat

ROWS = (
    "16x8192x8192,16x4096x4096,16x14336x4096,16x4096x14336,16x8192x8192:s8:128:bf16,"
    "16x8192x8192:u4:128:e4m3,8x8192x8192,16x28672x8192,1x8192x8192"
)


def static_work(case: MixedCase) -> Work:
    """The product of the case where no kernel writes its weights."""
    form = replace(case.weights[0].format, static=True)
    weights = [replace(w, format=form) for w in case.weights]

    def run(i: int) -> Any:
        i %= len(weights)
        return tilewright.matmul(case.x[i], weights[i], out=case.d[i])

    return run


def behind(case: MixedCase, work: Work) -> Work:
    """The product behind a kernel that writes its X; a conversion, as the driver makes copies."""
    wide = case.x[0].float()

    def run(i: int) -> Any:
        case.x[i % len(case.x)].copy_(wide)
        return work(i)

    return run


def report(name: str, works: dict[str, Work], sets: int, rounds: int) -> None:
    """Print a line: the first one's time, the others' and their ratios."""
    first, *_ = works.values()
    count = max(calls(rough_seconds(first), QUICK.replay), sets)
    times = sustained([graph(work, count) for work in works.values()], rounds, QUICK.warm_up)
    shown = f"{name} {1e6 * statistics.median(times[0]) / count:7.2f}"
    for title, seconds in zip(list(works)[1:], times[1:], strict=True):
        ratios = [one / x for one, x in zip(times[0], seconds, strict=True)]
        middle, (low, _, high) = Ratio.of(ratios), statistics.quantiles(ratios, n=4)
        shown += f" | {title} {1e6 * statistics.median(seconds) / count:7.2f} {middle.median:.4f}"
        shown += f" [{middle.low:.4f}, {middle.high:.4f}] ({low:.3f} to {high:.3f})"
    print(shown, flush=True)


def compare(row: str, rounds: int) -> None:
    """Print the lines of a row. Raises ArithmeticError where static weights give other bits."""
    size, type_, group, operand = (row if ":" in row else f"{row}:u4:128:bf16").split(":")
    m, n, k = map(int, size.split("x"))
    case = MixedCase(WeightFormat(type_, operand, int(group), "f16"), m, n, k)
    packed, static = case.work(None), static_work(case)
    if not torch.equal(packed(0).clone(), static(0)):
        raise ArithmeticError(f"{row}: static weights give other bits")
    alone = {"packed": packed, "again": packed, "static": static}
    report(f"{row:>28} alone ", alone, len(case.x), rounds)
    works = {name: behind(case, work) for name, work in alone.items()}
    report(f"{row:>28} behind", works, len(case.x), rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default=ROWS, help="MxNxK[:TYPE:GROUP:OPERAND], with commas")
    parser.add_argument("--rounds", type=int, default=100)
    given = parser.parse_args()
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    for row in given.rows.split(","):
        compare(row, given.rounds)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
