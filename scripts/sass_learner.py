"""Finds the encoding of one instruction word by flipping each bit and reading nvdisasm's text.

A bit that changes one number belongs to that number, with the change as its weight. Bits that
change one operand's marks are enumerated. A bit that changes nothing is silent. A flip that gives
another form is noted in ``found``, as the seed of that form.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from sass_oracle import VOLTA_CONTROL, Oracle

from tilewright.errors import SassError
from tilewright.sass.encoding import (
    VOLTA,
    MarkField,
    NumberField,
    SassEncoding,
    float_bits,
    float_kind,
    sorted_bits,
)
from tilewright.sass.sass_text import SassText, parse_instruction

PASSES = 3  # flips around the seed, then around variations of it
MARK_BITS = 8  # limit of the bits whose combinations are tried


@dataclass
class Seed:
    """A word being studied: its bits' roles as found so far."""

    word: int
    at: int  # the offset at which nvdisasm read it
    text: SassText
    targets: frozenset[int]
    kinds: tuple[str, ...]  # of the numbers
    weights: dict[int, tuple[int, int]] = field(default_factory=dict)  # bit: (number, weight)
    wrong: set[int] = field(default_factory=set)  # bits with two weights
    mark_bits: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    reuse: dict[int, int] = field(default_factory=dict)  # operand: bit
    uniform: bool = False
    quiet: set[int] = field(default_factory=set)  # bits that changed nothing once
    loud: set[int] = field(default_factory=set)  # bits that changed something once
    choices: dict[int, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    alone: dict[int, tuple[str, ...]] = field(default_factory=dict)  # bit: marks after its flip


class Learner:
    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.coding = oracle.coding
        self.entries: dict[tuple[str, ...], list[SassEncoding]] = defaultdict(list)
        self.asked = 0
        self.found: dict[tuple[str, ...], int] = {}  # forms seen in flips: a word of each

    # --- asking -----------------------------------------------------------------------------------

    def texts(self, words: Sequence[int]) -> list[tuple[int, SassText] | None]:
        """(offset, parsed text) of words without guard and control."""
        self.asked += len(words)
        said = self.oracle.ask([w | self.plain | self.always(w) for w in words])
        return [None if x is None else self.parsed(x) for x in said]

    @property
    def plain(self) -> int:
        """The control bits of a word under test."""
        return VOLTA_CONTROL if self.coding is VOLTA else 0

    def always(self, word: int) -> int:
        """The bits of guard PT, for a word without a guard."""
        return 0 if word >> self.coding.guard & 15 else 7 << self.coding.guard

    @staticmethod
    def parsed(said: tuple[int, str]) -> tuple[int, SassText] | None:
        if "?" in said[1] or "INVALID" in said[1]:  # printed, but no instruction
            return None
        try:
            return said[0], parse_instruction(said[1])
        except SassError:
            return None

    def next(self, offset: int) -> int:
        return offset + self.coding.width // 8

    def relative(self, at: int, text: SassText, targets: Iterable[int]) -> list[int | float]:
        numbers = list(text.numbers)
        for i in targets:
            value = (int(numbers[i]) - self.next(at)) % (1 << 64)
            numbers[i] = value - (1 << 64) if value >> 63 else value
        return numbers

    # --- seeds ------------------------------------------------------------------------------------

    def seeds(self, words: Sequence[int]) -> list[Seed]:
        """A seed for each word, disassembled at two offsets so that branch targets show."""
        said = self.texts([w for w in words for _ in range(2)])
        made = []
        for i, word in enumerate(words):
            one, two = said[2 * i], said[2 * i + 1]
            if one is None or two is None or one[1].form != two[1].form:
                continue
            pairs = enumerate(zip(one[1].numbers, two[1].numbers, strict=True))
            targets = frozenset(k for k, (a, b) in pairs if a != b and a == a)
            if any(isinstance(one[1].numbers[k], float) for k in targets):
                continue
            made.append(Seed(word, one[0], one[1], targets, self.kinds(one[1], targets)))
        return made

    def without_nans(self, words: Sequence[int]) -> list[int]:
        """The words; where an immediate is a NaN, one bit is flipped so that it is a number."""
        said = self.texts(words)
        kept = list(words)
        for i, text in enumerate(said):
            if text is not None and any(n != n for n in text[1].numbers):
                flips = [words[i] ^ 1 << b for b in self.free_bits()]
                for word, other in zip(flips, self.texts(flips), strict=True):
                    if other and other[1].form == text[1].form:
                        if all(n == n and abs(n) < 1e30 for n in other[1].numbers):
                            kept[i] = word
        return kept

    @staticmethod
    def kinds(text: SassText, targets: frozenset[int]) -> tuple[str, ...]:
        return tuple(
            "t" if i in targets else float_kind(text.opcode) if isinstance(n, float) else "i"
            for i, n in enumerate(text.numbers)
        )

    def free_bits(self) -> list[int]:
        return [b for b in range(self.coding.width) if not self.coding.outside >> b & 1]

    def values(self, seed: Seed, at: int, text: SassText) -> list[int] | None:
        """The numbers as integers: of floats, their bits; None for NaNs."""
        try:
            return [
                float_bits(n, k) if isinstance(n, float) else int(n)
                for n, k in zip(self.relative(at, text, seed.targets), seed.kinds, strict=True)
            ]
        except SassError:
            return None

    def learn(self, words: Sequence[int]) -> list[tuple[int, SassEncoding]]:
        """The encoding of each word that can be studied: (word, encoding)."""
        seeds = self.seeds(self.without_nans(words))
        rng = random.Random(len(words))
        for number in range(PASSES):
            bases = [self.variation(s, rng) if number else s.word for s in seeds]
            self.flip(seeds, bases)
        self.pairs(seeds)
        self.enumerate_marks(seeds)
        self.ask_reuse(seeds)
        return [(s.word, self.entry(s)) for s in seeds if self.own(s) is not None]

    def variation(self, seed: Seed, rng: random.Random) -> int:
        bits = [b for b in seed.weights if b not in seed.wrong]
        return seed.word ^ sum(1 << b for b in bits if rng.random() < 0.3)

    def flip(self, seeds: list[Seed], bases: list[int]) -> None:
        free = self.free_bits()
        words = [w for b in bases for w in (b, *(b ^ 1 << bit for bit in free))]
        said = self.texts(words)
        step = 1 + len(free)
        for i, seed in enumerate(seeds):
            base = said[step * i]
            before = base and base[1].form == seed.text.form and self.values(seed, *base)
            if not base or not before or base[1].marks != seed.text.marks:
                continue
            for k, bit in enumerate(free):
                other = said[step * i + 1 + k]
                if other is None:
                    seed.loud.add(bit)
                else:
                    self.note(seed, bases[i], base[1], before, bit, other)

    def note(
        self,
        seed: Seed,
        word: int,
        base: SassText,
        before: list[int],
        bit: int,
        other: tuple[int, SassText],
    ) -> None:
        """Record the effect of one flipped bit."""
        at, text = other
        if text.form != base.form or len(text.numbers) != len(before):
            self.found.setdefault(text.form, word ^ 1 << bit)
            seed.loud.add(bit)
            return
        after = self.values(seed, at, text)
        if after is None:
            seed.loud.add(bit)
            return
        changed = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
        marked = [i for i, (a, b) in enumerate(zip(base.marks, text.marks, strict=True)) if a != b]
        (seed.loud if changed or marked else seed.quiet).add(bit)
        if word == seed.word and not changed:
            seed.alone[bit] = text.marks
        if len(changed) == 1 and not marked:
            index = changed[0]
            weight = after[index] - before[index]
            weight = -weight if word >> bit & 1 else weight
            if seed.weights.setdefault(bit, (index, weight)) != (index, weight):
                seed.wrong.add(bit)
            if abs(weight) & abs(weight) - 1:
                seed.wrong.add(bit)
        elif len(marked) == 1 and not changed:
            seed.mark_bits[marked[0]].add(bit)

    def pairs(self, seeds: list[Seed]) -> None:
        """Pairs of bits that are near each other, one without a role: marks that neither bit makes
        by itself, other forms.
        """
        words, places = [], []
        for i, seed in enumerate(seeds):
            marks = {b for bits in seed.mark_bits.values() for b in bits}
            rest = [b for b in self.free_bits() if b not in seed.weights and b >= 12]
            for a, b in combinations(rest, 2):
                if b - a <= 3 and not {a, b} <= marks:
                    words.append(seed.word ^ 1 << a ^ 1 << b)
                    places.append((i, a, b))
        for (i, a, b), other in zip(places, self.texts(words), strict=True):
            if other is None:
                continue
            seed = seeds[i]
            if other[1].form != seed.text.form:
                self.found.setdefault(other[1].form, seed.word ^ 1 << a ^ 1 << b)
                continue
            marks = zip(seed.text.marks, other[1].marks, strict=True)
            marked = [k for k, (x, y) in enumerate(marks) if x != y]
            if other[1].marks in (seed.alone.get(a), seed.alone.get(b)):
                continue
            if len(marked) == 1 and self.values(seed, *other) == self.own(seed):
                seed.mark_bits[marked[0]] |= {a, b}

    def own(self, seed: Seed) -> list[int] | None:
        return self.values(seed, seed.at, seed.text)

    def enumerate_marks(self, seeds: list[Seed]) -> None:
        words, places = [], []
        for seed in seeds:
            for operand, bits in seed.mark_bits.items():
                free = sorted(b for b in bits if b not in seed.weights)[:MARK_BITS]
                for n in range(1 << len(free)):
                    word = seed.word & ~sum(1 << b for b in free)
                    word |= sum(1 << b for k, b in enumerate(free) if n >> k & 1)
                    words.append(word)
                    places.append((seed, operand, sum(1 << b for b in free)))
        for (seed, operand, mask), word, other in zip(
            places, words, self.texts(words), strict=True
        ):
            if other is None or other[1].form != seed.text.form:
                continue
            text = other[1]
            others = [i for i in range(len(text.marks)) if i != operand]
            if all(text.marks[i] == seed.text.marks[i] for i in others):
                old = seed.choices[operand].get(text.marks[operand])
                new = word & mask
                if old is None or new == seed.word & mask:
                    seed.choices[operand][text.marks[operand]] = new
            seed.mark_bits[operand] = {b for b in range(self.coding.width) if mask >> b & 1}

    def ask_reuse(self, seeds: list[Seed]) -> None:
        """Find each operand's reuse bit, and whether the guard is a uniform predicate."""
        words = [s.word | self.always(s.word) | self.plain for s in seeds]
        for k in range(4):
            if self.coding is VOLTA:
                said = self.oracle.ask([w | 1 << 122 + k for w in words])
            else:
                said = self.oracle.ask(words, 1 << k)
            for seed, other in zip(seeds, said, strict=True):
                text = other and self.parsed(other)
                if text and text[1].reuse and text[1].form == seed.text.form:
                    seed.reuse[text[1].reuse.bit_length() - 1] = k
        guarded = self.oracle.ask([s.word | self.plain | 6 << self.coding.guard for s in seeds])
        for seed, other in zip(seeds, guarded, strict=True):
            text = other and self.parsed(other)
            seed.uniform = bool(text and text[1].uniform)

    def entry(self, seed: Seed) -> SassEncoding:
        """The encoding that follows from the bits' roles."""
        marks = []
        mark_mask = 0
        for i, name in enumerate(seed.text.marks):
            bits = seed.mark_bits.get(i, set())
            mask = sum(1 << b for b in bits) if len(seed.choices.get(i, {})) > 1 else 0
            mask &= ~mark_mask
            choices = seed.choices[i] if mask else {name: 0}
            if any(bits & ~mask for bits in choices.values()):
                mask, choices = 0, {name: 0}
            mark_mask |= mask
            marks.append(MarkField(mask, tuple(sorted(choices.items()))))
        before = self.own(seed)
        assert before is not None
        numbers = []
        for i, kind in enumerate(seed.kinds):
            weights = [
                (b, w)
                for b, (k, w) in seed.weights.items()
                if k == i and b not in seed.wrong and not mark_mask >> b & 1
            ]
            constant = before[i] - sum(w for b, w in weights if seed.word >> b & 1)
            numbers.append(NumberField(kind, constant, sorted_bits(weights)))
        bare = SassEncoding(seed.text.form, 0, tuple(numbers), tuple(marks))
        base = seed.word & ~bare.variable & ~self.coding.outside
        reuse = tuple(sorted(seed.reuse.items()))
        quiet = {b for b in seed.quiet - seed.loud if not mark_mask >> b & 1}
        silent = sum(1 << b for b in quiet)
        fields = bare.form, base, bare.numbers, bare.marks
        return SassEncoding(*fields, seed.uniform, reuse, silent)

    # --- trials -----------------------------------------------------------------------------------

    def trial(self, entries: Sequence[SassEncoding], count: int, rng: random.Random) -> set[int]:
        """Indexes of the encodings for which a random word's text encodes to other bits."""
        words, owners = [], []
        for i, entry in enumerate(entries):
            for _ in range(count):
                word = entry.base
                for number in entry.numbers:
                    word |= sum(1 << b for b, _ in number.bits if rng.random() < 0.5)
                for marks in entry.marks:
                    word |= rng.choice(marks.choices)[1]
                words.append(word)
                owners.append(i)
        bad = set()
        for i, word, said in zip(owners, words, self.texts(words), strict=True):
            if said is None:
                continue
            try:
                mine = entries[i].encode(said[1], self.next(said[0]))
            except SassError:
                continue
            except ValueError:  # another form
                continue
            if said[1].form == entries[i].form and (mine ^ word) & ~entries[i].silent:
                bad.add(i)
        return bad
