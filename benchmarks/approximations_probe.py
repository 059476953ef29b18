"""The approximate instructions on this GPU: checksums over all 2^32 operands of each.

Compares a few blocks of 2^23 operands of each form with the virtual machine. ``--golden FILE``
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
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--golden", type=Path)
    options = parser.parse_args()
    found, differing = {}, 0
    for opcode in FORMS:
        if re.search(options.pattern, opcode):
            found[opcode] = checksums(opcode, 0, BLOCKS, on_gpu)
            blocks = random.Random(opcode).sample(range(BLOCKS), options.blocks)
            wrong = [b for b in blocks if checksums(opcode, b, 1, simt.run)[0] != found[opcode][b]]
            differing += bool(wrong)
            print(f"{opcode:24s} {len(blocks)} blocks compared, different: {wrong}", flush=True)
    if options.golden:
        write(options.golden, found)
    print(f"{len(found)} forms\n{differing} forms differ")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
