"""Operations with bound operands: registers by number, addresses resolved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...ptx.isa import Form, OperandSpec


@dataclass(frozen=True, slots=True)
class RegOperand:
    """A register by number."""

    index: int


@dataclass(frozen=True, slots=True)
class ConstOperand:
    """A constant: the bits of an immediate, or a variable's address."""

    bits: int


@dataclass(frozen=True, slots=True)
class SpecialOperand:
    """A special register."""

    name: str


@dataclass(frozen=True, slots=True)
class AddressOperand:
    """An address: a register (or none) plus a constant. ``space`` is that of a variable, or ""."""

    base: RegOperand | None
    offset: int
    space: str = ""


@dataclass(frozen=True, slots=True)
class SharedAddress:
    """The address of a shared variable: its offset in the CTA's own shared memory."""

    offset: int


@dataclass(frozen=True, slots=True)
class StackAddress:
    """A register plus a constant: the address of a variable on the stack."""

    base: RegOperand
    offset: int


@dataclass(frozen=True, slots=True)
class VectorOperand:
    """A vector of operands."""

    items: tuple[BoundOperand, ...]


@dataclass(frozen=True, slots=True)
class NotOperand:
    """A predicate register, negated."""

    reg: RegOperand


#: A label is its key (str), a list of branch targets their keys; None is a sink or an absent
#: operand.
BoundOperand = (
    RegOperand
    | ConstOperand
    | SpecialOperand
    | AddressOperand
    | SharedAddress
    | StackAddress
    | VectorOperand
    | NotOperand
    | str
    | tuple[str, ...]
    | None
)


@dataclass(frozen=True, slots=True)
class VirtualRegister:
    """A declared register: its name and type as written, its width in bits."""

    name: str
    type: str
    width: int


@dataclass(frozen=True, slots=True)
class Op:
    """One instruction. ``dests`` and ``sources`` pair each operand with its specification.

    ``resumed`` marks the second half of ``bar.red``: its result, once the barrier has opened.
    """

    pc: int
    form: Form
    dests: tuple[tuple[OperandSpec, BoundOperand], ...]
    sources: tuple[tuple[OperandSpec, BoundOperand], ...]
    guard: RegOperand | None
    negated: bool
    pos: int
    resumed: bool = False

    @property
    def space(self) -> str:
        """The state space of its first address: that of the variable, or else of the form."""
        for spec, arg in (*self.sources, *self.dests):
            if isinstance(arg, AddressOperand) and spec.kind == "address":
                return arg.space or spec.space.partition("::")[0]
        return ""

    def reads(self) -> Iterator[int]:
        """Registers whose old value matters; under a guard this includes those written."""
        if self.guard:
            yield self.guard.index
            yield from self.writes()
        for _, arg in self.sources:
            yield from registers(arg)
        for _, arg in self.dests:
            if isinstance(arg, AddressOperand):
                yield from registers(arg)

    def writes(self) -> Iterator[int]:
        for _, arg in self.dests:
            if not isinstance(arg, AddressOperand):
                yield from registers(arg)


def registers(arg: BoundOperand) -> Iterator[int]:
    """The numbers of the registers in an operand."""
    if isinstance(arg, RegOperand):
        yield arg.index
    elif isinstance(arg, NotOperand):
        yield arg.reg.index
    elif isinstance(arg, AddressOperand | StackAddress) and arg.base:
        yield arg.base.index
    elif isinstance(arg, VectorOperand):
        for item in arg.items:
            yield from registers(item)


@dataclass(slots=True)
class CodeBlock:
    """Straight-line code. Control leaves by the last operation or falls through."""

    index: int
    ops: list[Op] = field(default_factory=list)

    @property
    def is_exit(self) -> bool:
        """Whether it begins with an unguarded ``ret`` or ``exit``, so that a branch to it is a
        guarded exit.
        """
        first = self.ops[0] if self.ops else None
        return first is None or (first.form.mnemonic in ("ret", "exit") and first.guard is None)
