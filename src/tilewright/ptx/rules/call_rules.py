"""Calls: what fits a function's parameters and results, as ptxas judges it.

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
    """(operand, reason) for what is wrong with a call."""
    if len(i.operands) < 3 or not all(isinstance(i.operands[n], Vector) for n in (0, 2)):
        yield None, "a call is (results), function, (arguments)"
        return
    callee = i.operands[1]
    for index, operand in enumerate(i.operands):
        if reason := next(undeclared(operand, names), ""):
            yield index, reason
            return
    function = is_function(callee, names)
    if function is not None:
        yield from _passed(function, i.operands, names)
    elif isinstance(callee, Symbol):
        yield 1, f"{callee.name} is not a function"
    elif len(i.operands) < 4:
        yield 1, "a call through a register needs a prototype"


def _passed(
    function: Function, operands: tuple[Operand, ...], names: SymbolTable
) -> Iterator[tuple[int, str]]:
    """What is wrong with the results and arguments of a call of a known function."""
    sides = ((0, "results", function.results), (2, "arguments", function.params))
    for index, what, wanted in sides:
        given = operands[index]
        assert isinstance(given, Vector)
        if len(given.items) != len(wanted):
            counts = f"{len(wanted)} {what}, {len(given.items)} are given"
            yield index, f"{function.name} has {counts}"
            continue
        pairs = zip(given.items, wanted, strict=True)
        reasons = (_misfit(item, formal, what, names) for item, formal in pairs)
        if reason := next(filter(None, reasons), ""):
            yield index, f"{function.name}: {reason}"


def _misfit(item: Operand, formal: Variable, what: str, names: SymbolTable) -> str:
    """Why something can't be passed as a parameter, or an empty string."""
    text = print_operand(item)
    if isinstance(item, Sink):
        return "" if what == "results" else "'_' can't be an argument"
    if isinstance(item, Imm | FloatImm):
        return _unlike(item, formal)
    wanted = parameter_block.size_and_align(formal)
    given = _extent(item, names)
    if given is None:
        return f"{text} is neither a register nor a .param variable"
    if reason := _mixed(item, formal, names):
        return reason
    is_array = _is_array(item, names)
    if given[0] == wanted[0] and is_array == bool(formal.dims):
        return "" if given[1] == wanted[1] else f"{text} is aligned to {given[1]}, not {wanted[1]}"
    have = f"{'an array' if is_array else 'a value'} of {given[0]} bytes"
    want = f"{'an array' if formal.dims else 'one'} of {wanted[0]}"
    return f"{text} is {have}, {want} is wanted for {formal.name}"


def _unlike(item: Imm | FloatImm, formal: Variable) -> str:
    """Why a constant can't be passed: for a vector it must have as many bits."""
    text, want = print_operand(item), kind(formal.type)
    width = item.width if isinstance(item, FloatImm) else 64
    whole = 8 * parameter_block.size_and_align(formal)[0]
    if formal.dims:
        return f"{text} can't be an array"
    if formal.vector > 1 or (want == "packed" and isinstance(item, FloatImm)):
        have = f"{text} is a constant of {width} bits"
        return "" if width == whole else f"{have}, {whole} are wanted for {formal.name}"
    fits = want not in ("float", "packed") if isinstance(item, Imm) else want != "int"
    what = "an integer" if isinstance(item, Imm) else "a floating-point number"
    return "" if fits else f"{text} is {what}, {formal.name} is .{formal.type}"


def _mixed(item: Operand, formal: Variable, names: SymbolTable) -> str:
    """Why the type of a register or variable does not go with a parameter's. A vector on either
    side goes with all of its size.
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
        return f"{item.name} is .{found.type}, {formal.name} is .{formal.type}"
    return ""


def _extent(item: Operand, names: SymbolTable) -> tuple[int, int] | None:
    """Bytes and alignment of a register or a ``.param`` variable."""
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
