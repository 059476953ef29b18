"""The forms most similar to one that does not exist, and the difference, for error messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from difflib import SequenceMatcher

from ..errors import UnknownInstruction

_FEW = 40  # candidates that share most modifiers, of which the most similar in order are chosen


def opcode_parts(opcode: str) -> list[str]:
    """The mnemonic and the modifiers. UnknownInstruction for anything but a str."""
    if not isinstance(opcode, str):
        raise UnknownInstruction(f"an opcode must be a str, got {type(opcode).__name__}")
    return opcode.split(".")


def closest_opcodes(opcode: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known opcodes with most modifiers in common, those in the same order first."""
    words = Counter(opcode_parts(opcode))
    scored = sorted(known, key=lambda other: -_common(words, other))[:_FEW]
    return sorted(scored, key=lambda other: -_similarity(opcode, other))[:count]


def _common(words: Counter[str], other: str) -> float:
    theirs = other.split(".")
    return 2 * (words & Counter(theirs)).total() - len(theirs)


def _similarity(opcode: str, other: str) -> float:
    return SequenceMatcher(None, opcode.split("."), other.split("."), autojunk=False).ratio()


def mismatch_reason(opcode: str, known: Iterable[str]) -> str:
    """Why an opcode matches no form: a modifier that no form has, that is incompatible with the
    others, or that is missing. Empty without known opcodes.
    """
    mnemonic, *modifiers = opcode_parts(opcode)
    every = list(known)
    if not every:
        return ""
    first = dict.fromkeys(other.partition(".")[0] for other in every)
    if mnemonic not in first:
        return f"it must begin with {' or '.join(first)}"
    if "" in modifiers:
        return "a modifier is empty"
    used = {word for other in every for word in other.split(".")}
    if unknown := [word for word in modifiers if word not in used]:
        return f"{mnemonic} has no .{' and no .'.join(unknown)}"
    nearest = closest_opcodes(opcode, every, 1)[0].split(".")[1:]
    actual, expected = Counter(modifiers), Counter(nearest)
    excess, missing = list((actual - expected).elements()), list((expected - actual).elements())
    if excess and missing:
        return f"expected .{', .'.join(missing)}, got .{', .'.join(excess)}"
    if excess:
        return f"unexpected .{', .'.join(excess)}"
    verb = "is" if len(missing) == 1 else "are"
    return f".{', .'.join(missing)} {verb} missing" if missing else "its modifiers are out of order"
