"""Operand specifications: the notation of the rows (``d:T*vec``, ``n:imm(0 1)``), parsed.

``row.py`` explains the notation. A form's modifiers determine what the row leaves open: types,
vector lengths, state spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_SPEC = re.compile(
    r"(?P<open>\[)?(?P<read_write>\+)?(?P<negatable>-)?(?P<name>\w+):(?P<double>2)?(?P<type>\w*)"
    r"(?:\.(?P<selector>\w+))?"
    r"(?P<allowed>(?:\([-.:\d ]*\))*)(?:\*(?P<count>\w+))?(?P<close>\])?"
    r"(?:@(?P<ptx>[\d.]+)/(?P<target>\w+))?(?P<opt>\?)?$"
)
_VALUES = re.compile(r"\(([^)]*)\)")
_UNTYPED = {"imm", "label", "symbol", "any"}


@dataclass(frozen=True, slots=True)
class Allowed:
    """The allowed values of an immediate, in the notation of the rows: ``1 -1``, ``0..31``,
    ``0..``, ``24..256:8``; empty if no immediate is allowed.
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

    ``allowed`` are the allowed values of an immediate, for each element of a vector; empty if every
    value is allowed.
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
    read_write: bool = False  # a destination that is also read
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


Signature = tuple[OperandSpec, ...]


def parse_signatures(text: str, choices: Mapping[str, str]) -> tuple[Signature, ...]:
    """The signatures that a row's operands denote: one for each alternative.

    ``choices`` maps each slot of the row to the form's modifier, or to "" where it is absent.
    """
    return tuple(_signature(choices, alternative) for alternative in text.split(" / "))


def _signature(choices: Mapping[str, str], text: str) -> Signature:
    left, equals, right = text.partition("=")
    if not equals:
        left, right = "", text
    return tuple(_specs(choices, left, True)) + tuple(_specs(choices, right, False))


def _specs(choices: Mapping[str, str], text: str, dest: bool) -> Iterator[OperandSpec]:
    for group in filter(None, (item.strip() for item in text.split(","))):
        for index, item in enumerate(group.split("|")):
            m = _SPEC.match(item.strip())
            assert m, f"bad operand {item!r} in a row"
            yield _spec(choices, m, dest, second=index > 0)


def _spec(choices: Mapping[str, str], m: re.Match[str], dest: bool, second: bool) -> OperandSpec:
    name, kind, optional = m["name"], m["type"], bool(m["opt"])
    allowed = tuple(map(Allowed, _VALUES.findall(m["allowed"])))
    if kind == "sink":
        return OperandSpec(name, kind, dest=True)
    if kind == "map":
        return OperandSpec(name, kind, "s32", _count(choices, m["count"]))
    if m["open"]:
        space = choices.get(kind, kind)
        return OperandSpec(name, "address", space=space, optional=optional)
    if kind in _UNTYPED:
        count = len(allowed) if len(allowed) > 1 else _count(choices, m["count"])
        return OperandSpec(name, kind, "", count, optional=optional, allowed=allowed)
    type_ = choices.get(kind) or kind
    if m["double"]:
        type_ = type_[0] + str(2 * int(type_[1:]))
    count = _count(choices, m["count"])
    return OperandSpec(
        name,
        "reg",
        type_,
        count,
        optional=optional,
        dest=dest,
        second=second,
        allowed=allowed,
        read_write=bool(m["read_write"]),
        needs=(m["ptx"], m["target"]) if m["ptx"] else None,
        braces=bool(m["count"]) and not count,
        selector=m["selector"] or "",
        negatable=bool(m["negatable"]),
    )


def _count(choices: Mapping[str, str], word: str | None) -> int:
    if not word:
        return 0
    if word.isdigit():
        return int(word)
    return int((choices.get(word) or "v0")[1:])
