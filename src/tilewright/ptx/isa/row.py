"""The row: one instruction of PTX with all that anybody needs to know of it.

A row is written once, in the notation of the PTX manual, above the function that is its meaning:

    @row("add[.sat].{T}", "d:T = a:T, b:T", T="s32")
    def add_sat(m, f, a, b):
        \"\"\"Saturating signed addition.\"\"\"
        ...

``m`` is an evaluator (``primitives.Primitives``), ``f`` the form (the row with its modifiers chosen:
``f.T == "s32"``, ``f.sat`` true or false), then the source operands; what it returns goes to the destinations.

Syntax:  ``.word`` fixed, ``.{slot}`` one of the slot's choices, ``[.word]`` and ``[.{slot}]`` optional.
A row may not need backtracking to be understood, but it is matched with it.

Operands, in order, destinations before the ``=``, alternatives between `` / ``:

    d:T         register of the slot's type (a source may also be an immediate); a literal type: ``a:u32``
    d:2T        of twice that width
    d:T*vec     a vector of as many as slot ``vec`` says (``v4`` → 4, absent → a scalar), or ``a:b32*4``
    p:pred|q:pred?   one or two destinations
    [a:space]   an address in the slot's (or a literal) state space; empty is generic
    n:imm       an integer immediate;  L:label, F:symbol, s:any  names
    c:T?        optional

What a form needs (lowest PTX version, lowest target) is the maximum of the row's own and of what ``needs``
says for each modifier chosen.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ...errors import UnknownInstruction

Version = tuple[int, int]
Need = tuple[str, str]  # (".version", ".target"), e.g. ("7.0", "sm_80")

_PIECE = re.compile(r"\[\.([^\]]+)\]|\.(\{\w+\}|[^.\[{]+)")
_SPEC = re.compile(r"(?P<open>\[)?(?P<name>\w+):(?P<double>2)?(?P<type>\w*)(?:\*(?P<count>\w+))?(?P<close>\])?(?P<opt>\?)?$")
_FLIPPED_KINDS = {"imm", "label", "symbol", "any"}


@dataclass(frozen=True, slots=True)
class OperandSpec:
    """One operand of a form. ``type`` is a PTX type name, ``count`` a vector's length (0 for a scalar)."""

    name: str
    kind: str  # "reg", "imm", "address", "label", "symbol", "any"
    type: str = ""
    count: int = 0
    space: str = ""
    optional: bool = False
    dest: bool = False
    second: bool = False  # the q of p|q

    def __str__(self) -> str:
        text = {"address": f"[{self.name}]"}.get(self.kind, f"{self.name}:{self.type or self.kind}")
        return text + (f"*{self.count}" if self.count else "") + ("?" if self.optional else "")


@dataclass(frozen=True, slots=True)
class Slot:
    name: str
    choices: tuple[str, ...]
    optional: bool
    literal: bool


@dataclass(frozen=True)
class Row:
    """An instruction as written with ``@row``; see the module's text."""

    mnemonic: str
    syntax: str
    slots: tuple[Slot, ...]
    operands: str | Callable[[Form], str]
    meaning: Callable[..., Any]
    ptx: str
    target: str
    needs: Mapping[str, Need]
    effects: frozenset[str]
    where: Callable[[Form], str] | None

    @property
    def doc(self) -> str:
        return self.meaning.__doc__ or ""

    def match(self, modifiers: tuple[str, ...]) -> dict[str, str] | None:
        """The slots' choices for these modifiers, or None where they don't fit."""
        return _match(self.slots, modifiers)


def _match(slots: tuple[Slot, ...], words: tuple[str, ...]) -> dict[str, str] | None:
    if not slots:
        return {} if not words else None
    slot = slots[0]
    if words and words[0] in slot.choices:
        rest = _match(slots[1:], words[1:])
        if rest is not None:
            return {slot.name: words[0], **rest}
    return _match(slots[1:], words) if slot.optional else None


