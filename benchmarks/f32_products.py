"""f32 products without tensor cores compared with cuBLAS: squares, and random shapes.

Ratios are torch's time over ours: medians of CUDA-graph replays of both in turn. The geometric
mean and the least of the random shapes are what counts.

    python benchmarks/f32_products.py [--random 50] [--seed 1] [--kernels FILE]
    python benchmarks/f32_products.py --build FILE     compile all kernels, without a GPU
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

from compare.rows import Shape, random_shapes

import tilewright
from tilewright import gemm
from tilewright.run.devices import serialized_kernel

SQUARES: list[Shape] = [(2048,) * 3, (4096,) * 3, (8192,) * 3]
MOST = 4e11  # products of a shape


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--random", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--build", type=Path, help="write the kernels of all shapes to a file")
    parser.add_argument("--kernels", type=Path, help="a file of --build")
    options = parser.parse_args()
    drawn = random_shapes(8 * options.random, options.seed)
    shapes = [s for s in drawn if prod(s) <= MOST][: options.random]
    if options.build:
        build(SQUARES + shapes, options.build)
        return
    if options.kernels:
        tilewright.load(options.kernels)
    ratios = {shape: measure(shape) for shape in SQUARES + shapes}
    random = [ratios[s] for s in shapes]
    below = sorted((r, s) for s, r in ratios.items() if r < 1)
    print(f"{len(random)} random shapes: geometric mean {statistics.geometric_mean(random):.3f}, "
          f"least {min(random):.3f}, under 1.00: {below}")  # fmt: skip


def build(shapes: list[Shape], file: Path) -> None:
    """Compile the kernels that an H200 runs for the shapes."""
    kernels: serialized_kernel.Kernels = {}
    for m, n, k in shapes:
        plan = tilewright.plan(m, n, k, dtype="f32", device="vm")
        for kernel in gemm.kernels(plan.problem, plan.config, plan.device.target):
            if ("sm_90a", str(kernel)) not in kernels:
                kernels["sm_90a", str(kernel)] = serialized_kernel.build(kernel, "sm_90a")
                print(kernel, flush=True)
    file.write_bytes(serialized_kernel.pack(kernels))


def measure(shape: Shape) -> float:
    """The ratio of a shape; prints it with the error against f64 on some rows."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    m, n, k = shape
    a, b = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")
    d, other = (torch.full((m, n), float("nan"), device="cuda") for _ in range(2))
    times: dict[str, list[float]] = {}
    graphs = {
        "tilewright": graph(lambda: tilewright.matmul(a, b, out=d), shape),
        "torch": graph(lambda: torch.mm(a, b, out=other), shape),
    }
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(7):
        for name, replay in graphs.items():
            begin.record()
            replay()
            end.record()
            torch.cuda.synchronize()
            times.setdefault(name, []).append(begin.elapsed_time(end))
    rows = torch.arange(0, m, max(1, m // 16), device="cuda")
    exact = a[rows].double() @ b.double()
    error = ((d[rows].double() - exact).abs() / (a[rows].double().abs() @ b.double().abs())).max()
    ours, theirs = (statistics.median(times[name]) for name in ("tilewright", "torch"))
    rate = 2 * prod(shape) * count(shape) / ours / 1e9
    print(f"{m}×{n}×{k}: {rate:.1f} TFLOP/s, ratio {theirs / ours:.3f}, error {error:.1e}",
          flush=True)  # fmt: skip
    return theirs / ours


def count(shape: Shape) -> int:
    """Products in a graph: about a millisecond."""
    return max(1, min(40, int(2e10 // prod(shape))))


def graph(call: Callable[[], Any], shape: Shape) -> Callable[[], None]:
    """A replay of ``count`` calls."""
    import torch

    for _ in range(2):
        call()
    torch.cuda.synchronize()
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        for _ in range(count(shape)):
            call()
    made.replay()
    return made.replay


if __name__ == "__main__":
    main()
