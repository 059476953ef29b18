"""Finds the forms that are near known ones, and derives their encodings.

From a word of each known form, every bit that belongs to no number is flipped, numbers are set to
what nvdisasm leaves out, and in the first word of each kind of operands also pairs of near bits and
the opcode's operand bits; this goes on until no new form is found. Forms with few modifiers come
first.

Two forms with the same mnemonic and the same kinds of operands differ in their modifiers alone, so
the encoding of one is tried with the other's fixed bits: random words of it must read as it says.
A form with other operands, or one that fails, is a seed that ``sass_learner`` studies by itself.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, islice

from sass_learner import Learner
from sass_oracle import BATCH

from tilewright.errors import SassError
from tilewright.sass.encoding import MAXWELL, VOLTA, SassEncoding
from tilewright.sass.sass_text import ALWAYS, SassText

TRIALS = 8  # random words of each derived encoding
AGREE = 2  # the least number of words that must be legal and read as expected
SHAPE_FORMS = 500  # limit of the forms of one mnemonic with the same operands
STEP_FORMS = 4000  # tried in one step
SEEDS_OF_SHAPE = 2  # studied in one step
MODELS = 3  # encodings of the same shape that are tried for a form
NEAR = 3  # bits between two that are flipped together
SILENT_BATCH = 2000  # encodings whose silent bits are checked at once
ATTEMPTS = 2  # after which a form is given up

Form = tuple[str, ...]
Said = tuple[int, SassText] | None


def shape(form: Form) -> Form:
    """The mnemonic without modifiers, and the kinds of the operands."""
    return (form[0].split(".")[0], *form[1:])


def batched(words: Iterable[int], size: int) -> Iterator[list[int]]:
    """The words in lists of at most ``size``."""
    rest = iter(words)
    while batch := list(islice(rest, size)):
        yield batch


def first_word(entry: SassEncoding) -> int:
    """A word of an encoding."""
    return entry.base | sum(marks.choices[0][1] for marks in entry.marks)


@dataclass
class FormSearch:
    """``words`` holds a word of each form that is known."""

    learner: Learner
    rng: random.Random
    words: dict[Form, int] = field(default_factory=dict)
    mnemonics: Counter[str] = field(default_factory=Counter)
    explored: set[Form] = field(default_factory=set)  # shapes
    failed: Counter[Form] = field(default_factory=Counter)
    shapes: Counter[Form] = field(default_factory=Counter)
    pending: list[tuple[Form, int, SassEncoding]] = field(default_factory=list)
    by_shape: dict[Form, dict[object, SassEncoding]] = field(
        default_factory=lambda: defaultdict(dict)
    )  # one encoding for each set of fields

    def add(self, entry: SassEncoding, word: int) -> None:
        """Take an encoding into the table, unless it has that very one."""
        known = self.learner.entries[entry.form]
        word &= ~self.outside
        if entry not in known:
            known.append(entry)
            self.by_shape[shape(entry.form)].setdefault((entry.numbers, entry.marks), entry)
            self.shapes[shape(entry.form)] += entry.form not in self.words
            self.mnemonics[shape(entry.form)[0]] += entry.form not in self.words
            self.words.setdefault(entry.form, word)

    def learn(self, seeds: Sequence[int]) -> int:
        """Study seeds one by one; returns how many encodings came of it."""
        made = self.learner.learn(seeds)
        bad = self.learner.trial([entry for _, entry in made], 6, self.rng)
        for i, (word, entry) in enumerate(made):
            if i not in bad:
                self.add(entry, word)
        return len(made) - len(bad)

    # --- forms near known ones --------------------------------------------------------------------

    def neighbours(self, forms: Iterable[Form]) -> dict[Form, int]:
        """New forms near a known form's word: a word of each."""
        return self.new_forms(w for form in forms for w in self.near(form))

    def near(self, form: Form) -> Iterator[int]:
        """The words near a form's word."""
        entry, word = self.learner.entries[form][0], self.words[form]
        fixed = ~(entry.variable | entry.silent)
        bits = [b for b in self.learner.free_bits() if fixed >> b & 1]
        yield from (word ^ 1 << b for b in bits)
        for number in entry.numbers:  # nvdisasm leaves out an offset of 0, the mask 0xf, PT
            yield from (word & ~number.mask, word | number.mask)
        if shape(form) not in self.explored:
            self.explored.add(shape(form))
            yield from (word ^ 1 << a ^ 1 << b for a, b in combinations(bits, 2) if b - a <= NEAR)
            if self.learner.coding is VOLTA:  # bits 8 to 11 select the operands' kinds
                yield from (word ^ i << 8 for i in range(1, 16))

    def new_forms(self, words: Iterable[int]) -> dict[Form, int]:
        """The forms of words that are not known: a word of each."""
        found: dict[Form, int] = {}
        for batch in batched(words, BATCH):
            for word, said in zip(batch, self.learner.texts(batch), strict=True):
                if said is not None and said[1].form not in self.words:
                    if self.failed[said[1].form] < ATTEMPTS:
                        found.setdefault(said[1].form, word)
        return found

    def spread(self, start: dict[Form, int], seconds: float) -> None:
        """Take the forms ``start``, and from each that is taken those near it, until there are no
        others or the time is over. Kinds of operands with few known forms come first.
        """
        waiting, begin = dict(start), time.monotonic()
        while waiting and time.monotonic() - begin < seconds:
            new = self.next_forms(waiting)
            before = set(self.words)
            left = self.derive(new)
            seeds = self.one_each(left)
            studied = self.learn(seeds)
            left = self.derive({f: w for f, w in left.items() if f not in self.words})
            self.failed.update(left.keys())
            made = [f for f in self.words if f not in before]
            waiting = self.neighbours(made) | waiting
            print(f"  {len(new)} forms, {len(made)} taken, {studied} of {len(seeds)} studied,",
                  f"{len(self.words)} known, {len(waiting)} wait, {self.learner.asked} asked",
                  flush=True)  # fmt: skip

    def next_forms(self, waiting: dict[Form, int]) -> dict[Form, int]:
        """Remove from ``waiting`` what to take next, and what is known or too much."""
        order = sorted(waiting, key=self.precedence)
        new: Counter[Form] = Counter()
        found = {}
        for form in order:
            if len(found) == STEP_FORMS:
                break
            word = waiting.pop(form)
            if form not in self.words and self.shapes[shape(form)] + new[shape(form)] < SHAPE_FORMS:
                new[shape(form)] += 1
                found[form] = word
        return found

    def precedence(self, form: Form) -> tuple[int, int, int]:
        """Mnemonics with few known forms first, then kinds of operands, then few modifiers."""
        name = shape(form)[0]
        known = self.mnemonics[name] // 300, self.shapes[shape(form)] // 30
        return (*known, form[0].count("."))

    def complete(self, mnemonics: Iterable[str]) -> None:
        """Study by themselves those forms of which one flipped bit shows a number or mark that
        their encodings do not have.
        """
        chosen = set(mnemonics)
        forms = [f for f in self.words if shape(f)[0] in chosen]
        for batch in batched(forms, STEP_FORMS // 4):
            words = {}
            for form in batch:
                entry = self.learner.entries[form][0]
                fixed = ~(entry.variable | entry.silent)
                words |= {self.words[form] ^ 1 << b: form
                          for b in self.learner.free_bits() if fixed >> b & 1}  # fmt: skip
            missing = []
            for word, said in zip(words, self.learner.texts(list(words)), strict=True):
                if said is not None and said[1].form == words[word]:
                    if not any(
                        self.reads(e, word, said) for e in self.learner.entries[words[word]]
                    ):
                        missing.append(word)
            studied = self.learn(missing)
            print(
                f"  {len(batch)} forms, {len(missing)} not complete, {studied} studied", flush=True
            )

    def one_each(self, forms: dict[Form, int]) -> list[int]:
        """A few words of each shape."""
        found: dict[Form, list[int]] = defaultdict(list)
        for form in sorted(forms, key=lambda f: self.rng.random()):
            found[shape(form)].append(forms[form])
        return [word for words in found.values() for word in words[:SEEDS_OF_SHAPE]]

    def check_silent_bits(self) -> None:
        """Drop those silent bits of each encoding that change the text of a random word."""
        for form, entries in self.learner.entries.items():
            self.pending += [(form, i, entry) for i, entry in enumerate(entries) if entry.silent]
        while self.pending:
            batch, self.pending = self.pending[:SILENT_BATCH], self.pending[SILENT_BATCH:]
            self.check_batch(batch)

    def check_batch(self, batch: list[tuple[Form, int, SassEncoding]]) -> None:
        words, owners = [], []
        for k, (_, _, entry) in enumerate(batch):
            sample = self.samples(replace(entry, silent=0))[3]
            bits = [b for b in self.learner.free_bits() if entry.silent >> b & 1]
            words += [sample, *(sample ^ 1 << b for b in bits)]
            owners += [(k, 0), *((k, 1 << b) for b in bits)]
        loud: Counter[int] = Counter()
        plain: SassText | None = None
        for (k, bit), said in zip(owners, self.learner.texts(words), strict=True):
            if not bit:
                plain = said[1] if said else None
            elif plain is not None and (said is None or str(said[1]) != str(plain)):
                loud[k] |= bit
        for k, bits in loud.items():
            form, i, entry = batch[k]
            self.learner.entries[form][i] = replace(entry, silent=entry.silent & ~bits)

    def guards(self) -> None:
        """Note which mnemonics print no guard: SSY, CAL and their kind on sm_5x."""
        forms = [f for f, those in self.learner.entries.items() if those]
        guard = 6 << self.learner.coding.guard | self.learner.plain
        said = self.learner.oracle.ask([self.words[f] | guard for f in forms])
        without = set()
        for form, one in zip(forms, said, strict=True):
            text = one and self.learner.parsed(one)
            if text and text[1].form == form and text[1].guard == ALWAYS:
                without.add(form[0].split(".")[0])
        for form in forms:
            guarded = form[0].split(".")[0] not in without
            entries = self.learner.entries[form]
            self.learner.entries[form] = [replace(e, guarded=guarded) for e in entries]

    def reuse_forms(self) -> None:
        """Take the forms of sm_5x that differ in their reuse bits: .T and .P of TLD."""
        if self.learner.coding is not MAXWELL:
            return
        forms = [f for f, those in self.learner.entries.items() if those and not those[0].reuse]
        words = [self.words[f] | self.learner.always(self.words[f]) for f in forms]
        for bit in range(2):
            for form, said in zip(forms, self.learner.oracle.ask(words, 1 << bit), strict=True):
                text = said and self.learner.parsed(said)
                if text and text[1].form[0] != form[0] and text[1].form[1:] == form[1:]:
                    for entry in list(self.learner.entries[form]):
                        new = replace(entry, form=text[1].form, fixed_reuse=1 << bit)
                        self.add(new, self.words[form])

    # --- encodings from those of the same shape ---------------------------------------------------

    def derive(self, forms: dict[Form, int]) -> dict[Form, int]:
        """Take the forms whose encoding follows from another's; returns the others."""
        left = dict(forms)
        for attempt in range(MODELS):
            tried = {f: e for f, w in left.items() if (e := self.model(f, w, attempt)) is not None}
            for form, entry in self.confirmed(tried, left).items():
                self.add(entry, left.pop(form))
        return left

    def model(self, form: Form, word: int, attempt: int) -> SassEncoding | None:
        """The encoding of a form by the fields of the ``attempt``-th different one."""
        fields = self.by_shape[shape(form)]
        if attempt >= len(fields):
            return None
        like = next(islice(fields.values(), attempt, None))
        return replace(like, form=form, base=word & ~like.variable & ~self.outside, fixed_reuse=0)

    @property
    def outside(self) -> int:
        return self.learner.coding.outside

    def confirmed(
        self, tried: dict[Form, SassEncoding], words: dict[Form, int]
    ) -> dict[Form, SassEncoding]:
        """Those encodings of which random words read as they say; without the silent bits that
        are not silent here.
        """
        asked, owners = [], []
        for form, entry in tried.items():
            samples = [words[form] & ~self.outside, *self.samples(entry)]
            asked += samples
            owners += [form] * len(samples)
        agree: Counter[Form] = Counter()
        wrong: set[Form] = set()
        for form, word, said in zip(owners, asked, self.learner.texts(asked), strict=True):
            verdict = self.reads(tried[form], word, said)
            agree[form] += verdict is True
            wrong |= {form} if verdict is False else set()
        return {f: e for f, e in tried.items() if agree[f] >= AGREE and f not in wrong}

    def samples(self, entry: SassEncoding) -> list[int]:
        """Random words of an encoding."""
        words = []
        for i in range(TRIALS):
            word = entry.base
            for number in entry.numbers:
                word |= sum(1 << b for b, _ in number.bits if self.rng.random() < (i + 1) / TRIALS)
            for marks in entry.marks:
                word |= self.rng.choice(marks.choices)[1]
            words.append(word ^ (entry.silent & self.rng.getrandbits(128) if i % 2 else 0))
        return words

    def reads(self, entry: SassEncoding, word: int, said: Said) -> bool | None:
        """Whether nvdisasm's text of a word encodes to it; None for a text of another form, or one
        that the encoding refuses.
        """
        if said is None or said[1].form != entry.form:
            return None
        try:
            mine = entry.encode(said[1], self.learner.next(said[0]))
        except (SassError, ValueError):
            return None
        return not (mine ^ word) & ~entry.silent
