"""The row: one instruction of PTX with all that anybody needs to know of it.

A row is written once, in the notation of the PTX manual, above the function that is its meaning:

    @row("add[.sat].{T}", "d:T = a:T, b:T", T="s32")
    def add_sat(m, f, a, b):
        \"\"\"Saturating signed addition.\"\"\"
        ...

``m`` is an evaluator (``primitives.Primitives``), ``f`` the form (the row with modifiers chosen:
``f.T == "s32"``, ``f.sat`` true or false), then the source operands; what it returns goes to the
destinations.

Syntax: ``.word`` fixed, ``.{slot}`` one of the slot's choices, ``[.word]`` and ``[.{slot}]``
optional. A row may not need backtracking to be understood, but it is matched with it. The row's
order of modifiers is the canonical one; as ptxas does, ``form`` takes another where no row has
the order written (``ld.global.relaxed.gpu.u32``). Slots named in capitals keep their order: types
among types, the state space ``DST`` before ``SRC``, ``FIRST`` before ``SECOND``. ``leading`` is the
number of slots that belong to the instruction's name and come first (``mbarrier.arrive.expect_tx``:
2).

Operands, in order, destinations before the ``=``, alternatives between `` / ``:

    d:T         register of the slot's type (a source: or an immediate), or of a literal: ``a:u32``
    d:2T        of twice that width
    +d:T        a destination that is read too: it comes first among the sources
    d:T*vec     a vector as long as slot ``vec`` says (``v4`` → 4, absent → a scalar, which may be
                written ``{d}``); ``a:b32*4``
    p:pred|q:pred?   one or two destinations
    [a:space]   an address in the slot's (or a literal) state space; empty is generic
    [t:map*3]   a tensor map's generic address with three coordinates: ``[%rd1, {%r1, %r2, %r3}]``
    n:imm       an integer immediate;  L:label, F:symbol, s:any  names
    n:imm(0 1)  one that may have these values (``0..31``, ``0..``: all from 0 on, ``0..64:8``: by
                eights); a vector of two: ``ids:imm(0 2)(0..3)``; ``p:pred(0 1)``: a register or
                these; ``c:b32()``: no immediate
    c:T?        optional; ``c:u32@7.8/sm_90?``: one that needs more than the rest
    _:sink      a destination that must be ``_``
    -a:T.part   a register that may be negated, with one of the ``SELECTORS`` of that name

Effects are words: ``branch``, ``call``, ``exit``, ``barrier``, ``convergent`` (threads execute it
together, with ``whole`` all 32: ``convergence.py``), ``waits`` (is tried again until something has
happened), ``memory`` (and ``reads``: it is only read; else written at all addresses but a ``src``,
or by a map that is first), ``async``; ``discard``: the result may be ``_``; ``relaxed``: registers
may be wider than the types; ``pack`` (``mov.b64 {lo, hi}, d``): for a vector destination the
meaning still returns one value, whose parts, the lowest first, are the vector.

What a form needs (lowest PTX version, lowest target) is the maximum of the row's own and of what
``needs`` says for each modifier chosen. Alternatives are written ``("8.7", "sm_100a|sm_120a")``,
or with a version each, ``("8.6|8.8", "sm_100a|sm_100f")``: any one is enough.

Where a table elsewhere lists the forms (the matrix instructions), a ``listed`` row stands for it:
its forms carry their ``entry`` there.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from typing import Any

from ...errors import UnknownInstruction
from ...mma.nearest_form import closest_opcodes, mismatch_reason
from ..tree import Imm, Vector
from .nearest_opcode import UNSUPPORTED_MNEMONICS, similar_opcodes
from .operand_spec import OperandSpec, signatures

Version = tuple[int, int]
Requirement = tuple[str, str]  # (".version", ".target"), e.g. ("7.0", "sm_80")

Options = dict[str, Any]  # keyword arguments that several rows share

_ORDERED = {"DST": "place", "SRC": "place", "FIRST": "priority", "SECOND": "priority"}
_MODIFIER = re.compile(r"\[\.([^\]]+)\]|\.(\{\w+\}|[^.\[{]+)")


@dataclass(frozen=True, slots=True)
class ModifierSlot:
    name: str
    choices: tuple[str, ...]
    optional: bool
    literal: bool

    @property
    def kind(self) -> str:
        """What it keeps its order with: ``place``, ``priority``, ``type`` or nothing."""
        return _ORDERED.get(self.name, "type" if self.name.isupper() else "")


@dataclass(frozen=True, eq=False)
class Row:
    """An instruction as written with ``@row``; see the module's text."""

    mnemonic: str
    syntax: str
    choices: Mapping[str, str]
    operands: str | Callable[[Form], str]
    meaning: Callable[..., Any]
    ptx: str
    target: str
    needs: Mapping[str, Requirement]
    effects: frozenset[str]
    constraint: Callable[[Form], str] | None
    leading: int = 0
    removed: Requirement | None = None

    @cached_property
    def slots(self) -> tuple[ModifierSlot, ...]:
        """The modifiers in order, read from the syntax when first asked for: imports stay quick."""
        pieces = _MODIFIER.finditer(self.syntax, len(self.mnemonic))
        return tuple(_modifier_slot(piece, self.choices) for piece in pieces)

    @property
    def doc(self) -> str:
        return self.meaning.__doc__ or ""

    def match(self, modifiers: tuple[str, ...], ordered: bool = True) -> dict[str, str] | None:
        """The slots' choices for these modifiers, in the row's order or in any; None: no match."""
        if ordered:
            return _match(self.slots, modifiers)
        return _match_any(self.slots, modifiers, self.leading)

    def form(self, opcode: str, ordered: bool = True) -> Form | None:
        """The row's form with this opcode's modifiers, or None."""
        chosen = self.match(tuple(opcode.split(".")[1:]), ordered)
        return None if chosen is None else Form(self, opcode, chosen)

    def opcodes(self) -> Iterator[str]:
        """Every opcode that the slots allow, legal or not."""
        axes = [[""] * s.optional + list(s.choices) for s in self.slots]
        for words in product(*axes):
            yield ".".join([self.mnemonic, *filter(None, words)])


