"""Chooses encodings so that a text has one word: one is taken if none of its shape before it
encodes a sample of its words to other bits, nor it a sample of theirs. Narrows and extends them.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from sass_seed import fixed, tokens

from tilewright.errors import SassError
from tilewright.sass.encoding import MarkField, SassEncoding
from tilewright.sass.encoding_table import EncodingTable
from tilewright.sass.sass_instruction import decode_instruction
from tilewright.sass.sass_text import ALWAYS, SassText, parse_instruction

SAMPLES = 10  # words of each entry
NEXT = 16_000  # the offset after the instruction
PLAIN = 0x7E0  # control bits: a stall of 0, no barriers
ALONE = 40  # limit of the modifiers or marks that are tried alone


def consistent(entries: Iterable[SassEncoding]) -> tuple[SassEncoding, ...]:
    """Those encodings that agree with the ones before them and whose text reads as it is written,
    without those that the others make superfluous.
    """
    rng = random.Random(3)
    kept: dict[tuple[str, ...], list[SassEncoding]] = defaultdict(list)
    unreadable: Counter[str] = Counter()
    differing: Counter[str] = Counter()
    for entry in entries:
        known = kept[entry.shape]
        if entry in known:
            continue
        if not is_readable(entry, rng):
            unreadable[entry.shape[0]] += 1
        elif (changed := together(known, entry, rng)) is None:
            differing[entry.shape[0]] += 1
        else:
            known[:] = changed
    print(f"unreadable: {dict(unreadable)}\ndiffering: {dict(differing)}")
    return tuple(e for known in kept.values() for e in needed(known, rng))


def conflicting(entries: Iterable[SassEncoding]) -> set[tuple[str, ...]]:
    """The shapes of which some encodings do not agree."""
    rng = random.Random(5)
    kept: dict[tuple[str, ...], list[SassEncoding]] = defaultdict(list)
    found = set()
    for entry in entries:
        changed = together(kept[entry.shape], entry, rng)
        if changed is None:
            found.add(entry.shape)
        else:
            kept[entry.shape] = changed
    return found


def together(
    known: list[SassEncoding], entry: SassEncoding, rng: random.Random
) -> list[SassEncoding] | None:
    """Encodings of a shape and one more; None if they differ in other than silent bits, which are
    set to what the others have.
    """
    found = []
    for one in known:
        bits = difference(entry, one, rng) | difference(one, entry, rng)
        if own := bits & entry.silent:
            entry = replace(entry, base=entry.base ^ own)
        if its := bits & one.silent & ~own:
            one = replace(one, base=one.base ^ its)
        found.append(one)
        if bits & ~own & ~its:
            return None
    changed = [one for one, before in zip(found, known, strict=True) if one is not before]
    pairs = [(a, b) for a in (entry, *changed) for b in found if a is not b]
    if any(difference(a, b, rng) | difference(b, a, rng) for a, b in pairs):
        return None
    return [*found, entry]


def needed(known: list[SassEncoding], rng: random.Random) -> list[SassEncoding]:
    """The encodings of a shape without those whose every modifier and mark the others have."""
    left = sorted(known, key=lambda e: e.variable.bit_count(), reverse=True)
    for entry in reversed(list(left)):
        rest = [e for e in left if e is not entry]
        if rest and all(is_encoded(rest, one, rng) for one in each_choice(entry)):
            left = rest
    return left


def each_choice(entry: SassEncoding) -> Iterator[SassEncoding]:
    """The encoding with one choice of one field fixed, for each."""
    yield entry
    for name in ("marks", "modifiers"):
        fields = getattr(entry, name)
        for i, part in enumerate(fields):
            for choice in part.choices if len(part.choices) > 1 else ():
                only = MarkField(part.mask, (choice,))
                yield replace(entry, **{name: (*fields[:i], only, *fields[i + 1 :])})


def is_encoded(others: list[SassEncoding], entry: SassEncoding, rng: random.Random) -> bool:
    """Whether other encodings turn texts of an encoding into its words, with any silent bits."""
    for word, text in words_and_texts(entry, rng):
        word ^= rng.getrandbits(128) & entry.silent
        for other in others:
            try:
                if not (other.encode(text, NEXT) ^ word) & ~other.silent:
                    break
            except (SassError, ValueError):
                continue
        else:
            return False
    return True


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


def difference(one: SassEncoding, other: SassEncoding, rng: random.Random) -> int:
    """The bits in which ``other`` encodes texts of ``one`` otherwise."""
    bits = 0
    for word, text in words_and_texts(one, rng):
        try:
            bits |= (other.encode(text, NEXT) ^ word) & ~other.silent
        except (SassError, ValueError):
            continue
    return bits


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


def a_word(entry: SassEncoding) -> int:
    """A word of an encoding."""
    return entry.base | sum(f.choices[0][1] for f in (*entry.marks, *entry.modifiers))


def each_alone(entry: SassEncoding, name: str) -> Iterator[SassEncoding]:
    """The encoding with each choice of its ``modifiers`` or ``marks`` alone; itself where they do
    not vary, and none where there are too many.
    """
    fields = getattr(entry, name)
    vary = [i for i, part in enumerate(fields) if len(part.choices) > 1]
    if sum(len(fields[i].choices) for i in vary) > ALONE:
        return
    for i in vary:
        for choice in fields[i].choices:
            only = MarkField(fields[i].mask, (choice,))
            yield replace(entry, **{name: (*fields[:i], only, *fields[i + 1 :])})
    if not vary:
        yield entry


def with_token(
    entry: SassEncoding, mine: tuple[str, ...], its: tuple[str, ...]
) -> tuple[MarkField, ...]:
    """The modifiers of an encoding with one more token, as in ``its``."""
    place = next((i for i, (a, b) in enumerate(zip(mine, its, strict=False)) if a != b), len(mine))
    found, at = [], 0
    for part in entry.modifiers:
        if at == place:
            found.append(fixed(its[place]))
        found.append(part)
        at += len(tokens(part.decode(a_word(entry))))
    return tuple(found) if at != place else (*found, fixed(its[place]))


def with_usual_bits(table: EncodingTable, words: Mapping[int, int]) -> tuple[SassEncoding, ...]:
    """The table's encodings, of silent bits those that most of ``words`` have: so that a text
    without hidden bits has the word that compilers write. ``words``: how often each is. Encodings
    of a shape stay as they are where their texts would become others' words.
    """
    found: dict[SassEncoding, Counter[int]] = defaultdict(Counter)
    read = {word: entry for word in words if (entry := _reader(table, word)) is not None}
    for word, entry in read.items():
        found[entry][entry.hidden(word)] += words[word]
    usual = {entry: counts.most_common(1)[0][0] for entry, counts in found.items()}
    entries = tuple(replace(e, base=e.base ^ usual.get(e, 0)) for e in table.entries)
    made = replace(table, entries=entries)
    lost = {entry.shape for word, entry in read.items() if _reader(made, word) is None}
    pairs = zip(table.entries, entries, strict=True)
    return tuple(old if old.shape in lost else new for old, new in pairs)


def _reader(table: EncodingTable, word: int) -> SassEncoding | None:
    """The encoding that reads a word."""
    guarded = word | ALWAYS << table.coding.guard
    if decode_instruction(table, guarded, PLAIN, NEXT).text is None:
        return None
    return next(entry for entry in table.candidates(word) if entry.matches(word))


def without_silent(entries: Iterable[SassEncoding]) -> list[SassEncoding]:
    """The encodings with their silent bits fixed."""
    return [replace(e, silent=0) for e in entries]
