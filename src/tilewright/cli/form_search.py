"""Finds, filters and counts the legal forms of PTX instructions.

The only source is ``ptx.isa.ROWS``. Each legal form of an instruction with few modifiers is a
``Form``; a form of a matrix instruction refers to its row in ``mma`` (``form.entry``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import prod

from ..dtypes import dtype
from ..errors import UnknownInstruction
from ..mma import MmaInstruction
from ..mma.nearest_form import closest_opcodes
from ..ptx.isa import ROWS, Form, Row
from ..ptx.isa.row import ListedRow
from ..ptx.rules.requirements import obstacle
from ..target import Target, Version, parse_version

OPERAND_INSTRUCTIONS = (
    "ldmatrix",
    "stmatrix",
    "movmatrix",
    "cvt",
    "prmt",
)  # move and convert operands
MAX_COMBINATIONS = 100_000  # of modifiers; instructions with more are listed by row
NEWEST: Version = (99, 0)


@dataclass(frozen=True)
class FormFilter:
    """The filter options of the command; an empty field does not filter."""

    target: str = ""
    version: str = ""
    types: tuple[str, ...] = ()
    shape: str = ""
    kind: str = ""

    def __post_init__(self) -> None:
        """Raises TargetError and DtypeError for unknown names."""
        for name in self.types:
            dtype(name)
        _ = self.target and Target.parse(self.target), self.version and parse_version(self.version)

    def __bool__(self) -> bool:
        return self != FormFilter()

    def unsupported_reason(self, form: Form) -> str:
        """Why the selected target or PTX version does not support a form; "" if it does."""
        target = Target.parse(self.target) if self.target else None
        version = parse_version(self.version) if self.version else NEWEST
        reason = obstacle(form.opcode, form.needs(), version, target)
        if not reason and self.version and form.until and version >= parse_version(form.until):
            return f"{form.opcode} was removed in PTX {form.until}"
        return reason.replace(", the module declares", ", got")

    def matches(self, form: Form) -> bool:
        """Whether a form passes the filter."""
        words = form.opcode.split(".")
        return (
            (not self.shape or self.shape in words)
            and (not self.kind or f"kind::{self.kind}" in words)
            and all(any(_is_type(t, word) for word in _types(form)) for t in self.types)
            and not self.unsupported_reason(form)
        )


def _types(form: Form) -> Iterable[str]:
    i = form.entry
    if isinstance(i, MmaInstruction):
        return i.a, i.b, i.c, i.d, i.stype
    return form.opcode.split(".")


def _is_type(name: str, word: str) -> bool:
    return word == name or re.fullmatch(name + r"x\d", word) is not None


@cache
def forms(mnemonic: str) -> dict[str, Form]:
    """All legal forms of an instruction by opcode. Raises UnknownInstruction for too many forms."""
    result: dict[str, Form] = {}
    for row in ROWS.get(mnemonic, ()):
        if not isinstance(row, ListedRow):
            count = prod(len(s.choices) + s.optional for s in row.slots)
            if count > MAX_COMBINATIONS:
                raise UnknownInstruction(
                    f"{mnemonic} has {count:,} combinations of modifiers, too many to enumerate",
                    hint="omit --count to list its rows",
                )
        for form in _legal(row):
            result.setdefault(form.opcode, form)
    return result


def _legal(row: Row) -> Iterator[Form]:
    for opcode in row.opcodes():
        form = row.form(opcode)
        if form is not None and not (row.constraint and row.constraint(form)):
            yield form


def mnemonics() -> tuple[str, ...]:
    """The matrix instructions and those that move and convert their operands."""
    listed = [name for name, rows in ROWS.items() if any(isinstance(r, ListedRow) for r in rows)]
    return tuple(dict.fromkeys([*listed, *(name for name in OPERAND_INSTRUCTIONS if name in ROWS)]))


def family(form: Form) -> str:
    """The family that forms are grouped by: ``mma.sp``, ``wmma.load``, ``cvt``."""
    if form.entry is not None:
        return str(form.entry.family)
    stem, sync, _ = form.opcode.partition(".sync")
    return ".".join(stem.split(".")[:2]) if sync else form.mnemonic


def find_forms(name: str, form_filter: FormFilter) -> list[Form]:
    """The forms of a family, or with this opcode prefix, that pass the filter."""
    known = [name.split(".")[0]] if name else mnemonics()
    found = [
        form for mnemonic in known for form in forms(mnemonic).values() if belongs_to(form, name)
    ]
    return [form for form in found if form_filter.matches(form)]


def belongs_to(form: Form, name: str) -> bool:
    """Whether ``name`` is the family of a form or a prefix of its opcode."""
    begins = re.match(re.escape(name) + r"(\.|::|$)", form.opcode) is not None
    return not name or family(form) == name or begins


def names_several_forms(name: str) -> bool:
    """Whether ``name`` is a family or an opcode prefix, and not one opcode."""
    mnemonic = name.split(".")[0]
    if name in ROWS:
        return True
    if mnemonic not in mnemonics() or name in forms(mnemonic):
        return False
    return any(belongs_to(form, name) for form in forms(mnemonic).values())


def rows_of(mnemonic: str, form_filter: FormFilter) -> list[Row]:
    """The rows of an instruction with a form that passes the filter; if the forms are too many to
    enumerate, the rows that the target and version support.
    """
    try:
        found = {id(form.row) for form in forms(mnemonic).values() if form_filter.matches(form)}
    except UnknownInstruction:
        return [
            row
            for row in ROWS[mnemonic]
            if not form_filter.unsupported_reason(Form(row, mnemonic, {}))
        ]
    return [row for row in ROWS[mnemonic] if id(row) in found]


def nearest_hint(opcode: str) -> str:
    """A hint with the most similar legal opcodes; "" for instructions without enumerated forms."""
    mnemonic = opcode.split(".")[0]
    if mnemonic not in mnemonics():
        return ""
    return f"nearest are {', '.join(closest_opcodes(opcode, forms(mnemonic)))}"


def for_target(form: Form, target: str) -> Form:
    """The form as ``target`` executes it; unchanged without a target."""
    return replace(form, entry=form.entry.on(target)) if target and form.entry else form


def count_by_family(found: Iterable[Form]) -> Counter[str]:
    """The number of forms in each family."""
    return Counter(map(family, found))
