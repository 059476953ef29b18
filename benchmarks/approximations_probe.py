"""Compare approximate instructions on this GPU with the virtual machine, over all 2^32 operands.

Runs a few blocks of 2^23 operands of each form on both and compares checksums. ``--golden FILE``
writes the GPU's checksums of all blocks, for tests without a GPU.

    python benchmarks/approximations_probe.py [PATTERN] [--blocks 4] [--golden FILE]
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from golden.golden_approximations import BLOCKS, FORMS, checksums, write
from ptx_kernels import simt
from ptx_kernels.simt_gpu import on_gpu


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", nargs="?", default="", help="part of the names to run")
    parser.add_argument("--blocks", type=int, default=4, help="blocks per form")
    parser.add_argument("--golden", type=Path, metavar="FILE", help="write the GPU's results")
    options = parser.parse_args()
    sums, differing = {}, 0
    for opcode in FORMS:
        if re.search(options.pattern, opcode):
            sums[opcode] = checksums(opcode, 0, BLOCKS, on_gpu)
            blocks = random.Random(opcode).sample(range(BLOCKS), options.blocks)
            wrong = [b for b in blocks if checksums(opcode, b, 1, simt.run)[0] != sums[opcode][b]]
            differing += bool(wrong)
            print(f"{opcode:24s} {len(blocks)} blocks compared, different: {wrong}", flush=True)
    if options.golden:
        write(options.golden, sums)
    print(f"{len(sums)} forms\n{differing} forms differ")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
