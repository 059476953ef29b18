"""Calls of system functions (``ptx/system_functions.py``): one operation each."""

from __future__ import annotations

from dataclasses import replace

from ...ptx import parameter_block, tree
from ...ptx.isa import Form, OperandSpec
from ...ptx.system_functions import EXTERNS
from .flat_code import FlatCode, NameScope, Operands
from .vector_operands import pack_vectors


def call_system_function(flat: FlatCode, s: tree.Instruction, f: Form, scope: NameScope) -> None:
    """The operation of a call, in a scope of its own; vectors are passed as scalars of as many
    bits. PtxCheckError where there is no such function, or the module declares it differently.
    """
    results, callee, arguments, *_ = s.operands
    assert isinstance(results, tree.Vector) and isinstance(arguments, tree.Vector)
    given, before = pack_vectors(flat, arguments, scope)
    taken, after = pack_vectors(flat, results, scope)
    for type_, word, vector in before:
        flat.instruction(replace(s, opcode=f"mov.{type_}", operands=(word, vector)), scope)
    call = replace(s, operands=(taken, callee, given))
    flat.append(call, f, *_passed(flat, call, scope), scope)
    for type_, word, vector in after:
        flat.instruction(replace(s, opcode=f"mov.{type_}", operands=(vector, word)), scope)


def _passed(flat: FlatCode, s: tree.Instruction, scope: NameScope) -> tuple[Operands, Operands]:
    """Results and sources of a call, each typed as the function has it: the callee's name, then
    the arguments. A ``.param`` variable stands there as its address.
    """
    results, callee, arguments, *_ = s.operands
    assert isinstance(callee, tree.Symbol)
    function = EXTERNS.get(callee.name)
    if function is None:
        hint = f"load takes several modules; the virtual machine has {', '.join(EXTERNS)}"
        raise flat.error(f"{callee.name} has no body in this module", s.pos, hint)
    _check_declared(flat, function, s.pos)
    found = []
    for given, formals, dest in ((results, function.results, True),
                                 (arguments, function.params, False)):  # fmt: skip
        assert isinstance(given, tree.Vector)
        specs = [OperandSpec(p.name, "reg", p.type, dest=dest) for p in formals]
        pairs = zip(specs, given.items, strict=True)
        found.append(tuple((p, flat.call_operand(p, o, scope, s.pos)) for p, o in pairs))
    return found[0], ((OperandSpec("callee", "symbol"), function.name), *found[1])


def _check_declared(flat: FlatCode, function: tree.Function, pos: int) -> None:
    """PtxCheckError where the module declares one of the machine's functions as another."""
    declared = flat.graph.all_functions.get(function.name)
    if declared is None or _sizes(declared) != _sizes(function):
        takes = ", ".join(f".{p.type}" for p in function.params)
        gives = ", ".join(f".{p.type}" for p in function.results) or "nothing"
        hint = f".extern .func {function.name} takes {takes} and returns {gives}"
        raise flat.error(f"{function.name} is not what the module declares", pos, hint)


def _sizes(function: tree.Function) -> list[list[tuple[int, int]]]:
    return [
        [parameter_block.size_and_align(v) for v in side]
        for side in (function.results, function.params)
    ]
