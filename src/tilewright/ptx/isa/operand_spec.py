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
    r"(?P<open>\[)?(?P<both>\+)?(?P<minus>-)?(?P<name>\w+):(?P<double>2)?(?P<type>\w*)"
    r"(?:\.(?P<part>\w+))?"
    r"(?P<allowed>(?:\([-.:\d ]*\))*)(?:\*(?P<count>\w+))?(?P<close>\])?"
    r"(?:@(?P<ptx>[\d.]+)/(?P<target>\w+))?(?P<opt>\?)?$"
)
_VALUES = re.compile(r"\(([^)]*)\)")
_FLIPPED_KINDS = {"imm", "label", "symbol", "any"}


@dataclass(frozen=True, slots=True)
class Allowed:
    """The values that an immediate may have, as the rows write them: ``1 -1``, ``0..31``, ``0..``,
    ``24..256:8``; empty where none will do.
    """

    text: str

    def __str__(self) -> str:
        return self.text

    def __contains__(self, value: int) -> bool:
        return any(value in span for span in self._ranges())

    def _ranges(self) -> Iterator[range]:
        for word in self.text.split():
            span, _, step = word.partition(":")
            low, dots, high = span.partition("..")
            last = int(high or 1 << 63) if dots else int(low)
            yield range(int(low), last + 1, int(step or 1))

    def describe(self) -> str:
        """``0 or 1``, ``0 to 31``, ``0 or more``, ``24 to 256 in steps of 8``."""
        words = (w.replace(":", " in steps of ") for w in self.text.split())
        words = (re.sub(r"\.\.( |$)", r" or more\1", w).replace("..", " to ") for w in words)
        return " or ".join(words)


@dataclass(frozen=True, slots=True)
class OperandSpec:
    """One operand of a form: ``type`` a PTX type's name, ``count`` a vector's length or 0.

    ``allowed`` are the values that an immediate may have, for each element of a vector; empty
    where any will do.
    """

    name: str
    kind: str  # "reg", "imm", "address", "map", "label", "symbol", "any", "sink"
    type: str = ""
    count: int = 0
    space: str = ""
    optional: bool = False
    dest: bool = False
    second: bool = False  # the q of p|q
    allowed: tuple[Allowed, ...] = ()
    read_write: bool = False  # a destination that is read too
    needs: tuple[str, str] | None = None  # PTX version and target, beyond the form's
    braces: bool = False  # a scalar that may also be written {x}
    selector: str = ""  # which selectors may follow it (``selectors.SELECTORS``)
    negatable: bool = False  # a register that may be negated

    def __str__(self) -> str:
        if self.kind == "map":
            return f"[{self.name}, {{{self.count} x {self.type}}}]"
        known = {"address": f"[{self.name}]", "sink": "_"}
        text = known.get(self.kind, f"{self.name}:{self.type or self.kind}")
        text = f"{'-' * self.negatable}{text}{'.' * bool(self.selector)}{self.selector}"
        text += "".join(f"({values})" for values in self.allowed)
        count = f"*{self.count}" if self.count and not self.allowed else ""
        return text + count + ("?" if self.optional else "")


def signatures(f: Form) -> tuple[tuple[OperandSpec, ...], ...]:
    """What a form's row says of its operands: one signature for each alternative."""
    text = f.row.operands(f) if callable(f.row.operands) else f.row.operands
    return tuple(_signature(f, alternative) for alternative in text.split(" / "))


def _signature(f: Form, text: str) -> tuple[OperandSpec, ...]:
    left, equals, right = text.partition("=")
    if not equals:
        left, right = "", text
    return tuple(_specs(f, left, True)) + tuple(_specs(f, right, False))


def _specs(f: Form, text: str, dest: bool) -> Iterator[OperandSpec]:
    for group in filter(None, (item.strip() for item in text.split(","))):
        for index, item in enumerate(group.split("|")):
            m = _SPEC.match(item.strip())
            assert m, f"bad operand {item!r} in row {f.row.syntax}"
            yield _spec(f, m, dest, second=index > 0)


def _spec(f: Form, m: re.Match[str], dest: bool, second: bool) -> OperandSpec:
    name, kind, optional = m["name"], m["type"], bool(m["opt"])
    allowed = tuple(map(Allowed, _VALUES.findall(m["allowed"])))
    if kind == "sink":
        return OperandSpec(name, kind, dest=True)
    if kind == "map":
        return OperandSpec(name, kind, "s32", _count(f, m["count"]))
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
    needs = (m["ptx"], m["target"]) if m["ptx"] else None
    read_write, braces = bool(m["both"]), bool(m["count"]) and not count
    return OperandSpec(
        name, "reg", type_, count, "", optional, dest, second, allowed, read_write, needs, braces,
        m["part"] or "", bool(m["minus"]),
    )  # fmt: skip


def _count(f: Form, word: str | None) -> int:
    if not word:
        return 0
    if word.isdigit():
        return int(word)
    return int((f.chosen.get(word) or "v0")[1:])
