"""Compare ``quantize`` and ``dequantize`` with copies of the bytes that they must move.

    python benchmarks/quantize_copies.py
    python benchmarks/quantize_copies.py --shapes 8192x8192,4096x7168 --sources bf16

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
from itertools import chain
from typing import Any

import torch
from compare.peers import bursts, graph, machine, rough_seconds, sustained
from compare.stats import QUICK, Ratio, calls

from tilewright import Packed, Scaled, quantize

SHAPES = ((8192, 8192), (4096, 7168))
SOURCES = {"bf16": torch.bfloat16, "f32": torch.float32}
BLOCKS: dict[str, Any] = {"tensor": None, "row": "row", "1×128": (1, 128), "128×128": (128, 128)}
# Packed weights: elements, the group that shares a scale, the type of the scales, zero points.
WEIGHTS = (
    ("u4", 128, torch.float16, None),
    ("u4", 128, torch.float16, "integer"),
    ("e2m1", 32, torch.float8_e8m0fnu, None),
    ("nf4", 64, torch.float32, None),
    ("e4m3", 128, torch.float32, None),
)
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


def unpackings(x: torch.Tensor, sets: int, dest: str) -> Iterator[tuple[str, Call, int]]:
    """Those of packed weights of the shape of ``x``, whose type ``dest`` names."""
    rows, depth = x.shape
    for type_, group, scale, zeros in WEIGHTS:
        grid = rows, depth // group
        size = depth if type_ == "e4m3" else depth // 2
        scales = torch.randint(60, 68, grid, dtype=torch.uint8, device="cuda")
        ours = scales.view(scale) if scale.itemsize == 1 else scales.to(scale)
        points = torch.randint_like(scales, 16) if zeros else None
        data = [torch.randint_like(x[:, :size], 256, dtype=torch.uint8) for _ in range(sets)]
        weights = [Packed(each, ours, type_, group, points) for each in data]
        yield (
            f"{weights[0]} to {dest}",
            lambda i, w=weights: w[i % len(w)].dequantize(dest),
            nbytes(data[0], x, ours) + (nbytes(points) if zeros else 0),
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
    parser.add_argument("--sources", default="bf16,f32", help="types of x")
    given = parser.parse_args()
    shapes = [tuple(map(int, s.split("x"))) for s in given.shapes.split(",") if s] or SHAPES
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    print("| conversion | µs | copy, µs | copy / conversion |\n|---|---|---|---|")
    for rows, columns in shapes:
        for source in given.sources.split(","):
            dtype = SOURCES[source]
            room = 2 * torch.cuda.get_device_properties(0).L2_cache_size
            sets = room // (rows * columns * 2) + 1
            x = [torch.randn((rows, columns), device="cuda").to(dtype) for _ in range(sets)]
            packed = unpackings(x[0], sets, source) if source == "bf16" else ()
            for name, call, moved in chain(conversions(x, source), packed):
                print(line(f"{rows}×{columns} {name}", call, moved, sets), flush=True)
                torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
