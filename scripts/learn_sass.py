"""Learns the encodings of an architecture from nvdisasm and writes the package's table.

    python scripts/learn_sass.py sm_90a --nvdisasm PATH [--scan] --out FILE CUBIN…

It begins with the encodings of older tables (``--from``, the best last) of which random words read
as they say.
The instructions of cubins are looked at, every value of the opcode's bits with a few operands
(``--scan``), then for ``--minutes`` random words of the known encodings with flipped bits. What no
encoding explains is studied (``sass_search``), and what is near it. Encodings that the others make
superfluous are dropped.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from sass_learner import Learner
from sass_merge import consistent, with_usual_bits
from sass_oracle import Oracle
from sass_search import Search

from tilewright.sass.cubin_file import CubinFile
from tilewright.sass.encoding import VOLTA
from tilewright.sass.encoding_table import EncodingTable

ROUNDS = 4  # over the words of programs
MUTANTS = 40_000  # in one round
PREDICATES = (0, 0x38 << 81, 0x7 << 81, 0x7F << 81, 0x3F << 84)


def instructions(paths: Iterable[str], oracle: Oracle) -> Counter[int]:
    """The words of the cubins' instructions, without guard and control, and how often each is."""
    found: Counter[int] = Counter()
    for path in paths:
        cubin = CubinFile.parse(Path(path).read_bytes())
        size = cubin.instruction_size
        for name in cubin.functions:
            code = cubin.code(name)
            for at in range(0, len(code), size):
                if size == 16 or at % 32:
                    word = int.from_bytes(code[at : at + size], "little")
                    found[word & ~oracle.coding.outside] += 1
    return found


def scanned(search: Search, oracle: Oracle) -> Iterator[int]:
    """Every value of the opcode's bits, with a few operands."""
    guard = 7 << oracle.coding.guard
    lows: list[int]
    if oracle.coding is VOLTA:
        lows = [0x0, 0x18_0A04 << 16, 0x3F3F << 40]
        # random registers and immediates; PT or zeros where most instructions have predicates
        lows += [search.rng.getrandbits(56) << 16 | high for high in PREDICATES for _ in range(2)]
        yield from (i | guard | low for i in range(1 << 12) for low in lows)
    else:
        lows = (0x0407, 0x7_8000_0407, 0x20_0030_0407, 0x780_0000_0407, 0xFF80_0030_0407)
        lows = [guard | low for low in lows]
        yield from (i << 48 | low for i in range(1 << 16) for low in lows)


def learn_words(search: Search, words: list[int]) -> None:
    """Study words of programs until all are encoded, or no seed helps."""
    for number in range(ROUNDS):
        _, bad = search.note(words, exactly=True)
        print(f"round {number}: {bad} of {len(words)} not encoded", flush=True)
        if not bad:
            break
        search.spread(1e9, near=False, exactly=True)


def mutate(search: Search, seconds: float) -> None:
    """Study mutated words until the time is over."""
    begin = time.monotonic()
    while (left := seconds - (time.monotonic() - begin)) > 0:
        legal, bad = search.note(search.mutated(MUTANTS))
        print(f"mutants: {bad} of {legal} not encoded", flush=True)
        search.spread(left, near=False)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("arch")
    options.add_argument("cubins", nargs="*")
    options.add_argument("--nvdisasm", required=True)
    options.add_argument("--out", required=True)
    options.add_argument(
        "--from", dest="tables", metavar="FILE", action="append", default=[], help="an older table"
    )
    options.add_argument("--scan", action="store_true", help="scan the opcode's bits")
    options.add_argument("--minutes", type=float, default=60, help="of each search")
    given = options.parse_intermixed_args()
    oracle = Oracle.of(given.nvdisasm, given.arch)
    search = Search(Learner(oracle), random.Random(23))
    begin = time.time()
    usual = instructions(given.cubins, oracle)
    words = list(usual)
    for table in given.tables:
        known = EncodingTable.unpack(Path(table).read_bytes()).entries
        usual.update(e.base & ~oracle.coding.outside for e in known)
        print(f"{search.trust(known)} of {len(known)} old encodings are wrong", flush=True)
    learn_words(search, words)
    if given.scan:
        search.note(scanned(search, oracle))
        search.note(w for e in search.all_entries for w in search.near(e))
        search.spread(60 * given.minutes)
        learn_words(search, words)
    mutate(search, 60 * given.minutes)
    print(f"{search.prune()} of {len(search.all_entries)} encodings are wrong", flush=True)
    search.spread(60 * given.minutes, near=False)
    search.reuse_forms()
    search.guards()
    search.silent_reuse()
    entries = consistent(search.newest_first)
    made = EncodingTable(given.arch, oracle.version, time.strftime("%Y-%m-%d"), entries)
    data = replace(made, entries=with_usual_bits(made, usual)).pack()
    Path(given.out).write_bytes(data)
    print(f"{len(entries)} entries, {len(data)} bytes, {time.time() - begin:.0f} s")


if __name__ == "__main__":
    main()
