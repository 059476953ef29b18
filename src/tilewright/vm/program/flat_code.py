"""The state of flattening: operations, registers, labels and scopes, and operands by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ...errors import PtxCheckError, SourceLocation, UnknownInstruction
from ...ptx import parameter_block, tree
from ...ptx.isa import Form, OperandSpec, form
from ...ptx.special_registers import AXES, WARP_SIZE, component, special, special_vector_length
from ...ptx.types import bits
from .bound_operands import (
    AddressOperand,
    BoundOperand,
    ConstOperand,
    NotOperand,
    Op,
    RegOperand,
    SharedAddress,
    SpecialOperand,
    StackAddress,
    VectorOperand,
    VirtualRegister,
)
from .call_graph import CallGraph, code_addresses, reachable_code, referenced_symbols
from .initializers import immediate
from .unsupported_features import UNSUPPORTED_FEATURES

_FAMILY = re.compile(r"(.*?)(\d+)")
DYNAMIC_ALIGN = 16
PAST = "past a guarded operation"

Operands = tuple[tuple[OperandSpec, BoundOperand], ...]


@dataclass(frozen=True, slots=True)
class _Family:
    """``%r<8>``: registers that come into being when they are used."""

    declared: tree.RegDecl


class NameScope:
    """Names of one ``{ }``, looked up outward. What a name means: Reg, Vec, Addr, Special, Const, a
    label's key (str) or the keys of a list of branch targets.
    """

    def __init__(self, number: int, outer: NameScope | None = None) -> None:
        self.number, self.outer = number, outer
        self.names: dict[str, Any] = {}
        self.families: dict[str, _Family] = {}

    def label(self, name: str) -> str:
        return f"{name}#{self.number}"

    def find(self, name: str) -> tuple[NameScope, Any] | None:
        """The scope that has the name and what it means there."""
        scope: NameScope | None = self
        member = _FAMILY.fullmatch(name)
        while scope:
            if name in scope.names:
                return scope, scope.names[name]
            family = scope.families.get(member[1]) if member else None
            if family and member and int(member[2]) < (family.declared.count or 0):
                return scope, family
            scope = scope.outer
        return None


class SharedMemory:
    """Where a function's shared variables lie: its own and those of the module that it names.

    ``extern`` ones, the dynamic shared memory, all begin behind the others.
    """

    def __init__(self, module: tree.Module, function: tree.Function) -> None:
        code, names = reachable_code(module, function), referenced_symbols(module, function)
        top = (v for v in module.items if isinstance(v, tree.Variable) and v.name in names)
        own = (v for f in code for v in _variables(f.body or ()))
        found = [v for v in (*top, *own) if v.space == "shared"]
        self.size, self.align = 0, DYNAMIC_ALIGN
        self.offsets: dict[int, int] = {}
        for v in found:
            if not _is_dynamic(v):
                size, align = parameter_block.size_and_align(v)
                self.offsets[id(v)] = -(-self.size // align) * align
                self.size = self.offsets[id(v)] + size
        dynamic = [v for v in found if _is_dynamic(v)]
        if dynamic:
            align = max(DYNAMIC_ALIGN, *(parameter_block.size_and_align(v)[1] for v in dynamic))
            self.size = -(-self.size // align) * align
        self.offsets |= {id(v): self.size for v in dynamic}


def _is_dynamic(v: tree.Variable) -> bool:
    return v.linkage == "extern" or 0 in v.dims


def _variables(body: tuple[tree.Statement, ...]) -> Iterator[tree.Variable]:
    for s in body:
        if isinstance(s, tree.Variable):
            yield s
        elif isinstance(s, tree.Block):
            yield from _variables(s.body)


class FlatCode:
    """The code of a kernel while it is flattened.

    ``ops`` are the operations so far, ``labels`` the labels by the index of the operation that
    follows, ``registers`` the registers by number, ``locs`` the ``.loc`` of an operation.
    """

    def __init__(
        self, module: tree.Module, function: tree.Function, addresses: dict[str, int]
    ) -> None:
        self.module = module
        self.registers: list[VirtualRegister] = []
        self.ops: list[Op] = []
        self.labels: dict[int, list[str]] = {}
        self.locs: dict[int, tree.Loc] = {}
        self.loc: tree.Loc | None = None
        self.local_bytes = self.local_end = 0
        self.scopes = 0
        self.vectors = False  # whether some register is a vector
        self.base: RegOperand | None = None  # what local variables lie behind
        self.local_align = 1
        self.shared = SharedMemory(module, function)
        self.graph = CallGraph(module, function)
        self.functions = code_addresses(module)
        self.root = root = self.scope(None)
        root.names |= {name: ConstOperand(address) for name, address in self.functions.items()}
        for name, address in addresses.items():
            root.names[name] = AddressOperand(None, address, "global")
        for item in module.items:
            if isinstance(item, tree.Variable) and id(item) in self.shared.offsets:
                self.variable(root, item)

    def error(self, message: str, pos: int, hint: str = "") -> PtxCheckError:
        return PtxCheckError(message, location=self.location(pos), hint=hint)

    def location(self, pos: int) -> SourceLocation | None:
        return self.module.location(pos)

    # --- statements ---

    def scope(self, outer: NameScope | None) -> NameScope:
        self.scopes += 1
        return NameScope(self.scopes, outer)

    def walk(self, body: tuple[tree.Statement, ...], scope: NameScope) -> None:
        for s in body:
            if isinstance(s, tree.Label):
                scope.names[s.name] = scope.label(s.name)
        for s in body:
            if isinstance(s, tree.Directive) and s.name == "branchtargets":
                scope.names[s.label] = tuple(self.lookup(n, scope, s.pos) for n in s.arguments)
        for s in body:
            self.statement(s, scope)

    def statement(self, s: tree.Statement, scope: NameScope) -> None:
        if isinstance(s, tree.Instruction):
            self.instruction(s, scope)
        elif isinstance(s, tree.Label):
            self.labels.setdefault(len(self.ops), []).append(scope.label(s.name))
        elif isinstance(s, tree.RegDecl):
            self.declare(s, scope)
        elif isinstance(s, tree.Block):
            self.walk(s.body, self.scope(scope))
        elif isinstance(s, tree.Variable):
            self.variable(scope, s)
        elif isinstance(s, tree.Loc):
            self.loc = s

    def variable(self, scope: NameScope, v: tree.Variable) -> None:
        if v.space == "shared":
            scope.names[v.name] = AddressOperand(None, self.shared.offsets[id(v)], "shared")
        elif v.space in ("local", "param"):  # a .param of a body is what a call passes
            size, align = parameter_block.size_and_align(v)
            start = -(-self.local_end // align) * align
            self.local_end = start + size
            self.local_bytes = max(self.local_bytes, self.local_end)
            self.local_align = max(self.local_align, align)
            scope.names[v.name] = AddressOperand(self.base, start, "local")

    def declare(self, d: tree.RegDecl, scope: NameScope) -> None:
        self.vectors |= d.vector > 1
        for name in d.names:
            if d.count is None:
                scope.names[name] = self.register(name, d)
            else:
                scope.families[name] = _Family(d)

    def register(self, name: str, d: tree.RegDecl | tree.Variable) -> RegOperand | VectorOperand:
        """A register as declared, or a parameter or result that is one."""
        if d.vector > 1:
            self.vectors = True
            return VectorOperand(
                tuple(self.new_register(f"{name}.{c}", d.type) for c in AXES[: d.vector])
            )
        return self.new_register(name, d.type)

    def new_register(self, name: str, type_: str) -> RegOperand:
        self.registers.append(VirtualRegister(name, type_, bits(type_)))
        return RegOperand(len(self.registers) - 1)

    def instruction(self, s: tree.Instruction, scope: NameScope) -> None:
        """Append the operations of an instruction."""
        raise NotImplementedError

    def append(
        self, s: tree.Instruction, f: Form, dests: Operands, sources: Operands, scope: NameScope
    ) -> None:
        guard = self.lookup(s.guard.reg.name, scope, s.pos) if s.guard else None
        if self.loc:
            self.locs[len(self.ops)] = self.loc
        negated = bool(s.guard and s.guard.negated)
        self.ops.append(Op(len(self.ops), f, dests, sources, guard, negated, s.pos))

    def call_operand(
        self, spec: OperandSpec, o: tree.Operand, scope: NameScope, pos: int
    ) -> BoundOperand:
        found = self.lookup(o.name, scope, pos) if isinstance(o, tree.Symbol) else None
        return found if isinstance(found, AddressOperand) else self.argument(spec, o, scope, pos)

    def form(self, s: tree.Instruction) -> Form:
        try:
            found = form(s.opcode)
        except UnknownInstruction as error:
            location = self.location(s.pos)
            raise UnknownInstruction(error.message, location=location, hint=error.hint) from None
        if found.features & UNSUPPORTED_FEATURES:
            raise self.error(f"the virtual machine does not support {s.opcode}", s.pos)
        return found

    # --- operands ---

    def is_predicate(self, operand: object, scope: NameScope) -> bool:
        if isinstance(operand, tree.Not):
            return True
        found = self.lookup(operand.name, scope, -1) if isinstance(operand, tree.Register) else None
        return isinstance(found, RegOperand) and self.registers[found.index].width == 1

    def lookup(self, name: str, scope: NameScope, pos: int) -> Any:
        """What a name means here."""
        base, index = component(name)
        found = scope.find(base)
        if found is None:
            if vector := special_vector_length(name):
                return VectorOperand(tuple(SpecialOperand(f"{base}.{c}") for c in AXES[:vector]))
            if special(name):
                return SpecialOperand(base if index is None else f"{base}.{AXES[index]}")
            if name == WARP_SIZE:
                return ConstOperand(32)
            raise self.error(f"{name} is not declared", pos)
        home, meaning = found
        if isinstance(meaning, _Family):
            meaning = home.names[base] = self.register(base, meaning.declared)
        if index is not None and isinstance(meaning, VectorOperand):
            return meaning.items[index]
        return meaning

    def argument(
        self, spec: OperandSpec, o: tree.Operand, scope: NameScope, pos: int
    ) -> BoundOperand:
        if isinstance(o, tree.Negated):  # as the form says, and which part
            o = o.operand
        if isinstance(o, tree.Selected):
            o = o.reg
        if isinstance(o, tree.Register | tree.Symbol):
            offset = o.offset if isinstance(o, tree.Symbol) else 0
            found = self.lookup(o.name, scope, pos)
            if not isinstance(found, AddressOperand):
                return found
            if found.base:
                return StackAddress(found.base, found.offset + offset)
            return (SharedAddress if found.space == "shared" else ConstOperand)(
                found.offset + offset
            )
        if isinstance(o, tree.Imm | tree.FloatImm):
            return ConstOperand(immediate(spec.type, o))
        if isinstance(o, tree.MemoryOperand):
            place = self.address(o, scope, pos)
            if not o.coords:
                return place
            return VectorOperand((place, *(self.argument(spec, c, scope, pos) for c in o.coords)))
        if isinstance(o, tree.Vector):
            if spec.braces:
                return self.argument(spec, o.items[0], scope, pos)
            return VectorOperand(tuple(self.argument(spec, item, scope, pos) for item in o.items))
        return (
            NotOperand(self.lookup(o.operand.name, scope, pos)) if isinstance(o, tree.Not) else None
        )

    def address(self, o: tree.MemoryOperand, scope: NameScope, pos: int) -> AddressOperand:
        if isinstance(o.base, tree.Imm):
            return AddressOperand(None, o.base.value + o.offset)
        found = self.lookup(o.base.name, scope, pos)
        offset = o.offset + (o.base.offset if isinstance(o.base, tree.Symbol) else 0)
        if isinstance(found, AddressOperand):
            return replace(found, offset=found.offset + offset)
        return AddressOperand(found, offset)
