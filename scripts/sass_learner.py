"""Finds the roles of an instruction word's bits by flipping each and reading nvdisasm's text.

A bit that changes one number belongs to that number, with the change as its weight. Bits that
change one operand's marks are enumerated. A bit that changes nothing is silent. Those that change
modifiers of the opcode are for ``sass_modifiers``.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations

from sass_oracle import VOLTA_CONTROL, Oracle
from sass_seed import Seed

from tilewright.errors import SassError
from tilewright.sass.encoding import (
    VOLTA,
    SassEncoding,
    float_bits,
    float_kind,
)
from tilewright.sass.sass_text import SassText, parse_instruction

PASSES = 3  # flips around the seed, then around variations of it
FLOATS = ("f32", "f64", "f16", "bf16")
MARK_BITS = 8  # limit of the bits whose combinations are tried


class Learner:
    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.coding = oracle.coding
        self.asked = 0

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
            if one is None or two is None or one[1].shape != two[1].shape:
                continue
            pairs = enumerate(zip(one[1].numbers, two[1].numbers, strict=True))
            targets = frozenset(k for k, (a, b) in pairs if a != b and a == a)
            if any(isinstance(one[1].numbers[k], float) for k in targets):
                continue
            made.append(Seed(word, one[0], one[1], targets, self.kinds(one[1], targets)))
        self.choose_floats([s for s in made if any(isinstance(n, float) for n in s.text.numbers)])
        return made

    def choose_floats(self, seeds: Sequence[Seed]) -> None:
        """Set the kind of the seeds' floats to the one of which most flips change one bit."""
        free = self.free_bits()
        said = self.texts([s.word ^ 1 << b for s in seeds for b in free])
        for i, seed in enumerate(seeds):
            near = [x for x in said[i * len(free) : (i + 1) * len(free)] if x is not None]
            near = [x for x in near if x[1].shape == seed.text.shape]
            usual, best = seed.kinds, 0
            for kind in (float_kind(seed.text.opcode), *FLOATS):
                kinds = tuple(kind if k not in "it" else k for k in usual)
                count = self.single_bits(replace(seed, kinds=kinds), near)
                if count > best:
                    seed.kinds, best = kinds, count

    def single_bits(self, seed: Seed, near: Sequence[tuple[int, SassText]]) -> int:
        """The number of texts that differ from a seed's in one bit of a float."""
        before, count = self.own(seed), 0
        if before is None:
            return 0
        for said in near:
            after = self.values(seed, *said)
            changed = [] if after is None else [
                b - a for a, b, k in zip(before, after, seed.kinds, strict=True)
                if a != b and k not in "it"
            ]  # fmt: skip
            count += len(changed) == 1 and not abs(changed[0]) & abs(changed[0]) - 1
        return count

    def without_nans(self, words: Sequence[int]) -> list[int]:
        """The words; where an immediate is a NaN, one bit is flipped so that it is a number."""
        said = self.texts(words)
        kept = list(words)
        for i, text in enumerate(said):
            if text is not None and any(n != n for n in text[1].numbers):
                flips = [words[i] ^ 1 << b for b in self.free_bits()]
                for word, other in zip(flips, self.texts(flips), strict=True):
                    if other and other[1].shape == text[1].shape:
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

    def study(self, words: Sequence[int]) -> list[Seed]:
        """The words that can be studied, with the roles of their bits."""
        seeds = [s for s in self.seeds(self.without_nans(words)) if self.own(s) is not None]
        rng = random.Random(len(words))
        for number in range(PASSES):
            bases = [self.variation(s, rng) if number else s.word for s in seeds]
            self.flip(seeds, bases)
        self.pairs(seeds)
        self.enumerate_marks(seeds)
        self.ask_reuse(seeds)
        return seeds

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
            before = base and same_form(base[1], seed.text) and self.values(seed, *base)
            if not base or before is None or before is False or base[1].marks != seed.text.marks:
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
        after = self.values(seed, at, text) if text.shape == base.shape else None
        if after is None or text.opcode != base.opcode:
            seed.loud.add(bit)
            if after == before and text.marks == base.marks:
                seed.modifier_bits.add(bit)
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
        """Pairs of bits that are near each other, one without a role: marks or modifiers that
        neither bit makes by itself.
        """
        words, places = [], []
        for i, seed in enumerate(seeds):
            marks = {b for bits in seed.mark_bits.values() for b in bits}
            rest = [b for b in self.free_bits() if seed.is_free(b) and b >= 12]
            for a, b in combinations(rest, 2):
                if b - a <= 3 and not {a, b} <= marks and not {a, b} <= seed.modifier_bits:
                    words.append(seed.word ^ 1 << a ^ 1 << b)
                    places.append((i, a, b))
        for (i, a, b), other in zip(places, self.texts(words), strict=True):
            if other is None:
                continue
            seed = seeds[i]
            if other[1].shape != seed.text.shape:
                continue
            same = self.values(seed, *other) == self.own(seed)
            if other[1].opcode != seed.text.opcode:
                if same and other[1].marks == seed.text.marks and not {a, b} & seed.modifier_bits:
                    seed.modifier_bits |= {a, b}
                continue
            marks = zip(seed.text.marks, other[1].marks, strict=True)
            marked = [k for k, (x, y) in enumerate(marks) if x != y]
            if other[1].marks in (seed.alone.get(a), seed.alone.get(b)):
                continue
            if len(marked) == 1 and same:
                seed.mark_bits[marked[0]] |= {a, b}

    def own(self, seed: Seed) -> list[int] | None:
        return self.values(seed, seed.at, seed.text)

    def enumerate_marks(self, seeds: list[Seed]) -> None:
        words, places = [], []
        for seed in seeds:
            for operand, bits in seed.mark_bits.items():
                free = sorted(b for b in bits if seed.is_free(b))[:MARK_BITS]
                for n in range(1 << len(free)):
                    word = seed.word & ~sum(1 << b for b in free)
                    word |= sum(1 << b for k, b in enumerate(free) if n >> k & 1)
                    words.append(word)
                    places.append((seed, operand, sum(1 << b for b in free)))
        for (seed, operand, mask), word, other in zip(
            places, words, self.texts(words), strict=True
        ):
            if other is None or not same_form(other[1], seed.text):
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
                if text and text[1].reuse and same_form(text[1], seed.text):
                    seed.reuse[text[1].reuse.bit_length() - 1] = k
        guarded = self.oracle.ask([s.word | self.plain | 6 << self.coding.guard for s in seeds])
        for seed, other in zip(seeds, guarded, strict=True):
            text = other and self.parsed(other)
            seed.uniform = bool(text and text[1].uniform)

    def entry(self, seed: Seed) -> SassEncoding:
        """The encoding that follows from the bits' roles."""
        before = self.own(seed)
        assert before is not None
        return seed.entry(before, self.coding)


def same_form(one: SassText, other: SassText) -> bool:
    """Whether two texts differ at most in numbers and marks."""
    return one.opcode == other.opcode and one.shape == other.shape
