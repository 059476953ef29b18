"""``motion_between``: where each instruction of a function went when its listing was edited.

Instructions are compared without branch targets and control codes. What is alike in both, in the
same order, was kept; lines that both have once are aligned first, as in a patience diff, because
the code of inlined functions repeats itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from .code_motion import CodeMotion
from .sass_instruction import SassInstruction

Decoded = tuple[int, SassInstruction]  # (offset, instruction)
Pair = tuple[int, int]  # indexes of an instruction before and after


def motion_between(
    old: Sequence[Decoded], new: Sequence[Decoded], sizes: tuple[int, int]
) -> CodeMotion:
    """From the decoded code before and after, and the bytes of both.

    An instruction that is in neither's order is looked for anywhere; one that is not found was
    replaced by what is in its place, or removed.
    """
    before, after = _names(old), _names(new)
    pairs = [*_kept(before, after)]
    pairs += _elsewhere(before, after, pairs)
    pairs += _replaced(sorted(pairs), len(old), len(new))
    return CodeMotion({old[i][0]: new[k][0] for i, k in sorted(pairs)}, *sizes)


def kept_instructions(
    old: Sequence[Decoded], new: Sequence[Decoded], sizes: tuple[int, int]
) -> CodeMotion:
    """The same for code that may be another program: what is not kept in order was removed, but
    the first instruction, where a function begins.
    """
    pairs = _kept(_names(old), _names(new))
    return CodeMotion({0: 0} | {old[i][0]: new[k][0] for i, k in pairs if i and k}, *sizes)


def _names(code: Sequence[Decoded]) -> list[str]:
    return [_without_target(x) for _, x in code]


def _without_target(instruction: SassInstruction) -> str:
    """What tells an instruction from others wherever it lies."""
    text = instruction.text
    if text is None:
        return f"{instruction.raw:#x}"
    if instruction.target is None:
        return str(replace(text, reuse=0))
    operands = [x for i, x in enumerate(text.operands) if i != instruction.target]
    return str(replace(text, operands=tuple(operands), reuse=0))


def _kept(old: Sequence[str], new: Sequence[str]) -> Iterator[Pair]:
    """The pairs that both have in the same order."""
    pairs = _subsequence(old, new)
    if pairs is None:
        pairs = [(i, k) for k, i in _subsequence(new, old) or ()]
    if pairs:
        yield from pairs
        return
    anchors = [*_anchors(old, new), (len(old), len(new))]
    if len(anchors) == 1:
        for i, k, size in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
            yield from ((i + n, k + n) for n in range(size))
        return
    i = k = 0
    for a, b in anchors:
        yield from ((i + x, k + y) for x, y in _kept(old[i:a], new[k:b]))
        if a < len(old):
            yield a, b
        i, k = a + 1, b + 1


def _subsequence(old: Sequence[str], new: Sequence[str]) -> list[Pair] | None:
    """All of ``old`` in ``new``; None where something is missing."""
    pairs: list[Pair] = []
    k = 0
    for i, name in enumerate(old):
        while k < len(new) and new[k] != name:
            k += 1
        if k == len(new):
            return None
        pairs.append((i, k))
        k += 1
    return pairs


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[Pair]:
    """The longest run of pairs, in the order of both, of what each has once."""
    once = {x for x, n in Counter(old).items() if n == 1}
    places = {x: k for k, x in enumerate(new) if x in once}
    single = {x for x, n in Counter(new).items() if n == 1}
    pairs = [(i, places[x]) for i, x in enumerate(old) if x in once and x in single]
    ends: list[int] = []  # the least last place of a run of each length
    runs: list[int] = []  # the length of the longest run that ends in each pair
    for _, k in pairs:
        length = bisect_left(ends, k)
        ends[length : length + 1] = [k]
        runs.append(length)
    found: list[Pair] = []
    length = len(ends) - 1
    for pair, mine in zip(reversed(pairs), reversed(runs), strict=True):
        if mine == length:
            found.append(pair)
            length -= 1
    return found[::-1]


def _elsewhere(old: Sequence[str], new: Sequence[str], pairs: Sequence[Pair]) -> list[Pair]:
    """Pairs of what is alike and was not kept in order."""
    before, after = {i for i, _ in pairs}, {k for _, k in pairs}
    places: dict[str, list[int]] = defaultdict(list)
    for k in reversed(range(len(new))):
        if k not in after:
            places[new[k]].append(k)
    rest = [i for i in range(len(old)) if i not in before]
    return [(i, places[old[i]].pop()) for i in rest if places[old[i]]]


def _replaced(pairs: Sequence[Pair], old: int, new: int) -> list[Pair]:
    """What is between two kept instructions before and after, one for one."""
    taken = {k for _, k in pairs}
    found: list[Pair] = []
    i = k = 0
    for a, b in [*pairs, (old, new)]:
        free = [x for x in range(k, b) if x not in taken]
        found += zip(range(i, a), free, strict=False)
        i, k = a + 1, b + 1
    return found
