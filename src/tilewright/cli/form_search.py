"""Which forms of which instructions there are: found by name, filtered, counted.

Everything is read from ``ptx.isa.ROWS``. Of an instruction with few modifiers each legal form is a
``Form``; the matrix instructions' forms carry their row of ``mma`` (``form.entry``).
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

BESIDE = ("ldmatrix", "stmatrix", "movmatrix", "cvt", "prmt")  # what brings and converts operands
MOST = 100_000  # combinations of modifiers that are tried
NEWEST: Version = (99, 0)


@dataclass(frozen=True)
class Wanted:
    """What the options ask for; what is empty is not asked."""

    target: str = ""
    version: str = ""
    types: tuple[str, ...] = ()
    shape: str = ""
    kind: str = ""

    def __post_init__(self) -> None:
        """TargetError and DtypeError for what does not exist."""
        for name in self.types:
            dtype(name)
        _ = self.target and Target.parse(self.target), self.version and parse_version(self.version)

    def __bool__(self) -> bool:
        return self != Wanted()

    def why_not(self, form: Form) -> str:
        """Why the target and version that are asked for have not got a form, or ""."""
        target = Target.parse(self.target) if self.target else None
        version = parse_version(self.version) if self.version else NEWEST
        reason = obstacle(form.opcode, form.needs(), version, target)
        if not reason and self.version and form.until and version >= parse_version(form.until):
            return f"{form.opcode} is gone since PTX {form.until}"
        return reason.replace(", the module says", ", not")

    def has(self, form: Form) -> bool:
        """Whether a form is what is asked for."""
        words = form.opcode.split(".")
        return (
            (not self.shape or self.shape in words)
            and (not self.kind or f"kind::{self.kind}" in words)
            and all(any(_is_type(t, word) for word in _types(form)) for t in self.types)
            and not self.why_not(form)
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
    """Every legal form of an instruction by opcode. UnknownInstruction where they are too many."""
    made: dict[str, Form] = {}
    for row in ROWS.get(mnemonic, ()):
        if not isinstance(row, ListedRow):
            count = prod(len(s.choices) + s.optional for s in row.slots)
            if count > MOST:
                raise UnknownInstruction(
                    f"{mnemonic} has {count:,} combinations of modifiers, too many to try",
                    hint="without --count its rows are listed",
                )
        for form in _legal(row):
            made.setdefault(form.opcode, form)
    return made


def _legal(row: Row) -> Iterator[Form]:
    for opcode in row.opcodes():
        form = row.form(opcode)
        if form is not None and not (row.constraint and row.constraint(form)):
            yield form


def mnemonics() -> tuple[str, ...]:
    """The matrix instructions and those that bring and convert their operands."""
    listed = [name for name, rows in ROWS.items() if any(isinstance(r, ListedRow) for r in rows)]
    return tuple(dict.fromkeys([*listed, *(name for name in BESIDE if name in ROWS)]))


def family(form: Form) -> str:
    """``mma.sp``, ``wmma.load``, ``cvt``: how forms are grouped and counted."""
    if form.entry is not None:
        return str(form.entry.family)
    stem, sync, _ = form.opcode.partition(".sync")
    return ".".join(stem.split(".")[:2]) if sync else form.mnemonic


def named(name: str, wanted: Wanted) -> list[Form]:
    """The forms of a family, or whose opcode begins with these words, and that are wanted."""
    known = [name.split(".")[0]] if name else mnemonics()
    found = [form for mnemonic in known for form in forms(mnemonic).values() if is_of(form, name)]
    return [form for form in found if wanted.has(form)]


def is_of(form: Form, name: str) -> bool:
    """Whether a form is of the family ``name``, or its opcode begins with the words of it."""
    begins = re.match(re.escape(name) + r"(\.|::|$)", form.opcode) is not None
    return not name or family(form) == name or begins


def is_name(name: str) -> bool:
    """Whether this names several forms: a family, or the first words of opcodes."""
    mnemonic = name.split(".")[0]
    if name in ROWS:
        return True
    if mnemonic not in mnemonics() or name in forms(mnemonic):
        return False
    return any(is_of(form, name) for form in forms(mnemonic).values())


def rows_of(mnemonic: str, wanted: Wanted) -> list[Row]:
    """The rows of an instruction that have a wanted form; of many forms, that may have one."""
    try:
        found = {id(form.row) for form in forms(mnemonic).values() if wanted.has(form)}
    except UnknownInstruction:
        return [row for row in ROWS[mnemonic] if not wanted.why_not(Form(row, mnemonic, {}))]
    return [row for row in ROWS[mnemonic] if id(row) in found]


def nearest(opcode: str) -> str:
    """The legal opcodes most like this one, as a hint; of other instructions nothing."""
    mnemonic = opcode.split(".")[0]
    if mnemonic not in mnemonics():
        return ""
    return f"nearest are {', '.join(closest_opcodes(opcode, forms(mnemonic)))}"


def on(form: Form, target: str) -> Form:
    """The form as a target has it; without one, as it is."""
    return replace(form, entry=form.entry.on(target)) if target and form.entry else form


def counted(found: Iterable[Form]) -> Counter[str]:
    """How many there are of each family."""
    return Counter(map(family, found))
