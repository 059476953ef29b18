"""Compare every reduction of an H200 with the virtual machine, bit by bit.

Runs bulk and tensor reductions of each operation and type, and additions by ``red``, on every pair
of 16 numbers; an unsupported instruction is a result too. Prints each case that differs, with the
operands and both results. ``--golden FILE`` writes the GPU's results, for tests without a GPU.

    python benchmarks/reductions_probe.py [PATTERN] [--most 20] [--golden FILE]
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from golden.golden_reductions import CASES, left, mismatch, write
from ptx_kernels import simt
from ptx_kernels.simt_gpu import on_gpu
from tilewright.errors import CudaError

PROCESSES = 8


def tried(case):
    """The GPU's results, or the error that it raised."""
    try:
        return left(case, on_gpu)
    except CudaError as error:
        return error


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", nargs="?", default="", help="part of the names to run")
    parser.add_argument("--most", type=int, default=20, help="differences printed per form")
    parser.add_argument("--golden", type=Path, metavar="FILE", help="write the GPU's results")
    options = parser.parse_args()
    start = time.perf_counter()
    cases = [case for case in CASES if re.search(options.pattern, str(case))]
    with ThreadPoolExecutor(PROCESSES) as threads:
        found = dict(zip(cases, threads.map(tried, cases), strict=True))
    answers = {case: x for case, x in found.items() if not isinstance(x, CudaError)}
    if options.golden:
        write(options.golden, answers)
    differing = len(found) - len(answers)
    for case, answer in found.items():
        if isinstance(answer, CudaError):
            print(f"{case}: {answer}", flush=True)
        elif difference := mismatch(case, answer, left(case, simt.run), options.most):
            differing += 1
            print(f"{case}: {difference}", flush=True)
    print(f"{len(found)} cases, {time.perf_counter() - start:.0f} s")
    print(f"{differing} cases differ")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
