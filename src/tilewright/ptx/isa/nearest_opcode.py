"""Legal-looking opcodes similar to an unknown one, for the hints of error messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .row import Row

#: Instructions of PTX that no row has, with the reason.
UNSUPPORTED_MNEMONICS = {
    **dict.fromkeys(("tex", "tld4", "txq", "istypep"), "textures are not supported"),
    **dict.fromkeys(("suld", "sust", "sured", "suq"), "surfaces are not supported"),
    "tcgen05": "tensor memory is not supported",
}


def similar_opcodes(opcode: str, rows: Iterable[Row]) -> list[str]:
    """Opcodes that the rows' slots allow and that share modifiers with ``opcode``.

    Each row is filled with the given modifiers; then one optional modifier is added or dropped. The
    results may violate the row's constraint.
    """
    mnemonic, *modifiers = opcode.split(".")
    similar = (
        ".".join([mnemonic, *filter(None, words)])
        for row in rows
        if (start := _filled(row, modifiers))
        for words in (start, *_variants(row, start))
    )
    return list(dict.fromkeys(similar))


def shortest_opcodes(mnemonic: str, rows: Iterable[Row]) -> list[str]:
    """Opcodes with the mandatory modifiers only, each slot's choices in turn: ``mov.u32``."""
    found: list[str] = []
    for row in rows:
        choices = [slot.choices for slot in row.slots if not slot.optional]
        first = [words[0] for words in choices]
        for index, words in enumerate(choices):
            found += (".".join([mnemonic, *first[:index], w, *first[index + 1 :]]) for w in words)
    return list(dict.fromkeys(found))


def _filled(row: Row, modifiers: list[str]) -> list[str]:
    """A word for each slot: a given modifier, or the first choice of a mandatory slot.

    Empty where no given modifier matches a slot.
    """
    left, words = list(modifiers), []
    for slot in row.slots:
        word = next((w for w in left if w in slot.choices), "")
        if word:
            left.remove(word)
        words.append(word or ("" if slot.optional else slot.choices[0]))
    return words if len(left) < len(modifiers) else []


def _variants(row: Row, start: list[str]) -> Iterator[list[str]]:
    """The words with one optional modifier dropped or added."""
    for index, slot in enumerate(row.slots):
        if slot.optional:
            other = "" if start[index] else slot.choices[0]
            yield [*start[:index], other, *start[index + 1 :]]
