"""From a list of legal opcodes to those that are worth a judge's time: one modifier away, a word
moved, many words at random.

A ``Grammar`` knows the modifiers of each mnemonic: a vocabulary for each position, in the manual's
order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from random import Random

Positions = Mapping[str, list[list[str]]]


class Grammar:
    """``positions``: vocabularies by mnemonic; ``types``: words that keep their order."""

    def __init__(self, positions: Positions, types: Sequence[str]) -> None:
        self.positions, self.types = positions, types
        self.where = {
            mnemonic: {w: i for i, words in reversed(list(enumerate(given))) for w in words}
            for mnemonic, given in positions.items()
        }

    def neighbours(self, opcode: str) -> Iterator[str]:
        """All opcodes with one modifier replaced, dropped or added."""
        mnemonic, *words = opcode.split(".")
        positions, where = self.positions[mnemonic], self.where[mnemonic]
        for i, word in enumerate(words):
            rest = words[:i], words[i + 1 :]
            yield ".".join([mnemonic, *rest[0], *rest[1]])
            for other in positions[where[word]]:
                if _alike(word, other):
                    yield ".".join([mnemonic, *rest[0], other, *rest[1]])
        for number, vocabulary in enumerate(positions):
            i = next((i for i, w in enumerate(words) if where[w] > number), len(words))
            for word in vocabulary:
                yield ".".join([mnemonic, *words[:i], word, *words[i:]])

    def mixed(
        self, opcodes: Sequence[str], count: int, shares: Sequence[str], seed: int = 0
    ) -> Iterator[str]:
        """Random opcodes: words of a legal one kept, with few or many drawn anew, dropped or added.

        ``shares`` are mnemonics, as often as they are drawn.
        """
        draw = Random(seed).random  # the one method that gives the same on every Python
        by_mnemonic: dict[str, list[str]] = {}
        for opcode in opcodes:
            by_mnemonic.setdefault(opcode.split(".")[0], []).append(opcode)

        def pick(choices: Sequence[str]) -> str:
            return choices[int(draw() * len(choices))]

        for _ in range(count):
            mnemonic, *words = pick(by_mnemonic[pick(shares)]).split(".")
            positions, where = self.positions[mnemonic], self.where[mnemonic]
            keep = (0.4, 0.7, 0.9)[int(draw() * 3)]
            made = [w if draw() < keep else pick(positions[where[w]]) for w in words]
            if draw() < 0.1:
                del made[int(draw() * len(made))]
            if draw() < 0.1:
                at, vocabulary = int(draw() * (len(made) + 1)), int(draw() * len(positions))
                made.insert(at, pick(positions[vocabulary]))
            yield ".".join([mnemonic, *made])

    def skeleton(self, opcode: str) -> tuple[object, ...]:
        """What opcodes that ptxas should order alike have in common: their words' positions."""
        mnemonic, *words = opcode.split(".")
        types = [w for w in words if w in self.types]
        alike = tuple(types[0] == t for t in types)
        return mnemonic, tuple(self.where[mnemonic][w] for w in words), alike

    def kinds(self, opcodes: Sequence[str]) -> list[str]:
        """One opcode of each skeleton."""
        return list({self.skeleton(o): o for o in reversed(opcodes)}.values())


def _alike(word: str, other: str) -> bool:
    """Of wgmma's many shapes only those with one size changed are one modifier away."""
    a, b = re.findall(r"\d+", word), re.findall(r"\d+", other)
    return not word.startswith("m64n") or sum(x != y for x, y in zip(a, b, strict=True)) < 2


def moved(opcode: str) -> Iterator[str]:
    """All opcodes with one word elsewhere, or twice."""
    mnemonic, *words = opcode.split(".")
    for i, word in enumerate(words):
        rest = words[:i] + words[i + 1 :]
        for j in range(len(words)):
            yield ".".join([mnemonic, *rest[:j], word, *rest[j:]])
        yield ".".join([mnemonic, *words[: i + 1], *words[i:]])
