"""The forms most like one that does not exist, and what is wrong with that: for error messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from difflib import SequenceMatcher

_FEW = 40  # that share most modifiers; of these the most alike in order are taken


def closest(opcode: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known opcodes with most modifiers in common, those in the same order first."""
    words = Counter(opcode.split("."))
    scored = sorted(known, key=lambda other: -_common(words, other))[:_FEW]
    return sorted(scored, key=lambda other: -_alike(opcode, other))[:count]


def _common(words: Counter[str], other: str) -> float:
    theirs = other.split(".")
    return 2 * (words & Counter(theirs)).total() - len(theirs)


def _alike(opcode: str, other: str) -> float:
    return SequenceMatcher(None, opcode.split("."), other.split("."), autojunk=False).ratio()


def reason(opcode: str, known: Iterable[str]) -> str:
    """Why an opcode is none of these: a modifier that none has, or one that does not go with the
    others, or one that is missing; empty where that can't be said in a few words.
    """
    mnemonic, *words = opcode.split(".")
    every = list(known)
    used = {word for other in every for word in other.split(".")}
    if strange := [word for word in words if word not in used]:
        return f"{mnemonic} has no .{' and no .'.join(strange)}"
    best = closest(opcode, every, 1)
    if not best:
        return ""
    given, wanted = Counter(words), Counter(best[0].split(".")[1:])
    excess, lacking = list((given - wanted).elements()), list((wanted - given).elements())
    if excess and lacking:
        return f".{', .'.join(excess)} does not go with the rest; .{', .'.join(lacking)} would"
    if excess:
        return f".{', .'.join(excess)} does not go with the rest"
    return f".{', .'.join(lacking)} is missing" if lacking else "its modifiers are out of order"
