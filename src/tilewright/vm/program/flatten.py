"""Flattens a function: nested scopes become one list of operations with resolved names.

One pass over the tree. Registers are numbered at their first use. Shared variables are allocated
before it (only those that the kernel references), local variables as they are declared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...ptx import parameter_block, tree
from ...ptx.isa import OperandSpec
from ...ptx.isa.convergence import MEMBERS, convergence_rule
from ...ptx.isa.selectors import with_selectors
from .activation_records import OutOfLineCalls
from .bound_operands import AddressOperand
from .flat_code import FlatCode, NameScope
from .inlining import inline, lower_ret
from .system_calls import call_system_function
from .vector_operands import expand_vectors

PAST = "past a guarded operation"


class Flattener(FlatCode):
    """Walks a function's body once. Raises PtxCheckError and UnknownInstruction with the source
    location.
    """

    def __init__(
        self, module: tree.Module, function: tree.Function, addresses: dict[str, int]
    ) -> None:
        super().__init__(module, function, addresses)
        root = self.root
        self.out_of_line = OutOfLineCalls(self) if self.graph.out_of_line else None
        if self.out_of_line:
            self.out_of_line.emit_functions()
        own = self.scope(root)
        for formal, parameter in zip(
            function.params, parameter_block.layout(function).parameters, strict=True
        ):
            address = AddressOperand(None, parameter.offset, "param")
            is_register = formal.space == "reg"  # in a function that ``coverage`` walks by itself
            own.names[formal.name] = self.register(formal.name, formal) if is_register else address
        self.walk(function.body or (), self.scope(own))

    def instruction(self, s: tree.Instruction, scope: NameScope) -> None:
        s = lower_ret(s, scope)
        f = self.form(s)
        if "call" in f.effects:
            if inline(self, self.out_of_line, s, scope):
                return
            call_system_function(self, s, f, self.scope(scope))
            return
        if s.guard and convergence_rule(f) == MEMBERS:
            self.branch_around(s, s.guard, scope)
            return
        s = expand_vectors(self, s, scope)
        specs = f.signature(s.operands, lambda o: self.is_predicate(o, scope))
        if specs is None:
            raise self.error(f"{s.opcode} does not take {len(s.operands)} operands", s.pos)
        f = with_selectors(f, specs, s.operands)
        pairs = [(p, self.argument(p, o, scope, s.pos)) for p, o in _spread(specs, s.operands)]
        dests = tuple(p for p in pairs if p[0].dest)
        sources = tuple(p for p in pairs if not p[0].dest or p[0].read_write)
        self.append(s, f, dests, sources, scope)

    def branch_around(self, s: tree.Instruction, guard: tree.Guard, scope: NameScope) -> None:
        """Replace the guard of an operation with a member mask by a branch around it: lanes whose
        guard does not hold continue, and the others wait for members that are still to arrive.
        """
        inner = self.scope(scope)
        inner.names[PAST] = label = inner.label(PAST)
        skip = replace(guard, negated=not guard.negated)
        self.instruction(tree.Instruction("bra", (tree.Symbol(PAST),), skip, s.pos), inner)
        self.instruction(replace(s, guard=None), scope)
        self.labels.setdefault(len(self.ops), []).append(label)


def _spread(
    specs: tuple[OperandSpec, ...], operands: tuple[tree.Operand, ...]
) -> Iterator[tuple[OperandSpec, tree.Operand]]:
    """Pairs of specification and operand; ``p|q`` gives two."""
    remaining = list(specs)
    for operand in operands:
        spec = remaining.pop(0)
        second = remaining.pop(0) if remaining and remaining[0].second else None
        if isinstance(operand, tree.Pair):
            yield spec, operand.first
            if second:
                yield second, operand.second
        else:
            yield spec, operand
