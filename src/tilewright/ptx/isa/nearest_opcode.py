"""Opcodes like one that no row has, for error messages: what its words make of each row, with one
modifier more or less.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .row import Row


UNSUPPORTED_MNEMONICS = {
    **dict.fromkeys(("tex", "tld4", "txq", "istypep"), "there are no textures here"),
    **dict.fromkeys(("suld", "sust", "sured", "suq"), "there are no surfaces here"),
    "tcgen05": "there is no tensor memory here",
}  # what PTX has and no row does


def similar_opcodes(opcode: str, rows: Iterable[Row]) -> list[str]:
    """Opcodes that the rows' slots allow, legal or not, which keep some of the words given."""
    mnemonic, *words = opcode.split(".")
    found = (
        ".".join([mnemonic, *filter(None, made)])
        for row in rows
        if (start := _filled(row, words))
        for made in (start, *_changed(row, start))
    )
    return list(dict.fromkeys(found))


def _filled(row: Row, words: list[str]) -> list[str]:
    """A word for each slot: one given, or the first where there must be one; nothing where no word
    given fits.
    """
    left, made = list(words), []
    for slot in row.slots:
        word = next((w for w in left if w in slot.choices), "")
        if word:
            left.remove(word)
        made.append(word or ("" if slot.optional else slot.choices[0]))
    return made if len(left) < len(words) else []


def _changed(row: Row, start: list[str]) -> Iterator[list[str]]:
    """The same with an optional word dropped, or added."""
    for index, slot in enumerate(row.slots):
        if slot.optional:
            other = "" if start[index] else slot.choices[0]
            yield [*start[:index], other, *start[index + 1 :]]
