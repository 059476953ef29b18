"""y = a·x + y: the first kernel. Runs on a GPU if there is one, else on the virtual machine.

python examples/saxpy.py [vm|cuda]
"""

import sys

import numpy as np

import tilewright
from tilewright.builder import Builder, f32, ptr, u32

THREADS = 256


@tilewright.kernel(block=THREADS)
def saxpy(k: Builder, n: u32, a: f32, x: ptr[f32], y: ptr[f32]) -> None:
    """One element for each thread."""
    i = k.ctaid.x * THREADS + k.tid.x
    with k.if_(i < n):
        y[i] = k.fma(a, x[i], y[i])


def main(device: str | None = None) -> None:
    n, a = 10_000, np.float32(2.5)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, n), dtype=np.float32)
    exact = np.float64(a) * x + y
    saxpy[-(-n // THREADS)](n, a, x, y, device=device)
    error = np.abs(y - exact).max()
    print(f"saxpy of {n} elements: largest error {error:.2g}", "ok" if error < 1e-6 else "WRONG")


if __name__ == "__main__":
    main(*sys.argv[1:])