@dataclass(frozen=True, eq=False)
class Listed(Row):
    """A row whose forms are the ``entries`` of another table, which ``find`` finds by opcode.

    An entry has ``opcode``, ``needs`` (alternatives), ``until`` and, if it touches memory,
    ``space``; the row's operands, meaning and ``constraint`` read it as ``form.entry``.
    """

    entries: Sequence[Any] = ()
    find: Callable[[str], Any] = lambda opcode: None
    slots = ()  # type: ignore[assignment]

    def form(self, opcode: str, ordered: bool = True) -> Form | None:
        entry = self.find(opcode)
        chosen = {"space": getattr(entry, "space", "")}
        return None if entry is None else Form(self, opcode, chosen, (), entry)

    def opcodes(self) -> Iterator[str]:
        return (entry.opcode for entry in self.entries)


def _match(slots: tuple[ModifierSlot, ...], words: tuple[str, ...]) -> dict[str, str] | None:
    if not slots:
        return {} if not words else None
    slot = slots[0]
    if words and words[0] in slot.choices:
        rest = _match(slots[1:], words[1:])
        if rest is not None:
            return {slot.name: words[0], **rest}
    return _match(slots[1:], words) if slot.optional else None


def _match_any(
    slots: tuple[ModifierSlot, ...], words: tuple[str, ...], leading: int
) -> dict[str, str] | None:
    """In any order, but the first ``leading`` come first, and slots of one kind keep theirs."""
    if leading:
        slot, others = slots[0], slots[1:]
        if not words or words[0] not in slot.choices:
            return _match_any(others, words, leading - 1) if slot.optional else None
        rest = _match_any(others, words[1:], leading - 1)
        return None if rest is None else {slot.name: words[0], **rest}
    if not words:
        return None if any(not s.optional for s in slots) else {}
    passed: set[str] = set()
    for index, slot in enumerate(slots):
        if words[0] in slot.choices and slot.kind not in passed:
            rest = _match_any(slots[:index] + slots[index + 1 :], words[1:], 0)
            if rest is not None:
                return {slot.name: words[0], **rest}
        passed |= {slot.kind} - {""}
    return None


