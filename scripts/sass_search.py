"""Looks for words that no known encoding explains, and studies them.

From a word of each encoding every bit that belongs to no field is flipped, numbers are set to what
nvdisasm leaves out, and in the first word of each shape also pairs of near bits and the opcode's
operand bits; later, random words of all encodings have one or two bits flipped. A legal word whose
text no encoding turns back into it is a seed. An encoding is taken if random words of it, with all
modifiers and marks that may vary, read as it says; where they do not, fewer vary.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, islice

from sass_learner import Learner
from sass_merge import a_word, conflicting, each_alone, with_token, without_silent
from sass_modifiers import ModifierStudy
from sass_oracle import BATCH
from sass_seed import Seed, tokens

from tilewright.errors import SassError
from tilewright.sass.encoding import MAXWELL, REUSE, VOLTA, SassEncoding
from tilewright.sass.sass_text import ALWAYS, SassText

TRIALS = 20  # random words of each encoding
SILENT_TRIALS = 4  # random words of each, with each reuse bit
MANY_TRIALS = 120  # at the end
MANY_SILENT = 16  # at the end, with random silent bits
AGREE = 2  # the least number of them that must be legal and read as expected
OTHERS = 0.6  # the share that may have another shape: PT and offsets of 0 are not shown
STEP = 300  # seeds studied at once
OF_SHAPE = 2  # of them of one shape
SHAPE_SEEDS = 60  # limit of the seeds of one shape
WAITING = 12  # uncovered words kept of one shape
PROGRAMS = 0.7  # the share of mutated words that are of programs
NEAR = 3  # bits between two that are flipped together

Shape = tuple[str, ...]
Said = tuple[int, SassText] | None


def batched(words: Iterable[int], size: int = BATCH) -> Iterator[list[int]]:
    """The words in lists of at most ``size``."""
    rest = iter(words)
    while batch := list(islice(rest, size)):
        yield batch


@dataclass
class Search:
    """``entries`` are the encodings of each shape, ``waiting`` uncovered words, ``words`` a word of
    each form that programs have.
    """

    learner: Learner
    rng: random.Random
    entries: dict[Shape, list[SassEncoding]] = field(default_factory=lambda: defaultdict(list))
    waiting: dict[Shape, list[int]] = field(default_factory=lambda: defaultdict(list))
    studied: Counter[Shape] = field(default_factory=Counter)
    explored: set[Shape] = field(default_factory=set)
    words: dict[tuple[str, ...], int] = field(default_factory=dict)

    @property
    def all_entries(self) -> list[SassEncoding]:
        return [e for those in self.entries.values() for e in those]

    @property
    def newest_first(self) -> list[SassEncoding]:
        """The encodings, those of a shape that came last first: they have more modifiers."""
        return [e for those in self.entries.values() for e in reversed(those)]

    def trust(self, entries: Sequence[SassEncoding]) -> int:
        """Take known encodings that do not contradict others of their shape, as far as they are
        right; returns how many are not, whose words are noted.
        """
        apart = conflicting(entries)
        wrong = [e for e in entries if e.shape in apart]
        wrong += self.take_right([e for e in entries if e.shape not in apart], TRIALS)
        self.note(w for e in wrong for w in self.samples(e, TRIALS))
        return len(wrong)

    def prune(self) -> int:
        """Try more words of each encoding and keep what is right of it; returns how many were not,
        whose words are noted.
        """
        entries = self.surely_silent(self.all_entries)
        self.entries.clear()
        wrong = self.take_right(entries, MANY_TRIALS)
        self.note(w for e in wrong for w in self.samples(e, TRIALS))
        return len(wrong)

    def take_right(self, entries: Sequence[SassEncoding], trials: int) -> list[SassEncoding]:
        """Take those of some encodings that are right, of the others the modifiers that are, and
        of these the marks; returns the others.
        """
        wrong: list[SassEncoding] = []
        parts = list(entries)
        for name in ("modifiers", "marks", ""):
            good = self.right(parts, trials)
            rest = []
            for entry, fine in zip(parts, good, strict=True):
                if fine or entry.fixed_reuse:  # whose texts have other modifiers
                    self.add(entry)
                else:
                    rest.append(entry)
            wrong = wrong or rest
            parts = [part for e in rest for part in each_alone(e, name)] if name else []
            trials = TRIALS
        return wrong

    # --- coverage ---------------------------------------------------------------------------------

    def covered(self, word: int, said: tuple[int, SassText], exactly: bool = False) -> bool:
        """Whether a known encoding has the text of a word; ``exactly``, turns it into the word."""
        for entry in self.entries.get(said[1].shape, ()):
            try:
                mine = entry.encode(said[1], self.learner.next(said[0]))
            except (SassError, ValueError):
                continue
            if not exactly or not (mine ^ word) & ~entry.silent:
                return True
        return False

    def note(self, words: Iterable[int], exactly: bool = False) -> tuple[int, int]:
        """Keep the uncovered ones of some words; returns how many were legal, and uncovered."""
        legal = bad = 0
        for batch in batched(words):
            for word, said in zip(batch, self.learner.texts(batch), strict=True):
                if said is None or any(n != n for n in said[1].numbers):
                    continue
                word &= ~self.learner.coding.outside
                legal += 1
                if exactly:
                    self.words[(*said[1].form, *said[1].marks)] = word
                if not self.covered(word, said, exactly):
                    bad += 1
                    shape = said[1].shape
                    if len(self.waiting[shape]) < WAITING:
                        self.waiting[shape].append(word)
        return legal, bad

    def next_seeds(self) -> list[int]:
        """Take uncovered words, those of shapes that were least studied first."""
        seeds: list[int] = []
        for shape in sorted(self.waiting, key=lambda s: self.studied[s]):
            those = self.waiting[shape]
            if self.studied[shape] >= SHAPE_SEEDS:
                those.clear()
            for word in those[:OF_SHAPE]:
                seeds.append(word)
                self.studied[shape] += 1
            del those[:OF_SHAPE]
            if len(seeds) >= STEP:
                break
        return seeds

    def spread(self, seconds: float, near: bool = True, exactly: bool = False) -> None:
        """Study what waits, and what is near it, until nothing waits or the time is over."""
        begin = time.monotonic()
        while time.monotonic() - begin < seconds:
            seeds = [w & ~self.learner.coding.outside for w in self.next_seeds()]
            seeds = [w for w, s in self.said(seeds) if not self.covered(w, s, exactly)]
            if not seeds and not any(self.waiting.values()):
                break
            made = self.learn(seeds)
            if near:
                self.note(w for entry in made for w in self.near(entry))
            waiting = sum(map(len, self.waiting.values()))
            print(f"  {len(made)} of {len(seeds)} seeds taken, {len(self.all_entries)} encodings "
                  f"of {len(self.entries)} shapes, {waiting} wait, {self.learner.asked} asked",
                  flush=True)  # fmt: skip

    def said(self, words: Sequence[int]) -> list[tuple[int, tuple[int, SassText]]]:
        """The legal words, with what nvdisasm says."""
        texts = self.learner.texts(words)
        return [(w, s) for w, s in zip(words, texts, strict=True) if s is not None]

    def near(self, entry: SassEncoding) -> Iterator[int]:
        """The words near those of an encoding."""
        sure = ~(entry.variable | entry.silent)
        bits = [b for b in self.learner.free_bits() if sure >> b & 1]
        for word in (a_word(entry), *self.samples(entry, 2)):
            yield from (word ^ 1 << b for b in bits)
            for number in entry.numbers:  # nvdisasm leaves out an offset of 0, the mask 0xf, PT
                yield from (word & ~number.mask, word | number.mask)
        if entry.shape not in self.explored:
            self.explored.add(entry.shape)
            word = a_word(entry)
            yield from (word ^ 1 << a ^ 1 << b for a, b in combinations(bits, 2) if b - a <= NEAR)
            if self.learner.coding is VOLTA:  # bits 8 to 11 select the operands' kinds
                yield from (word ^ i << 8 for i in range(1, 16))

    def mutated(self, count: int) -> Iterator[int]:
        """Random words of encodings, and of programs, with up to two bits flipped that are of no
        number.
        """
        shapes, texts = list(self.entries), list(self.words)
        free = self.learner.free_bits()
        for _ in range(count):
            numbers = 0
            if texts and self.rng.random() < PROGRAMS:
                word = self.words[self.rng.choice(texts)]
            else:
                entry = self.rng.choice(self.entries[self.rng.choice(shapes)])
                word = self.samples(entry, 1)[0]
                numbers = sum(n.mask for n in entry.numbers)
            for _ in range(self.rng.randrange(3)):
                bit = self.rng.choice(free)
                word ^= 0 if numbers >> bit & 1 else 1 << bit
            yield word

    # --- study ------------------------------------------------------------------------------------

    def learn(self, words: Sequence[int]) -> list[SassEncoding]:
        """Study words one by one; returns the encodings that came of it."""
        seeds = self.learner.study(words)
        ModifierStudy(self.learner).study(seeds)
        return [e for e in self.checked_silent(self.verified(seeds)) if self.add(e)]

    def add(self, entry: SassEncoding) -> bool:
        """Take an encoding, unless it is known."""
        known = self.entries[entry.shape]
        if entry not in known:
            known.append(entry)
            return True
        return False

    def verified(self, seeds: Sequence[Seed]) -> list[SassEncoding]:
        """The encodings of seeds, with as many free modifiers and marks as read as they say."""
        good = self.right([self.learner.entry(s) for s in seeds])
        done = [s for s, fine in zip(seeds, good, strict=True) if fine]
        rest = [s for s, fine in zip(seeds, good, strict=True) if not fine]
        for s in rest:
            s.free_modifiers = set()
        good = self.right([self.learner.entry(s) for s in rest])
        for s, fine in zip(rest, good, strict=True):
            s.free_marks = None if fine else set()
        good = self.right([self.learner.entry(s) for s in rest])
        rest = [s for s, fine in zip(rest, good, strict=True) if fine]
        self.free(rest)
        return [self.learner.entry(s) for s in (*done, *rest)]

    def free(self, seeds: Sequence[Seed]) -> None:
        """Let modifiers and marks vary, one after the other, where the encoding stays right."""
        for i in range(max((len(s.text.marks) for s in seeds), default=0)):
            tried = [s for s in seeds if s.free_marks is not None and len(s.choices.get(i, {})) > 1]
            for s in tried:
                s.free_marks = {*(s.free_marks or ()), i}
            for s, fine in zip(tried, self.right([self.learner.entry(s) for s in tried]),
                               strict=True):  # fmt: skip
                if not fine and s.free_marks:
                    s.free_marks.discard(i)
        for i in range(max((len(s.modifiers) for s in seeds), default=0)):
            tried = [s for s in seeds if i < len(s.modifiers)]
            for s in tried:
                s.free_modifiers.add(i)
            for s, fine in zip(tried, self.right([self.learner.entry(s) for s in tried]),
                               strict=True):  # fmt: skip
                if not fine:
                    s.free_modifiers.discard(i)

    def right(self, entries: Sequence[SassEncoding], trials: int = TRIALS) -> list[bool]:
        """Whether random words of each encoding read as it says."""
        found = []
        for start in range(0, len(entries), BATCH // trials):
            some = entries[start : start + BATCH // trials]
            words = [w for e in some for w in (a_word(e), *self.samples(e, trials - 1))]
            said = self.learner.texts(words)
            for i, entry in enumerate(some):
                of = slice(trials * i, trials * (i + 1))
                pairs = zip(words[of], said[of], strict=True)
                verdicts = Counter(self.verdict(entry, w, s) for w, s in pairs)
                legal = trials - verdicts["illegal"]
                found.append(not verdicts["wrong"] and verdicts["right"] >= min(AGREE, legal)
                             and verdicts["other"] <= OTHERS * legal and legal > 0)  # fmt: skip
        return found

    def verdict(self, entry: SassEncoding, word: int, said: Said) -> str:
        """Whether nvdisasm's text of a word is what the encoding makes of it."""
        if said is None:
            return "illegal"
        at, text = said
        if text.shape != entry.shape:
            return "other"
        if any(n != n for n in text.numbers):
            return "nan"
        try:
            mine = entry.encode(text, self.learner.next(at))
            same = text.opcode == entry.opcode(word) and not (mine ^ word) & ~entry.silent
            return "right" if same else "wrong"
        except (SassError, ValueError):
            return "wrong"

    def samples(self, entry: SassEncoding, count: int) -> list[int]:
        """Random words of an encoding."""
        words = []
        for i in range(count):
            word = entry.base
            for number in entry.numbers:
                word |= sum(1 << b for b, _ in number.bits if self.rng.random() < (i % 4 + 1) / 5)
            for marks in (*entry.marks, *entry.modifiers):
                word |= self.rng.choice(marks.choices)[1]
            words.append(word ^ (entry.silent & self.rng.getrandbits(128) if i % 2 else 0))
        return words

    def checked_silent(self, entries: Sequence[SassEncoding], count: int = 3) -> list[SassEncoding]:
        """The encodings without those silent bits that change the text of a random word."""
        words, owners = [], []
        for i, entry in enumerate(entries):
            for sample in self.samples(replace(entry, silent=0), count):
                bits = [b for b in self.learner.free_bits() if entry.silent >> b & 1]
                words += [sample, *(sample ^ 1 << b for b in bits)]
                owners += [(i, 0), *((i, 1 << b) for b in bits)]
        loud: Counter[int] = Counter()
        plain: SassText | None = None
        for (i, bit), said in zip(owners, self.learner.texts(words), strict=True):
            if not bit:
                plain = said[1] if said else None
            elif plain is not None and (said is None or str(said[1]) != str(plain)):
                loud[i] |= bit
        return [replace(e, silent=e.silent & ~loud[i]) for i, e in enumerate(entries)]

    def surely_silent(self, entries: Sequence[SassEncoding]) -> list[SassEncoding]:
        """The encodings without silent bits that change the text together with some modifier."""
        found = list(entries)
        for less in (lambda some: self.checked_silent(some, MANY_SILENT), without_silent):
            loud = self.loud(found)
            for i, entry in zip(loud, less([found[i] for i in loud]), strict=True):
                found[i] = entry
        return found

    def loud(self, entries: Sequence[SassEncoding]) -> list[int]:
        """The places of encodings of which silent bits, many at once, change a word's text."""
        plain = [w for e in entries for w in self.samples(replace(e, silent=0), MANY_SILENT)]
        bits = [e.silent & ~self.learner.coding.outside for e in entries]
        other = [w ^ bits[i // MANY_SILENT] & self.rng.getrandbits(128)
                 for i, w in enumerate(plain)]  # fmt: skip
        pairs = zip(self.learner.texts(plain), self.learner.texts(other), strict=True)
        wrong = [one is not None and (two is None or str(two[1]) != str(one[1]))
                 for one, two in pairs]  # fmt: skip
        return [i for i in range(len(entries)) if any(wrong[MANY_SILENT * i :][:MANY_SILENT])]

    # --- at the end -------------------------------------------------------------------------------

    def guards(self) -> None:
        """Note which mnemonics print no guard: SSY, CAL and their kind on sm_5x."""
        entries = self.all_entries
        guard = 6 << self.learner.coding.guard | self.learner.plain
        without = set()
        said = self.learner.oracle.ask([a_word(e) | guard for e in entries])
        for entry, one in zip(entries, said, strict=True):
            text = one and self.learner.parsed(one)
            if text and text[1].shape == entry.shape and text[1].guard == ALWAYS:
                without.add(entry.shape[0])
        for shape, those in self.entries.items():
            self.entries[shape] = [replace(e, guarded=shape[0] not in without) for e in those]

    def silent_reuse(self) -> None:
        """Add the reuse bits that nvdisasm does not show to the silent bits."""
        if self.learner.coding is not VOLTA:
            return
        entries = self.all_entries
        words = [w for e in entries for w in self.samples(replace(e, silent=0), SILENT_TRIALS)]
        plain = self.learner.texts(words)
        silent = [e.silent for e in entries]
        for bit in range(4):
            said = self.learner.texts([w | 1 << REUSE + bit for w in words])
            for i, entry in enumerate(entries):
                of = slice(SILENT_TRIALS * i, SILENT_TRIALS * (i + 1))
                pairs = [x for x in zip(plain[of], said[of], strict=True) if x[0] is not None]
                known = bit in [b for _, b in entry.reuse]
                if pairs and not known and all(one == other for one, other in pairs):
                    silent[i] |= 1 << REUSE + bit
        self.entries.clear()
        for entry, bits in zip(entries, silent, strict=True):
            self.add(replace(entry, silent=bits))

    def reuse_forms(self) -> None:
        """Take the encodings of sm_5x whose modifiers are reuse bits: .T and .P of TLD."""
        if self.learner.coding is not MAXWELL:
            return
        entries = [e for e in self.all_entries if not e.reuse and not e.fixed_reuse]
        words = [a_word(e) | self.learner.always(a_word(e)) for e in entries]
        for bit in range(2):
            asked = self.learner.oracle.ask(words, 1 << bit)
            for entry, said in zip(entries, asked, strict=True):
                text = said and self.learner.parsed(said)
                if text and text[1].shape == entry.shape:
                    mine, its = tokens(entry.opcode(a_word(entry))), tokens(text[1].opcode)
                    if len(its) == len(mine) + 1:
                        parts = with_token(entry, mine, its)
                        self.add(replace(entry, modifiers=parts, fixed_reuse=1 << bit))
