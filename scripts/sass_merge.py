"""Adds encodings to those of an older table so that a text has one word: an entry is taken if no
entry of its shape before it encodes a sample of its words to other bits, nor it a sample of theirs.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tilewright.errors import SassError
from tilewright.sass.encoding import SassEncoding
from tilewright.sass.sass_text import SassText, parse_instruction

SAMPLES = 10  # words of each entry
NEXT = 16_000  # the offset after the instruction


def consistent(
    trusted: Iterable[SassEncoding], entries: Iterable[SassEncoding]
) -> tuple[SassEncoding, ...]:
    """All trusted entries, then those that agree with the ones before them and whose text reads as
    it is written.
    """
    rng = random.Random(3)
    kept: dict[tuple[str, ...], list[SassEncoding]] = defaultdict(list)
    for entry in trusted:
        kept[entry.shape].append(entry)
    for entry in entries:
        known = kept[entry.shape]
        if entry not in known and is_readable(entry, rng):
            if not any(differ(a, entry, rng) or differ(entry, a, rng) for a in known):
                known.append(entry)
    return tuple(entry for known in kept.values() for entry in known)


def words_and_texts(entry: SassEncoding, rng: random.Random) -> Iterator[tuple[int, SassText]]:
    """Random words of an entry and their texts."""
    for i in range(SAMPLES):
        word = entry.base
        for number in entry.numbers:
            word |= sum(1 << b for b, _ in number.bits if rng.random() < (i + 1) / (SAMPLES + 1))
        for marks in (*entry.marks, *entry.modifiers):
            word |= rng.choice(marks.choices)[1]
        try:
            yield word, SassText(entry.opcode(word), entry.decode(word, NEXT))
        except SassError:
            continue


def differ(one: SassEncoding, other: SassEncoding, rng: random.Random) -> bool:
    """Whether ``other`` encodes a text of ``one`` to other bits."""
    for word, text in words_and_texts(one, rng):
        try:
            if other.encode(text, NEXT) != word:
                return True
        except (SassError, ValueError):
            continue
    return False


def is_readable(entry: SassEncoding, rng: random.Random) -> bool:
    """Whether the texts of an entry are read as they are written."""
    for _, text in words_and_texts(entry, rng):
        try:
            again = parse_instruction(str(text))
        except SassError:
            return False
        if (again.form, again.marks) != (text.form, text.marks):
            return False
    return True
