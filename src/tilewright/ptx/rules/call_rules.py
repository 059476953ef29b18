"""The rules of calls: which operands match a function's parameters and results, as in ptxas.

An argument is a register, a constant or a ``.param`` variable of the parameter's size and
alignment, an array where the parameter is one (PTX manual, ``call``).
"""

from __future__ import annotations

from collections.abc import Iterator

from .. import parameter_block
from ..syntax.printer import print_operand
from ..tree import (
    FloatImm,
    Function,
    Imm,
    Instruction,
    Operand,
    Register,
    Sink,
    Symbol,
    Variable,
    Vector,
)
from ..types import bits, kind
from .operand_rules import is_function, undeclared
from .symbol_table import RegisterType, SymbolTable

SPACES = ("param", "reg")


def call_errors(i: Instruction, names: SymbolTable) -> Iterator[tuple[int | None, str]]:
    """Yield (operand index, reason) for each error of a call."""
    if len(i.operands) < 3 or not all(isinstance(i.operands[n], Vector) for n in (0, 2)):
        yield None, "a call must have the form (results), function, (arguments)"
        return
    callee = i.operands[1]
    for index, operand in enumerate(i.operands):
        if reason := next(undeclared(operand, names), ""):
            yield index, reason
            return
    function = is_function(callee, names)
    if function is not None:
        yield from _argument_errors(function, i.operands, names)
    elif isinstance(callee, Symbol):
        yield 1, f"{callee.name} is not a function"
    elif len(i.operands) < 4:
        yield 1, "a call through a register needs a prototype"


def _argument_errors(
    function: Function, operands: tuple[Operand, ...], names: SymbolTable
) -> Iterator[tuple[int, str]]:
    """Errors of the results and arguments of a call of a known function."""
    sides = ((0, "results", function.results), (2, "arguments", function.params))
    for index, what, formals in sides:
        actual = operands[index]
        assert isinstance(actual, Vector)
        if len(actual.items) != len(formals):
            yield index, f"{function.name} has {len(formals)} {what}, got {len(actual.items)}"
            continue
        pairs = zip(actual.items, formals, strict=True)
        reasons = (_mismatch(item, formal, what, names) for item, formal in pairs)
        if reason := next(filter(None, reasons), ""):
            yield index, f"{function.name}: {reason}"


def _mismatch(item: Operand, formal: Variable, what: str, names: SymbolTable) -> str:
    """Why an operand can't be passed as a parameter, or an empty string."""
    text = print_operand(item)
    if isinstance(item, Sink):
        return "" if what == "results" else "'_' can't be an argument"
    if isinstance(item, Imm | FloatImm):
        return _constant_mismatch(item, formal)
    size, align = parameter_block.size_and_align(formal)
    actual = _size_and_align(item, names)
    if actual is None:
        return f"{text} is neither a register nor a .param variable"
    if reason := _type_mismatch(item, formal, names):
        return reason
    is_array = _is_array(item, names)
    if actual[0] == size and is_array == bool(formal.dims):
        if actual[1] == align:
            return ""
        return f"{formal.name} must be aligned to {align} bytes, got {text} aligned to {actual[1]}"
    got = f"{'an array' if is_array else 'a value'} of {actual[0]} bytes"
    expected = f"{'an array' if formal.dims else 'a value'} of {size} bytes"
    return f"{formal.name} must be {expected}, got {text}, {got}"


def _constant_mismatch(item: Imm | FloatImm, formal: Variable) -> str:
    """Why a constant can't be passed. For a vector it must have as many bits."""
    text, expected = print_operand(item), kind(formal.type)
    width = item.width if isinstance(item, FloatImm) else 64
    whole = 8 * parameter_block.size_and_align(formal)[0]
    if formal.dims:
        return f"{text} can't be an array"
    if formal.vector > 1 or (expected == "packed" and isinstance(item, FloatImm)):
        got = f"got the {width}-bit constant {text}"
        return "" if width == whole else f"{formal.name} must have {whole} bits, {got}"
    fits = expected not in ("float", "packed") if isinstance(item, Imm) else expected != "int"
    what = "an integer" if isinstance(item, Imm) else "a floating-point number"
    return "" if fits else f"{formal.name} is .{formal.type}, got {text}, {what}"


def _type_mismatch(item: Operand, formal: Variable, names: SymbolTable) -> str:
    """Why the type of a register or variable is not compatible with a parameter's. A vector on
    either side is compatible with every type of its size.
    """
    if not isinstance(item, Register | Symbol):
        return ""
    if isinstance(item, Register) and "." in item.name:
        return f"{item.name} is a component: only whole registers can be passed"
    found = names.register(item.name) if isinstance(item, Register) else None
    if isinstance(item, Symbol):
        variable = names.find(item.name)
        found = (
            RegisterType(variable.type, variable.vector) if isinstance(variable, Variable) else None
        )
    if found is None or formal.vector > 1 or found.vector > 1 or formal.dims:
        return ""
    if {kind(found.type), kind(formal.type)} == {"int", "float"}:
        return f"{formal.name} is .{formal.type}, got {item.name} of type .{found.type}"
    return ""


def _size_and_align(item: Operand, names: SymbolTable) -> tuple[int, int] | None:
    """Size and alignment in bytes of a register or a ``.param`` variable."""
    if isinstance(item, Register):
        found = names.register(item.name)
        size = bits(found.type) // 8 * found.vector if found else 0
        return (size, size) if size else None
    if not isinstance(item, Symbol) or item.offset:
        return None
    variable = names.find(item.name)
    if not isinstance(variable, Variable) or variable.space not in SPACES:
        return None
    return parameter_block.size_and_align(variable)


def _is_array(item: Operand, names: SymbolTable) -> bool:
    variable = names.find(item.name) if isinstance(item, Symbol) else None
    return isinstance(variable, Variable) and bool(variable.dims)
