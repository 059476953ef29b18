"""Inlines calls of the module's own functions.

A ``.param`` variable of the caller is the callee's parameter itself; registers and constants are
copied. An indirect call compares the register with the address of each possible callee. Recursive
functions, and those that would make the kernel too long, are not inlined
(``activation_records.py``).
"""

from __future__ import annotations

from dataclasses import replace

from ...ptx import parameter_block, tree
from .activation_records import END_LABEL, OutOfLineCalls
from .bound_operands import AddressOperand
from .flat_code import FlatCode, NameScope
from .vector_operands import vector_components

FORMAL, CHOSEN, WORD = "formal parameter", "chosen function", "passed bits"


def inline(
    flat: FlatCode, out_of_line: OutOfLineCalls | None, call: tree.Instruction, scope: NameScope
) -> bool:
    """Put the called function's body here, or a call of one that stands apart; False for one that
    has no body.
    """
    callee = call.operands[1]
    end = flat.scope(scope)
    end.names[END_LABEL] = end.label(END_LABEL)
    if isinstance(callee, tree.Symbol):
        function = flat.graph.all_functions.get(callee.name)
        if function is None or function.body is None:
            return False
        _emit_guard_branch(flat, call, end)
        _emit_callee(flat, out_of_line, call, function, end)
    else:
        _emit_guard_branch(flat, call, end)
        _dispatch_indirect(flat, out_of_line, call, callee, end)
    flat.labels.setdefault(len(flat.ops), []).append(end.names[END_LABEL])
    return True


def _emit_guard_branch(flat: FlatCode, call: tree.Instruction, end: NameScope) -> None:
    if call.guard:
        guard = replace(call.guard, negated=not call.guard.negated)
        _emit(flat, call, end, "bra", tree.Symbol(END_LABEL), guard=guard)


def _dispatch_indirect(
    flat: FlatCode,
    out_of_line: OutOfLineCalls | None,
    call: tree.Instruction,
    callee: tree.Operand,
    end: NameScope,
) -> None:
    """Compare with each function's address; any other traps."""
    for name in flat.graph.indirect_targets[id(call)]:
        other = flat.scope(end)
        other.names[CHOSEN] = flat.new_register(CHOSEN, "pred")
        other.names["other"] = other.label("other")
        address = tree.Imm(flat.functions[name])
        _emit(flat, call, other, "setp.ne.u64", tree.Register(CHOSEN), callee, address)
        guard = tree.Guard(tree.Register(CHOSEN))
        _emit(flat, call, other, "bra", tree.Symbol("other"), guard=guard)
        _emit_callee(flat, out_of_line, call, flat.graph.all_functions[name], end)
        _emit(flat, call, end, "bra", tree.Symbol(END_LABEL))
        flat.labels.setdefault(len(flat.ops), []).append(other.names["other"])
    _emit(flat, call, end, "trap")


def _emit_callee(
    flat: FlatCode,
    out_of_line: OutOfLineCalls | None,
    call: tree.Instruction,
    function: tree.Function,
    end: NameScope,
) -> None:
    results, _, arguments, *_ = call.operands
    sides = ((function.results, results), (function.params, arguments))
    if any(len(formals) != len(given.items) for formals, given in sides):
        raise flat.error(f"{function.name} has other results or arguments", call.pos)
    if out_of_line and function.name in flat.graph.out_of_line:
        out_of_line.emit_call(call, function, end)
    else:
        _inline_body(flat, call, function, end)


