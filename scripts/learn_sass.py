"""Learns the encodings of an architecture from nvdisasm and writes the package's table.

    python scripts/learn_sass.py sm_90a --nvdisasm PATH [--scan] --out FILE CUBIN…

Every value of the opcode's bits with a few operands (``--scan``), a word of each form of an older
table (``--from``) and the instructions of cubins are seeds (``sass_learner``). From each form that
is known, flips of bits lead to other modifiers and kinds of operands (``sass_forms``), until no new
form is found or ``--minutes`` are over. At last the table is tried on all instructions of the
cubins, and seeds are added for what it does not encode.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from sass_forms import FormSearch, first_word
from sass_learner import Learner
from sass_merge import consistent
from sass_oracle import Oracle

from tilewright.errors import SassError
from tilewright.sass.cubin_file import CubinFile
from tilewright.sass.encoding import VOLTA
from tilewright.sass.encoding_table import EncodingTable
from tilewright.sass.sass_text import SassText

ROUNDS = 8
SEEDS = 6  # of one form
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


def learn_seeds(search: FormSearch, words: Counter[int]) -> None:
    """Add seeds from the words until the table encodes all of them, or no seed helps."""
    learner = search.learner
    said = dict(zip(words, learner.texts(list(words)), strict=True))
    tried: Counter[tuple[str, ...]] = Counter()
    for number in range(ROUNDS):
        wanted: dict[tuple[str, ...], list[int]] = defaultdict(list)
        misses = 0
        for word, text in said.items():
            if text is not None and not encoded(learner, word, *text):
                misses += words[word]
                if tried[text[1].form] + len(wanted[text[1].form]) < SEEDS:
                    if len(wanted[text[1].form]) < (1 if number < 2 else 3):
                        wanted[text[1].form].append(word)
        seeds = [w for forms in wanted.values() for w in forms]
        print(f"round {number}: {misses} of {words.total()} not encoded, {len(seeds)} seeds,",
              f"{learner.asked} words asked", flush=True)  # fmt: skip
        if not seeds:
            break
        for form, those in wanted.items():
            tried[form] += len(those)
        search.learn(seeds)


def scanned(search: FormSearch, oracle: Oracle) -> dict[tuple[str, ...], int]:
    """The forms of every value of the opcode's bits, with a few operands."""
    guard = 7 << oracle.coding.guard
    lows: list[int]
    if oracle.coding is VOLTA:
        lows = [0x0, 0x18_0A04 << 16, 0x3F3F << 40]
        # random registers and immediates; PT or zeros where most instructions have predicates
        lows += [search.rng.getrandbits(56) << 16 | high for high in PREDICATES for _ in range(2)]
        words = [i | guard | low for i in range(1 << 12) for low in lows]
    else:
        lows = (0x0407, 0x7_8000_0407, 0x20_0030_0407, 0x780_0000_0407, 0xFF80_0030_0407)
        lows = [guard | low for low in lows]
        words = [i << 48 | low for i in range(1 << 16) for low in lows]
    return search.new_forms(words)


def encoded(learner: Learner, word: int, at: int, text: SassText) -> bool:
    for entry in learner.entries.get(text.form, ()):
        try:
            if not (entry.encode(text, learner.next(at)) ^ word) & ~entry.silent:
                return True
        except SassError:
            continue
    return False


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("arch")
    options.add_argument("cubins", nargs="*")
    options.add_argument("--nvdisasm", required=True)
    options.add_argument("--out", required=True)
    options.add_argument("--from", dest="table", metavar="FILE", help="seeds: a table's forms")
    options.add_argument("--scan", action="store_true", help="seeds: scan the opcode's bits")
    options.add_argument("--minutes", type=float, default=60, help="for the search of forms")
    given = options.parse_intermixed_args()
    oracle = Oracle.of(given.nvdisasm, given.arch)
    learner = Learner(oracle)
    search = FormSearch(learner, random.Random(23))
    begin = time.time()
    old = EncodingTable.unpack(Path(given.table).read_bytes()) if given.table else None
    words = instructions(given.cubins, oracle)
    learn_seeds(search, words)
    start = search.new_forms([first_word(e) for e in old.entries]) if old else {}
    if given.scan:
        start |= scanned(search, oracle)
    start |= search.neighbours(list(search.words))
    search.spread(start, 60 * given.minutes)
    search.complete(search.mnemonics)
    learn_seeds(search, words)
    search.reuse_forms()
    search.guards()
    search.check_silent_bits()
    found = [e for those in learner.entries.values() for e in those]
    entries = consistent(old.entries if old else (), found)
    table = EncodingTable(given.arch, oracle.version, time.strftime("%Y-%m-%d"), entries)
    data = table.pack()
    Path(given.out).write_bytes(data)
    print(f"{len(entries)} entries, {len(data)} bytes, {time.time() - begin:.0f} s")


if __name__ == "__main__":
    main()
