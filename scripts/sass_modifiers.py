"""Finds which bits say which modifiers of a seed's opcode.

Bits whose flips, together, do what each does alone are independent. Those that are not, or whose
combination is illegal, are one field, all of whose values are asked. A field's text is what differs
between the seed's modifiers and those of a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cmp_to_key, lru_cache
from itertools import combinations, islice

from sass_learner import Learner
from sass_seed import OTHER, Modifiers, Seed, tokens

FIELD_BITS = 11  # limit of the bits whose combinations are all tried
VALUES = 1 << FIELD_BITS
PARTNERS = 8  # limit of modifier bits that are flipped with every bit without a role

Edit = tuple[int, int, tuple[str, ...]]  # tokens from, to, and what replaces them


class ModifierStudy:
    def __init__(self, learner: Learner) -> None:
        self.learner = learner

    def study(self, seeds: Sequence[Seed]) -> None:
        """Set ``modifiers`` of the seeds, all of them free to vary."""
        self.conditional(seeds)
        self.ask([(s, flips(p)) for s in seeds for p in combinations(sorted(s.modifier_bits), 2)])
        fields = {id(s): groups(s) for s in seeds}
        self.ask([(s, n) for s in seeds for g in fields[id(s)] for n in subsets(g)])
        joined = {id(s): joined_groups(s, fields[id(s)]) for s in seeds}
        self.ask([(s, n) for s in seeds for g in joined[id(s)] for n in subsets(g)])
        for s in seeds:
            s.modifiers = in_order(s, [modifiers(s, g) for g in joined[id(s)]])
            s.free_modifiers = set(range(len(s.modifiers)))

    def conditional(self, seeds: Sequence[Seed]) -> None:
        """Find bits that say modifiers only if another bit is flipped."""
        asked = []
        for s in seeds:
            others = s.modifier_bits | marked(s)
            rest = [b for b in self.learner.free_bits() if s.is_free(b) and b not in others]
            s.said[0] = s.text.modifiers
            asked += [(s, 1 << b) for b in (*rest, *s.modifier_bits)]
            partners = sorted(s.modifier_bits)[:PARTNERS]
            asked += [(s, flips((m, b))) for m in partners for b in rest]
        self.ask(asked)
        for s in seeds:
            partners = sorted(s.modifier_bits)[:PARTNERS]
            for n, text in list(s.said.items()):
                bits = bits_of(n)
                if len(bits) == 2 and text not in (None, OTHER):
                    one = next((b for b in bits if b in partners), None)
                    other = bits[0] if bits[1] == one else bits[1]
                    if one is not None and other not in partners and text != s.said.get(1 << one):
                        s.modifier_bits.add(other)

    def ask(self, asked: list[tuple[Seed, int]]) -> None:
        """Note the modifiers of seeds with some bits flipped."""
        asked = [(s, n) for s, n in asked if n not in s.said]
        texts = self.learner.texts([s.word ^ n for s, n in asked])
        for (s, n), said in zip(asked, texts, strict=True):
            s.said[n] = None
            if said is not None:
                same = said[1].shape == s.text.shape and said[1].marks == s.text.marks
                same = same and self.learner.values(s, *said) == self.learner.own(s)
                s.said[n] = said[1].modifiers if same else OTHER


def marked(seed: Seed) -> set[int]:
    """The bits of marks."""
    return {b for bits in seed.mark_bits.values() for b in bits}


def flips(bits: Iterable[int]) -> int:
    return sum(1 << b for b in bits)


def bits_of(number: int) -> list[int]:
    return [b for b in range(number.bit_length()) if number >> b & 1]


def subsets(bits: Sequence[int]) -> list[int]:
    """Combinations of the bits, those of few bits first."""
    return list(_subsets(tuple(bits)))


@lru_cache(1 << 10)
def _subsets(bits: tuple[int, ...]) -> tuple[int, ...]:
    sets = (s for n in range(len(bits) + 1) for s in combinations(bits, n))
    return tuple(flips(s) for s in islice(sets, VALUES))


def edit(before: tuple[str, ...], after: tuple[str, ...]) -> Edit:
    """The part of ``before`` that differs, and what it became."""
    low = 0
    while low < min(len(before), len(after)) and before[low] == after[low]:
        low += 1
    end = 0
    while end < min(len(before), len(after)) - low and before[-1 - end] == after[-1 - end]:
        end += 1
    return low, len(before) - end, after[low : len(after) - end]


def both(seed: Seed, one: int, other: int) -> set[tuple[str, ...]]:
    """The modifiers that two bits make if they are independent, in either order."""
    mine = tokens(seed.text.modifiers)
    a, b = seed.said.get(1 << one), seed.said.get(1 << other)
    if a in (None, OTHER) or b in (None, OTHER):
        return set()
    assert a is not None and b is not None
    first, second = sorted((edit(mine, tokens(a)), edit(mine, tokens(b))), key=lambda e: e[:2])
    if second[0] < first[1]:  # they change the same token
        return set()
    rest = mine[second[1] :]
    middle = mine[first[1] : second[0]]
    found = {(*mine[: first[0]], *first[2], *middle, *second[2], *rest)}
    if first[:2] == second[:2]:
        found.add((*mine[: first[0]], *second[2], *first[2], *rest))
    return found


def groups(seed: Seed) -> list[list[int]]:
    """The modifier bits, those in one list that are not independent; where that is too many, bits
    whose combination is only illegal are taken apart.
    """
    for illegal_too in (True, False):
        parts = {b: {b} for b in seed.modifier_bits}
        for a, b in combinations(sorted(seed.modifier_bits), 2):
            said = seed.said.get(flips((a, b)))
            legal = said not in (None, OTHER)
            together = legal or (illegal_too and None not in (seed.said.get(1 << a),
                                                               seed.said.get(1 << b)))  # fmt: skip
            if together and (not legal or tokens(said or "") not in both(seed, a, b)):
                union = parts[a] | parts[b]
                for x in union:
                    parts[x] = union
        found = {tuple(sorted(p)) for p in parts.values()}
        if all(len(p) <= FIELD_BITS for p in found):
            break
    return [list(p) for p in sorted(found)]


def interval(seed: Seed, bits: Sequence[int]) -> tuple[int, int]:
    """The tokens that the values of some bits change."""
    mine = tokens(seed.text.modifiers)
    edits = [edit(mine, tokens(t)) for n in subsets(bits) if (t := seed.said.get(n)) is not None
             and t not in (OTHER, seed.text.modifiers)]  # fmt: skip
    if not edits:
        return len(mine), len(mine)
    return min(e[0] for e in edits), max(e[1] for e in edits)


def joined_groups(seed: Seed, parts: list[list[int]]) -> list[list[int]]:
    """The groups; those that change the same tokens are one."""
    left = sorted((interval(seed, p), p) for p in parts)
    found: list[list[int]] = []
    end = 0
    for (low, high), part in left:
        if found and low < end:
            found[-1] = found[-1] + part
        else:
            found.append(part)
        end = max(end, high)
    return found


def modifiers(seed: Seed, bits: list[int]) -> Modifiers:
    """The field of some bits."""
    low, high = interval(seed, bits)
    mine = tokens(seed.text.modifiers)
    mask, after = flips(bits), len(mine) - high
    choices: dict[str, int] = {}
    for n in subsets(bits):
        said = seed.said.get(n)
        if said is not None and said != OTHER:
            text = tokens(said)
            end = len(text) - after
            if text[:low] == mine[:low] and text[end:] == mine[high:] and end >= low:
                choices.setdefault("".join(text[low:end]), (seed.word ^ n) & mask)
    return Modifiers(tuple(bits), choices, low, high)


def in_order(seed: Seed, parts: list[Modifiers]) -> list[Modifiers]:
    """The fields as their texts follow each other."""
    mine = tokens(seed.text.modifiers)

    def compare(one: Modifiers, other: Modifiers) -> int:
        first, second = (one.low, one.high), (other.low, other.high)
        if first != second:
            return -1 if first < second else 1
        for a in one.bits:
            for b in other.bits:
                x, y = seed.said.get(1 << a), seed.said.get(1 << b)
                said = seed.said.get(flips((a, b)))
                if None in (x, y, said) or OTHER in (x, y, said) or x == y:
                    continue
                inside = edit(mine, tokens(said or ""))[2]
                new = edit(mine, tokens(x or ""))[2], edit(mine, tokens(y or ""))[2]
                if new[0] and new[1] and inside in (new[0] + new[1], new[1] + new[0]):
                    return -1 if inside == new[0] + new[1] else 1
        return 0

    return sorted(parts, key=cmp_to_key(compare))