def _inline_body(
    flat: FlatCode, call: tree.Instruction, function: tree.Function, end: NameScope
) -> None:
    results, _, arguments, *_ = call.operands
    inner, loc, local_end = flat.scope(flat.root), flat.loc, flat.local_end
    inner.names[END_LABEL] = inner.label(END_LABEL)
    for formal, given in zip(function.params, arguments.items, strict=True):
        _bind_parameter(flat, call, formal, given, inner, end, into=True)
    for formal, given in zip(function.results, results.items, strict=True):
        _bind_parameter(flat, call, formal, given, inner, end, into=False)
    flat.walk(function.body or (), inner)
    flat.labels.setdefault(len(flat.ops), []).append(inner.names[END_LABEL])
    flat.loc = loc
    for formal, given in zip(function.results, results.items, strict=True):
        in_place = isinstance(given, tree.Symbol) and formal.space != "reg"
        if not in_place and not isinstance(given, tree.Sink):
            _copy_parameter(flat, call, formal, given, (inner.names[formal.name], end), into=False)
    flat.local_end = local_end  # its variables are no more


def _bind_parameter(
    flat: FlatCode,
    call: tree.Instruction,
    formal: tree.Variable,
    given: tree.Operand,
    inner: NameScope,
    end: NameScope,
    into: bool,
) -> None:
    """Give a parameter or result its place: the caller's variable, or one of its own."""
    found = flat.lookup(given.name, end, call.pos) if isinstance(given, tree.Symbol) else None
    if isinstance(found, AddressOperand) and formal.space != "reg":
        inner.names[formal.name] = found
        return
    if formal.space == "reg":
        inner.names[formal.name] = flat.register(formal.name, formal)
    else:
        flat.variable(inner, formal)
    if into:
        _copy_parameter(flat, call, formal, given, (inner.names[formal.name], end), into=True)


def _copy_parameter(
    flat: FlatCode,
    call: tree.Instruction,
    formal: tree.Variable,
    given: tree.Operand,
    where: tuple[object, NameScope],
    into: bool,
) -> None:
    """An argument into a parameter, or a result into what is given for it. A vector, or what has
    other elements than it, goes through a scalar register of as many bits.
    """
    meant, end = where
    bridge = flat.scope(end)
    bridge.names[FORMAL] = meant
    type_ = f"b{8 * parameter_block.size_and_align(formal)[0]}"
    source, target = (
        _place(meant, tree.Register(FORMAL), tree.Symbol(FORMAL)),
        _operand_of(flat, given, end),
    )
    if into:
        source, target = target, source
    if any(vector_components(flat, o, bridge) for o in (source, target)):
        bridge.names[WORD] = flat.new_register(WORD, type_)
        _move(flat, call, bridge, type_, tree.Register(WORD), source)
        source = tree.Register(WORD)
    _move(flat, call, bridge, type_, target, source)


def _place(meant: object, register: tree.Operand, variable: tree.Symbol) -> tree.Operand:
    """How an operand is written: a variable is the memory at its address."""
    return tree.MemoryOperand(variable) if isinstance(meant, AddressOperand) else register


def _operand_of(flat: FlatCode, o: tree.Operand, scope: NameScope) -> tree.Operand:
    if not isinstance(o, tree.Symbol):
        return o
    return _place(flat.lookup(o.name, scope, -1), o, o)


def _move(
    flat: FlatCode,
    call: tree.Instruction,
    scope: NameScope,
    type_: str,
    target: tree.Operand,
    source: tree.Operand,
) -> None:
    """One of the two may be in memory."""
    opcode = "mov"
    if isinstance(target, tree.MemoryOperand):
        opcode = "st.param"
    elif isinstance(source, tree.MemoryOperand):
        opcode = "ld.param"
    _emit(flat, call, scope, f"{opcode}.{type_}", target, source)


def _emit(
    flat: FlatCode,
    call: tree.Instruction,
    scope: NameScope,
    opcode: str,
    *operands: tree.Operand,
    guard: tree.Guard | None = None,
) -> None:
    flat.instruction(tree.Instruction(opcode, operands, guard, call.pos), scope)


def lower_ret(s: tree.Instruction, scope: NameScope) -> tree.Instruction:
    """``ret`` of a function that stands inline: a branch to its end."""
    if s.opcode in ("ret", "ret.uni") and scope.find(END_LABEL):
        return replace(s, opcode="bra", operands=(tree.Symbol(END_LABEL),))
    return s
