"""Calls of system functions (``ptx/system_functions.py``): one operation each."""

from __future__ import annotations

from dataclasses import replace

from ...ptx import parameter_block, tree
from ...ptx.isa import Form, OperandSpec
from ...ptx.system_functions import EXTERNS
from .call_graph import results_and_arguments
from .flat_code import FlatCode, NameScope, Operands
from .vector_operands import pack_vectors


def call_system_function(flat: FlatCode, s: tree.Instruction, f: Form, scope: NameScope) -> None:
    """Append the operation of a call; ``scope`` belongs to this call. Vectors are passed as scalars
    of the same size.

    Raises PtxCheckError if there is no such function, or the module declares it differently.
    """
    results, arguments = results_and_arguments(s)
    packed_arguments, before = pack_vectors(flat, arguments, scope)
    packed_results, after = pack_vectors(flat, results, scope)
    for type_, scalar, vector in before:
        flat.instruction(replace(s, opcode=f"mov.{type_}", operands=(scalar, vector)), scope)
    call = replace(s, operands=(packed_results, s.operands[1], packed_arguments))
    flat.append(call, f, *_bound_operands(flat, call, scope), scope)
    for type_, scalar, vector in after:
        flat.instruction(replace(s, opcode=f"mov.{type_}", operands=(vector, scalar)), scope)


def _bound_operands(
    flat: FlatCode, s: tree.Instruction, scope: NameScope
) -> tuple[Operands, Operands]:
    """The destinations and sources of a call, with the types that the function declares. The
    sources are the callee's name, then the arguments; a ``.param`` variable is bound as its
    address.
    """
    callee = s.operands[1]
    results, arguments = results_and_arguments(s)
    assert isinstance(callee, tree.Symbol)
    function = EXTERNS.get(callee.name)
    if function is None:
        hint = (
            f"link the module that has it (load takes several); provided are {', '.join(EXTERNS)}"
        )
        raise flat.error(f"{callee.name} has no body in this module", s.pos, hint)
    _check_declaration(flat, function, s.pos)
    sides = []
    for operands, formals, dest in ((results, function.results, True),
                                    (arguments, function.params, False)):  # fmt: skip
        specs = [OperandSpec(p.name, "reg", p.type, dest=dest) for p in formals]
        pairs = zip(specs, operands.items, strict=True)
        sides.append(tuple((p, flat.call_operand(p, o, scope, s.pos)) for p, o in pairs))
    return sides[0], ((OperandSpec("callee", "symbol"), function.name), *sides[1])


def _check_declaration(flat: FlatCode, function: tree.Function, pos: int) -> None:
    """Raise PtxCheckError if the module declares a system function with other parameters."""
    declared = flat.graph.all_functions.get(function.name)
    if declared is None or _sizes(declared) != _sizes(function):
        takes = ", ".join(f".{p.type}" for p in function.params)
        returns = ", ".join(f".{p.type}" for p in function.results) or "nothing"
        hint = f".extern .func {function.name} takes {takes} and returns {returns}"
        raise flat.error(f"the module declares {function.name} differently", pos, hint)


def _sizes(function: tree.Function) -> list[list[tuple[int, int]]]:
    return [
        [parameter_block.size_and_align(v) for v in variables]
        for variables in (function.results, function.params)
    ]
