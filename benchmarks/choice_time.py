"""Measure how long the heuristic takes to choose a configuration for a new shape, in ms.

python benchmarks/choice_time.py                 200 random shapes of each type
python benchmarks/choice_time.py --shapes 50     fewer
"""

from __future__ import annotations

import argparse
import random
import time

from tilewright import gemm
from tilewright.target import DEFAULT_DEVICE

TYPES = (("bf16", "bf16"), ("e4m3", "bf16"), ("f32", "f32"), ("f64", "f64"))


def times(a: str, d: str, count: int) -> list[float]:
    """Sorted milliseconds of CPU time. Sizes from 1 to 16384, every other shape rounded up to
    multiples of 64.
    """
    source, milliseconds = random.Random(1), []
    for i in range(count):
        multiple = 64 if i % 2 else 1
        m, n, k = (-(-int(2 ** source.uniform(0, 14)) // multiple) * multiple for _ in range(3))
        problem = gemm.Problem(m, n, k, a, a, d)
        start = time.process_time()
        gemm.choose(problem, DEFAULT_DEVICE)
        milliseconds.append(1e3 * (time.process_time() - start))
    return sorted(milliseconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", type=int, default=200)
    count = parser.parse_args().shapes
    gemm.choose(gemm.Problem(7, 7, 7), DEFAULT_DEVICE)  # imports
    print("| A and B | median | 90 % | most |\n|---|---|---|---|")
    for a, d in TYPES:
        milliseconds = times(a, d, count)
        columns = (milliseconds[count // 2], milliseconds[count * 9 // 10], milliseconds[-1])
        print(f"| {a} | " + " | ".join(f"{x:.2f}" for x in columns) + " |")


if __name__ == "__main__":
    main()
