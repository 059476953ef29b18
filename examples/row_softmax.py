"""Softmax of each row of a matrix: loops, and reductions over a CTA.

python examples/row_softmax.py [vm|cuda]
"""

import math
import sys

import numpy as np

import tilewright
from tilewright.builder import f32, ptr, u32


@tilewright.kernel
def row_softmax(k, columns: u32, x: ptr(f32), y: ptr(f32), *, threads=128):
    """One CTA for each row; a thread processes every ``threads``-th element."""
    k.launch_bounds(threads)
    row = k.ctaid.x * columns

    largest = k.var("f32", -math.inf)
    for j in k.range(k.tid.x, columns, threads):
        largest.set(k.max(largest, x[row + j]))
    largest = k.block_reduce(largest, "max")

    total = k.var("f32", 0.0)
    for j in k.range(k.tid.x, columns, threads):
        power = k.exp(x[row + j] - largest)
        total += power
        y[row + j] = power
    total = k.block_reduce(total, "add")

    for j in k.range(k.tid.x, columns, threads):
        y[row + j] /= total


def main(device: str | None = None) -> None:
    rows, columns = 37, 1000
    x = np.random.default_rng(0).standard_normal((rows, columns), dtype=np.float32)
    y = np.empty_like(x)
    row_softmax[rows](columns, x, y, device=device)
    powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    error = np.abs(y / (powers / powers.sum(1, keepdims=True)) - 1).max()
    verdict = "ok" if error < 1e-5 else "WRONG"
    print(f"softmax of {rows} × {columns}: largest relative error {error:.2g}", verdict)


if __name__ == "__main__":
    main(*sys.argv[1:])
