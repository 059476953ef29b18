"""A row is one instruction of PTX: syntax, operands, requirements and meaning.

A row is written once, in the notation of the PTX manual, above the function that is its meaning:

    @row("add[.sat].{T}", "d:T = a:T, b:T", T="s32")
    def add_sat(m, f, a, b):
        \"\"\"Saturating signed addition.\"\"\"
        ...

``m`` is an evaluator (``primitives.Primitives``), ``f`` the form (the row with its modifiers
chosen: ``f.T == "s32"``, ``f.sat`` true or false). The source operands follow; the results go to
the destinations.

Syntax: ``.word`` is fixed, ``.{slot}`` is one of the slot's choices, ``[.word]`` and ``[.{slot}]``
are optional. The row's order of modifiers is the canonical one. As ptxas does, ``form`` also
accepts another order if no row has the given order (``ld.global.relaxed.gpu.u32``). Slots
named in capitals keep their order: types among types, the state space ``DST`` before ``SRC``,
``FIRST`` before ``SECOND``. ``leading`` is the number of slots that belong to the instruction's
name and come first (``mbarrier.arrive.expect_tx``: 2).

Operands, in order, destinations before the ``=``, alternatives between `` / ``:

    d:T         register of the slot's type, or of a literal type (``a:u32``); a source may also be
                an immediate
    d:2T        register of twice that width
    +d:T        destination that is also read: it comes first among the sources
    d:T*vec     vector whose length slot ``vec`` gives (``v4`` → 4; absent → a scalar, which may be
                written ``{d}``); ``a:b32*4``
    p:pred|q:pred?   one or two destinations
    [a:space]   address in the slot's (or a literal) state space; empty is generic
    [t:map*3]   generic address of a tensor map, and three coordinates: ``[%rd1, {%r1, %r2, %r3}]``
    n:imm       integer immediate;  L:label, F:symbol, s:any  names
    n:imm(0 1)  immediate with one of these values (``0..31``; ``0..``: all from 0 on; ``0..64:8``:
                in steps of 8); a vector of two: ``ids:imm(0 2)(0..3)``; ``p:pred(0 1)``: a register
                or one of these; ``c:b32()``: no immediate
    c:T?        optional; ``c:u32@7.8/sm_90?``: an operand with requirements of its own
    _:sink      destination that must be ``_``
    -a:T.part   register that may be negated, with one of the ``SELECTORS`` of that name

Effects are words: ``branch``, ``call``, ``exit``, ``barrier``, ``convergent`` (threads execute it
together; with ``whole``, all 32: ``convergence.py``), ``waits`` (it is retried until a condition
holds), ``memory`` (with ``reads`` it only reads; otherwise it writes at every address but ``src``,
or through a map that is the first operand), ``async``; ``discard``: the result may be ``_``;
``relaxed``: registers may be wider than the types; ``pack`` (``mov.b64 {lo, hi}, d``): for a vector
destination the meaning still returns one value, whose parts, the lowest first, are the vector.

Features are the units of the machine that an instruction uses beyond registers, memory and
arithmetic. An evaluator declares the ones it lacks and refuses such instructions before launch:

    bulk_copy           the bulk-copy engine: copies that complete on an mbarrier or in bulk groups
    tensor_copy_sm100   the tensor-copy modes that sm_100 added: gather4, scatter4, im2col::w, pairs
    multimem            multicast memory of several GPUs

The requirements of a form (lowest PTX version, lowest target) are the maximum of the row's own and
of what ``needs`` gives for each modifier chosen. Alternatives are written ``("8.7",
"sm_100a|sm_120a")``, or with a version each, ``("8.6|8.8", "sm_100a|sm_100f")``: any one suffices.

If another table lists the forms (the matrix instructions), a ``listed`` row represents it: its
forms carry the table's ``entry``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

from ..tree import Imm, Vector
from .operand_spec import OperandSpec, Signature

Version = tuple[int, int]
Requirement = tuple[str, str]  # (".version", ".target"), e.g. ("7.0", "sm_80")
Meaning = Callable[..., Any]
Options = dict[str, Any]  # keyword arguments that several rows share

_ORDERED = {"DST": "space", "SRC": "space", "FIRST": "priority", "SECOND": "priority"}
_MODIFIER = re.compile(r"\[\.([^\]]+)\]|\.(\{\w+\}|[^.\[{]+)")


@dataclass(frozen=True, slots=True)
class ModifierSlot:
    """One position in a row's syntax: a fixed word (``literal``) or one of several ``choices``."""

    name: str
    choices: tuple[str, ...]
    optional: bool
    literal: bool

    @property
    def kind(self) -> str:
        """The kind of slots whose relative order is fixed: ``space``, ``priority``, ``type`` or
        none.
        """
        return _ORDERED.get(self.name, "type" if self.name.isupper() else "")


