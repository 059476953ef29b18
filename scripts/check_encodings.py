"""Compares the package's encodings with nvdisasm on random and mutated words.

    python scripts/check_encodings.py sm_80 --nvdisasm PATH [--table FILE] [--words N] [--seed N]

Half of the words are random with an opcode of the table, half are words of its encodings with up to
two flipped bits. Every word that the table decodes, and that nvdisasm does, must have nvdisasm's
text, and its text must give the word; exits with 1 if not. Shows also the share of the legal words
that have a text, and which mnemonics have the most without.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sass_learner import Learner
from sass_oracle import PLAIN, Oracle
from sass_search import Search, batched

from tilewright.sass.encoding import VOLTA
from tilewright.sass.encoding_table import EncodingTable, encoding_table
from tilewright.sass.sass_instruction import decode_instruction
from tilewright.sass.sass_text import ALWAYS, SassText

SHOWN = 20
WORD = 1 << 64


def random_words(table: EncodingTable, count: int, rng: random.Random) -> Iterator[int]:
    """Random words with the lowest (sm_5x: highest) bits of an encoding."""
    width = table.coding.width
    mask = 0xFFF if table.coding is VOLTA else 0xFFFF << 48
    for _ in range(count):
        yield rng.getrandbits(width) & ~mask | rng.choice(table.entries).base & mask


def same(mine: SassText, its: SassText) -> bool:
    """Whether two texts say the same; nvdisasm prints offsets unsigned, and NaNs without bits."""
    if (mine.form, mine.marks, mine.guard, mine.negated, mine.uniform) != (
        its.form, its.marks, its.guard, its.negated, its.uniform
    ):  # fmt: skip
        return False
    pairs = zip(mine.numbers, its.numbers, strict=True)
    return all(a == b or b != b or not (a - b) % WORD for a, b in pairs)


def without_true(text: SassText) -> SassText:
    """A text without operands PT, which nvdisasm prints in some places and not in others."""
    true = [x.kind in ("P#", "UP#") and x.numbers == (ALWAYS,) and not x.marks
            for x in text.operands]  # fmt: skip
    kept = tuple(x for x, y in zip(text.operands, true, strict=True) if not y)
    return replace(text, operands=kept)


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("arch")
    options.add_argument("--nvdisasm", required=True)
    options.add_argument("--table", type=Path, help="another table than the package's")
    options.add_argument("--words", type=int, default=100_000)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    if given.table:
        table = EncodingTable.unpack(given.table.read_bytes())
    else:
        table = encoding_table(int("".join(filter(str.isdigit, given.arch))))
    rng = random.Random(given.seed)
    learner = Learner(Oracle.of(given.nvdisasm, table.arch))
    search = Search(learner, rng)
    for entry in table.entries:
        search.add(entry)
    words = [*random_words(table, given.words // 2, rng), *search.mutated(given.words // 2)]
    counts: Counter[str] = Counter()
    raw: Counter[str] = Counter()
    for batch in batched(words):
        batch = [w & ~table.coding.outside for w in batch]
        for word, said in zip(batch, learner.texts(batch), strict=True):
            at = learner.next(said[0]) if said else 0
            word |= learner.always(word)
            full = word if table.coding.control is None else word | PLAIN << table.coding.control
            mine = decode_instruction(table, full, PLAIN, at).text
            if said is None:
                counts["illegal"] += 1
                counts["illegal with a text"] += mine is not None
            elif mine is None:
                counts["without a text"] += 1
                raw[said[1].shape[0]] += 1
            elif same(mine, said[1]):
                counts["right"] += 1
            elif same(without_true(mine), without_true(said[1])):
                counts["right, with PT"] += 1
            else:
                counts["wrong"] += 1
                if counts["wrong"] <= SHOWN:
                    print(f"{word:#x}: {mine}, nvdisasm: {said[1]}")
    print(f"{table.arch}: {len(words)} words, {dict(counts)}")
    print("without a text: ", *(f"{k} {n}" for k, n in raw.most_common(SHOWN)))
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
