"""Calls of a module's own functions: the body stands in the place of each call.

A ``.param`` variable of the caller is the callee's parameter itself; registers and constants are
copied. A call through a register is one of the functions whose addresses the module takes: each is
compared with. What calls itself has no end in this way and is refused, and so is what would grow
without measure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ..ptx import abi, tree
from ..ptx.externs import EXTERNS
from .operands import Addr

if TYPE_CHECKING:
    from .flatten import Flattener, Scope

RETURN, FORMAL, CHOSEN = "end of the call", "formal parameter", "chosen function"
FIRST_ADDRESS, STEP = 16, 16  # of functions: numbers that a kernel can pass on and compare
MOST = 1 << 17  # operations of a kernel with the functions that it calls


def code_addresses(module: tree.Module) -> dict[str, int]:
    """What the address of each function is."""
    found = (f.name for f in module.functions.values() if f.kind == "func")
    return {name: FIRST_ADDRESS + STEP * i for i, name in enumerate(found)}


def reached(module: tree.Module, function: tree.Function) -> dict[str, tree.Function]:
    """The functions that a kernel may call, and those that they may."""
    functions, found, queue = module.functions, {}, [function]
    while queue:
        for call in filter(_is_call, queue.pop().instructions()):
            for name in _callees(module, call):
                if name in functions and functions[name].body is not None and name not in found:
                    found[name] = functions[name]
                    queue.append(functions[name])
    return found


def _is_call(i: tree.Instruction) -> bool:
    return i.opcode.partition(".")[0] == "call"


def _callees(module: tree.Module, call: tree.Instruction) -> list[str]:
    callee = call.operands[1] if len(call.operands) > 1 else None
    if isinstance(callee, tree.Symbol):
        return [callee.name]
    return _candidates(module, call) if isinstance(callee, tree.Reg) else []


def _candidates(module: tree.Module, call: tree.Instruction) -> list[str]:
    """The functions with a body, an address that is taken, and as many operands."""
    taken = set(_named([v.init for v in module.items if isinstance(v, tree.Variable)]))
    for f in module.functions.values():
        code = (i for i in f.instructions() if not _is_call(i))
        taken |= set(_named([o for i in code for o in i.operands]))
    counts = [len(call.operands[n].items) for n in (0, 2)]
    return [
        f.name
        for f in module.functions.values()
        if f.name in taken and f.body is not None and [len(f.results), len(f.params)] == counts
    ]


def _named(items: object) -> Iterator[str]:
    """The symbols in initialisers and operands, however they nest."""
    if isinstance(items, tree.Symbol):
        yield items.name
    elif isinstance(items, tree.Masked):
        yield from _named(items.symbol)
    elif isinstance(items, tuple | list):
        for item in items:
            yield from _named(item)


def inline(flat: Flattener, call: tree.Instruction, scope: Scope) -> bool:
    """Put the called function's body here; False for one that has none or is
    the machine's own."""
    callee = call.operands[1]
    end = flat.scope(scope)
    end.names[RETURN] = end.label(RETURN)
    if isinstance(callee, tree.Symbol):
        function = flat.module.functions.get(callee.name)
        if function is None or function.body is None or function.name in EXTERNS:
            return False
        _skip(flat, call, end)
        _body(flat, call, function, end)
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
    for name in _candidates(flat.module, call):
        other = flat.scope(end)
        other.names[CHOSEN] = flat.one(CHOSEN, "pred")
        other.names["other"] = other.label("other")
        address = tree.Imm(flat.functions[name])
        _emit(flat, call, other, "setp.ne.u64", tree.Reg(CHOSEN), callee, address)
        guard = tree.Guard(tree.Reg(CHOSEN))
        _emit(flat, call, other, "bra", tree.Symbol("other"), guard=guard)
        _body(flat, call, flat.module.functions[name], end)
        _emit(flat, call, end, "bra", tree.Symbol(RETURN))
        flat.labels.setdefault(len(flat.ops), []).append(other.names["other"])
    _emit(flat, call, end, "trap")


def _body(flat: Flattener, call: tree.Instruction, function: tree.Function, end: Scope) -> None:
    if function.name in flat.calling:
        hint = " calls ".join([*flat.calling, function.name])
        raise flat.error("the virtual machine does not run recursive calls yet", call.pos, hint)
    if len(flat.ops) > MOST:
        hint = "each call has the function's body in its place"
        raise flat.error(f"a kernel's calls make more than {MOST} operations of it", call.pos, hint)
    inner, loc = flat.scope(flat.root), flat.loc
    inner.names[RETURN] = inner.label(RETURN)
    results, _, arguments, *_ = call.operands
    sides = ((function.results, results), (function.params, arguments))
    if any(len(formals) != len(given.items) for formals, given in sides):
        raise flat.error(f"{function.name} has other results or arguments", call.pos)
    for formal, given in zip(function.params, arguments.items, strict=True):
        _bind(flat, call, formal, given, inner, end, into=True)
    for formal, given in zip(function.results, results.items, strict=True):
        _bind(flat, call, formal, given, inner, end, into=False)
    flat.calling.append(function.name)
    try:
        flat.walk(function.body or (), inner)
    finally:
        flat.calling.pop()
    flat.labels.setdefault(len(flat.ops), []).append(inner.names[RETURN])
    flat.loc = loc
    for formal, given in zip(function.results, results.items, strict=True):
        meant = inner.names[formal.name]
        if isinstance(given, tree.Reg):
            _copy(flat, call, formal, given, (meant, end), into=False)


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
