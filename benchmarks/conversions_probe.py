"""Compare every form of ``cvt`` on this GPU with the virtual machine, bit by bit.

A kernel of up to 24 forms with the same source type converts random operands and values near hard
cases (ties of every narrower format, NaNs, integers). Prints each form whose bits differ, with the
first such operands. ``--golden FILE`` writes a digest of each form's results, for tests without a
GPU.

    python benchmarks/conversions_probe.py [PATTERN] [--operands 1048576] [--golden FILE]
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path

import numpy as np

from tilewright import cuda

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from golden import golden_conversions
from ptx_kernels.conversion_kernels import BLOCK, batches, differences, on_gpu, on_vm, planes, text
from references.hostile import Stream


def probe(batch: list[str], inputs: np.ndarray, arch: str):
    """The GPU's results, and a line for each form whose results on the virtual machine differ."""
    ptx, results = text(batch, arch), np.zeros((len(batch), inputs.shape[1]), np.uint64)
    theirs, ours = on_gpu(ptx, inputs, results), on_vm(ptx, inputs, results, arch)
    return theirs, differences(batch, inputs, theirs, ours)


def jobs(pattern: str, count: int, arch: str):
    """(forms, operands) of each kernel; ``count`` 0: the golden operands."""
    for batch in batches(arch):
        opcodes = [opcode for opcode in batch if re.search(pattern, opcode)]
        if opcodes and count:
            yield opcodes, planes(opcodes, -(-count // BLOCK) * BLOCK, Stream(*opcodes))
        elif opcodes:
            yield opcodes, golden_conversions.operands(opcodes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", nargs="?", default="", help="part of the names to run")
    parser.add_argument("--operands", type=int, default=1 << 20, help="operands per form")
    parser.add_argument("--golden", type=Path, metavar="FILE", help="write the GPU's results")
    options = parser.parse_args()
    start, arch = time.perf_counter(), cuda.gpu().arch
    digests, outputs, differing = {}, 0, 0
    for batch, inputs in jobs(options.pattern, 0 if options.golden else options.operands, arch):
        made, lines = probe(batch, inputs, arch)
        digests |= golden_conversions.digests(batch, made)
        outputs, differing = outputs + made.size, differing + len(lines)
        for opcode, line in lines.items():
            print(f"{opcode:40s} {line}", flush=True)
    if options.golden:
        golden_conversions.write(options.golden, digests)
    seconds = time.perf_counter() - start
    print(f"{len(digests)} forms, {outputs} results, {seconds:.0f} s")
    print(f"{differing} forms differ")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
