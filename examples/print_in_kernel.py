"""Debugging a kernel: it prints values of its threads and checks assertions.

python examples/print_in_kernel.py [vm|cuda]
"""

import sys

import numpy as np

import tilewright
from tilewright.builder import f32, ptr, u32


@tilewright.kernel(block=32)
def largest(k, n: u32, x: ptr(f32), y: ptr(f32)):
    """The largest of n ≤ 32 numbers, by a tree reduction of a warp."""
    lane = k.tid.x
    k.assert_(n <= 32, "one warp is enough")
    value = k.var("f32", float("-inf"))
    with k.if_(lane < n):
        value.set(x[lane])
    for distance in (16, 8, 4, 2, 1):
        value.set(k.max(value, k.shfl("down", value, distance)))
        with k.if_(lane == 0):
            k.print("of %2u lanes: %6.3f", 32 // distance, value)
    with k.if_(lane == 0):
        y[0] = value


def main(device: str | None = None) -> None:
    x = np.random.default_rng(0).standard_normal(32, dtype=np.float32)
    y = np.empty(1, np.float32)
    largest[1](32, x, y, device=device)
    print(f"largest of 32 numbers: {y[0]:.3f}", "ok" if y[0] == x.max() else "WRONG")


if __name__ == "__main__":
    main(*sys.argv[1:])
