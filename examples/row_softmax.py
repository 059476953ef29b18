"""Softmax of each row of a matrix: shuffles, shared memory, loops, and a helper in plain Python.

python examples/row_softmax.py [vm|cuda]
"""

import math
import sys

import numpy as np

import tilewright
from tilewright.builder import f32, ptr, u32


def block_reduce(k, combine, value, scratch, warps):
    """All-reduce by ``combine`` over a CTA; ``scratch`` has an element for each warp."""
    for lane in (16, 8, 4, 2, 1):
        value = combine(value, k.shfl("bfly", value, lane))
    with k.when(k.laneid == 0):
        scratch[k.warpid] = value
    k.barrier()
    total = scratch[0]
    for warp in range(1, warps):
        total = combine(total, scratch[warp])
    k.barrier()
    return total


@tilewright.kernel
def row_softmax(k, columns: u32, x: ptr(f32), y: ptr(f32), *, threads=128):
    """One CTA for each row; a thread processes every ``threads``-th element."""
    k.launch_bounds(threads)
    warps = threads // 32
    scratch = k.shared("f32", warps)
    row = k.ctaid.x * columns

    largest = k.var("f32", -math.inf)
    for j in k.range(k.tid.x, columns, threads):
        largest.set(k.max(largest, x[row + j]))
    largest = block_reduce(k, k.max, largest, scratch, warps)

    total = k.var("f32", 0.0)
    for j in k.range(k.tid.x, columns, threads):
        power = k.ptx.ex2.approx.f32((x[row + j] - largest) * math.log2(math.e))
        total += power
        y[row + j] = power
    total = block_reduce(k, k.add, total, scratch, warps)

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
