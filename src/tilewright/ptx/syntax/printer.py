"""The printer: a module tree as PTX text in nvcc's format, with ``parse(print_module(m)) == m``.

One small function for each node. Integers are decimal, floats are bits (``0f…``, ``0d…``), so that
nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...errors import PtxError
from ..tree import (
    Block,
    Directive,
    File,
    FloatImm,
    Function,
    Guard,
    Imm,
    Instruction,
    Label,
    Loc,
    Masked,
    MemoryOperand,
    Module,
    Negated,
    Not,
    Operand,
    Pair,
    RegDecl,
    Register,
    Section,
    Selected,
    Sink,
    Statement,
    Symbol,
    Variable,
    Vector,
    expect_module,
)


def print_module(module: Module) -> str:
    """The text of a module. PtxError for anything else, or for a tree with an invalid node."""
    expect_module(module)
    major, minor = module.version
    head = [
        f".version {major}.{minor}",
        f".target {', '.join(module.target)}",
        f".address_size {module.address_size}",
        "",
    ]
    return "\n".join([*head, *(_text(_ITEMS, item) for item in module.items)]) + "\n"


def print_statement(statement: Statement, indent: str = "") -> str:
    """One statement without a final newline: ``add.s32 %r1, %r2, 5;``. PtxError for others."""
    return "\n".join(_statement(statement, indent))


def print_operand(operand: Operand | Masked) -> str:
    """One operand: ``[%rd1+16]``. PtxError for anything else."""
    return _text(_OPERANDS, operand)


def _text(printers: dict[type, Callable[[Any], str]], node: object) -> str:
    """The text of a node, by the printer of its type."""
    printer = printers.get(type(node))
    if printer is None:
        raise PtxError(
            f"expected a node of ptx.tree that is allowed here, got {type(node).__name__}"
        )
    return printer(node)


# --- operands ---------------------------------------------------------------------------------


def _list(operands: tuple[Any, ...]) -> str:
    return ", ".join(map(print_operand, operands))


def _symbol(s: Symbol) -> str:
    name = f"generic({s.name})" if s.generic else s.name
    return f"{name}+{s.offset}" if s.offset else name


def _address(a: MemoryOperand) -> str:
    text = print_operand(a.base) + (f"+{a.offset}" if a.offset else "")
    if a.coords is not None:
        coords = _list(a.coords)
        text += f", {coords}" if any(isinstance(c, Vector) for c in a.coords) else f", {{{coords}}}"
    return f"[{text}]"


def _float(f: FloatImm) -> str:
    return f"0f{f.bits:08X}" if f.width == 32 else f"0d{f.bits:016X}"


_OPERANDS: dict[type, Callable[[Any], str]] = {
    Register: lambda r: str(r.name),
    Imm: lambda i: f"{i.value}{'U' if i.unsigned else ''}",
    FloatImm: _float,
    Symbol: _symbol,
    Masked: lambda m: f"{m.mask:#x}({_symbol(m.symbol)})",
    MemoryOperand: _address,
    Vector: lambda v: f"{{{_list(v.items)}}}",
    Pair: lambda p: f"{print_operand(p.first)}|{print_operand(p.second)}",
    Not: lambda n: f"!{print_operand(n.operand)}",
    Selected: lambda s: f"{s.reg.name}.{s.selector}",
    Negated: lambda n: f"-{print_operand(n.operand)}",
    Sink: lambda _: "_",
}

# --- statements -------------------------------------------------------------------------------


def _statement(statement: Statement, indent: str) -> Iterator[str]:
    if isinstance(statement, Label):
        yield f"{indent[:-1]}{statement.name}:"
    elif isinstance(statement, Block):
        yield indent + "{"
        for inner in statement.body:
            yield from _statement(inner, indent + "\t")
        yield indent + "}"
    else:
        yield indent + _text(_STATEMENTS, statement)


def _instruction(i: Instruction) -> str:
    guard = "" if i.guard is None else _guard(i.guard) + " "
    operands = _call(i.operands) if i.opcode.split(".")[0] == "call" else _list(i.operands)
    return f"{guard}{i.opcode} \t{operands};" if operands else f"{guard}{i.opcode};"


def _guard(g: Guard) -> str:
    return f"@{'!' if g.negated else ''}{g.reg.name}"


def _call(operands: tuple[Operand, ...]) -> str:
    """``(results), callee, (arguments), prototype``; empty lists are left out."""
    results, callee, arguments, *prototype = operands
    parts = [_parenthesis(results), print_operand(callee), _parenthesis(arguments)]
    return ", ".join(filter(None, [*parts, *map(print_operand, prototype)]))


def _parenthesis(operand: Operand) -> str:
    assert isinstance(operand, Vector), "a call's results and arguments are Vectors"
    return f"({_list(operand.items)})" if operand.items else ""


def _reg(r: RegDecl) -> str:
    vector = f".v{r.vector} " if r.vector > 1 else ""
    count = "" if r.count is None else f"<{r.count}>"
    return f".reg {vector}.{r.type} \t{', '.join(name + count for name in r.names)};"


def _loc(loc: Loc) -> str:
    tail = f", {loc.attributes}" if loc.attributes else ""
    return f".loc\t{loc.file} {loc.line} {loc.column}{tail}"


def _directive(d: Directive) -> str:
    label = f"{d.label}: " if d.label else ""
    arguments = f" {', '.join(d.arguments)}" if d.arguments else ""
    return f"{label}.{d.name}{arguments};"


def variable(v: Variable) -> str:
    """A variable or parameter without its ``;``: ``.shared .align 16 .b8 smem[1024]``."""
    words = [f".{v.linkage}"] if v.linkage else []
    words.append(f".{v.space}")
    words += [word for word in v.qualifiers if word.startswith(".attribute")]
    words += [f".align {v.align}"] if v.align is not None else []
    words += [f".v{v.vector}"] if v.vector > 1 else []
    words.append(f".{v.type}")
    words += [word for word in v.qualifiers if not word.startswith(".attribute")]
    words.append(v.name + "".join(f"[{d or ''}]" for d in v.dims))
    return " ".join(words)


def _variable(v: Variable) -> str:
    if v.init is None:
        return variable(v) + ";"
    scalar = not v.dims and v.vector == 1 and len(v.init) == 1 and not isinstance(v.init[0], tuple)
    return f"{variable(v)} = {_value(v.init[0] if scalar else v.init)};"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return f"{{{', '.join(map(_value, value))}}}"
    return _text(_OPERANDS, value)


_STATEMENTS: dict[type, Callable[[Any], str]] = {
    Instruction: _instruction,
    RegDecl: _reg,
    Variable: _variable,
    Loc: _loc,
    Directive: _directive,
}

# --- the module's items -----------------------------------------------------------------------


def _function(f: Function) -> str:
    lines = [_head(f)]
    for d in f.directives:
        if d.name != "attribute":
            lines.append(_directive(d)[: None if d.name == "pragma" else -1])
    if f.body is None:
        return "\n".join(lines) + "\n;"
    body = [line for statement in f.body for line in _statement(statement, "\t")]
    return "\n".join([*lines, "{", *body, "}", ""])


def _head(f: Function) -> str:
    words = [f".{f.linkage}"] if f.linkage else []
    words.append(f".{f.kind}")
    words += [f".attribute{d.arguments[0]}" for d in f.directives if d.name == "attribute"]
    if f.results:
        words.append(f"({', '.join(map(variable, f.results))})")
    inputs = ",\n".join(f"\t{variable(p)}" for p in f.params)
    return f"{' '.join(words)} {f.name}(" + (f"\n{inputs}\n)" if inputs else ")")


def _file(f: File) -> str:
    return f'.file\t{f.index} "{f.name}"' + "".join(f", {number}" for number in f.attributes)


_ITEMS: dict[type, Callable[[Any], str]] = {
    Function: _function,
    Variable: _variable,
    Directive: _directive,
    File: _file,
    Section: lambda s: f".section\t{s.name}\n\t{{{s.text}}}",
}
