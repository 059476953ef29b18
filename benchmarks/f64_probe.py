"""Compare f64 arithmetic with NaNs on this GPU with the virtual machine, bit by bit.

Prints each form whose bits differ, with the operands and both results. ``--golden FILE`` writes the
GPU's results, for tests without a GPU.

    python benchmarks/f64_probe.py [PATTERN] [--most 20] [--golden FILE]
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from golden.golden_f64 import FORMS, mismatch, results, write
from ptx_kernels import simt
from ptx_kernels.simt_gpu import on_gpu


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", nargs="?", default="", help="part of the names to run")
    parser.add_argument("--most", type=int, default=20, help="differences printed per form")
    parser.add_argument("--golden", type=Path, metavar="FILE", help="write the GPU's results")
    options = parser.parse_args()
    answers, differing = {}, 0
    for opcode in FORMS:
        if re.search(options.pattern, opcode):
            answers[opcode] = results(opcode, on_gpu)
            if difference := mismatch(
                opcode, answers[opcode], results(opcode, simt.run), options.most
            ):
                differing += 1
                print(f"{opcode}: {difference}", flush=True)
    if options.golden:
        write(options.golden, answers)
    print(f"{len(answers)} forms\n{differing} forms differ")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
