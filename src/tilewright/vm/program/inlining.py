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
from .bound_operands import AddressOperand, BoundOperand
from .call_graph import results_and_arguments
from .flat_code import FlatCode, NameScope
from .vector_operands import vector_components

FORMAL, DIFFERS, SCALAR = "formal parameter", "address differs", "packed vector"
NEXT_CANDIDATE = "next candidate"


def inline(
    flat: FlatCode, out_of_line: OutOfLineCalls | None, call: tree.Instruction, scope: NameScope
) -> bool:
    """Append the body of the called function, or the call of an out-of-line function. False if the
    function has no body in the module.
    """
    callee = call.operands[1]
    end = flat.scope(scope)
    end.names[END_LABEL] = label = end.label(END_LABEL)
    if isinstance(callee, tree.Symbol):
        function = flat.graph.all_functions.get(callee.name)
        if function is None or function.body is None:
            return False
        _emit_guard_branch(flat, call, end)
        _emit_callee(flat, out_of_line, call, function, end)
    else:
        _emit_guard_branch(flat, call, end)
        _dispatch_indirect(flat, out_of_line, call, callee, end)
    flat.labels.setdefault(len(flat.ops), []).append(label)
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
    """Compare the register with the address of each candidate; trap if none is equal."""
    for name in flat.graph.indirect_targets[id(call)]:
        scope = flat.scope(end)
        scope.names[DIFFERS] = flat.new_register(DIFFERS, "pred")
        scope.names[NEXT_CANDIDATE] = label = scope.label(NEXT_CANDIDATE)
        address = tree.Imm(flat.functions[name])
        _emit(flat, call, scope, "setp.ne.u64", tree.Register(DIFFERS), callee, address)
        guard = tree.Guard(tree.Register(DIFFERS))
        _emit(flat, call, scope, "bra", tree.Symbol(NEXT_CANDIDATE), guard=guard)
        _emit_callee(flat, out_of_line, call, flat.graph.all_functions[name], end)
        _emit(flat, call, end, "bra", tree.Symbol(END_LABEL))
        flat.labels.setdefault(len(flat.ops), []).append(label)
    _emit(flat, call, end, "trap")


def _emit_callee(
    flat: FlatCode,
    out_of_line: OutOfLineCalls | None,
    call: tree.Instruction,
    function: tree.Function,
    end: NameScope,
) -> None:
    results, arguments = results_and_arguments(call)
    sides = ((function.results, results), (function.params, arguments))
    if any(len(formals) != len(operands.items) for formals, operands in sides):
        message = f"the call does not match the results and arguments of {function.name}"
        raise flat.error(message, call.pos)
    if out_of_line and function.name in flat.graph.out_of_line:
        out_of_line.emit_call(call, function, end)
    else:
        _inline_body(flat, call, function, end)


def _inline_body(
    flat: FlatCode, call: tree.Instruction, function: tree.Function, end: NameScope
) -> None:
    results, arguments = results_and_arguments(call)
    inner, loc, local_end = flat.scope(flat.root), flat.loc, flat.local_end
    inner.names[END_LABEL] = label = inner.label(END_LABEL)
    for formal, operand in zip(function.params, arguments.items, strict=True):
        _bind_parameter(flat, call, formal, operand, inner, end, into=True)
    for formal, operand in zip(function.results, results.items, strict=True):
        _bind_parameter(flat, call, formal, operand, inner, end, into=False)
    flat.walk(function.body or (), inner)
    flat.labels.setdefault(len(flat.ops), []).append(label)
    flat.loc = loc
    for formal, operand in zip(function.results, results.items, strict=True):
        in_place = isinstance(operand, tree.Symbol) and formal.space != "reg"
        if not in_place and not isinstance(operand, tree.Sink):
            bound = inner.names[formal.name]
            _copy_parameter(flat, call, formal, operand, (bound, end), into=False)
    flat.local_end = local_end  # the function's local variables are dead


def _bind_parameter(
    flat: FlatCode,
    call: tree.Instruction,
    formal: tree.Variable,
    operand: tree.Operand,
    inner: NameScope,
    end: NameScope,
    into: bool,
) -> None:
    """Bind a parameter or result to the caller's variable, or to a variable of its own."""
    bound = flat.lookup(operand.name, end, call.pos) if isinstance(operand, tree.Symbol) else None
    if isinstance(bound, AddressOperand) and formal.space != "reg":
        inner.names[formal.name] = bound
        return
    if formal.space == "reg":
        inner.names[formal.name] = flat.register(formal.name, formal)
    else:
        flat.variable(inner, formal)
    if into:
        _copy_parameter(flat, call, formal, operand, (inner.names[formal.name], end), into=True)


def _copy_parameter(
    flat: FlatCode,
    call: tree.Instruction,
    formal: tree.Variable,
    operand: tree.Operand,
    binding: tuple[BoundOperand, NameScope],
    into: bool,
) -> None:
    """Copy an argument into a parameter (``into``), or a result into the caller's operand. A vector
    register goes through a scalar register of its size: the other side may have other elements.
    ``binding``: what the formal is bound to, and the scope of the call.
    """
    bound, end = binding
    scope = flat.scope(end)
    scope.names[FORMAL] = bound
    type_ = f"b{8 * parameter_block.size_and_align(formal)[0]}"
    source = _register_or_memory(bound, tree.Register(FORMAL), tree.Symbol(FORMAL))
    target = _caller_operand(flat, operand, end)
    if into:
        source, target = target, source
    if any(vector_components(flat, o, scope) for o in (source, target)):
        scope.names[SCALAR] = flat.new_register(SCALAR, type_)
        _move(flat, call, scope, type_, tree.Register(SCALAR), source)
        source = tree.Register(SCALAR)
    _move(flat, call, scope, type_, target, source)


def _register_or_memory(
    bound: BoundOperand, register: tree.Operand, variable: tree.Symbol
) -> tree.Operand:
    """The operand for what a name is bound to: a variable is the memory at its address."""
    return tree.MemoryOperand(variable) if isinstance(bound, AddressOperand) else register


def _caller_operand(flat: FlatCode, o: tree.Operand, scope: NameScope) -> tree.Operand:
    if not isinstance(o, tree.Symbol):
        return o
    return _register_or_memory(flat.lookup(o.name, scope, -1), o, o)


def _move(
    flat: FlatCode,
    call: tree.Instruction,
    scope: NameScope,
    type_: str,
    target: tree.Operand,
    source: tree.Operand,
) -> None:
    """Append ``mov``, or ``st`` or ``ld`` where the target or the source is in memory."""
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
    """Replace ``ret`` of an inlined function by a branch to its end."""
    if s.opcode in ("ret", "ret.uni") and scope.find(END_LABEL):
        return replace(s, opcode="bra", operands=(tree.Symbol(END_LABEL),))
    return s
