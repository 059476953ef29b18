"""A word that the learner studies, and what it knows of each of its bits."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

from tilewright.sass.encoding import (
    MarkField,
    NumberField,
    SassCoding,
    SassEncoding,
    sorted_bits,
)
from tilewright.sass.sass_text import SassText

OTHER = "?"  # a text that differs in more than modifiers


def tokens(modifiers: str) -> tuple[str, ...]:
    """``.E.64`` as (``.E``, ``.64``)."""
    return tuple(re.findall(r"\.[^.]*", modifiers))


@dataclass
class Modifiers:
    """Bits that say some of the opcode's modifiers: those between the tokens ``low`` and ``high``
    of the seed's text. ``choices`` has the bits of each text.
    """

    bits: tuple[int, ...]
    choices: dict[str, int]
    low: int
    high: int

    @property
    def mask(self) -> int:
        return sum(1 << b for b in self.bits)


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
    modifier_bits: set[int] = field(default_factory=set)
    said: dict[int, str | None] = field(default_factory=dict)  # flipped bits: modifiers
    modifiers: list[Modifiers] = field(default_factory=list)
    free_modifiers: set[int] = field(default_factory=set)  # indexes of those that may vary
    free_marks: set[int] | None = None  # operands whose marks may vary; None for all

    def is_free(self, bit: int) -> bool:
        """Whether a bit is of no number."""
        return bit not in self.weights or bit in self.wrong

    def mark_fields(self) -> list[MarkField]:
        """The field of each operand's marks."""
        fields, taken = [], 0
        for i, name in enumerate(self.text.marks):
            free = self.free_marks is None or i in self.free_marks
            choices = dict(self.choices.get(i, {})) if free else {}
            mask = sum(1 << b for b in self.mark_bits.get(i, set())) if len(choices) > 1 else 0
            mask &= ~taken
            if not mask or any(bits & ~mask for bits in choices.values()):
                mask, choices = 0, {name: 0}
            taken |= mask
            fields.append(MarkField(mask, tuple(sorted(choices.items()))))
        return fields

    def modifier_fields(self, taken: int) -> tuple[MarkField, ...]:
        """The fields of the opcode's modifiers, which leave the bits ``taken`` alone."""
        mine, found, at = tokens(self.text.modifiers), [], 0
        for i, part in enumerate(self.modifiers):
            if at < part.low:
                found.append(fixed("".join(mine[at : part.low])))
            at = part.high
            if i in self.free_modifiers and not part.mask & taken and len(part.choices) > 1:
                found.append(MarkField(part.mask, tuple(sorted(part.choices.items()))))
            else:
                found.append(fixed("".join(mine[part.low : part.high])))
        found.append(fixed("".join(mine[at:])))
        return tuple(f for f in found if f.choices != (("", 0),))

    def entry(self, before: list[int], coding: SassCoding) -> SassEncoding:
        """The encoding that follows from the bits' roles; ``before`` are the word's numbers."""
        marks = self.mark_fields()
        taken = sum(m.mask for m in marks)
        modifiers = self.modifier_fields(taken)
        taken |= sum(m.mask for m in modifiers)
        numbers = []
        for i, kind in enumerate(self.kinds):
            weights = [
                (b, w)
                for b, (k, w) in self.weights.items()
                if k == i and b not in self.wrong and not taken >> b & 1
            ]
            constant = before[i] - sum(w for b, w in weights if self.word >> b & 1)
            numbers.append(NumberField(kind, constant, sorted_bits(weights)))
        bare = SassEncoding(
            self.text.shape, 0, tuple(numbers), tuple(marks), modifiers=modifiers
        )  # fmt: skip
        base = self.word & ~bare.variable & ~coding.outside
        silent = sum(1 << b for b in self.quiet - self.loud if not bare.variable >> b & 1)
        return SassEncoding(
            bare.shape, base, bare.numbers, bare.marks, self.uniform,
            tuple(sorted(self.reuse.items())), silent, modifiers=modifiers,
        )  # fmt: skip


def fixed(text: str) -> MarkField:
    """Modifiers that do not vary."""
    return MarkField(0, ((text, 0),))
