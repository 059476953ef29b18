"""Compare products with static packed weights, which wait for no prior kernel, with the others.

    python benchmarks/static_weights.py
    python benchmarks/static_weights.py --rows 16x8192x8192,8x4096x14336:s8:128:f16 --rounds 200
    python benchmarks/static_weights.py --stages 0,2,4,8 --behind torch,norm

A row is M×N×K, and the weights' type and group and A's type, else ``u4:128:bf16``. CUDA graphs are
replayed in turn, in alternating order, on a busy GPU: the product; the same again, for what two
graphs of one kernel differ by; and the product with ``static`` weights, by the number of stages
that they fill before prior kernels end. A line has their median µs, and of all but the first the
median of the first one's time over theirs, round by round, with 95 % bounds, and the middle half of
these ratios. A product follows itself (``alone``), or a kernel that writes its X: one of torch, or
our RMSNorm (µs include it). The bits of all must be equal. Needs an NVIDIA GPU of sm_90a and
PyTorch.
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
from mixed_input import PLAIN, MixedCase, Work

import tilewright
import tilewright.kernels
from tilewright.gemm.tma import tma_producer
from tilewright.quantization.weight_format import WeightFormat

ROWS = (
    "16x8192x8192,16x4096x4096,16x14336x4096,16x4096x14336,16x8192x8192:s8:128:bf16,"
    "16x8192x8192:u4:128:e4m3,8x8192x8192,16x28672x8192,1x8192x8192"
)


def static_works(case: MixedCase, stages: list[int]) -> dict[str, Work]:
    """The product of the case where no kernel writes its weights, by the number of stages that are
    loaded before prior kernels end. As the compile cache does not know that number, their kernels
    differ in the rasterization group, which changes nothing for one column of tiles.
    """
    form = replace(case.weights[0].format, static=True)
    weights = [replace(w, format=form) for w in case.weights]
    chosen = tilewright.plan(case.x[0], weights[0]).config
    return {f"static {n}": static_work(case, weights, chosen, n) for n in stages}


def static_work(case: MixedCase, weights: list[Any], chosen: Any, stages: int) -> Work:
    """The product with this number of stages; its kernel is compiled here."""
    config = replace(chosen, group=chosen.group + 1 + stages)

    def run(i: int) -> Any:
        i %= len(weights)
        return tilewright.matmul(case.x[i], weights[i], out=case.d[i], config=str(config))

    tma_producer.STATIC_STAGES = stages
    run(0)
    return run


def normalized(case: MixedCase, work: Work) -> Work:
    """The product behind our RMSNorm, which writes its X and lets the product start early."""
    source, weight = torch.randn_like(case.x[0]), torch.ones_like(case.x[0][0])

    def run(i: int) -> Any:
        tilewright.kernels.rms_norm(source, weight, out=case.x[i % len(case.x)])
        return work(i)

    return run


def converted(case: MixedCase, work: Work) -> Work:
    """The product behind a kernel of torch that writes its X, a conversion."""
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


def compare(row: str, rounds: int, stages: list[int], behind: list[str]) -> None:
    """Print the lines of a row. Raises ArithmeticError where static weights give other bits."""
    size, type_, group, operand = (row if ":" in row else f"{row}:u4:128:bf16").split(":")
    m, n, k = map(int, size.split("x"))
    case = MixedCase(WeightFormat(type_, operand, int(group), "f16"), m, n, k)
    packed, static = case.work(None), static_works(case, stages)
    for name, work in static.items():
        if not torch.equal(packed(0).clone(), work(0)):
            raise ArithmeticError(f"{row}: {name} gives other bits")
    alone = {"packed": packed, "again": packed, **static}
    report(f"{row:>24} alone", alone, len(case.x), rounds)
    for title, before in (("torch", converted), ("norm", normalized)):
        if title in behind and (title == "torch" or operand in PLAIN):
            works = {name: before(case, work) for name, work in alone.items()}
            report(f"{row:>24} {title}", works, len(case.x), rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default=ROWS, help="MxNxK[:TYPE:GROUP:OPERAND], with commas")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument(
        "--stages", default="4", help="loaded before prior kernels end, with commas"
    )
    parser.add_argument("--behind", default="torch", help="torch, norm, with commas; or nothing")
    given = parser.parse_args()
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    for row in given.rows.split(","):
        compare(
            row, given.rounds, [int(n) for n in given.stages.split(",")], given.behind.split(",")
        )
        torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