@dataclass(frozen=True, eq=False)
class Row:
    """An instruction as written with ``@row``; the module's docstring explains the fields."""

    mnemonic: str
    syntax: str
    choices: Mapping[str, str]
    operands: str | Callable[[Form], str]
    meaning: Meaning
    ptx: str = "1.0"
    target: str = "sm_10"
    needs: Mapping[str, Requirement] = field(default_factory=dict)
    effects: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    constraint: Callable[[Form], str] | None = None
    leading: int = 0
    removed: Requirement | None = None

    @cached_property
    def slots(self) -> tuple[ModifierSlot, ...]:
        """The modifiers in order, parsed from the syntax on first use so that imports stay fast."""
        modifiers = _MODIFIER.finditer(self.syntax, len(self.mnemonic))
        return tuple(_modifier_slot(modifier, self.choices) for modifier in modifiers)

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
class ListedRow(Row):
    """A row whose forms are the ``entries`` of another table, which ``find`` looks up by opcode.

    An entry has ``opcode``, ``needs`` (alternatives), ``until`` and, if it accesses memory,
    ``space``; the row's operands and meaning read it as ``form.entry``.
    """

    entries: Sequence[Any] = ()
    find: Callable[[str], Any] = lambda opcode: None

    @cached_property
    def slots(self) -> tuple[ModifierSlot, ...]:
        return ()

    def form(self, opcode: str, ordered: bool = True) -> Form | None:
        entry = self.find(opcode)
        chosen = {"space": getattr(entry, "space", "")}
        return None if entry is None else Form(self, opcode, chosen, (), entry)

    def opcodes(self) -> Iterator[str]:
        return (entry.opcode for entry in self.entries)


def _modifier_slot(modifier: re.Match[str], slots: Mapping[str, str]) -> ModifierSlot:
    optional = modifier.group(1) is not None
    word = modifier.group(1) or modifier.group(2)
    if word.startswith("{"):
        name = word[1:-1]
        return ModifierSlot(name, tuple(slots[name].split()), optional, False)
    return ModifierSlot(word.replace("::", "__"), (word,), optional, True)


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
    """Match in any order, but the ``leading`` slots first, and slots of one kind in order."""
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
    signatures: tuple[Signature, ...] = ()
    entry: Any = None  # of a listed row: the table's entry

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

    @property
    def features(self) -> frozenset[str]:
        return self.row.features

    @cached_property
    def modifiers(self) -> frozenset[str]:
        """The modifiers as written."""
        return frozenset(self.opcode.split(".")[1:])

    def needs(self) -> Iterator[Requirement]:
        """The form's requirements: (PTX version, target) pairs, all of which must hold."""
        if self.entry is not None:
            versions, targets = zip(*self.entry.needs, strict=True)
            yield "|".join(versions), "|".join(targets)
            return
        yield self.row.ptx, self.row.target
        needs = self.row.needs
        for slot, choice in self.chosen.items():
            need = needs.get(choice) or needs.get(f"{slot}={choice}")
            if need:
                yield need

    @cached_property
    def has_operand_requirements(self) -> bool:
        """Whether some operand has requirements beyond the form's."""
        return any(spec.needs for specs in self.signatures for spec in specs)

    @cached_property
    def takes_selectors(self) -> bool:
        """Whether operands may carry selectors or signs."""
        return any(spec.selector or spec.negatable for specs in self.signatures for spec in specs)

    @property
    def until(self) -> str:
        """The first PTX version without the form, or an empty string."""
        return str(self.entry.until) if self.entry is not None else ""

    def signature(
        self, operands: int | Sequence[object], is_predicate: Callable[[object], bool] | None = None
    ) -> Signature | None:
        """The signature that accepts these operands of the tree, or this number of them, or None.

        ``p|q`` counts as one. Of several candidates the first is chosen whose vectors have the
        given lengths and, with ``is_predicate``, whose predicates are where the given ones are;
        otherwise the first of all.
        """
        count = operands if isinstance(operands, int) else len(operands)
        candidates = [specs for specs in self.signatures if _accepts_count(specs, count)]
        if len(candidates) > 1 and not isinstance(operands, int):
            best = (s for s in candidates if _accepts(s, operands, is_predicate))
            return next(best, candidates[0])
        return candidates[0] if candidates else None


def _visible(specs: Signature) -> list[OperandSpec]:
    return [s for s in specs if not s.second]


def _accepts_count(specs: Signature, count: int) -> bool:
    visible = _visible(specs)
    return sum(not s.optional for s in visible) <= count <= len(visible)


def _accepts(
    specs: Signature,
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


#: All rows by mnemonic. Importing ``ptx.isa`` enters every row.
ROWS: dict[str, list[Row]] = {}


def row(
    syntax: str,
    operands: str | Callable[[Form], str] = "",
    *,
    ptx: str = "1.0",
    target: str = "sm_10",
    needs: Mapping[str, Requirement] | None = None,
    effects: str = "",
    features: str = "",
    constraint: Callable[[Form], str] | None = None,
    leading: int = 0,
    removed: Requirement | None = None,
    **slots: str,
) -> Callable[[Meaning], Meaning]:
    """Enter the decorated meaning into the table; the module's docstring explains the notation.

    ``effects`` and ``features`` are words. ``constraint`` returns the reason why a form is not
    legal, or "". PTX version ``removed[0]`` removed the form from the targets from ``removed[1]``
    on. A meaning may carry several rows.
    """

    def enter(meaning: Meaning) -> Meaning:
        mnemonic = syntax.partition(".")[0].partition("[")[0]
        ROWS.setdefault(mnemonic, []).append(
            Row(
                mnemonic, syntax, slots, operands, meaning, ptx, target, needs or {},
                frozenset(effects.split()), frozenset(features.split()), constraint, leading,
                removed,
            )
        )  # fmt: skip
        return meaning

    return enter


def listed(
    mnemonic: str,
    syntax: str,
    operands: Callable[[Form], str],
    entries: Sequence[Any],
    find: Callable[[str], Any],
    effects: str,
) -> Callable[[Meaning], Meaning]:
    """``row`` for the forms that another table lists; ``ListedRow`` describes an entry."""

    def enter(meaning: Meaning) -> Meaning:
        words = frozenset(effects.split())
        new = ListedRow(
            mnemonic, syntax, {}, operands, meaning, effects=words, entries=entries, find=find
        )
        ROWS.setdefault(mnemonic, []).append(new)
        return meaning

    return enter