@dataclass(frozen=True, eq=False)
class Form:
    """A row with its modifiers chosen. ``f.slot`` is the choice, an empty string where absent.

    Flags (``[.ftz]``) are attributes too, with ``::`` written ``__``: truthy when present.
    """

    row: Row
    opcode: str
    chosen: Mapping[str, str]
    signatures: tuple[tuple[OperandSpec, ...], ...] = ()

    def __getattr__(self, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.chosen.get(name, "")

    @property
    def mnemonic(self) -> str:
        return self.row.mnemonic

    @property
    def effects(self) -> frozenset[str]:
        return self.row.effects

    def needs(self) -> Iterator[Need]:
        """What it needs: (PTX version, target) pairs, all of which must hold."""
        yield self.row.ptx, self.row.target
        for slot, choice in self.chosen.items():
            need = self.row.needs.get(choice) or self.row.needs.get(f"{slot}={choice}")
            if need:
                yield need

    def signature(self, count: int) -> tuple[OperandSpec, ...] | None:
        """The signature that takes ``count`` operands (``p|q`` counts as one), or None."""
        for specs in self.signatures:
            visible = [s for s in specs if not s.second]
            least = sum(not s.optional for s in visible)
            if least <= count <= len(visible):
                return specs
        return None


ROWS: dict[str, list[Row]] = {}


def row(
    syntax: str,
    operands: str | Callable[[Form], str] = "",
    *,
    ptx: str = "1.0",
    target: str = "sm_10",
    needs: Mapping[str, Need] | None = None,
    effects: str = "",
    where: Callable[[Form], str] | None = None,
    **slots: str,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter the decorated meaning into the table; the module's text explains the notation.

    ``effects`` are words: ``branch``, ``exit``, ``barrier``, ``convergent`` (waits for the lanes of its member
    mask), ``memory``, ``async``. ``where`` returns the reason why a form is not legal, or "". A meaning may
    carry several rows.
    """

    def enter(meaning: Callable[..., Any]) -> Callable[..., Any]:
        mnemonic = re.match(r"\w+", syntax).group()  # type: ignore[union-attr]
        parts = tuple(_slot(m, slots) for m in _PIECE.finditer(syntax, len(mnemonic)))
        words = frozenset(effects.split())
        new = Row(mnemonic, syntax, parts, operands, meaning, ptx, target, needs or {}, words, where)
        ROWS.setdefault(mnemonic, []).append(new)
        return meaning

    return enter


def _slot(piece: re.Match[str], slots: Mapping[str, str]) -> Slot:
    optional = piece.group(1) is not None
    word = piece.group(1) or piece.group(2)
    if word.startswith("{"):
        name = word[1:-1]
        return Slot(name, tuple(slots[name].split()), optional, False)
    return Slot(word.replace("::", "__"), (word,), optional, True)


@lru_cache(maxsize=None)
def form(opcode: str) -> Form:
    """The form of an opcode such as ``fma.rn.f32``.

    Raises UnknownInstruction, naming the nearest forms, where no row has it.
    """
    mnemonic, *words = opcode.split(".")
    reasons = []
    for candidate in ROWS.get(mnemonic, ()):
        chosen = candidate.match(tuple(words))
        if chosen is None:
            continue
        made = Form(candidate, opcode, chosen)
        reason = candidate.where(made) if candidate.where else ""
        if not reason:
            return Form(candidate, opcode, chosen, _signatures(made))
        reasons.append(reason)
    raise UnknownInstruction(f"no instruction {opcode!r}" + "".join(f": {r}" for r in reasons), hint=_near(opcode))


def _near(opcode: str) -> str:
    mnemonic = opcode.split(".")[0]
    if mnemonic in ROWS:
        return "its forms are " + ", ".join(r.syntax for r in ROWS[mnemonic][:6])
    close = difflib.get_close_matches(mnemonic, ROWS, n=3)
    return "did you mean " + " or ".join(close) + "?" if close else ""


def _signatures(f: Form) -> tuple[tuple[OperandSpec, ...], ...]:
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
    if m["open"]:
        space = f.chosen.get(kind, "" if any(s.name == kind for s in f.row.slots) else kind)
        return OperandSpec(name, "address", space=space, optional=optional)
    if kind in _FLIPPED_KINDS:
        return OperandSpec(name, kind, optional=optional)
    type_ = f.chosen.get(kind, kind)
    if m["double"]:
        type_ = type_[0] + str(2 * int(type_[1:]))
    return OperandSpec(name, "reg", type_, _count(f, m["count"]), "", optional, dest, second)


def _count(f: Form, word: str | None) -> int:
    if not word:
        return 0
    if word.isdigit():
        return int(word)
    return int((f.chosen.get(word) or "v0")[1:])
