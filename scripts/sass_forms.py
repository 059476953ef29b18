"""Finds the forms that are near known ones, and derives their encodings.

Two forms with the same mnemonic and the same kinds of operands differ in their modifiers alone, so
the encoding of one is tried with the other's fixed bits: random words of it must read as it says.
A form with other operands, or one that fails, is a seed that ``sass_learner`` studies by itself.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from sass_learner import Learner

from tilewright.errors import SassError
from tilewright.sass.encoding import MAXWELL, SassEncoding
from tilewright.sass.encoding_table import EncodingTable
from tilewright.sass.sass_text import ALWAYS, SassText

TRIALS = 8  # random words of each derived encoding
AGREE = 2  # the least number of words that must be legal and read as expected
SHAPE_FORMS = 120  # limit of the forms of one mnemonic with the same operands
SEEDS_OF_SHAPE = 2  # studied in one step
SILENT_BATCH = 2000  # encodings whose silent bits are checked at once
ATTEMPTS = 2  # after which a form is given up

Form = tuple[str, ...]
Said = tuple[int, SassText] | None


def shape(form: Form) -> Form:
    """The mnemonic without modifiers, and the kinds of the operands."""
    return (form[0].split(".")[0], *form[1:])


@dataclass
class FormSearch:
    """``words`` holds a word of each form that is known."""

    learner: Learner
    rng: random.Random
    words: dict[Form, int] = field(default_factory=dict)
    failed: Counter[Form] = field(default_factory=Counter)
    shapes: Counter[Form] = field(default_factory=Counter)
    pending: list[tuple[Form, int, SassEncoding]] = field(default_factory=list)
    by_shape: dict[Form, list[SassEncoding]] = field(default_factory=lambda: defaultdict(list))

    def add(self, entry: SassEncoding, word: int) -> None:
        """Take an encoding into the table, unless it has that very one."""
        known = self.learner.entries[entry.form]
        word &= ~self.outside
        if entry not in known:
            known.append(entry)
            self.by_shape[shape(entry.form)].append(entry)
            self.shapes[shape(entry.form)] += entry.form not in self.words
            self.words.setdefault(entry.form, word)

    def take(self, table: EncodingTable) -> None:
        """Take all encodings of a table."""
        for entry in table.entries:
            self.add(entry, entry.base | sum(marks.choices[0][1] for marks in entry.marks))

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
        """New forms that one flipped bit makes of a known form's word: a word of each."""
        words = []
        for form in forms:
            entry = self.learner.entries[form][0]
            fixed = ~(entry.variable | entry.silent)
            bits = [b for b in self.learner.free_bits() if fixed >> b & 1]
            words += [self.words[form] ^ 1 << b for b in bits]
        return self.new_forms(words)

    def elided(self) -> dict[Form, int]:
        """New forms of known words in which one number has all its bits, or none: nvdisasm leaves
        out what is the default, as an offset of 0, the mask 0xf or the predicate PT.
        """
        words = []
        for form in list(self.words):
            for number in self.learner.entries[form][0].numbers:
                word = self.words[form] & ~number.mask
                words += [word, word | number.mask]
        return self.new_forms(words)

    def new_forms(self, words: Sequence[int]) -> dict[Form, int]:
        """The forms of words that are not known: a word of each."""
        found: dict[Form, int] = {}
        new: Counter[Form] = Counter()
        for word, said in zip(words, self.learner.texts(words), strict=True):
            if said is None or said[1].form in self.words:
                continue
            form = said[1].form
            if form not in found and self.failed[form] < ATTEMPTS:
                new[shape(form)] += 1
                if self.shapes[shape(form)] + new[shape(form)] <= SHAPE_FORMS:
                    found[form] = word
        return found

    def spread(self, depth: int, limit: int, start: dict[Form, int] | None = None) -> None:
        """Take the forms ``start``, then those within ``depth`` flips of known ones; at most
        ``limit`` seeds are studied by themselves in each step.
        """
        new = start if start is not None else self.neighbours(list(self.words))
        for step in range(depth):
            before = set(self.words)
            left = self.derive(new)
            seeds = self.one_each(left)[:limit]
            studied = self.learn(seeds)
            left = self.derive({f: w for f, w in left.items() if f not in self.words})
            self.failed.update(left.keys())
            made = [f for f in self.words if f not in before]
            print(f"  step {step}: {len(new)} forms, {len(made)} taken, {studied} of {len(seeds)}",
                  f"studied, {len(self.words)} known, {self.learner.asked} asked",
                  flush=True)  # fmt: skip
            new = self.neighbours(made)
            if not new:
                break

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
        for attempt in range(3):  # models: encodings of the shape with different fields
            tried = {f: e for f, w in left.items() if (e := self.model(f, w, attempt)) is not None}
            for form, entry in self.confirmed(tried, left).items():
                self.add(entry, left.pop(form))
        return left

    def model(self, form: Form, word: int, attempt: int) -> SassEncoding | None:
        """The encoding of a form by the fields of the ``attempt``-th different one."""
        fields = {(e.numbers, e.marks): e for e in self.by_shape[shape(form)]}
        if attempt >= len(fields):
            return None
        like = list(fields.values())[attempt]
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
