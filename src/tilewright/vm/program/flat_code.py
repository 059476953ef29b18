"""The state of flattening: operations, registers, labels and scopes; binds operands by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

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
    """``%r<8>``: registers that are created at their first use."""

    declared: tree.RegDecl


class NameScope:
    """The names declared in one ``{ }`` block, and what they are bound to. Lookup goes outward."""

    def __init__(self, number: int, outer: NameScope | None = None) -> None:
        self.number, self.outer = number, outer
        self.names: dict[str, BoundOperand] = {}
        self.families: dict[str, _Family] = {}

    def label(self, name: str) -> str:
        """The key of a label of this scope."""
        return f"{name}#{self.number}"

    def find(self, name: str) -> tuple[NameScope, BoundOperand | _Family] | None:
        """The innermost scope that declares the name, and what it is bound to there."""
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
    """Offsets of the shared variables of a function: its own, and those of the module that it uses.

    ``extern`` variables are dynamic shared memory; all of them begin after the others.
    """

    def __init__(self, module: tree.Module, function: tree.Function) -> None:
        code, names = reachable_code(module, function), referenced_symbols(module, function)
        top = (v for v in module.items if isinstance(v, tree.Variable) and v.name in names)
        own = (v for f in code for v in _variables(f.body or ()))
        variables = [v for v in (*top, *own) if v.space == "shared"]
        self.size, self.align = 0, DYNAMIC_ALIGN
        self.offsets: dict[int, int] = {}
        for v in variables:
            if not _is_dynamic(v):
                size, align = parameter_block.size_and_align(v)
                self.offsets[id(v)] = -(-self.size // align) * align
                self.size = self.offsets[id(v)] + size
        dynamic = [v for v in variables if _is_dynamic(v)]
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

    ``ops``: the operations so far. ``labels``: labels, by the index of the operation that follows.
    ``registers``: registers by number. ``locs``: the ``.loc`` of operations, by their index.
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
        self.vectors = False  # whether a vector register is declared
        self.base: RegOperand | None = None  # the register that local variables are relative to
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
                keys = (self.lookup(n, scope, s.pos) for n in s.arguments)
                scope.names[s.label] = tuple(key for key in keys if isinstance(key, str))
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
        elif v.space in ("local", "param"):  # .param in a body: arguments and results of a call
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
        """Create a declared register, or the register of a parameter or result in ``.reg``."""
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
        guard = self.register_operand(s.guard.reg, scope, s.pos) if s.guard else None
        if self.loc:
            self.locs[len(self.ops)] = self.loc
        negated = bool(s.guard and s.guard.negated)
        self.ops.append(Op(len(self.ops), f, dests, sources, guard, negated, s.pos))

    def call_operand(
        self, spec: OperandSpec, o: tree.Operand, scope: NameScope, pos: int
    ) -> BoundOperand:
        """An operand of a call: a variable is bound as its address, not as a constant."""
        bound = self.lookup(o.name, scope, pos) if isinstance(o, tree.Symbol) else None
        return bound if isinstance(bound, AddressOperand) else self.argument(spec, o, scope, pos)

    def form(self, s: tree.Instruction) -> Form:
        try:
            f = form(s.opcode)
        except UnknownInstruction as error:
            location = self.location(s.pos)
            raise UnknownInstruction(error.message, location=location, hint=error.hint) from None
        if f.features & UNSUPPORTED_FEATURES:
            raise self.error(f"the virtual machine does not support {s.opcode}", s.pos)
        return f

    # --- operands ---

    def is_predicate(self, operand: object, scope: NameScope) -> bool:
        if isinstance(operand, tree.Not):
            return True
        bound = self.lookup(operand.name, scope, -1) if isinstance(operand, tree.Register) else None
        return isinstance(bound, RegOperand) and self.registers[bound.index].width == 1

    def register_operand(self, register: tree.Register, scope: NameScope, pos: int) -> RegOperand:
        """The declared scalar register of that name."""
        bound = self.lookup(register.name, scope, pos)
        assert isinstance(bound, RegOperand), f"{register.name} is not a scalar register"
        return bound

    def lookup(self, name: str, scope: NameScope, pos: int) -> BoundOperand:
        """What a name is bound to in a scope. Raises PtxCheckError if it is not declared."""
        base, index = component(name)
        found = scope.find(base)
        if found is None:
            if length := special_vector_length(name):
                return VectorOperand(tuple(SpecialOperand(f"{base}.{c}") for c in AXES[:length]))
            if special(name):
                return SpecialOperand(base if index is None else f"{base}.{AXES[index]}")
            if name == WARP_SIZE:
                return ConstOperand(32)
            raise self.error(f"{name} is not declared", pos)
        home, bound = found
        if isinstance(bound, _Family):
            bound = home.names[base] = self.register(base, bound.declared)
        if index is not None and isinstance(bound, VectorOperand):
            return bound.items[index]
        return bound

    def argument(
        self, spec: OperandSpec, o: tree.Operand, scope: NameScope, pos: int
    ) -> BoundOperand:
        if isinstance(o, tree.Negated):  # the form has the negation and the selected part
            o = o.operand
        if isinstance(o, tree.Selected):
            o = o.reg
        if isinstance(o, tree.Register | tree.Symbol):
            offset = o.offset if isinstance(o, tree.Symbol) else 0
            bound = self.lookup(o.name, scope, pos)
            if not isinstance(bound, AddressOperand):
                return bound
            if bound.base:
                return StackAddress(bound.base, bound.offset + offset)
            return (SharedAddress if bound.space == "shared" else ConstOperand)(
                bound.offset + offset
            )
        if isinstance(o, tree.Imm | tree.FloatImm):
            return ConstOperand(immediate(spec.type, o))
        if isinstance(o, tree.MemoryOperand):
            address = self.address(o, scope, pos)
            if not o.coords:
                return address
            return VectorOperand((address, *(self.argument(spec, c, scope, pos) for c in o.coords)))
        if isinstance(o, tree.Vector):
            if spec.braces:
                return self.argument(spec, o.items[0], scope, pos)
            return VectorOperand(tuple(self.argument(spec, item, scope, pos) for item in o.items))
        if isinstance(o, tree.Not):
            return NotOperand(self.register_operand(o.operand, scope, pos))
        return None

    def address(self, o: tree.MemoryOperand, scope: NameScope, pos: int) -> AddressOperand:
        if isinstance(o.base, tree.Imm):
            return AddressOperand(None, o.base.value + o.offset)
        bound = self.lookup(o.base.name, scope, pos)
        offset = o.offset + (o.base.offset if isinstance(o.base, tree.Symbol) else 0)
        if isinstance(bound, AddressOperand):
            return replace(bound, offset=bound.offset + offset)
        if not isinstance(bound, RegOperand):
            raise self.error(f"{o.base.name} is neither a register nor a variable", pos)
        return AddressOperand(bound, offset)
