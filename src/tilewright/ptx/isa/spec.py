"""Operands as a row writes them, ``d:T*vec`` or ``n:imm(0 1)``, and as all others read them.

``row.py`` explains the notation. A form's choices fill in what the row leaves open: types, lengths
of vectors, state spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .row import Form

_SPEC = re.compile(
    r"(?P<open>\[)?(?P<both>\+)?(?P<name>\w+):(?P<double>2)?(?P<type>\w*)"
    r"(?P<allowed>(?:\([-.\d ]*\))*)(?:\*(?P<count>\w+))?(?P<close>\])?(?P<opt>\?)?$"
)
_VALUES = re.compile(r"\(([^)]*)\)")
_FLIPPED_KINDS = {"imm", "label", "symbol", "any"}


@dataclass(frozen=True, slots=True)
class Allowed:
    """The values that an immediate may have, as the rows write them: ``1 -1``, ``0..31``, ``0..``;
    empty where none will do.
    """

    text: str

    def __str__(self) -> str:
        return self.text

    def __contains__(self, value: int) -> bool:
        return any(low <= value <= high for low, high in self._ranges())

    def _ranges(self) -> Iterator[tuple[int, int]]:
        for word in self.text.split():
            low, dots, high = word.partition("..")
            yield int(low), int(high or 1 << 63) if dots else int(low)

    def described(self) -> str:
        """``0 or 1``, ``0 to 31``, ``0 or more``."""
        words = (re.sub(r"\.\.$", " or more", w).replace("..", " to ") for w in self.text.split())
        return " or ".join(words)


@dataclass(frozen=True, slots=True)
class OperandSpec:
    """One operand of a form: ``type`` a PTX type's name, ``count`` a vector's length or 0.

    ``allowed`` are the values that an immediate may have, for each element of a vector; empty
    where any will do.
    """

    name: str
    kind: str  # "reg", "imm", "address", "label", "symbol", "any"
    type: str = ""
    count: int = 0
    space: str = ""
    optional: bool = False
    dest: bool = False
    second: bool = False  # the q of p|q
    allowed: tuple[Allowed, ...] = ()
    both: bool = False  # a destination that is read too

    def __str__(self) -> str:
        text = {"address": f"[{self.name}]"}.get(self.kind, f"{self.name}:{self.type or self.kind}")
        text += "".join(f"({values})" for values in self.allowed)
        count = f"*{self.count}" if self.count and not self.allowed else ""
        return text + count + ("?" if self.optional else "")


def signatures(f: Form) -> tuple[tuple[OperandSpec, ...], ...]:
    """What a form's row says of its operands: one signature for each alternative."""
    text = f.row.operands(f) if callable(f.row.operands) else f.row.operands
    return tuple(_signature(f, part) for part in text.split(" / "))


def _signature(f: Form, text: str) -> tuple[OperandSpec, ...]:
    left, equals, right = text.partition("=")
    if not equals:
        left, right = "", text
    return tuple(_specs(f, left, True)) + tuple(_specs(f, right, False))


def _specs(f: Form, text: str, dest: bool) -> Iterator[OperandSpec]:
    for group in filter(None, (part.strip() for part in text.split(","))):
        for index, item in enumerate(group.split("|")):
            m = _SPEC.match(item.strip())
            assert m, f"bad operand {item!r} in row {f.row.syntax}"
            yield _spec(f, m, dest, second=index > 0)


def _spec(f: Form, m: re.Match[str], dest: bool, second: bool) -> OperandSpec:
    name, kind, optional = m["name"], m["type"], bool(m["opt"])
    allowed = tuple(map(Allowed, _VALUES.findall(m["allowed"])))
    if m["open"]:
        space = f.chosen.get(kind, "" if any(s.name == kind for s in f.row.slots) else kind)
        return OperandSpec(name, "address", space=space, optional=optional)
    if kind in _FLIPPED_KINDS:
        count = len(allowed) if len(allowed) > 1 else _count(f, m["count"])
        return OperandSpec(name, kind, "", count, optional=optional, allowed=allowed)
    type_ = f.chosen.get(kind, kind)
    if m["double"]:
        type_ = type_[0] + str(2 * int(type_[1:]))
    count = _count(f, m["count"])
    both = bool(m["both"])
    return OperandSpec(name, "reg", type_, count, "", optional, dest, second, allowed, both)


def _count(f: Form, word: str | None) -> int:
    if not word:
        return 0
    if word.isdigit():
        return int(word)
    return int((f.chosen.get(word) or "v0")[1:])
