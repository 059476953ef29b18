"""Checks cubins of other programs: every byte kept, every instruction assembled from its text.

    python scripts/check_cubins.py FILE.cubin … [--hazards]

Of each architecture: the files, those whose bytes are not kept, the instructions, those that are
not in the encodings, those whose text gives other bits, and those whose text shows hidden bits;
``--hazards`` counts functions with findings of the hazard check as well. Exits with 1 if a byte is
lost, an instruction is wrong, or fewer than 99.95 % come back from text.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from pathlib import Path

from tilewright.errors import SassError
from tilewright.sass import CubinFile, assemble, decode_code, disassemble, encoding_table
from tilewright.sass.machine.hazards import function_code, hazards

ENOUGH = 0.9995


def check_file(path: Path, counts: dict[str, Counter[str]], with_hazards: bool) -> None:
    """Add a cubin's counts to those of its architecture."""
    data = path.read_bytes()
    cubin = CubinFile.parse(data)
    count = counts[f"sm_{cubin.sm}"]
    count["files"] += 1
    if cubin.build() != data:
        count["changed files"] += 1
        print(f"{path}: other bytes")
    table = encoding_table(cubin.sm)
    for name in cubin.functions:
        code = cubin.code(name)
        size = cubin.instruction_size
        again = assemble(table, disassemble(table, code))
        count["functions"] += 1
        for at, x in decode_code(table, code):
            count["instructions"] += 1
            if x.text is None:
                count["unknown"] += 1
                print(f"{path} {name} {at:#x}: not in the encodings: {x.raw:#x}")
            elif again[at : at + size] != code[at : at + size]:
                count["wrong"] += 1
                print(f"{path} {name} {at:#x}: other bits: {x.text}")
            count["with hidden bits"] += x.text is not None and x.text.hidden != 0
        if with_hazards:
            found = hazards(function_code(cubin, name))
            count["with hazards"] += bool(found)
            print("".join(f"{path} {name} {x}\n" for x in found[:2]), end="")


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("files", type=Path, nargs="+")
    options.add_argument("--hazards", action="store_true")
    given = options.parse_args()
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    failed = 0
    for path in given.files:
        try:
            check_file(path, counts, given.hazards)
        except SassError as error:
            failed += 1
            print(f"{path}: {error.message}")
    for arch, count in sorted(counts.items()):
        good = 1 - (count["unknown"] + count["wrong"]) / max(1, count["instructions"])
        failed += count["changed files"] + count["wrong"] + (good < ENOUGH)
        shown = ", ".join(f"{count[k]} {k}" for k in (
            "files", "changed files", "functions", "instructions", "unknown", "wrong",
            "with hidden bits", *(["with hazards"] if given.hazards else [])))  # fmt: skip
        print(f"{arch}: {shown}; {100 * good:.3f} % from text")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
