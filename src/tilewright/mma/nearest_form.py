"""The forms most like one that does not exist, and what is wrong with that: for error messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from difflib import SequenceMatcher

from ..errors import UnknownInstruction

_FEW = 40  # that share most modifiers; of these the most alike in order are taken


def opcode_parts(opcode: str) -> list[str]:
    """The mnemonic and the modifiers. UnknownInstruction for what is no text."""
    if not isinstance(opcode, str):
        raise UnknownInstruction(f"an opcode is text, not {type(opcode).__name__}")
    return opcode.split(".")


def closest_opcodes(opcode: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known opcodes with most modifiers in common, those in the same order first."""
    given = Counter(opcode_parts(opcode))
    scored = sorted(known, key=lambda other: -_common(given, other))[:_FEW]
    return sorted(scored, key=lambda other: -_alike(opcode, other))[:count]


def _common(given: Counter[str], other: str) -> float:
    theirs = other.split(".")
    return 2 * (given & Counter(theirs)).total() - len(theirs)


def _alike(opcode: str, other: str) -> float:
    return SequenceMatcher(None, opcode.split("."), other.split("."), autojunk=False).ratio()


def mismatch_reason(opcode: str, known: Iterable[str]) -> str:
    """Why an opcode matches no form: a modifier that no form has, or one that does not go with the
    others, or one that is missing; empty where that can't be said in a few words.
    """
    mnemonic, *modifiers = opcode_parts(opcode)
    every = list(known)
    if not every:
        return ""
    first = dict.fromkeys(other.partition(".")[0] for other in every)
    if mnemonic not in first:
        return f"it begins with {' or '.join(first)}"
    if "" in modifiers:
        return "a modifier is empty"
    used = {word for other in every for word in other.split(".")}
    if strange := [word for word in modifiers if word not in used]:
        return f"{mnemonic} has no .{' and no .'.join(strange)}"
    given, wanted = Counter(modifiers), Counter(closest_opcodes(opcode, every, 1)[0].split(".")[1:])
    excess, lacking = list((given - wanted).elements()), list((wanted - given).elements())
    if excess and lacking:
        return f".{', .'.join(excess)} does not go with the rest; .{', .'.join(lacking)} would"
    if excess:
        return f".{', .'.join(excess)} does not go with the rest"
    verb = "is" if len(lacking) == 1 else "are"
    return f".{', .'.join(lacking)} {verb} missing" if lacking else "its modifiers are out of order"
