"""Calls of a module's own functions: the body stands in the place of each call.

A ``.param`` variable of the caller is the callee's parameter itself; registers and constants are
copied. A call through a register is one of the functions whose addresses the module takes: each is
compared with. What calls itself has no end in this way and stands apart (``activation.py``), and
so does what would grow without measure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..ptx import abi, tree
from .activation import RETURN
from .operands import Addr

if TYPE_CHECKING:
    from .flatten import Flattener, Scope

FORMAL, CHOSEN = "formal parameter", "chosen function"


def inline(flat: Flattener, call: tree.Instruction, scope: Scope) -> bool:
    """Put the called function's body here, or a call of one that stands apart; False for one that
    has no body.
    """
    callee = call.operands[1]
    end = flat.scope(scope)
    end.names[RETURN] = end.label(RETURN)
    if isinstance(callee, tree.Symbol):
        function = flat.graph.known.get(callee.name)
        if function is None or function.body is None:
            return False
        _skip(flat, call, end)
        _enter(flat, call, function, end)
    else:
        _skip(flat, call, end)
        _choose(flat, call, callee, end)
    flat.labels.setdefault(len(flat.ops), []).append(end.names[RETURN])
    return True


def _skip(flat: Flattener, call: tree.Instruction, end: Scope) -> None:
    if call.guard:
        guard = replace(call.guard, negated=not call.guard.negated)
        _emit(flat, call, end, "bra", tree.Symbol(RETURN), guard=guard)


def _choose(flat: Flattener, call: tree.Instruction, callee: tree.Operand, end: Scope) -> None:
    """Compare with each function's address; any other traps."""
    for name in flat.graph.choices[id(call)]:
        other = flat.scope(end)
        other.names[CHOSEN] = flat.one(CHOSEN, "pred")
        other.names["other"] = other.label("other")
        address = tree.Imm(flat.functions[name])
        _emit(flat, call, other, "setp.ne.u64", tree.Reg(CHOSEN), callee, address)
        guard = tree.Guard(tree.Reg(CHOSEN))
        _emit(flat, call, other, "bra", tree.Symbol("other"), guard=guard)
        _enter(flat, call, flat.graph.known[name], end)
        _emit(flat, call, end, "bra", tree.Symbol(RETURN))
        flat.labels.setdefault(len(flat.ops), []).append(other.names["other"])
    _emit(flat, call, end, "trap")


def _enter(flat: Flattener, call: tree.Instruction, function: tree.Function, end: Scope) -> None:
    results, _, arguments, *_ = call.operands
    sides = ((function.results, results), (function.params, arguments))
    if any(len(formals) != len(given.items) for formals, given in sides):
        raise flat.error(f"{function.name} has other results or arguments", call.pos)
    if flat.apart and function.name in flat.graph.separate:
        flat.apart.place(call, function, end)
    else:
        _body(flat, call, function, end)


def _body(flat: Flattener, call: tree.Instruction, function: tree.Function, end: Scope) -> None:
    results, _, arguments, *_ = call.operands
    inner, loc, local_end = flat.scope(flat.root), flat.loc, flat.local_end
    inner.names[RETURN] = inner.label(RETURN)
    for formal, given in zip(function.params, arguments.items, strict=True):
        _bind(flat, call, formal, given, inner, end, into=True)
    for formal, given in zip(function.results, results.items, strict=True):
        _bind(flat, call, formal, given, inner, end, into=False)
    flat.walk(function.body or (), inner)
    flat.labels.setdefault(len(flat.ops), []).append(inner.names[RETURN])
    flat.loc = loc
    for formal, given in zip(function.results, results.items, strict=True):
        meant = inner.names[formal.name]
        if isinstance(given, tree.Reg):
            _copy(flat, call, formal, given, (meant, end), into=False)
    flat.local_end = local_end  # its variables are no more


def _bind(
    flat: Flattener,
    call: tree.Instruction,
    formal: tree.Variable,
    given: tree.Operand,
    inner: Scope,
    end: Scope,
    into: bool,
) -> None:
    """Give a parameter or result its place: the caller's variable, or one of its own."""
    found = flat.lookup(given.name, end, call.pos) if isinstance(given, tree.Symbol) else None
    if isinstance(found, Addr) and formal.space != "reg":
        inner.names[formal.name] = found
        return
    if formal.space == "reg":
        inner.names[formal.name] = flat.one(formal.name, formal.type)
    else:
        flat.variable(inner, formal)
    if into:
        _copy(flat, call, formal, given, (inner.names[formal.name], end), into=True)


def _copy(
    flat: Flattener,
    call: tree.Instruction,
    formal: tree.Variable,
    given: tree.Operand,
    where: tuple[object, Scope],
    into: bool,
) -> None:
    """A register or constant into a parameter, or a result into a register."""
    meant, end = where
    bridge = flat.scope(end)
    bridge.names[FORMAL] = meant
    type_ = f"b{8 * abi.extent(formal)[0]}"
    if not isinstance(meant, Addr):
        own = tree.Reg(FORMAL)
        _emit(flat, call, bridge, f"mov.{type_}", *((own, given) if into else (given, own)))
        return
    place = tree.Address(tree.Symbol(FORMAL))
    if into:
        _emit(flat, call, bridge, f"st.param.{type_}", place, given)
    else:
        _emit(flat, call, bridge, f"ld.param.{type_}", given, place)


def _emit(
    flat: Flattener,
    call: tree.Instruction,
    scope: Scope,
    opcode: str,
    *operands: tree.Operand,
    guard: tree.Guard | None = None,
) -> None:
    flat.instruction(tree.Instruction(opcode, operands, guard, call.pos), scope)


def returned(s: tree.Instruction, scope: Scope) -> tree.Instruction:
    """``ret`` of a function that stands inline: a branch to its end."""
    if s.opcode in ("ret", "ret.uni") and scope.find(RETURN):
        return replace(s, opcode="bra", operands=(tree.Symbol(RETURN),))
    return s
