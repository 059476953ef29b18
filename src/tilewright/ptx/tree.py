"""The PTX module tree, which the parser and the builder produce and all other parts read.

Every node is a frozen value. Positions (``pos``, an offset into the module's source) do not take
part in comparison, so ``parse(print(m)) == m`` is a plain comparison.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Union

from ..errors import PtxError, SourceLocation
from ..notebook_display import Drawable

# --- operands ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Register:
    """A register, special register or vector component: ``%r1``, ``%tid.x``, ``%v.y``,
    ``%clock64``.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Imm:
    """An integer immediate. ``unsigned`` keeps PTX's ``U`` suffix."""

    value: int
    unsigned: bool = False


@dataclass(frozen=True, slots=True)
class FloatImm:
    """A floating-point immediate as bits: ``0f3F800000`` (width 32) or ``0d3FF0000000000000`` (64).

    A decimal literal such as ``1.5`` is a double, as PTX has it.
    """

    bits: int
    width: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable, parameter, label or function by name, with an optional byte offset: ``smem+16``.

    ``generic`` marks ``generic(smem)`` in an initialiser.
    """

    name: str
    offset: int = 0
    generic: bool = False


@dataclass(frozen=True, slots=True)
class Masked:
    """One byte of an address in an initialiser: ``0xFF00(smem)``."""

    mask: int
    symbol: Symbol


@dataclass(frozen=True, slots=True)
class MemoryOperand:
    """A memory operand ``[base+offset]``. ``coords`` are tensor coordinates: ``[map, {c0, c1}]``.

    A texture operand ``[tex, smp, {x, y}]`` has ``coords`` (sampler's Symbol, Vector).
    """

    base: Union[Register, Symbol, Imm]
    offset: int = 0
    coords: tuple["Operand", ...] | None = None


@dataclass(frozen=True, slots=True)
class Vector:
    """``{a, b, c, d}``."""

    items: tuple["Operand", ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """``p|q``: two destinations."""

    first: "Operand"
    second: "Operand"


@dataclass(frozen=True, slots=True)
class Not:
    """``!p``."""

    operand: Register


@dataclass(frozen=True, slots=True)
class Selected:
    """``%r1.b3``, ``%r1.h10``: the bytes or halves of a register that a video instruction reads or
    writes.
    """

    reg: Register
    selector: str


@dataclass(frozen=True, slots=True)
class Negated:
    """``-%r1``, ``-%r1.b3``: an operand of ``vmad``."""

    operand: Union[Register, Selected]


@dataclass(frozen=True, slots=True)
class Sink:
    """``_``: a discarded result."""


Operand = Union[
    Register,
    Imm,
    FloatImm,
    Symbol,
    MemoryOperand,
    Vector,
    Pair,
    Not,
    Selected,
    Negated,
    Sink,
]

# --- statements -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Guard:
    """``@p`` or ``@!p`` before an instruction."""

    reg: Register
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. ``opcode`` is mnemonic and modifiers as written: ``mad.lo.s32``.

    ``isa.form(opcode)`` has its meaning, operands and requirements. The operands of a ``call`` are
    (Vector of results, callee, Vector of arguments) and optionally its prototype; the Vectors may
    be empty.
    """

    opcode: str
    operands: tuple[Operand, ...] = ()
    guard: Guard | None = None
    pos: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class Label:
    name: str
    pos: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class RegDecl:
    """``.reg .f32 %f<8>;`` (``count`` 8), ``.reg .pred p, q;`` (``count`` None), ``.reg .v2 .f32
    v;``.
    """

    type: str
    names: tuple[str, ...]
    count: int | None = None
    vector: int = 1
    pos: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable in a state space: of a module or function, or a parameter.

    ``dims`` are its array dimensions (0 for an unspecified one, ``[]``), ``init`` its initialiser
    as nested tuples. ``linkage`` is ``extern``, ``visible``, ``weak``, ``common`` or empty.
    ``qualifiers`` holds the words that follow a parameter's type (``.ptr .global .align 16``).
    """

    space: str
    type: str
    name: str
    dims: tuple[int, ...] = ()
    align: int | None = None
    init: tuple[object, ...] | None = None
    linkage: str = ""
    vector: int = 1
    qualifiers: tuple[str, ...] = ()
    pos: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class Loc:
    """``.loc file line column`` and its optional ``, function_name …, inlined_at …`` as written."""

    file: int
    line: int
    column: int
    attributes: str = ""
    pos: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class Directive:
    """A directive stored as words: ``.pragma "nounroll"``, ``.branchtargets L0, L1``,
    ``.maxntid 128, 1, 1``.

    ``name`` has no dot: ``pragma``. ``label`` is the label that names it (``.branchtargets``).
    """

    name: str
    arguments: tuple[str, ...] = ()
    label: str = ""
    pos: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class Block:
    """``{ … }``: a nested scope of registers, variables and labels."""

    body: tuple["Statement", ...]
    pos: int = field(default=-1, compare=False)


Statement = Union[Instruction, Label, RegDecl, Variable, Loc, Directive, Block]

# --- the module -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel (``kind`` ``entry``) or device function (``func``). ``body`` is None for a
    declaration.

    ``directives`` are those between the parameters and the body (``.maxntid``,
    ``.reqnctapercluster``, …).
    """

    name: str
    kind: str = "entry"
    params: tuple[Variable, ...] = ()
    results: tuple[Variable, ...] = ()
    directives: tuple[Directive, ...] = ()
    body: tuple[Statement, ...] | None = ()
    linkage: str = "visible"
    pos: int = field(default=-1, compare=False)

    def instructions(self) -> Iterator[Instruction]:
        """All instructions in the order of the text, nested scopes included."""
        yield from _instructions(self.body or ())


def _instructions(body: tuple[Statement, ...]) -> Iterator[Instruction]:
    for statement in body:
        if isinstance(statement, Instruction):
            yield statement
        elif isinstance(statement, Block):
            yield from _instructions(statement.body)


@dataclass(frozen=True, slots=True)
class File:
    """``.file index "name"``; ``attributes`` keeps an optional timestamp and size."""

    index: int
    name: str
    attributes: tuple[int, ...] = ()
    pos: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class Section:
    """``.section .debug_str { … }``, stored as text."""

    name: str
    text: str
    pos: int = field(default=-1, compare=False)


Item = Union[Function, Variable, File, Section, Directive]


@dataclass(frozen=True, slots=True)
class Module(Drawable):
    """A PTX module. ``version`` is (major, minor), ``target`` the words of ``.target``.

    ``source`` is the text that positions point into (empty for a built module) and ``path`` its
    file. The source of a linked module is the concatenation of several files; ``parts`` has the
    offset and path of each.
    """

    version: tuple[int, int] = (1, 0)
    target: tuple[str, ...] = ("sm_50",)
    address_size: int = 64
    items: tuple[Item, ...] = ()
    source: str = field(default="", compare=False, repr=False)
    path: str = field(default="<ptx>", compare=False)
    parts: tuple[tuple[int, str], ...] = field(default=(), compare=False, repr=False)

    def location(self, pos: int, width: int = 1) -> SourceLocation | None:
        """The location of a position in its source file; None for a module without text."""
        if pos < 0 or not self.source:
            return None
        last = bisect_right(self.parts, pos, key=lambda part: part[0]) - 1
        if last < 0:
            return SourceLocation.at(self.source, pos, self.path, width)
        start, path = self.parts[last]
        end = self.parts[last + 1][0] if last + 1 < len(self.parts) else len(self.source)
        return SourceLocation.at(self.source[start:end], pos - start, path, width)

    @property
    def functions(self) -> dict[str, Function]:
        """Functions by name. A definition takes precedence over declarations; an ``.alias`` maps to
        its aliasee.
        """
        found: dict[str, Function] = {}
        for item in self.items:
            if isinstance(item, Function) and (item.body is not None or item.name not in found):
                found[item.name] = item
        for name, aliasee in self._aliases():
            if aliasee in found:
                found[name] = replace(found[aliasee], name=name)
        return found

    def _aliases(self) -> Iterator[tuple[str, ...]]:
        directives = (item for item in self.items if isinstance(item, Directive))
        yield from (d.arguments for d in directives if d.name == "alias" and len(d.arguments) == 2)

    @property
    def entries(self) -> tuple[Function, ...]:
        """The kernels, in the order of the text."""
        return tuple(f for f in self.functions.values() if f.kind == "entry")

    @property
    def files(self) -> dict[int, str]:
        return {item.index: item.name for item in self.items if isinstance(item, File)}


def expect_module(value: object) -> None:
    """Raise PtxError unless ``value`` is a Module."""
    if not isinstance(value, Module):
        hint = "ptx.parse returns one"
        raise PtxError(f"expected a ptx.Module, got {type(value).__name__}", hint=hint)