@dataclass(frozen=True, eq=False)
class Form:
    """A row with its modifiers chosen. ``f.slot`` is the choice, an empty string where absent.

    Flags (``[.ftz]``) are attributes too, with ``::`` written ``__``: truthy when present.
    """

    row: Row
    opcode: str
    chosen: Mapping[str, str]
    signatures: tuple[tuple[OperandSpec, ...], ...] = ()
    entry: Any = None  # of a listed row: the table's own

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

    def needs(self) -> Iterator[Requirement]:
        """What it needs: (PTX version, target) pairs, all of which must hold."""
        if self.entry is not None:
            versions, targets = zip(*self.entry.needs, strict=True)
            yield "|".join(versions), "|".join(targets)
            return
        yield self.row.ptx, self.row.target
        for slot, choice in self.chosen.items():
            need = self.row.needs.get(choice) or self.row.needs.get(f"{slot}={choice}")
            if need:
                yield need

    @cached_property
    def has_operand_requirements(self) -> bool:
        """Whether some operand needs more than the form itself."""
        return any(spec.needs for specs in self.signatures for spec in specs)

    @cached_property
    def takes_selectors(self) -> bool:
        """Whether selectors or signs may stand at operands."""
        return any(spec.selector or spec.negatable for specs in self.signatures for spec in specs)

    @property
    def until(self) -> str:
        """The first PTX version that has it no more, or an empty string."""
        return self.entry.until if self.entry is not None else ""

    def signature(
        self, operands: int | Sequence[object], is_predicate: Callable[[object], bool] | None = None
    ) -> tuple[OperandSpec, ...] | None:
        """The signature for these operands of the tree, or this many (``p|q`` is one), or None.

        Where several take as many, the first whose vectors are as long and, if ``is_predicate`` is
        given to tell, whose predicates stand where the given ones do; else the first.
        """
        count = operands if isinstance(operands, int) else len(operands)
        fitting = [specs for specs in self.signatures if _takes(specs, count)]
        if len(fitting) > 1 and not isinstance(operands, int):
            best = (s for s in fitting if _fits(s, operands, is_predicate))
            return next(best, fitting[0])
        return fitting[0] if fitting else None


def _visible(specs: tuple[OperandSpec, ...]) -> list[OperandSpec]:
    return [s for s in specs if not s.second]


def _takes(specs: tuple[OperandSpec, ...], count: int) -> bool:
    visible = _visible(specs)
    return sum(not s.optional for s in visible) <= count <= len(visible)


def _fits(
    specs: tuple[OperandSpec, ...],
    operands: Sequence[object],
    is_predicate: Callable[[object], bool] | None,
) -> bool:
    for spec, operand in zip(_visible(specs), operands, strict=False):
        length = len(operand.items) if isinstance(operand, Vector) else 0
        if spec.kind == "reg" and length != spec.count:
            return False
        either = spec.allowed and isinstance(operand, Imm)
        if is_predicate and not either and is_predicate(operand) != (spec.type == "pred"):
            return False
    return True


ROWS: dict[str, list[Row]] = {}


