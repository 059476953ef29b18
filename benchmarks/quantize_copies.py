"""Compare ``quantize`` and ``Scaled.dequantize`` with copies of the bytes that they must move.

    python benchmarks/quantize_copies.py
    python benchmarks/quantize_copies.py --shapes 8192x8192,4096x7168

A line of the Markdown table has median times of CUDA-graph replays, interleaved on a busy GPU, of
inputs that rotate past the L2: of the conversion, and of torch's copy that reads and writes as many
bytes in all. A tensor's one scale needs all of x before the first element, so x is read twice.
Needs an NVIDIA GPU and PyTorch.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from compare.peers import bursts, graph, machine, rough_seconds, sustained
from compare.stats import QUICK, Ratio, calls

from tilewright import Scaled, quantize

SHAPES = ((8192, 8192), (4096, 7168))
SOURCES = {"bf16": torch.bfloat16, "f32": torch.float32}
BLOCKS: dict[str, Any] = {"tensor": None, "row": "row", "1×128": (1, 128), "128×128": (128, 128)}
Call = Callable[[int], object]


def nbytes(*arrays: torch.Tensor) -> int:
    """Bytes of the elements."""
    return sum(x.numel() * x.element_size() for x in arrays)


def conversions(x: list[torch.Tensor], source: str) -> Iterator[tuple[str, Call, int]]:
    """Names, calls and the bytes that each reads and writes."""
    for name, block in BLOCKS.items():
        for type_ in ("e4m3", "s8"):
            made = quantize(x[0], type_, block)
            reads = 2 if block is None else 1
            yield (
                f"{source} to {type_} per {name}",
                lambda i, t=type_, b=block: quantize(x[i % len(x)], t, b),
                reads * nbytes(x[0]) + nbytes(made.data, made.scales),
            )
        sides = {"tensor": x[0].shape, "row": (1, x[0].shape[1])}.get(name, block)
        grid = [-(-size // side) for size, side in zip(x[0].shape, sides, strict=True)]
        scales = torch.rand(grid, device="cuda") + 0.5
        data = [quantize(each, "e4m3", "row").data for each in x]
        matrices = [Scaled(each, scales, block) for each in data]
        yield (
            f"e4m3 per {name} to {source}",
            lambda i, m=matrices: m[i % len(m)].dequantize(source),
            nbytes(data[0], x[0], scales),
        )


def line(name: str, call: Call, moved: int, sets: int) -> str:
    """A row of the table."""
    size = moved // 2 // 16 * 16
    copies = [torch.empty((2, size), dtype=torch.uint8, device="cuda") for _ in range(sets)]
    works = [call, lambda i: copies[i % sets][0].copy_(copies[i % sets][1])]
    count = max(calls(rough_seconds(call), QUICK.replay), sets)
    graphs = [graph(work, count) for work in works]
    bursts(graphs, 1, pause=0.0)
    own, copy = sustained(graphs, QUICK.pairs, QUICK.warm_up)
    ratio = Ratio.of([c / o for o, c in zip(own, copy, strict=True)])
    cells = [f"{1e6 * statistics.median(t) / count:.1f}" for t in (own, copy)]
    return (
        f"| {name} | {' | '.join(cells)} | {ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}] |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default="", help="RxC, separated by commas")
    given = parser.parse_args()
    shapes = [tuple(map(int, s.split("x"))) for s in given.shapes.split(",") if s] or SHAPES
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    print("| conversion | µs | copy, µs | copy / conversion |\n|---|---|---|---|")
    for rows, columns in shapes:
        for source, dtype in SOURCES.items():
            room = 2 * torch.cuda.get_device_properties(0).L2_cache_size
            sets = room // (rows * columns * 2) + 1
            x = [torch.randn((rows, columns), device="cuda").to(dtype) for _ in range(sets)]
            for name, call, moved in conversions(x, source):
                print(line(f"{rows}×{columns} {name}", call, moved, sets), flush=True)
                torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