def row(
    syntax: str,
    operands: str | Callable[[Form], str] = "",
    *,
    ptx: str = "1.0",
    target: str = "sm_10",
    needs: Mapping[str, Requirement] | None = None,
    effects: str = "",
    constraint: Callable[[Form], str] | None = None,
    leading: int = 0,
    removed: Requirement | None = None,
    **slots: str,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter the decorated meaning into the table; the module's text explains the notation.

    ``effects`` are words (the module's text lists them). ``constraint`` returns the
    reason why a form is not legal, or "". Version ``removed[0]`` removed it from the targets from
    ``removed[1]`` on. A meaning may carry several rows.
    """

    def enter(meaning: Callable[..., Any]) -> Callable[..., Any]:
        mnemonic = syntax.partition(".")[0].partition("[")[0]
        words = frozenset(effects.split())
        new = Row(
            mnemonic, syntax, slots, operands, meaning, ptx, target, needs or {}, words, constraint,
            leading, removed,
        )  # fmt: skip
        ROWS.setdefault(mnemonic, []).append(new)
        return meaning

    return enter


def listed(
    mnemonic: str,
    syntax: str,
    operands: Callable[[Form], str],
    entries: Sequence[Any],
    find: Callable[[str], Any],
    effects: str,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``row`` for the forms that another table lists; ``Listed`` says what an entry is."""

    def enter(meaning: Callable[..., Any]) -> Callable[..., Any]:
        words = frozenset(effects.split())
        base = (mnemonic, syntax, {}, operands, meaning, "1.0", "sm_10", {}, words, None)
        new = Listed(*base, entries=entries, find=find)
        ROWS.setdefault(mnemonic, []).append(new)
        return meaning

    return enter


def _modifier_slot(piece: re.Match[str], slots: Mapping[str, str]) -> ModifierSlot:
    optional = piece.group(1) is not None
    word = piece.group(1) or piece.group(2)
    if word.startswith("{"):
        name = word[1:-1]
        return ModifierSlot(name, tuple(slots[name].split()), optional, False)
    return ModifierSlot(word.replace("::", "__"), (word,), optional, True)


@cache
def find(opcode: str) -> Form | None:
    """The form of an opcode, or None where no row has it."""
    for made in _forms(opcode):
        if not (made.row.constraint and made.row.constraint(made)):
            return replace(made, signatures=signatures(made))
    return None


def form(opcode: str) -> Form:
    """The form of an opcode such as ``fma.rn.f32``.

    Raises UnknownInstruction, with the reason and the nearest forms, where no row has it.
    """
    found = find(opcode)
    if found is None:
        reasons = dict.fromkeys(f": {why}" for why in _reasons(opcode))
        raise UnknownInstruction(f"no instruction {opcode!r}{''.join(reasons)}", hint=_near(opcode))
    return found


def _forms(opcode: str) -> Iterator[Form]:
    """What the rows make of an opcode, their own order of modifiers first."""
    for ordered in (True, False):
        for candidate in ROWS.get(opcode.split(".")[0], ()):
            if (made := candidate.form(opcode, ordered)) is not None:
                yield made


def _reasons(opcode: str) -> Iterator[str]:
    for made in _forms(opcode):
        if made.row.constraint:
            yield made.row.constraint(made)
    if known := _listed(opcode):
        yield mismatch_reason(opcode, known)
    if why := UNSUPPORTED_MNEMONICS.get(opcode.split(".")[0]):
        yield why


def _listed(opcode: str) -> list[str]:
    """The opcodes that listed rows have for this mnemonic."""
    rows = [r for r in ROWS.get(opcode.split(".")[0], ()) if isinstance(r, Listed)]
    return [known for r in rows for known in r.opcodes()]


def _near(opcode: str) -> str:
    mnemonic = opcode.split(".")[0]
    rows = ROWS.get(mnemonic, [])
    if known := _listed(opcode) or [o for o in similar_opcodes(opcode, rows) if find(o)]:
        return f"nearest are {', '.join(closest_opcodes(opcode, known))}"
    if rows:
        return "its forms are " + ", ".join(r.syntax for r in rows[:6])
    close = difflib.get_close_matches(
        mnemonic, () if mnemonic in UNSUPPORTED_MNEMONICS else ROWS, n=3
    )
    return "did you mean " + " or ".join(close) + "?" if close else ""
